// Claims: each slot is held by one application at a time; what it wants is granted by priority and no more than that; grants
// that were not seen are told again, seen ones that are not held are free; another master's slots are adopted; a silent, ended or
// restarted application holds nothing; a lost worker's slots are adopted when it is back; nothing is without bound.
package slots

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
	"headroom/jobs/dispatch/pigeon"
)

// plant is a group without workers' processes.
type plant struct {
	t     *testing.T
	core  *pigeon.Master[*Slot]
	nodes map[string]pigeon.Worker
	names map[pigeon.Worker]string
	book  *Book
	now   time.Time
}

func newPlant(t *testing.T, instance string, reserved int, nodes ...string) *plant {
	t.Helper()
	p := &plant{t: t, core: pigeon.NewMaster[*Slot](pigeon.MasterOptions{}), nodes: map[string]pigeon.Worker{}, names: map[pigeon.Worker]string{}, now: time.Unix(0, 0)}
	p.book = NewBook(instance, p)
	for _, n := range nodes {
		p.join(n, reserved)
	}
	return p
}

func (p *plant) join(node string, reserved int) {
	w := p.core.Join(2, reserved)
	p.nodes[node], p.names[w] = w, node
	p.book.Joined(node)
}

func (p *plant) Wish(s *Slot) (ok bool) { s.Ref, ok = p.core.Place(s, s.High); return ok }
func (p *plant) Withdraw(s *Slot)       { p.core.Cancel(s.Ref) }
func (p *plant) Release(s *Slot) {
	if _, ok := p.core.End(s.Ref); !ok {
		p.t.Errorf("slot on %s is given back twice", s.Node)
	}
}

func (p *plant) Adopt(s *Slot) bool {
	w, ok := p.nodes[s.Node]
	if ok {
		s.Ref = p.core.Adopt(s, s.High, w)
	}
	return ok
}

func (p *plant) decide() {
	for s, more := p.core.Next(); more; s, more = p.core.Next() {
		p.book.Granted(s.Task, p.names[s.Worker])
	}
}

// driver is an application that follows the protocol.
type driver struct {
	report *headroomv1.SlotReport
}

func newDriver(name string) *driver {
	return &driver{&headroomv1.SlotReport{Application: name, Incarnation: 1}}
}

// tells reports, and takes what is granted.
func (d *driver) tells(p *plant) (granted int) {
	p.t.Helper()
	testkit.Check(p.t, p.book.Report(p.now, d.report))
	p.decide()
	return d.sees(p)
}

func (d *driver) sees(p *plant) (granted int) {
	fresh, _ := p.book.Grants(d.report.GetApplication(), d.report.GetInstance(), d.report.GetSeen())
	d.report.Instance = p.book.instance
	for _, s := range fresh {
		if s.GetHigh() {
			d.report.WantHigh--
		} else {
			d.report.WantLow--
		}
		d.report.Seen = s.GetNumber()
		d.report.Held = append(d.report.Held, s)
	}
	return len(fresh)
}

func (d *driver) gives(n int) { d.report.Held = d.report.Held[n:] }

func (p *plant) running(want int) {
	p.t.Helper()
	if s := p.core.State(); s.RunningHigh+s.RunningLow != want {
		p.t.Errorf("%d slots are taken, want %d: %+v", s.RunningHigh+s.RunningLow, want, s)
	}
}

func TestHighOvertakes(t *testing.T) {
	p := newPlant(t, "m1", 0, "n1")
	low, high := newDriver("low"), newDriver("high")
	low.report.WantLow, high.report.WantHigh = 5, 1
	if n := low.tells(p); n != 2 {
		t.Fatalf("%d slots granted", n)
	}
	if n := high.tells(p); n != 0 {
		t.Fatalf("%d slots granted of none that is free", n)
	}
	low.gives(1)
	if n := low.tells(p); n != 0 {
		t.Errorf("%d slots of low priority granted while high priority waits", n)
	}
	if n := high.sees(p); n != 1 {
		t.Errorf("%d slots of high priority granted", n)
	}
	p.running(2)
}

func TestReservedSlotsAreForHighPriority(t *testing.T) {
	p := newPlant(t, "m1", 1, "n1")
	low, high := newDriver("low"), newDriver("high")
	low.report.WantLow, high.report.WantHigh = 5, 5
	if n, m := low.tells(p), high.tells(p); n != 1 || m != 1 {
		t.Errorf("%d low, %d high", n, m)
	}
}

func TestUnseenGrantsAreToldAgain(t *testing.T) {
	p := newPlant(t, "m1", 0, "n1")
	d := newDriver("a")
	d.report.WantLow = 3
	testkit.Check(t, p.book.Report(p.now, d.report))
	p.decide() // and the answer is lost
	if n := d.tells(p); n != 2 || d.report.GetWantLow() != 1 {
		t.Errorf("%d told again, %d still wanted", n, d.report.GetWantLow())
	}
	if n := d.tells(p); n != 0 {
		t.Errorf("%d told twice", n)
	}
	p.running(2)
}

func TestAnotherMasterAdopts(t *testing.T) {
	first, next := newPlant(t, "m1", 0, "n1", "n2"), newPlant(t, "m2", 0, "n1")
	d := newDriver("a")
	d.report.WantLow = 9
	if n := d.tells(first); n != 4 {
		t.Fatalf("%d granted", n)
	}
	d.report.WantLow = 0
	d.tells(next)
	next.running(2) // n2 is not there yet
	next.join("n2", 0)
	next.running(4)
	d.gives(4)
	d.tells(next)
	next.running(0)
}

func TestLostWorker(t *testing.T) {
	p := newPlant(t, "m1", 0, "n1")
	d := newDriver("a")
	d.report.WantLow = 4
	d.tells(p)
	for _, s := range p.core.Leave(p.nodes["n1"], nil) {
		p.book.Gone(s)
	}
	delete(p.nodes, "n1")
	d.tells(p)
	p.running(0)
	p.join("n1", 0)
	p.decide()
	p.running(2)
	if n := d.tells(p); n != 0 {
		t.Errorf("%d slots granted beside those that it holds", n)
	}
}

func TestEndsHoldNothing(t *testing.T) {
	for name, end := range map[string]func(*plant, *driver){
		"silence": func(p *plant, _ *driver) { p.now = p.now.Add(silence + 1); p.book.Tick(p.now) },
		"bye":     func(p *plant, d *driver) { d.report.Bye = true; testkit.Check(p.t, p.book.Report(p.now, d.report)) },
		"restart": func(p *plant, d *driver) {
			testkit.Check(p.t, p.book.Report(p.now, &headroomv1.SlotReport{Application: d.report.GetApplication(), Incarnation: 2}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlant(t, "m1", 0, "n1")
			d := newDriver("a")
			d.report.WantLow, d.report.WantHigh = 3, 3
			d.tells(p)
			p.running(2)
			end(p, d)
			p.running(0)
			if s := p.core.State(); s.WaitingHigh+s.WaitingLow != 0 {
				t.Errorf("%+v waits", s)
			}
		})
	}
}

func TestBounds(t *testing.T) {
	p := newPlant(t, "m1", 0, "n1")
	d := newDriver("a")
	d.report.WantLow = 1 << 30
	d.tells(p)
	if s := p.core.State(); s.WaitingLow > wishesMost {
		t.Errorf("%d wishes wait", s.WaitingLow)
	}
	for i := range applicationsMost - 1 {
		testkit.Check(t, p.book.Report(p.now, newDriver(fmt.Sprint(i)).report))
	}
	for _, bad := range []*headroomv1.SlotReport{newDriver("one too many").report, {}, {Application: string(make([]byte, nameMost+1))}} {
		if p.book.Report(p.now, bad) == nil {
			t.Errorf("%.20q is taken", bad.GetApplication())
		}
	}
}

// TestWorld: whatever is lost on the way, the master and the applications agree in the end, and never is a slot held twice.
func TestWorld(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		p := newPlant(t, "m1", 1, "n1", "n2", "n3")
		drivers := []*driver{newDriver("a"), newDriver("b"), newDriver("c")}
		for range 300 {
			d := drivers[r.IntN(len(drivers))]
			switch r.IntN(5) {
			case 0:
				d.report.WantHigh += uint32(r.IntN(3))
			case 1:
				d.report.WantLow += uint32(r.IntN(6))
			case 2:
				if n := len(d.report.Held); n > 0 {
					at := r.IntN(n)
					d.report.Held = slices.Delete(slices.Clone(d.report.Held), at, at+1)
				}
			case 3: // the answer is lost
				testkit.Check(t, p.book.Report(p.now, d.report))
				p.decide()
			default:
				d.tells(p)
			}
			if s := p.core.State(); s.RunningHigh+s.RunningLow > 6 || s.RunningLow > 3 {
				t.Fatalf("seed %d: %+v", seed, s)
			}
		}
		held := 0
		for range 2 {
			held = 0
			for _, d := range drivers {
				d.report.WantHigh, d.report.WantLow = 0, 0
				d.tells(p)
				held += len(d.report.Held)
			}
		}
		p.running(held)
	}
}
