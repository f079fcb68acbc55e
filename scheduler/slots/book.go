package slots

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/jobs/dispatch/pigeon"
)

const (
	// silence after which an application counts as ended. It reports once a second.
	silence = 10 * time.Second
	// applicationsMost bounds who is known, as the master bounds its distributors, and applicationsEach those of one caller.
	applicationsMost = 256
	applicationsEach = applicationsMost / 8
	// wishesMost bounds the wishes of an application that wait here, for each priority; the rest waits with the application.
	wishesMost = 1 << 10
	// heldLeast is how many slots an application may report as held whatever the size of the group; beyond it, as many as the
	// group has.
	heldLeast = 1 << 12
	// claimsMost bounds the claims of an application for slots on workers that are not connected.
	claimsMost = 1 << 10
	// falseMost bounds the false claims of a report that are looked at: the rest is not read.
	falseMost = 64
	nameMost  = 256
	// proofSize is the length of a proof in bytes: 128 bits cannot be guessed.
	proofSize = 16
)

// Owner is the master whose slots are granted. It calls Granted when it gives a wish a slot of a worker, Gone when a worker with a
// granted slot is lost, and Joined when a worker has come.
type Owner interface {
	// Wish puts a wish into the queue of its priority; false if that is full.
	Wish(s *Slot) bool
	// Withdraw takes a waiting wish back.
	Withdraw(s *Slot)
	// Adopt occupies a slot of the worker of s.Node, which was granted before; false if it has no free one.
	Adopt(s *Slot) bool
	// Release frees a granted slot.
	Release(s *Slot)
	// Key returns the key with which grants of a node's slots are proven, and whether its worker is connected.
	Key(node string) (key []byte, connected bool)
	// Size returns the slots of the group.
	Size() int
}

// Slot is a wish, and once it is granted a slot of a worker.
type Slot struct {
	// Ref is the owner's.
	Ref  pigeon.ID
	Node string
	High bool

	by name
	of *application
	// granted is whether the slot was granted or adopted here; otherwise it takes a proof.
	granted bool
	proof   string
}

// name is a slot's name on both sides.
type name struct {
	instance string
	number   uint32
}

// application is one that has reported.
type application struct {
	caller, name string
	incarnation  uint32
	heard        time.Time
	// waiting are its wishes of low and high priority; the last one is the first to be withdrawn.
	waiting [2][]*Slot
	held    map[name]*Slot
	// away are slots on workers that are not connected: held ones, and claims that are checked when the worker is back.
	away map[name]*Slot
	// fresh are slots that it is not known to have seen, in the order of their numbers.
	fresh []*Slot
	// last is the number of the last grant.
	last uint32
	// wake is closed when there is a new grant.
	wake chan struct{}
}

// Book is which application wants and holds which slots.
type Book struct {
	instance     string
	owner        Owner
	applications map[string]*application
}

// NewBook returns an empty book. The instance has to be new for each Book of a group.
func NewBook(instance string, o Owner) *Book {
	return &Book{instance: instance, owner: o, applications: make(map[string]*application)}
}

// Report records the state of a caller's application. The owner then grants slots, which Grants returns.
func (b *Book) Report(now time.Time, caller string, r *headroomv1.SlotReport) error {
	if err := b.check(r); err != nil {
		return err
	}
	a := b.applications[r.GetApplication()]
	if a != nil && (r.GetBye() || a.incarnation != r.GetIncarnation()) {
		b.forget(a)
		a = nil
	}
	if r.GetBye() {
		return nil
	}
	if a == nil {
		if err := b.room(caller); err != nil {
			return err
		}
		a = &application{
			caller: caller, name: r.GetApplication(), incarnation: r.GetIncarnation(), held: make(map[name]*Slot), away: make(map[name]*Slot), wake: make(chan struct{}),
		}
		if r.GetInstance() == b.instance {
			a.last = r.GetSeen() // it was silent for too long: what it sees next are later grants
		}
		b.applications[a.name] = a
	}
	a.heard = now
	b.seen(a, r)
	b.hold(a, r.GetHeld())
	unseen := [2]int{}
	for _, s := range a.fresh {
		unseen[pigeon.Kind(s.High)]++
	}
	b.want(a, false, int(r.GetWantLow())-unseen[0])
	b.want(a, true, int(r.GetWantHigh())-unseen[1])
	return nil
}

// room refuses one more application of a caller where there are too many. Without TLS nobody has a name.
func (b *Book) room(caller string) error {
	most, whose, own := applicationsMost, "this group", len(b.applications)
	if caller != "" && own < applicationsMost {
		most, whose, own = applicationsEach, caller, 0
		for _, a := range b.applications {
			if a.caller == caller {
				own++
			}
		}
	}
	if own < most {
		return nil
	}
	return rpc.Refuse(connect.CodeResourceExhausted, "full", cli.ExitRefused,
		fmt.Sprintf("%s already has the maximum of %d applications here", whose, most), "wait until one of them ends")
}

func (b *Book) check(r *headroomv1.SlotReport) error {
	most := max(heldLeast, b.owner.Size())
	bad := func(format string, args ...any) error {
		return rpc.Refuse(connect.CodeInvalidArgument, "usage", cli.ExitUsage, fmt.Sprintf(format, args...), "report the complete state of the application")
	}
	switch {
	case r.GetApplication() == "" || len(r.GetApplication()) > nameMost:
		return bad("the name of an application must have 1 to %d bytes, not %d", nameMost, len(r.GetApplication()))
	case len(r.GetHeld()) > most:
		return bad("%s reports %d slots as held; the maximum here is %d", r.GetApplication(), len(r.GetHeld()), most)
	}
	return nil
}

// seen takes out of fresh what the application has seen.
func (b *Book) seen(a *application, r *headroomv1.SlotReport) {
	if r.GetInstance() != b.instance {
		return // it has seen nothing of this book yet
	}
	a.fresh = slices.DeleteFunc(a.fresh, func(s *Slot) bool { return s.by.number <= r.GetSeen() })
}

// hold follows what the application holds: seen slots that it does not name are free, and those of another master are adopted.
func (b *Book) hold(a *application, held []*headroomv1.Slot) {
	named, before, forged := make(map[name]bool, len(held)+len(a.fresh)), a.away, 0
	a.away = make(map[name]*Slot)
	for _, h := range held {
		n := name{h.GetInstance(), h.GetNumber()}
		switch s := before[n]; {
		case named[n] || a.held[n] != nil:
		case s != nil:
			b.adopt(s)
		case n.instance == b.instance || forged == falseMost: // it has returned that slot, or was never granted it
		case !b.adopt(&Slot{Node: h.GetNode(), High: h.GetHigh(), by: n, of: a, proof: h.GetProof()}):
			forged++
		}
		named[n] = true
	}
	for _, s := range a.fresh {
		named[s.by] = true
	}
	for n, s := range a.held {
		if !named[n] {
			delete(a.held, n)
			b.owner.Release(s)
		}
	}
}

// adopt occupies a slot that its application holds, now or when the worker of its node connects. It returns false for a claim that
// is false, or of a slot that is in use.
func (b *Book) adopt(s *Slot) bool {
	a := s.of
	key, connected := b.owner.Key(s.Node)
	switch {
	case !connected:
		if s.granted || len(a.away) < claimsMost && max(len(s.Node), len(s.by.instance), len(s.proof)) <= nameMost {
			a.away[s.by] = s
		}
		return true
	case !s.granted && (len(key) == 0 || !hmac.Equal([]byte(s.proof), []byte(prove(key, s)))):
		return false
	case b.owner.Adopt(s):
		s.granted = true
		a.held[s.by] = s
		return true
	case s.granted: // once it has a free slot again
		a.away[s.by] = s
	}
	return s.granted
}

// prove returns the proof of a grant: a message authentication code with a key that only the node's worker and the masters of its
// group have. It is empty for a worker without a key, whose slots only this book recognises.
func prove(key []byte, s *Slot) string {
	if len(key) == 0 {
		return ""
	}
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%q %d %q %d %q %t", s.of.name, s.of.incarnation, s.by.instance, s.by.number, s.Node, s.High) // never fails
	return hex.EncodeToString(mac.Sum(nil)[:proofSize])
}

// Joined is called by the owner before it decides: the worker of a node is connected.
func (b *Book) Joined(node string) {
	for _, a := range b.applications {
		for n, s := range maps.Clone(a.away) { // adopt may put it back
			if s.Node == node {
				delete(a.away, n)
				b.adopt(s)
			}
		}
	}
}

// want makes the number of an application's wishes what it should be.
func (b *Book) want(a *application, high bool, n int) {
	k := pigeon.Kind(high)
	n = max(0, min(n, wishesMost))
	for len(a.waiting[k]) < n {
		s := &Slot{High: high, of: a}
		if !b.owner.Wish(s) {
			return // the queue is full: the next report asks again
		}
		a.waiting[k] = append(a.waiting[k], s)
	}
	for last := len(a.waiting[k]) - 1; last >= n; last-- {
		s := a.waiting[k][last]
		a.waiting[k] = a.waiting[k][:last]
		b.owner.Withdraw(s)
	}
}

// Granted is called by the owner: a request has a slot of the worker on a node.
func (b *Book) Granted(s *Slot, node string) {
	a := s.of
	k := pigeon.Kind(s.High)
	a.waiting[k] = without(a.waiting[k], s) // it is among the first: queues are in order
	a.last++
	s.Node, s.by, s.granted = node, name{b.instance, a.last}, true
	key, _ := b.owner.Key(node)
	s.proof = prove(key, s)
	a.held[s.by] = s
	a.fresh = append(a.fresh, s)
	close(a.wake)
	a.wake = make(chan struct{})
}

// Gone is called by the owner: the worker of a granted slot is lost. When it comes back and the application still holds the slot, that
// is adopted.
func (b *Book) Gone(s *Slot) {
	delete(s.of.held, s.by)
	s.of.away[s.by] = s
	s.of.fresh = without(s.of.fresh, s)
}

// without takes a slot out of a list.
func without(all []*Slot, s *Slot) []*Slot {
	if i := slices.Index(all, s); i >= 0 {
		return slices.Delete(all, i, i+1)
	}
	return all
}

// Tick forgets applications that are silent.
func (b *Book) Tick(now time.Time) {
	for _, a := range b.applications {
		if now.Sub(a.heard) > silence {
			b.forget(a)
		}
	}
}

func (b *Book) forget(a *application) {
	for k := range a.waiting {
		for _, s := range a.waiting[k] {
			b.owner.Withdraw(s)
		}
	}
	for _, s := range a.held {
		b.owner.Release(s)
	}
	delete(b.applications, a.name)
	close(a.wake)
}

// Grants returns the slots that an application has not seen: those after the number that it names, where it names this book. The
// channel is closed when there are more; it is nil for an application that has not reported.
func (b *Book) Grants(application, instance string, seen uint32) ([]*headroomv1.Slot, <-chan struct{}) {
	a := b.applications[application]
	if a == nil {
		return nil, nil
	}
	var granted []*headroomv1.Slot
	for _, s := range a.fresh {
		if instance != b.instance || s.by.number > seen {
			granted = append(granted, &headroomv1.Slot{Instance: s.by.instance, Number: s.by.number, Node: s.Node, High: s.High, Proof: s.proof})
		}
	}
	return granted, a.wake
}
