package gossip

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"headroom/gossip/brake"
)

// Kinds of message beside memberlist's own, by their first byte.
const (
	// kindBrake is a brake that is passed on.
	kindBrake = 'B'
	// kindTold is a brake from who set it: the name of that member behind its
	// length in one byte, then the brake. It is answered.
	kindTold = 'T'
	// kindHeard answers kindTold: the name of who answers, then the very brake.
	kindHeard = 'H'
)

const (
	// passOn is to how many others a member passes a brake on the moment it hears
	// it, beside the gossip's own rounds: with 6 all but one in 400 hear it so, and
	// the rounds find the rest.
	passOn = 6
	// tellAgain are the pauses before those that have not answered are told again:
	// a packet is lost now and then, and twice in a row hardly ever.
	tellAgainFirst  = 250 * time.Millisecond
	tellAgainSecond = 600 * time.Millisecond
	// streams bounds the connections that are opened at once to members that
	// packets do not reach.
	streams = 16
	// streamsMost bounds the members that are tried by connection at all: more are
	// silent only when they are cut off.
	streamsMost = 256
	// retransmitMult is how often a member repeats a brake in its rounds, times the
	// logarithm of the number of members.
	retransmitMult = 4
)

// Drops counts brakes that were heard and not believed.
type Drops struct {
	// Old: of a generation that is known, or of one before.
	Old uint64
	// Forged: signed with a key that this member does not believe.
	Forged uint64
	// Malformed: not understood.
	Malformed uint64
}

// Told is how far a brake that this member has set has come.
type Told struct {
	// Generation of it; 0 when this member has set none.
	Generation uint64
	// Heard are the members that have answered.
	Heard int
	// Silent are those that have not, this member aside, by role, name and address.
	Silent []Member
	// Contested: another brake of the same or a higher generation was heard since.
	Contested bool
}

// broadcaster hears brakes and brings them to others. Its methods never wait for the
// network.
type broadcaster struct {
	keys  brake.Keys
	log   *slog.Logger
	self  string // this member's name in memberlist
	heard chan struct{}
	again chan struct{} // a brake was set here: tell those again that do not answer
	queue memberlist.TransmitLimitedQueue

	mu      sync.Mutex
	list    *memberlist.Memberlist // nil until it runs
	newest  brake.Signed
	drops   Drops
	told    uint64
	waiting map[string]bool // members that were told and have not answered, by memberlist's name
	answers int
	contest bool
}

func newBroadcaster(cfg Config, members func() int) *broadcaster {
	c := &broadcaster{keys: cfg.BrakeKeys, log: cfg.Logger, newest: cfg.Brake, heard: make(chan struct{}, 1), again: make(chan struct{}, 1)}
	c.queue.NumNodes, c.queue.RetransmitMult = members, retransmitMult
	return c
}

// attach gives the broadcaster the others.
func (c *broadcaster) attach(l *memberlist.Memberlist) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = l
}

// known is the newest brake heard; generation 0 for none.
func (c *broadcaster) known() brake.Signed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest
}

// message takes in what another member sent.
func (c *broadcaster) message(b []byte) {
	if len(b) == 0 {
		c.drop(brake.ErrMalformed)
		return
	}
	switch b[0] {
	case kindBrake:
		c.hear(b[1:])
	case kindTold:
		origin, raw, ok := cutText(b[1:])
		if !ok {
			c.drop(brake.ErrMalformed)
			return
		}
		c.hear(raw)
		c.answer(origin)
	case kindHeard:
		who, raw, ok := cutText(b[1:])
		if !ok {
			c.drop(brake.ErrMalformed)
			return
		}
		c.answered(who, raw)
	default:
		c.drop(brake.ErrMalformed)
	}
}

// merge takes in what another member knows.
func (c *broadcaster) merge(state []byte) {
	if len(state) > 0 {
		c.message(state)
	}
}

// state is what this member tells another that it compares everything with.
func (c *broadcaster) state() []byte {
	if s := c.known(); s.Generation > 0 {
		return append([]byte{kindBrake}, s.Bytes()...)
	}
	return nil
}

// hear judges a brake that was heard. The highest generation wins; a signature is
// only looked at where it could change something.
func (c *broadcaster) hear(raw []byte) {
	c.mu.Lock()
	newest, mine := c.newest, c.told > 0 && c.told == c.newest.Generation
	c.mu.Unlock()
	generation, ok := brake.Generation(raw)
	switch {
	case !c.keys.Known():
		return // this member takes no part
	case newest.Is(raw):
		return
	case ok && generation < newest.Generation, ok && generation == newest.Generation && !mine:
		c.drop(errOld)
		return
	}
	s, err := c.keys.Open(raw)
	switch {
	case err != nil:
		c.drop(err)
	case s.Generation == newest.Generation:
		c.drop(errOld)
		c.contested()
	default:
		c.take(s)
	}
}

// take makes a believed brake the newest one, unless a newer one came meanwhile,
// and passes it on.
func (c *broadcaster) take(s brake.Signed) {
	c.mu.Lock()
	if s.Generation <= c.newest.Generation {
		c.mu.Unlock()
		return
	}
	c.contest = c.contest || c.told > 0 && c.told == c.newest.Generation
	c.newest = s
	list := c.list
	c.mu.Unlock()
	c.pass(s, list)
}

// pass gives a brake to a few others now, and to more in the gossip's rounds.
func (c *broadcaster) pass(s brake.Signed, list *memberlist.Memberlist) {
	msg := append([]byte{kindBrake}, s.Bytes()...)
	c.queue.QueueBroadcast(cry(msg))
	poke(c.heard)
	if list == nil {
		return
	}
	others := c.others(list)
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	for _, n := range others[:min(passOn, len(others))] {
		_ = list.SendBestEffort(n, msg)
	}
}

func (c *broadcaster) others(list *memberlist.Memberlist) []*memberlist.Node {
	return slices.DeleteFunc(list.Members(), func(n *memberlist.Node) bool { return n.Name == c.self })
}

// cry is one brake in the queue of what is passed on; a newer one replaces it.
type cry []byte

// Invalidates says that a newer brake replaces every older one.
func (c cry) Invalidates(memberlist.Broadcast) bool { return true }

// Message is what travels.
func (c cry) Message() []byte { return c }

// Finished is told when the queue is done with it.
func (c cry) Finished() {}

// answer tells who set a brake what this member knows now: that very brake, or
// one that outranks it.
func (c *broadcaster) answer(origin string) {
	c.mu.Lock()
	list, newest := c.list, c.newest
	c.mu.Unlock()
	if list == nil || newest.Generation == 0 {
		return
	}
	for _, n := range list.Members() {
		if n.Name == origin && n.Name != c.self {
			_ = list.SendBestEffort(n, withName(kindHeard, c.self, newest))
			return
		}
	}
}

func withName(kind byte, name string, s brake.Signed) []byte {
	return append(appendText([]byte{kind}, name), s.Bytes()...)
}

// answered counts an answer to the brake that was set here. An answer with
// another brake is heard like any other.
func (c *broadcaster) answered(who string, raw []byte) {
	c.mu.Lock()
	same := c.told > 0 && c.told == c.newest.Generation && c.newest.Is(raw)
	if same && c.waiting[who] {
		delete(c.waiting, who)
		c.answers++
	}
	c.mu.Unlock()
	if !same {
		c.hear(raw)
	}
}

// contested notes that somebody else has used the generation that was set here.
func (c *broadcaster) contested() {
	c.mu.Lock()
	c.contest = true
	c.mu.Unlock()
	poke(c.heard)
}

// begin makes a brake that was set here the newest one and says whom to tell;
// nobody when a newer one is known.
func (c *broadcaster) begin(s brake.Signed) []*memberlist.Node {
	c.mu.Lock()
	list := c.list
	c.mu.Unlock()
	var all []*memberlist.Node
	if list != nil {
		all = c.others(list)
	}
	c.mu.Lock()
	c.told, c.answers, c.contest, c.waiting = s.Generation, 0, c.newest.Generation >= s.Generation, map[string]bool{}
	if c.contest {
		c.mu.Unlock()
		return nil
	}
	c.newest = s
	for _, n := range all {
		c.waiting[n.Name] = true
	}
	c.mu.Unlock()
	c.pass(s, nil) // everybody is told by the caller
	return all
}

// silent are the members of list that were told a brake and have not answered.
func (c *broadcaster) silent(list *memberlist.Memberlist) (out []*memberlist.Node, s brake.Signed) {
	all := list.Members()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told != c.newest.Generation {
		return nil, brake.Signed{} // outranked: nobody needs it any more
	}
	for _, n := range all {
		if c.waiting[n.Name] {
			out = append(out, n)
		}
	}
	return out, c.newest
}

// errOld is why a generation that is known says nothing new.
var errOld = errors.New("a brake of an old generation")

// drop counts a brake that was not believed, and says the first of each kind.
func (c *broadcaster) drop(why error) {
	c.mu.Lock()
	count := &c.drops.Malformed
	switch {
	case errors.Is(why, errOld):
		count = &c.drops.Old
	case errors.Is(why, brake.ErrForged):
		count = &c.drops.Forged
	}
	*count++
	first := *count == 1
	c.mu.Unlock()
	if !first {
		return
	}
	level := slog.LevelWarn
	if errors.Is(why, errOld) {
		level = slog.LevelInfo // a member that was away tells what it knew
	}
	c.log.Log(context.Background(), level, "brake message not believed; more of the kind are only counted", slog.Any("reason", why))
}

// Braked tells that another brake was heard since it was last read. It is one
// channel for one reader and is never closed.
func (g *Gossip) Braked() <-chan struct{} { return g.broadcaster.heard }

// Brake is the newest brake heard or set; generation 0 for none.
func (g *Gossip) Brake() brake.Signed { return g.broadcaster.known() }

// BrakeDrops counts the brakes that were heard and not believed.
func (g *Gossip) BrakeDrops() Drops {
	g.broadcaster.mu.Lock()
	defer g.broadcaster.mu.Unlock()
	return g.broadcaster.drops
}

// PassOn brings a brake that was heard by another way than gossip to the others.
func (g *Gossip) PassOn(s brake.Signed) { g.broadcaster.take(s) }

// SetBrake tells every member that lives, at once and without waiting for
// anybody: one packet to each, while those who hear it pass it on. Who does not
// answer is told again twice, by a connection too. Told says how far it has come.
func (g *Gossip) SetBrake(s brake.Signed) {
	for _, n := range g.broadcaster.begin(s) {
		_ = g.list.SendBestEffort(n, withName(kindTold, g.broadcaster.self, s))
	}
	poke(g.broadcaster.again)
}

// Told says how far the brake that was set here has come.
func (g *Gossip) Told() Told {
	c := g.broadcaster
	c.mu.Lock()
	t := Told{Generation: c.told, Heard: c.answers, Contested: c.contest}
	waiting := make([]string, 0, len(c.waiting))
	for name := range c.waiting {
		waiting = append(waiting, name)
	}
	c.mu.Unlock()
	t.Silent = g.roster.named(waiting)
	return t
}

// insist tells a brake that was set here again to those who do not answer, until
// ctx ends.
func (g *Gossip) insist(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	slots := make(chan struct{}, streams)
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.broadcaster.again:
		}
		for i, pause := range []time.Duration{tellAgainFirst, tellAgainSecond} {
			if !g.unless(ctx, pause) {
				break // a newer one, or the end
			}
			silent, s := g.broadcaster.silent(g.list)
			for _, n := range silent {
				_ = g.list.SendBestEffort(n, withName(kindTold, g.broadcaster.self, s))
			}
			if i > 0 {
				continue
			}
			for _, n := range silent[:min(len(silent), streamsMost)] {
				calls.Go(func() { g.call(ctx, slots, n, s) })
			}
		}
	}
}

// unless waits, and reports whether neither a newer brake nor the end came meanwhile.
func (g *Gossip) unless(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-g.broadcaster.again:
		poke(g.broadcaster.again) // its own turn
	case <-t.C:
		return true
	}
	return false
}

// call brings a brake over a connection, where packets seem not to get through.
func (g *Gossip) call(ctx context.Context, slots chan struct{}, n *memberlist.Node, s brake.Signed) {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return
	}
	if left, _ := g.broadcaster.silent(g.list); slices.ContainsFunc(left, func(m *memberlist.Node) bool { return m.Name == n.Name }) {
		_ = g.list.SendReliable(n, withName(kindTold, g.broadcaster.self, s)) // who stays silent is told of
	}
}

// delegate is this member's side of memberlist: its description and the brake.
type delegate struct {
	meta        []byte
	broadcaster *broadcaster
}

// NodeMeta is this member's description.
func (d delegate) NodeMeta(int) []byte { return d.meta }

// NotifyMsg takes in a message; memberlist uses the bytes again.
func (d delegate) NotifyMsg(b []byte) { d.broadcaster.message(bytes.Clone(b)) }

// GetBroadcasts is what is to be passed on.
func (d delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.broadcaster.queue.GetBroadcasts(overhead, limit)
}

// LocalState is what this member knows.
func (d delegate) LocalState(bool) []byte { return d.broadcaster.state() }

// MergeRemoteState takes in what another member knows.
func (d delegate) MergeRemoteState(b []byte, _ bool) { d.broadcaster.merge(bytes.Clone(b)) }
