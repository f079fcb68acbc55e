// Claims: a slice that holds one of Headroom's own services is refused, at start and at
// every write; what is returned is what the kernel holds; an original goes back unless
// another writer came between; one bad slice does not stop the others; without a bus
// everything says so in words and nothing waits.
package systemd_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	godbus "github.com/godbus/dbus/v5"

	"headroom/systemd"
)

// fakeBus is a systemd: units in slices, and quotas that reach the cgroup files.
type fakeBus struct {
	mu     sync.Mutex
	quota  map[string]uint64
	groups map[string]string // service -> cgroup
	root   string            // of the cgroup files, empty: none
	deaf   bool              // takes quotas without telling the kernel
	fail   error
	dials  int
	closed int
}

func newBus() *fakeBus {
	return &fakeBus{quota: map[string]uint64{}, groups: map[string]string{}}
}

func (b *fakeBus) dial(context.Context) (systemd.Bus, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dials++
	return b, nil
}

func (b *fakeBus) Units(_ context.Context, _, patterns []string) ([]systemd.Unit, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []systemd.Unit
	for name := range maps.Keys(b.groups) {
		for _, p := range patterns {
			if ok, _ := path.Match(p, name); ok {
				found = append(found, systemd.Unit{Name: name, Active: "active", Sub: "running"})
			}
		}
	}
	return found, b.fail
}

func (b *fakeBus) Group(_ context.Context, unit string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.groups[unit], b.fail
}

func (b *fakeBus) Quota(_ context.Context, slice string) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if usec, ok := b.quota[slice]; ok {
		return usec, b.fail
	}
	return math.MaxUint64, b.fail
}

func (b *fakeBus) SetQuota(_ context.Context, slice string, usec uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return b.fail
	}
	b.quota[slice] = usec
	if b.root == "" || b.deaf {
		return nil
	}
	text := "max 100000\n"
	if usec != math.MaxUint64 {
		text = fmt.Sprintf("%d 100000\n", usec/10)
	}
	return os.WriteFile(filepath.Join(b.root, "sys/fs/cgroup", slice, "cpu.max"), []byte(text), 0o644)
}

func (b *fakeBus) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed++
	return nil
}

// files makes a file system root with the files given.
func files(t *testing.T, all map[string]string) (string, *os.Root) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range all {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return dir, root
}

// machine is a bus with a cgroup v2 tree that has a batch.slice.
func machine(t *testing.T) (*fakeBus, *systemd.Manager) {
	t.Helper()
	dir, root := files(t, map[string]string{
		"sys/fs/cgroup/batch.slice/cpu.max":  "max 100000\n",
		"sys/fs/cgroup/batch.slice/cpu.stat": "usage_usec 5000000\n",
		"proc/self/cgroup":                   "0::/system.slice/headroom-powerd.service\n",
	})
	bus := newBus()
	bus.root = dir
	bus.groups["headroom-powerd.service"] = "/system.slice/headroom-powerd.service"
	return bus, systemd.New(systemd.Options{Root: root, Dial: bus.dial})
}

func slice(t *testing.T, m *systemd.Manager) *systemd.Slice {
	t.Helper()
	all, err := m.Slices(t.Context(), []string{"batch.slice"})
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	return all[0]
}

func TestSetReadsBackAndPutsBack(t *testing.T) {
	t.Parallel()
	bus, m := machine(t)
	s := slice(t, m)
	found, err := s.Read(t.Context())
	if err != nil || found.Asked != systemd.Unlimited || !found.HeldKnown || found.Used != 5*time.Second {
		t.Fatalf("%+v, %v", found, err)
	}
	st, err := s.Set(t.Context(), systemd.CPUs(1.5)+1234)
	held, proven := st.Effective()
	if err != nil || held != systemd.CPUs(1.5) || !proven || bus.quota["batch.slice"] != 1_500_000 {
		t.Errorf("%+v, %v", st, err)
	}
	if st, err = s.PutBack(t.Context(), found.Asked, systemd.CPUs(1.5)); err != nil || st.Held != systemd.Unlimited {
		t.Errorf("%+v, %v", st, err)
	}
	if bus.dials != 1 || m.Close() != nil || bus.closed != 1 {
		t.Errorf("%d connections, %d closed", bus.dials, bus.closed)
	}
}

// Lesson 14: never restore over another writer's change.
func TestPutBackLeavesAnotherWritersValue(t *testing.T) {
	t.Parallel()
	bus, m := machine(t)
	s := slice(t, m)
	bus.quota["batch.slice"] = 3_000_000
	if _, err := s.PutBack(t.Context(), systemd.Unlimited, systemd.CPUs(1.5)); !errors.Is(err, systemd.ErrChanged) {
		t.Error(err)
	}
	if _, err := s.PutBack(t.Context(), systemd.Unlimited, 0); err != nil {
		t.Errorf("never written: %v", err)
	}
	if bus.quota["batch.slice"] != 3_000_000 {
		t.Error("overwritten")
	}
}

// Lesson 5: success of a write says nothing; only what reads back does.
func TestKernelThatDoesNotHoldIt(t *testing.T) {
	t.Parallel()
	bus, m := machine(t)
	s := slice(t, m)
	bus.deaf = true
	st, err := s.Set(t.Context(), systemd.CPU)
	if !errors.Is(err, systemd.ErrNotTaken) || st.Held != systemd.Unlimited || st.Asked != systemd.CPU {
		t.Errorf("%+v, %v", st, err)
	}
}

// The slow-down of what keeps the budget is refused, whoever asks for it and whenever.
func TestOwnServicesAreNeverBounded(t *testing.T) {
	t.Parallel()
	bus, m := machine(t)
	s := slice(t, m)
	for service, group := range map[string]string{
		"headroom-coordinator.service": "/batch.slice/headroom-coordinator.service",
		"my-powerd@2.service":          "/batch.slice/batch-inner.slice/my-powerd@2.service",
	} {
		bus.groups[service] = group
		var refused *systemd.RefusedError
		if _, err := s.Set(t.Context(), systemd.CPU); !errors.As(err, &refused) || !strings.Contains(refused.Reason, service) {
			t.Errorf("%s: %v", service, err)
		}
		if all, err := m.Slices(t.Context(), []string{"batch.slice"}); len(all) > 0 || !errors.As(err, &refused) {
			t.Errorf("%s: %v, %v", service, all, err)
		}
		delete(bus.groups, service)
	}
	if len(bus.quota) > 0 {
		t.Errorf("written: %v", bus.quota)
	}
}

func TestRefusedByName(t *testing.T) {
	t.Parallel()
	_, root := files(t, map[string]string{"proc/self/cgroup": "1:name=systemd:/mine.slice/powerd\n0::/\n"})
	m := systemd.New(systemd.Options{Root: root, Dial: newBus().dial})
	for _, name := range []string{"-.slice", "system.slice", "mine.slice", "", "x.service", "a--b.slice", "../x.slice", "a/b.slice", ".slice", "x.slice\n"} {
		var refused *systemd.RefusedError
		if all, err := m.Slices(t.Context(), []string{name, "good.slice"}); len(all) != 1 || !errors.As(err, &refused) || refused.Slice != name {
			t.Errorf("%q: %v, %v", name, all, err)
		}
	}
}

// Lesson 6: 0 W is a weapon; so is a bandwidth of nothing.
func TestNothingIsNeverWritten(t *testing.T) {
	t.Parallel()
	bus, m := machine(t)
	s := slice(t, m)
	for _, b := range []systemd.Bandwidth{0, -1, systemd.BandwidthMin - 1, math.MinInt64} {
		if _, err := s.Set(t.Context(), b); !errors.Is(err, systemd.ErrTooSmall) {
			t.Errorf("%d: %v", b, err)
		}
	}
	if len(bus.quota) > 0 {
		t.Errorf("written: %v", bus.quota)
	}
}

// cgroup v1 has other files for the same.
func TestOlderCgroupTree(t *testing.T) {
	t.Parallel()
	_, root := files(t, map[string]string{
		"sys/fs/cgroup/cpu,cpuacct/a.slice/a-b.slice/cpu.cfs_quota_us":  "250000\n",
		"sys/fs/cgroup/cpu,cpuacct/a.slice/a-b.slice/cpu.cfs_period_us": "100000\n",
		"sys/fs/cgroup/cpu,cpuacct/a.slice/a-b.slice/cpuacct.usage":     "7000000000\n",
	})
	m := systemd.New(systemd.Options{Root: root, Dial: newBus().dial})
	st, err := m.Adopt("a-b.slice").Read(t.Context())
	if err != nil || st.Held != systemd.CPUs(2.5) || !st.HeldKnown || st.Used != 7*time.Second {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestWithoutABus(t *testing.T) {
	t.Parallel()
	_, root := files(t, map[string]string{
		"sys/fs/cgroup/system.slice/thermald.service/cgroup.events":  "populated 1\nfrozen 0\n",
		"sys/fs/cgroup/system.slice/tuned.service/cgroup.events":     "populated 0\nfrozen 0\n",
		"sys/fs/cgroup/system.slice/my-powerd.service/cgroup.events": "populated 1\n",
		"sys/fs/cgroup/system.slice/other.service/cgroup.events":     "populated 1\n",
		"proc/self/cgroup": "0::/system.slice/my-powerd.service\n",
	})
	for name, dial := range map[string]func(context.Context) (systemd.Bus, error){
		"no bus": nil, "bus that is down": func(context.Context) (systemd.Bus, error) { return nil, errors.New("refused") },
	} {
		m := systemd.New(systemd.Options{Root: root, Dial: dial})
		units, err := m.ActiveUnits(t.Context(), systemd.RivalUnits()...)
		if err != nil || len(units) != 1 || units[0].Name != "thermald.service" {
			t.Errorf("%s: %v, %v", name, units, err)
		}
		if _, err := m.Slices(t.Context(), []string{"batch.slice"}); !errors.Is(err, systemd.ErrNoBus) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, empty := files(t, nil)
	if _, err := systemd.New(systemd.Options{Root: empty}).ActiveUnits(t.Context(), "x.service"); !errors.Is(err, systemd.ErrNoSystemd) {
		t.Error(err)
	}
}

// A connection that failed is made anew; an answer of no is not a failure.
func TestReconnects(t *testing.T) {
	t.Parallel()
	bus, m := machine(t)
	for i, fail := range []error{nil, godbus.Error{Name: "x.y"}, nil, errors.New("broken pipe"), nil} {
		bus.fail = fail
		if _, err := m.ActiveUnits(t.Context(), "thermald.service"); (err == nil) != (fail == nil) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if bus.dials != 2 || bus.closed != 1 {
		t.Errorf("%d connections, %d closed", bus.dials, bus.closed)
	}
}

// A bus that hangs costs CallTimeout and no more, for whoever waits behind it too.
func TestEveryCallHasADeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := systemd.New(systemd.Options{Dial: func(ctx context.Context) (systemd.Bus, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		start := time.Now()
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if _, err := m.Adopt("batch.slice").Read(t.Context()); err == nil {
					t.Error("answered")
				}
			})
		}
		both.Wait()
		if took := time.Since(start); took > systemd.CallTimeout {
			t.Errorf("took %v", took)
		}
	})
}

func TestRivals(t *testing.T) {
	t.Parallel()
	if r, ok := systemd.RivalOf("their-powerd.service"); !ok || !strings.Contains(r.Writes, "everything") {
		t.Errorf("another powerd: %+v", r)
	}
	if _, ok := systemd.RivalOf("cron.service"); ok {
		t.Error("cron writes nothing")
	}
	for _, name := range []string{"thermald.service", "tuned.service", "power-profiles-daemon.service", "tlp.service", "auto-cpufreq.service"} {
		if !slices.Contains(systemd.RivalUnits(), name) {
			t.Errorf("%s is missing", name)
		}
	}
}
