package gossip

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"headroom/internal/cli"
	"headroom/internal/leaks"
	"headroom/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m, os.Stderr)) }

func newKey(t testing.TB) []byte {
	t.Helper()
	text, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := ParseKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	return keys[0]
}

// member starts a member on loopback and stops it with the test.
func member(t testing.TB, cfg Config) *Gossip {
	t.Helper()
	if cfg.Bind == "" {
		cfg.Bind = "127.0.0.1:0"
	}
	if cfg.Role == RoleCoordinator && cfg.RPC == "" {
		cfg.RPC = "127.0.0.1:7401"
	}
	g, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// within waits until f holds; real sockets leave no other way than asking.
func within(t testing.TB, limit time.Duration, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(limit)
	defer end.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

func names(members []Member) string {
	var out []string
	for _, m := range members {
		out = append(out, m.Name)
	}
	return strings.Join(out, " ")
}

// From any one address a member finds everybody: here each knows only the one
// before it, and they are started back to front.
func TestChainFindsEverybody(t *testing.T) {
	t.Parallel()
	testkit.Unraced(t)
	key := newKey(t)
	ports := freePorts(t, 5)
	var all []*Gossip
	for i := 4; i >= 0; i-- {
		cfg := Config{Name: fmt.Sprintf("m%d", i), Role: RoleNode, Key: key, Bind: ports[i]}
		if i == 0 {
			cfg.Role = RoleCoordinator
		} else {
			cfg.Join = []string{ports[i-1]}
		}
		all = append(all, member(t, cfg))
	}
	for _, g := range all {
		within(t, 30*time.Second, g.cfg.Name+" sees the coordinator", func() bool { return names(g.Coordinators()) == "m0" })
	}
	for _, g := range all { // news that passed a member by comes with the next comparison
		within(t, 2*pushPullInterval, g.cfg.Name+" sees everybody", func() bool { return names(g.Members()) == "m0 m1 m2 m3 m4" })
		if c := g.Coordinators(); len(c) != 1 || c[0].RPC != "127.0.0.1:7401" || c[0].Addr != ports[0] || c[0].Role != RoleCoordinator {
			t.Errorf("%s sees coordinators %+v", g.cfg.Name, c)
		}
	}
}

// hosts gives every caller a loopback address of its own, so that a port that was
// free once stays free.
var hosts atomic.Uint32

// freePorts finds addresses whose TCP and UDP ports are free.
func freePorts(t testing.TB, n int) []string {
	t.Helper()
	host := hosts.Add(1)
	var out []string
	for range n {
		bind := fmt.Sprintf("127.%d.%d.%d:0", 1+os.Getpid()%250, host/250, 1+host%250)
		g, err := Start(Config{Name: "x", Role: RoleNode, Key: make([]byte, KeySize), Bind: bind})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, g.Addr())
		defer func() { _ = g.Close() }()
	}
	return out
}

// A member with another key sees nobody, is seen by nobody, and the log says why.
func TestOtherKeySeesNobody(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	log := &lines{}
	a := member(t, Config{Name: "a", Role: RoleCoordinator, Key: key, Logger: slog.New(slog.NewTextHandler(log, nil))})
	b := member(t, Config{Name: "b", Role: RoleNode, Key: key, Join: []string{a.Addr()}})
	stranger := member(t, Config{Name: "s", Role: RoleNode, Key: newKey(t), Join: []string{a.Addr(), b.Addr()}})
	within(t, 30*time.Second, "a and b see each other", func() bool {
		return names(a.Members()) == "a b" && names(b.Members()) == "a b"
	})
	within(t, 30*time.Second, "the log names the cause", func() bool { return strings.Contains(log.String(), "another gossip key") })
	if got := names(stranger.Members()); got != "s" {
		t.Errorf("the stranger sees %q", got)
	}
	if got := names(a.Members()); got != "a b" {
		t.Errorf("a sees %q", got)
	}
	if n := strings.Count(log.String(), "another gossip key"); n > 1 {
		t.Errorf("said %d times", n)
	}
}

// lines is a log that tests read.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A coordinator that comes back at other ports is seen there, and its former
// self, which said goodbye, at once no more.
func TestCoordinatorMoves(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	n := member(t, Config{Name: "n", Role: RoleNode, Key: key})
	c := member(t, Config{Name: "c", Role: RoleCoordinator, RPC: "127.0.0.1:1", Key: key, Join: []string{n.Addr()}})
	within(t, 30*time.Second, "the first self is seen", func() bool { return names(n.Coordinators()) == "c" })
	start := time.Now()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("close took %v", took)
	}
	again := member(t, Config{Name: "c", Role: RoleCoordinator, RPC: "127.0.0.1:2", Key: key, Join: []string{n.Addr()}})
	within(t, 30*time.Second, "only the new self is seen", func() bool {
		m := n.Coordinators()
		return len(m) == 1 && m[0].RPC == "127.0.0.1:2" && m[0].Addr == again.Addr()
	})
}

// A member that dies without a goodbye is missed by itself, and the one
// left behind finds its next self though it was alone meanwhile.
func TestDeadIsMissedAndFoundAgain(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes the failure detector's time")
	}
	key := newKey(t)
	ports := freePorts(t, 1)
	c := member(t, Config{Name: "c", Role: RoleCoordinator, Key: key, Bind: ports[0]})
	n := member(t, Config{Name: "n", Role: RoleNode, Key: key, Join: []string{ports[0]}})
	within(t, 30*time.Second, "found", func() bool { return names(n.Coordinators()) == "c" })
	c.closing.Do(func() { // no goodbye
		c.cancel()
		c.seeking.Wait()
		_ = c.list.Shutdown()
	})
	start := time.Now()
	within(t, 30*time.Second, "missed", func() bool { return len(n.Coordinators()) == 0 })
	t.Logf("missed after %v", time.Since(start).Round(time.Millisecond))
	member(t, Config{Name: "c", Role: RoleCoordinator, Key: key, Bind: ports[0]})
	within(t, 30*time.Second, "found again", func() bool { return names(n.Coordinators()) == "c" })
}

// Two machines with one name are both shown, and neither throws the other out.
func TestSameNameTwice(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	c := member(t, Config{Name: "c", Role: RoleCoordinator, Key: key})
	for range 2 {
		member(t, Config{Name: "n01", Role: RoleNode, Key: key, Join: []string{c.Addr()}})
	}
	within(t, 30*time.Second, "both are seen", func() bool { return names(c.Members()) == "c n01 n01" })
	m := c.Members()
	if m[1].Addr == m[2].Addr {
		t.Errorf("one address for two: %+v", m)
	}
}

// Of one name at one address only the member that started last is shown.
func TestFormerSelfIsHidden(t *testing.T) {
	t.Parallel()
	at := func(name, addr string, started uint64) entry {
		return entry{meta: meta{role: RoleNode, name: name, started: started}, addr: addr}
	}
	coordinator := entry{meta: meta{role: RoleCoordinator, name: "a", started: 1}, addr: "x:1"}
	all := map[string]entry{
		"1": at("a", "x:1", 5), "2": at("a", "x:1", 9), "3": at("a", "y:1", 1), "4": at("b", "x:1", 1), "5": coordinator,
	}
	nodes := []Member{{Name: "a", Role: RoleNode, Addr: "x:1"}, {Name: "a", Role: RoleNode, Addr: "y:1"}, {Name: "b", Role: RoleNode, Addr: "x:1"}}
	coordinators := []Member{{Name: "a", Role: RoleCoordinator, Addr: "x:1"}}
	for role, want := range map[string][]Member{RoleNode: nodes, RoleCoordinator: coordinators, "": append(coordinators, nodes...)} {
		if got := sorted(newest(all, role)); !slices.Equal(got, want) {
			t.Errorf("role %q: got %+v", role, got)
		}
	}
}

// Changed is told once for many changes, and again for the next.
func TestChangedCoalesces(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	c := member(t, Config{Name: "c", Role: RoleCoordinator, Key: key})
	for i := range 3 {
		member(t, Config{Name: fmt.Sprint(i), Role: RoleNode, Key: key, Join: []string{c.Addr()}})
	}
	within(t, 30*time.Second, "all are seen", func() bool { return len(c.Members()) == 4 })
	<-c.Changed()
	select {
	case <-c.Changed():
		t.Error("told twice for what was there at the first reading")
	default:
	}
	late := member(t, Config{Name: "late", Role: RoleNode, Key: key, Join: []string{c.Addr()}})
	within(t, 30*time.Second, "told again", func() bool {
		select {
		case <-c.Changed():
			return len(c.Members()) == 5 && len(late.Members()) > 0
		default:
			return false
		}
	})
}

// A member that describes itself in an unknown way is ignored, said once, and
// the others are still found.
func TestUnknownDescriptionIsIgnored(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	log := &lines{}
	c := member(t, Config{Name: "c", Role: RoleCoordinator, Key: key, Logger: slog.New(slog.NewTextHandler(log, nil))})
	odd := member(t, Config{Name: "odd", Role: RoleNode, Key: key})
	quiet := slog.New(slog.DiscardHandler)
	bad := newGossip(Config{Name: "bad", Role: RoleNode, Key: key, Bind: "127.0.0.1:0", Logger: quiet}, meta{role: "x"}, nil) // encodes to an unknown role
	w, err := bind(t.Context(), "127.0.0.1:0", newLogger(bad.log))
	if err != nil {
		t.Fatal(err)
	}
	if err := bad.create(w); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bad.list.Shutdown() }()
	if _, err := bad.list.Join([]string{c.Addr()}); err != nil {
		t.Fatal(err)
	}
	if _, err := odd.list.Join([]string{c.Addr()}); err != nil {
		t.Fatal(err)
	}
	within(t, 30*time.Second, "the understood one is seen", func() bool { return names(c.Members()) == "c odd" })
	within(t, 30*time.Second, "the other is logged", func() bool { return strings.Contains(log.String(), "member ignored") })
	if n := strings.Count(log.String(), "member ignored"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

// Start refuses what can never work, in two lines that an operator can act on.
func TestStartRefuses(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	good := Config{Name: "n", Role: RoleNode, Key: key, Bind: "127.0.0.1:0"}
	for name, tc := range map[string]struct {
		change func(*Config)
		want   error
	}{
		"no name":           {func(c *Config) { c.Name = "" }, errConfig},
		"long name":         {func(c *Config) { c.Name = strings.Repeat("n", 129) }, errConfig},
		"control character": {func(c *Config) { c.Name = "a\nb" }, errConfig},
		"no role":           {func(c *Config) { c.Role = "" }, errConfig},
		"coordinator alone": {func(c *Config) { c.Role = RoleCoordinator }, errConfig},
		"short key":         {func(c *Config) { c.Key = key[:16] }, errKey},
		"no bind":           {func(c *Config) { c.Bind = "" }, errConfig},
		"name as bind":      {func(c *Config) { c.Bind = "host.example:1" }, errConfig},
		"bad port":          {func(c *Config) { c.Bind = "127.0.0.1:70000" }, errConfig},
		"port in use":       {func(c *Config) { c.Bind = taken.Addr().String() }, errBind},
		"join without port": {func(c *Config) { c.Join = []string{"10.0.0.1"} }, errConfig},
		"bad advertise":     {func(c *Config) { c.Advertise = "me" }, errConfig},
		"bad advertised port": {
			func(c *Config) { c.Advertise = "127.0.0.1:x" }, errConfig,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			tc.change(&cfg)
			g, err := Start(cfg)
			if err == nil {
				_ = g.Close()
				t.Fatal("started")
			}
			e, ok := errors.AsType[*cli.Error](err)
			if !ok || !errors.Is(err, tc.want) || e.Hint == "" || e.Message == "" {
				t.Errorf("got %#v", err)
			}
		})
	}
}

// A key file holds lines of 32 bytes in base64; every other one is refused by name,
// with how to make a key, and without what it holds.
func TestLoadKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	line := func() string { return Keys{newKey(t)}.Text() }
	one, two := line(), line()
	many := ""
	for range maxKeysKept + 1 {
		many += line()
	}
	for name, tc := range map[string]struct {
		content string
		keys    int
	}{
		"good":          {strings.TrimSpace(one), 1},
		"line end":      {one, 1},
		"two":           {one + two, 2},
		"spaced":        {"# the new one\n\n  " + one + "\n# the old one\n" + two, 2},
		"empty":         {"", 0},
		"remarks alone": {"# nothing\n", 0},
		"short":         {base64.StdEncoding.EncodeToString(make([]byte, 16)), 0},
		"long":          {base64.StdEncoding.EncodeToString(make([]byte, 33)), 0},
		"second bad":    {one + "correct horse battery staple!", 0},
		"twice":         {one + one, 0},
		"too many":      {many, 0},
		"not base64":    {"correct horse battery staple!", 0},
		"a whole log":   {strings.Repeat("x", maxKeyFile+1), 0},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
			t.Fatal(err)
		}
		keys, err := LoadKeys(path)
		if tc.keys > 0 {
			if err != nil || len(keys) != tc.keys || !strings.HasPrefix(one, strings.TrimSpace(keys[:1].Text())) {
				t.Errorf("%s: %d keys, %v", name, len(keys), err)
			}
			continue
		}
		e, ok := errors.AsType[*cli.Error](err)
		if !ok || !errors.Is(err, errKey) || !strings.Contains(e.Message, path) || !strings.Contains(e.Hint, "gossip key create") {
			t.Errorf("%s: %#v", name, err)
		}
		if text := fmt.Sprint(e.Message, e.Hint); strings.Contains(text, "horse") || strings.Contains(text, strings.TrimSpace(one)) {
			t.Errorf("%s: the error shows the content", name)
		}
	}
	if _, err := LoadKeys(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
}
