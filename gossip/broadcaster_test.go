package gossip

// Claims: a brake reaches every member that can be reached within 2 s, whoever
// leads, through a partition's end and to whoever joins later; replays, forgeries
// and rubbish change nothing and are counted.

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"headroom/gossip/brake"
	"headroom/internal/testkit"
	"headroom/internal/testkit/network"
)

func brakePair(t testing.TB) (brake.PrivateKey, brake.Keys) {
	t.Helper()
	private, keys, err := brake.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return private, keys
}

func signed(t testing.TB, k brake.PrivateKey, generation uint64, reason string) brake.Signed {
	t.Helper()
	s, err := k.Sign(brake.Message{Generation: generation, At: time.Unix(1e9, 0), Actor: "mia", Reason: reason})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// band is a group of members on a network in memory.
type band struct {
	t       *testing.T
	network *network.Network
	key     []byte
	private brake.PrivateKey
	keys    brake.Keys
	all     []*Gossip
}

func newBand(t *testing.T, n int) *band {
	t.Helper()
	b := &band{t: t, network: network.New(), key: newKey(t)}
	b.private, b.keys = brakePair(t)
	t.Cleanup(func() { time.Sleep(time.Minute) }) // memberlist's last probes run out
	for range n {
		b.join(nil)
	}
	b.settle(n)
	return b
}

func (b *band) at(i int) string { return fmt.Sprintf("10.0.%d.%d:7402", i/250, 1+i%250) }

// join starts one more member.
func (b *band) join(change func(*Config)) *Gossip {
	b.t.Helper()
	i := len(b.all)
	cfg := Config{Name: fmt.Sprintf("m%03d", i), Role: RoleNode, Key: b.key, BrakeKeys: b.keys, Transport: b.network.Attach(b.at(i))}
	if i < 3 {
		cfg.Role, cfg.RPC = RoleCoordinator, b.at(i)
	}
	if i > 0 {
		cfg.Join = []string{b.at(0)}
	}
	if change != nil {
		change(&cfg)
	}
	g, err := Start(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.all = append(b.all, g)
	b.t.Cleanup(func() { _ = g.Close() })
	return g
}

// settle waits until everybody sees everybody.
func (b *band) settle(n int) {
	b.t.Helper()
	b.within(2*time.Minute, "everybody sees everybody", func() bool {
		for _, g := range b.all {
			if len(g.Members()) != n {
				return false
			}
		}
		return true
	})
}

// within waits in the bubble's time.
func (b *band) within(limit time.Duration, what string, f func() bool) time.Duration {
	b.t.Helper()
	began := time.Now()
	for !f() {
		if time.Since(began) > limit {
			b.t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(began)
}

// know reports whether all of some members know a generation.
func know(generation uint64, members ...*Gossip) bool {
	for _, g := range members {
		if g.Brake().Generation != generation {
			return false
		}
	}
	return true
}

func bubbled(t *testing.T, f func(*testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// A brake reaches everybody at once, and who set it knows that they have heard it.
func TestBrakeReachesEverybody(t *testing.T) {
	bubbled(t, func(t *testing.T) {
		b := newBand(t, 20)
		s := signed(t, b.private, 5, "smoke in row 3")
		b.all[1].SetBrake(s)
		took := b.within(2*time.Second, "everybody knows", func() bool { return know(5, b.all...) })
		if took > 100*time.Millisecond {
			t.Errorf("took %v with nothing lost", took)
		}
		b.within(2*time.Second, "everybody has answered", func() bool { told := b.all[1].Told(); return told.Heard == 19 && len(told.Silent) == 0 })
		for _, g := range b.all {
			if g.Brake() != s {
				t.Errorf("%s knows %+v", g.cfg.Name, g.Brake())
			}
			select {
			case <-g.Braked():
			default:
				t.Errorf("%s was not told", g.cfg.Name)
			}
		}
		// Heard again by every way, it is no news.
		time.Sleep(time.Minute)
		for _, g := range b.all {
			if len(g.Braked()) > 0 || g.BrakeDrops() != (Drops{}) {
				t.Errorf("%s: told again %v, dropped %+v", g.cfg.Name, len(g.Braked()), g.BrakeDrops())
			}
		}
	})
}

// Where the setter's own packets reach nobody but one, the others hear it from
// that one: within 2 s, with everybody who can be reached at all.
func TestBrakeIsPassedOn(t *testing.T) {
	testkit.Unraced(t)
	bubbled(t, func(t *testing.T) {
		b := newBand(t, 40)
		from, only := b.at(0), b.at(7)
		b.network.Cut(func(a, to string) bool { return a == from && to != only })
		b.all[0].SetBrake(signed(t, b.private, 1, ""))
		took := b.within(2*time.Second, "everybody knows", func() bool { return know(1, b.all...) })
		t.Logf("passed on to 40 members in %v", took)
	})
}

// Behind a partition nobody hears it, and the setter knows who; once it has
// healed everybody does.
func TestBrakeAfterAPartition(t *testing.T) {
	bubbled(t, func(t *testing.T) {
		b := newBand(t, 21)
		far := map[string]bool{}
		for i := 14; i < 21; i++ {
			far[b.at(i)] = true
		}
		b.network.Cut(func(a, to string) bool { return far[a] != far[to] })
		b.all[0].SetBrake(signed(t, b.private, 3, ""))
		b.within(2*time.Second, "this side knows", func() bool { return know(3, b.all[:14]...) })
		time.Sleep(3 * time.Second)
		if told := b.all[0].Told(); told.Heard != 13 || len(told.Silent) != 7 || told.Silent[0].Name != "m014" {
			t.Errorf("told: %d heard, silent %v", told.Heard, told.Silent)
		}
		if !know(0, b.all[14:]...) {
			t.Error("a brake crossed the partition")
		}
		time.Sleep(time.Minute) // both sides have given each other up
		b.network.Cut(nil)
		b.within(2*healInterval, "the other side knows", func() bool { return know(3, b.all...) })
	})
}

// Who joins later hears of the brake, from a member that knows it only from its
// own memory too.
func TestLateJoinerHearsTheBrake(t *testing.T) {
	bubbled(t, func(t *testing.T) {
		b := newBand(t, 1)
		s := signed(t, b.private, 9, "")
		b.join(func(c *Config) { c.Brake = s })
		b.within(30*time.Second, "the first member knows", func() bool { return know(9, b.all[0]) })
		late := b.join(nil)
		b.within(30*time.Second, "the late one knows", func() bool { return know(9, late) })
	})
}

// A replay says nothing new: neither the same message nor one of a lower
// generation, by whatever way, to whomever.
func TestReplaysAreOld(t *testing.T) {
	testkit.Unraced(t)
	bubbled(t, func(t *testing.T) {
		b := newBand(t, 6)
		old, now := signed(t, b.private, 4, "old"), signed(t, b.private, 5, "new")
		b.all[0].SetBrake(old)
		b.within(2*time.Second, "the first", func() bool { return know(4, b.all...) })
		b.all[0].SetBrake(now)
		b.within(2*time.Second, "the second", func() bool { return know(5, b.all...) })
		time.Sleep(time.Minute)
		for _, g := range b.all {
			for len(g.Braked()) > 0 {
				<-g.Braked()
			}
			for _, s := range []brake.Signed{old, now, signed(t, b.private, 5, "another fifth")} {
				for _, kind := range []byte{kindBrake, kindTold, kindHeard} {
					msg := append([]byte{kind}, s.Bytes()...)
					if kind != kindBrake {
						msg = withName(kind, "CO/m000/x", s)
					}
					g.broadcaster.message(msg)
				}
				g.broadcaster.merge(append([]byte{kindBrake}, s.Bytes()...))
				g.PassOn(s)
			}
			if g.Brake() != now || len(g.Braked()) > 0 && g != b.all[0] {
				t.Errorf("%s knows %+v after replays", g.cfg.Name, g.Brake())
			}
			if d := g.BrakeDrops(); d.Old < 8 || d.Forged+d.Malformed > 0 {
				t.Errorf("%s counted %+v", g.cfg.Name, d)
			}
		}
		// The setter of the fifth is told that somebody else has used its number.
		if !b.all[0].Told().Contested || b.all[1].Told().Contested {
			t.Error("the contest is told to the wrong one")
		}
	})
}

// A member that has the gossip's key but not the coordinators' brakes nobody: it
// is told apart, counted, and said once.
func TestForgeriesAreDropped(t *testing.T) {
	testkit.Unraced(t)
	bubbled(t, func(t *testing.T) {
		b := newBand(t, 5)
		log := &lines{}
		victim := b.join(func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
		traitorKey, traitorKeys := brakePair(t)
		traitor := b.join(func(c *Config) { c.BrakeKeys = traitorKeys })
		b.settle(7)
		traitor.SetBrake(signed(t, traitorKey, 99, "forged"))
		time.Sleep(time.Minute)
		if !know(0, b.all[:6]...) {
			t.Error("a forgery was believed")
		}
		if d := victim.BrakeDrops(); d.Forged == 0 || d.Old+d.Malformed > 0 {
			t.Errorf("counted %+v", d)
		}
		if n := strings.Count(log.String(), "not believed"); n != 1 {
			t.Errorf("said %d times", n)
		}
		if told := traitor.Told(); told.Heard != 0 {
			t.Errorf("%d members answered a forgery", told.Heard)
		}
		// What the coordinators sign is believed all the same, though its generation is lower.
		b.all[0].SetBrake(signed(t, b.private, 1, ""))
		b.within(2*time.Second, "the true one", func() bool { return know(1, b.all[:6]...) })
	})
}

// Rubbish is dropped and counted, whoever sends it; a member without keys hears nothing.
func TestRubbishIsDropped(t *testing.T) {
	t.Parallel()
	private, keys := brakePair(t)
	c := newBroadcaster(Config{BrakeKeys: keys, Logger: slog.New(slog.DiscardHandler)}, func() int { return 1 })
	good := signed(t, private, 2, "x").Bytes()
	turned := bytes.Clone(good)
	turned[len(turned)-1] ^= 1
	for _, msg := range [][]byte{
		nil,
		{0},
		{kindBrake},
		{kindTold},
		{kindTold, 9, 'x'},
		{kindHeard},
		{kindHeard, 200},
		append([]byte{kindBrake}, good[:20]...), append([]byte{kindBrake}, make([]byte, 10_000)...), append([]byte{'?'}, good...),
	} {
		c.message(msg)
	}
	c.merge([]byte("rubbish"))
	c.merge(nil) // knows no brake: nothing to count
	c.message(append([]byte{kindBrake}, turned...))
	if c.known().Generation != 0 || c.drops != (Drops{Malformed: 11, Forged: 1}) {
		t.Errorf("knows %+v, counted %+v", c.known(), c.drops)
	}
	c.message(append([]byte{kindBrake}, good...))
	if c.known().Generation != 2 {
		t.Error("the good one was not believed")
	}
	none := newBroadcaster(Config{Logger: slog.New(slog.DiscardHandler)}, func() int { return 1 })
	none.message(append([]byte{kindBrake}, good...))
	if none.known().Generation != 0 || none.drops != (Drops{}) {
		t.Error("a member without keys took part")
	}
}

// A setter that did not know the newest generation is told it by those who do.
func TestAnOutrankedSetterIsTold(t *testing.T) {
	bubbled(t, func(t *testing.T) {
		b := newBand(t, 4)
		b.all[0].SetBrake(signed(t, b.private, 6, ""))
		b.within(2*time.Second, "six", func() bool { return know(6, b.all...) })
		// A coordinator that has lost its memory and has heard nothing yet.
		c := b.all[1].broadcaster
		c.mu.Lock()
		c.newest = brake.Signed{}
		c.mu.Unlock()
		b.all[1].SetBrake(signed(t, b.private, 2, ""))
		b.within(2*time.Second, "it is told of the sixth", func() bool { return b.all[1].Told().Contested && know(6, b.all[1]) })
	})
}

// Whatever is heard, in whatever order, doubled or lost: the highest believed
// generation is known, and never a lower one afterwards.
func TestHighestGenerationWins(t *testing.T) {
	t.Parallel()
	private, keys := brakePair(t)
	other, _ := brakePair(t)
	var pool []brake.Signed
	for g := range uint64(6) {
		pool = append(pool, signed(t, private, g+1, ""), signed(t, private, g+1, "again"), signed(t, other, g+10, "forged"))
	}
	rapid.Check(t, func(t *rapid.T) {
		c := newBroadcaster(Config{BrakeKeys: keys, Logger: slog.New(slog.DiscardHandler)}, func() int { return 1 })
		highest := uint64(0)
		for range rapid.IntRange(1, 40).Draw(t, "messages") {
			s := pool[rapid.IntRange(0, len(pool)-1).Draw(t, "which")]
			msg := append([]byte{kindBrake}, s.Bytes()...)
			switch rapid.IntRange(0, 3).Draw(t, "how") {
			case 0:
				c.message(msg)
			case 1:
				c.merge(msg)
			case 2:
				c.message(withName(kindTold, "x", s))
			case 3:
				c.message(withName(kindHeard, "x", s))
			}
			if s.Generation < 10 {
				highest = max(highest, s.Generation)
			}
			if got := c.known().Generation; got != highest {
				t.Fatalf("knows %d after %d", got, highest)
			}
		}
	})
}

// Nobody's message makes a member fall over, or believe what is not signed.
func FuzzMessage(f *testing.F) {
	private, keys := brakePair(f)
	good := signed(f, private, 3, "x")
	f.Add(append([]byte{kindBrake}, good.Bytes()...))
	f.Add(withName(kindTold, "coordinator/c1/0123456789abcdef", good))
	f.Add(withName(kindHeard, "", good))
	f.Add([]byte{kindTold, 255})
	f.Fuzz(func(t *testing.T, msg []byte) {
		c := newBroadcaster(Config{BrakeKeys: keys, Logger: slog.New(slog.DiscardHandler)}, func() int { return 1 })
		c.message(msg)
		if s := c.known(); s.Generation != 0 && s != good {
			t.Fatalf("believed %+v", s)
		}
	})
}

// A hundred members on real sockets, and how long a brake takes to all of them and
// to the last answer. It is a benchmark because a busy machine has them suspect each
// other of being dead.
func BenchmarkBrakeAmongAHundred(b *testing.B) {
	const n = 100
	private, keys := brakePair(b)
	all := crowd(b, n, keys)
	generation := uint64(0)
	var knew, answered time.Duration
	for b.Loop() {
		generation++
		began := time.Now()
		all[0].SetBrake(signed(b, private, generation, "measured"))
		within(b, 30*time.Second, "everybody knows", func() bool { return know(generation, all...) })
		knew += time.Since(began)
		within(b, 30*time.Second, "everybody has answered", func() bool { return all[0].Told().Heard == n-1 })
		answered += time.Since(began)
	}
	b.ReportMetric(knew.Seconds()/float64(generation), "s/known")
	b.ReportMetric(answered.Seconds()/float64(generation), "s/answered")
}

// On real sockets too everybody hears it and answers.
func TestBrakeOnSockets(t *testing.T) {
	t.Parallel()
	const n = 8
	private, keys := brakePair(t)
	all := crowd(t, n, keys)
	began := time.Now()
	all[0].SetBrake(signed(t, private, 1, ""))
	within(t, 30*time.Second, "everybody knows", func() bool { return know(1, all...) })
	within(t, 30*time.Second, "everybody has answered", func() bool { return all[0].Told().Heard == n-1 })
	t.Logf("%d members knew and had answered after %v", n, time.Since(began).Round(time.Millisecond))
}

// crowd starts members on loopback of which the first sees all.
func crowd(t testing.TB, n int, keys brake.Keys) []*Gossip {
	t.Helper()
	key := newKey(t)
	var all []*Gossip
	t.Cleanup(func() { // at once: each says goodbye for half a second
		var closing sync.WaitGroup
		for _, g := range all {
			closing.Go(func() { _ = g.Close() })
		}
		closing.Wait()
	})
	for i := range n {
		cfg := Config{Name: fmt.Sprintf("m%03d", i), Role: RoleNode, Key: key, BrakeKeys: keys, Bind: "127.0.0.1:0"}
		if i == 0 {
			cfg.Role, cfg.RPC = RoleCoordinator, "127.0.0.1:7401"
		} else {
			cfg.Join = []string{all[0].Addr()}
		}
		g, err := Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, g)
	}
	for _, g := range all[1:] {
		_, _ = all[0].list.Join([]string{g.Addr()}) // what is lost here is seen by the others' gossip
	}
	within(t, 2*time.Minute, "the first sees everybody", func() bool { return len(all[0].Members()) == n })
	return all
}
