// Claims: whatever numbers a view holds, a decision is an error of the input or actions that fit the view, and the
// view stays as it was.
package speculation

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"
	"time"
)

// reader takes numbers from a text; behind its end there are zeros.
type reader []byte

func (r *reader) next() uint64 {
	var b [8]byte
	*r = (*r)[copy(b[:], *r):]
	return binary.LittleEndian.Uint64(b[:])
}

func (r *reader) float() float64 { return math.Float64frombits(r.next()) }

// view is what the text says, sensible or not.
func (r *reader) view() View {
	flags := r.next()
	v := View{
		Slots: int(flags >> 8 % 8), Width: int(flags >> 16 % 8), Greedy: flags&2 != 0, Restarts: flags&4 != 0, Typical: time.Duration(r.next()),
		Bound: Bound{ByDeadline: flags&1 != 0, Left: time.Duration(r.next()), Error: r.float(), Ceil: flags&8 != 0},
	}
	if flags&16 != 0 {
		for range v.Slots {
			v.Speeds = append(v.Speeds, r.float())
		}
	}
	for id := 0; len(*r) > 0 && id < 64; id++ {
		kind := r.next()
		t := Task{ID: id, State: State(kind % 4), Copies: int(kind >> 8 % 4), New: time.Duration(r.next()), Remaining: time.Duration(r.next())}
		if kind&16 != 0 {
			t.Speed, t.Measured = r.float(), r.float()
		}
		v.Tasks = append(v.Tasks, t)
	}
	return v
}

// words are a text of numbers.
func words(all ...uint64) (out []byte) {
	for _, w := range all {
		out = binary.LittleEndian.AppendUint64(out, w)
	}
	return out
}

func FuzzDecide(f *testing.F) {
	s, half := uint64(second), math.Float64bits(0.5)
	for p := range Policies() {
		f.Add(uint8(p), words(1|1<<8, 0, 6*s, 0, 1|1<<8, 2*s, 5*s, 0, s, 0, 0, 3*s, 0, 2, 0, 0))
		f.Add(uint8(p), words(1|16|2<<8, 0, 6*s, 0, half, math.Float64bits(1), 1|16|1<<8, 2*s, 5*s, half, half, 0, s, 0, 0, 4*s, 0))
		f.Add(uint8(p), words(1<<8, 0, 0, half, 1|1<<8, 2*s, 3*s, 0, s, 0, 0, math.MaxUint64, 0))
	}
	f.Fuzz(func(t *testing.T, policy uint8, text []byte) {
		r := reader(text)
		v := r.view()
		before := slices.Clone(v.Tasks)
		d, err := Decide(Policies()[int(policy)%len(Policies())], v, nil)
		if err != nil {
			if !errors.Is(err, ErrInput) && !errors.Is(err, ErrTooLarge) {
				t.Fatalf("%v", err)
			}
			return
		}
		// What is not looked at, of a done task, may be no number.
		same := func(a, b Task) bool { return a == b || a.State == Done && b.State == Done && a.ID == b.ID }
		if !slices.EqualFunc(before, v.Tasks, same) {
			t.Fatalf("tasks %v, then %v", before, v.Tasks)
		}
		fits(t, v, d)
	})
}

// fits checks the actions of a decision.
func fits(t *testing.T, v View, d Decision) {
	t.Helper()
	if len(d.Actions) > v.Slots {
		t.Fatalf("%d actions for %d slots", len(d.Actions), v.Slots)
	}
	launched := map[int]bool{}
	for _, a := range d.Actions {
		switch {
		case a.Slot < 0 || a.Slot >= v.Slots:
			t.Fatalf("%v: %d slots", a, v.Slots)
		case a.Kind == Wait:
		case a.Task < 0 || a.Task >= len(v.Tasks) || v.Tasks[a.Task].State == Done:
			t.Fatalf("%v of %v", a, v.Tasks)
		case a.Kind == Launch:
			if v.Tasks[a.Task].State != Waiting || launched[a.Task] {
				t.Fatalf("%v: launched already", a)
			}
			launched[a.Task] = true
		}
	}
}
