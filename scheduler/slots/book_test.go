// Claims: each slot is held by one application at a time, which was granted it; what it wants is granted by priority and no more than that; grants
// that were not seen are told again, seen ones that are not held are free; another master's slots are adopted; a silent, ended or
// restarted application holds nothing; a lost worker's slots are adopted when it is back; nothing is without bound.
package slots

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

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
	used  map[string]int
	book  *Book
	now   time.Time
}

func newPlant(t *testing.T, instance string, reserved int, nodes ...string) *plant {
	t.Helper()
	p := &plant{t: t, core: pigeon.NewMaster[*Slot](pigeon.MasterOptions{}), nodes: map[string]pigeon.Worker{}, names: map[pigeon.Worker]string{}, used: map[string]int{}, now: time.Unix(0, 0)}
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
func (p *plant) Size() int              { return 2 * len(p.nodes) }

// Key is the same for all masters, as that of a worker is.
func (p *plant) Key(node string) ([]byte, bool) {
	_, ok := p.nodes[node]
	return []byte("key of " + node), ok
}

func (p *plant) Release(s *Slot) {
	p.used[s.Node]--
	if _, ok := p.core.End(s.Ref); !ok {
		p.t.Errorf("slot on %s is given back twice", s.Node)
	}
}

func (p *plant) Adopt(s *Slot) bool {
	if p.used[s.Node] == 2 {
		return false
	}
	p.used[s.Node]++
	s.Ref = p.core.Adopt(s, s.High, p.nodes[s.Node])
	return true
}

func (p *plant) decide() {
	for s, more := p.core.Next(); more; s, more = p.core.Next() {
		p.used[p.names[s.Worker]]++
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
	testkit.Check(p.t, p.book.Report(p.now, "", d.report))
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
	testkit.Check(t, p.book.Report(p.now, "", d.report))
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

// An application holds what it was granted and nothing else, whatever it claims; what it claims in vain fills no memory.
func TestForgedSlots(t *testing.T) {
	first := newPlant(t, "m1", 0, "n1", "n2")
	owner := newDriver("owner")
	owner.report.WantLow = 9
	owner.tells(first)
	granted := owner.report.Held
	changed := func(f func(*headroomv1.Slot)) (all []*headroomv1.Slot) {
		for _, s := range granted {
			c := proto.CloneOf(s)
			f(c)
			all = append(all, c)
		}
		return all
	}
	invented := func(node, instance string, n int) (all []*headroomv1.Slot) {
		for i := range n {
			all = append(all, &headroomv1.Slot{Instance: instance, Number: uint32(i), Node: node, Proof: granted[0].GetProof()})
		}
		return all
	}
	for name, c := range map[string]struct {
		who  string
		held []*headroomv1.Slot
	}{
		"invented":                 {"a", invented("n1", "forged", 8)},
		"of the master itself":     {"a", invented("n1", "m2", 8)},
		"of a node that is absent": {"a", invented("n9", "forged", heldLeast)},
		"another application's":    {"a", granted},
		"without proof":            {"owner", changed(func(s *headroomv1.Slot) { s.Proof = "" })},
		"of another number":        {"owner", changed(func(s *headroomv1.Slot) { s.Number += 4 })},
		"of another node":          {"owner", changed(func(s *headroomv1.Slot) { s.Node = map[string]string{"n1": "n2", "n2": "n1"}[s.GetNode()] })},
		"of another priority":      {"owner", changed(func(s *headroomv1.Slot) { s.High = true })},
	} {
		t.Run(name, func(t *testing.T) {
			next := newPlant(t, "m2", 0, "n1", "n2")
			d := newDriver(c.who)
			for range 3 {
				d.report.Held = c.held
				d.tells(next)
			}
			next.running(0)
			next.join("n9", 0)
			next.running(0)
			if n := len(next.book.applications[c.who].away); n > claimsMost {
				t.Errorf("%d claims are kept", n)
			}
			other := newDriver("other")
			other.report.WantHigh = 6
			if n := other.tells(next); n != 6 {
				t.Errorf("another application is granted %d of 6 slots", n)
			}
		})
	}
	next := newPlant(t, "m2", 0, "n1", "n2")
	owner.report.WantLow = 0
	owner.tells(next)
	next.running(4)
	owner.report.Held = granted[1:]
	owner.tells(next)
	owner.report.Held = granted // the one that it has returned too
	other := newDriver("other")
	other.report.WantHigh = 4
	if n := other.tells(next); n != 1 {
		t.Errorf("%d granted of one that was returned", n)
	}
	owner.tells(next)
	next.running(4)
}

// One caller takes a part of the places of applications, and reports no more slots than the group has.
func TestOneCallersPart(t *testing.T) {
	p := newPlant(t, "m1", 0, "n1")
	for i := range applicationsEach {
		testkit.Check(t, p.book.Report(p.now, "submitter/ann", newDriver(fmt.Sprint("ann", i)).report))
	}
	if err := p.book.Report(p.now, "submitter/ann", newDriver("one more").report); err == nil || !strings.Contains(err.Error(), "submitter/ann already has the maximum of 32 applications") {
		t.Errorf("one more: %v", err)
	}
	testkit.Check(t, p.book.Report(p.now, "submitter/bob", newDriver("bob").report))
	many := newDriver("many")
	many.report.Held = make([]*headroomv1.Slot, heldLeast+1)
	if err := p.book.Report(p.now, "submitter/bob", many.report); err == nil || !strings.Contains(err.Error(), "reports 4097 slots as held") {
		t.Errorf("too many slots: %v", err)
	}
}

// An application that was silent for too long is granted slots again when it is back.
func TestBackFromSilence(t *testing.T) {
	p := newPlant(t, "m1", 0, "n1")
	d := newDriver("a")
	d.report.WantLow = 2
	d.tells(p)
	p.now = p.now.Add(silence + 1)
	p.book.Tick(p.now)
	p.running(0)
	d.report.Held, d.report.WantLow = nil, 1
	if n := d.tells(p); n != 1 {
		t.Errorf("%d granted", n)
	}
	p.running(1)
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
	p.used["n1"] = 0
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
		"bye":     func(p *plant, d *driver) { d.report.Bye = true; testkit.Check(p.t, p.book.Report(p.now, "", d.report)) },
		"restart": func(p *plant, d *driver) {
			testkit.Check(p.t, p.book.Report(p.now, "", &headroomv1.SlotReport{Application: d.report.GetApplication(), Incarnation: 2}))
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
		testkit.Check(t, p.book.Report(p.now, "", newDriver(fmt.Sprint(i)).report))
	}
	for _, bad := range []*headroomv1.SlotReport{newDriver("one too many").report, {}, {Application: string(make([]byte, nameMost+1))}} {
		if p.book.Report(p.now, "", bad) == nil {
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
				testkit.Check(t, p.book.Report(p.now, "", d.report))
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
