// Claims: powerd plans for 2,048 CPUs, each with a policy of its own, on 8 sockets: it keeps
// one descriptor for each policy that holds the cap and none for others; it says before it
// writes anything that it has too few of them; originals go back when the process has none left; no
// text and no message grows with the number of policies beyond its bound; the journal is
// written once before the first write.
package agent

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"headroom/agent/config"
	"headroom/agent/metrics"
	"headroom/agent/statedir"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	scraping "headroom/internal/scrape"
	"headroom/units"

	"headroom/internal/testkit"
)

// Size of the machine that powerd plans for.
const (
	plannedCPUs    = 2048
	plannedSockets = 8
)

// wideMachine writes the files of a machine whose every CPU has a policy of its own. Its
// packages have counters but no limits, and a counter of heat a core.
func wideMachine(tb testing.TB, dir string, cpus, sockets int) {
	tb.Helper()
	files := map[string]string{
		"etc/machine-id": "4f0c9e7f0c1d4b8ea77d0c2b5f3a9e01", "proc/sys/kernel/random/boot_id": "0b1c8a52-7d8d-4c7e-9a4e-3d1f6a0e55c1",
		"sys/devices/system/cpu/online": fmt.Sprintf("0-%d", cpus-1), "sys/devices/system/cpu/amd_pstate/status": "active",
		"sys/devices/system/cpu/cpufreq/boost": "1",
	}
	for s := range sockets {
		zone := fmt.Sprintf("sys/class/powercap/intel-rapl:%d/", s)
		files[zone+"name"], files[zone+"energy_uj"], files[zone+"max_energy_range_uj"] = fmt.Sprintf("package-%d", s), fmt.Sprint(5_000_000_000+s), "65532610987"
	}
	alike := map[string]string{
		"scaling_driver": "amd-pstate-epp", "cpuinfo_min_freq": "600000", "cpuinfo_max_freq": "3700000", "scaling_cur_freq": "2500000", "scaling_governor": "powersave",
	}
	maps.Copy(files, alike)
	links := map[string]string{}
	for c := range cpus {
		policy, cpu := fmt.Sprintf("sys/devices/system/cpu/cpufreq/policy%d/", c), fmt.Sprintf("sys/devices/system/cpu/cpu%d/", c)
		for name := range alike {
			links[policy+name] = name // all CPUs are alike, and links are made sooner than files
		}
		files[policy+"scaling_min_freq"], files[policy+"scaling_max_freq"] = "600000", "3700000"
		files[policy+"energy_performance_preference"], files[policy+"affected_cpus"] = "performance", fmt.Sprint(c)
		if c%16 == 0 {
			files[cpu+"topology/physical_package_id"], files[cpu+"topology/core_id"] = fmt.Sprint(c*sockets/cpus), fmt.Sprint(c)
			files[cpu+"thermal_throttle/core_throttle_count"], files[cpu+"thermal_throttle/package_throttle_count"] = "0", "0"
		}
	}
	made := map[string]bool{}
	at := func(name string) string {
		path := filepath.Join(dir, name)
		if folder := filepath.Dir(path); !made[folder] {
			made[folder] = true
			if err := os.MkdirAll(folder, 0o755); err != nil {
				tb.Fatal(err)
			}
		}
		return path
	}
	for name, text := range files {
		if err := os.WriteFile(at(name), []byte(text+"\n"), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	for name, to := range links {
		if err := os.Link(filepath.Join(dir, to), at(name)); err != nil {
			tb.Fatal(err)
		}
	}
}

// wideConfig is that of a node on a wide machine below dir.
func wideConfig(dir string) config.Config {
	cfg := config.Defaults()
	cfg.Node, cfg.Domain, cfg.Enforce = "n01", "rack/r1", true
	cfg.Root, cfg.StateDir = filepath.Join(dir, "root"), filepath.Join(dir, "state")
	cfg.Power = config.Power{
		Rated: 1600 * units.Watt, Floor: 500 * units.Watt, Max: 1500 * units.Watt, FailSafe: 700 * units.Watt, SupplyEfficiency: 1,
	}
	cfg.Frequency = config.Frequency{Preference: "balance_power", Turbo: config.TurboSprint}
	return cfg
}

// wideRoot names a wide machine to a test binary that plays powerd on it, and wideLimit how many
// files it may open: the limit is the process's, and so are the files that are open.
const (
	wideRoot  = "HEADROOM_TEST_WIDE_MACHINE"
	wideLimit = "HEADROOM_TEST_OPEN_FILES"
)

// TestWideMachineHasFilesEnough starts powerd with as many open files as its unit gives it, with too few
// to keep every ceiling open, and with fewer than it needs anywhere.
func TestWideMachineHasFilesEnough(t *testing.T) {
	t.Parallel()
	testkit.Unraced(t)
	dir := t.TempDir()
	wideMachine(t, filepath.Join(dir, "root"), plannedCPUs, plannedSockets)
	for _, limit := range []int{4096, 256, 64} {
		cmd := exec.Command(os.Args[0]) // this program; it ends by itself
		cmd.Env = append(os.Environ(), wideRoot+"="+dir, wideLimit+"="+strconv.Itoa(limit), "GOMAXPROCS=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("with %d open files: %v\n%.4000s", limit, err, out)
		}
	}
}

// wideMain is the child of TestWideMachineHasFilesEnough.
func wideMain(dir string) int {
	limit, err := strconv.Atoi(os.Getenv(wideLimit))
	if err == nil {
		err = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(limit), Max: uint64(limit)})
	}
	if err == nil {
		err = wide(dir, limit)
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return cli.ExitFailed
	}
	return cli.ExitOK
}

// countedDisk counts how often the journal is written.
type countedDisk struct {
	statedir.Disk

	journals *int
}

func (d countedDisk) Durable(name string, data []byte) error {
	if name == statedir.JournalFile {
		*d.journals++
	}
	return d.Disk.Durable(name, data)
}

// wide is the life of a powerd that may open so many files.
func wide(dir string, limit int) error {
	cfg, journals, log := wideConfig(dir), 0, &bytes.Buffer{}
	before := openFiles()
	n, err := start(cfg, slog.New(slog.NewTextHandler(log, nil)), countedDisk{statedir.OS{Dir: cfg.StateDir}, &journals})
	if limit < 128 {
		var e *cli.Error
		if !errors.As(err, &e) || e.Code != "few-files" || !strings.Contains(e.Message, "may open 64") || !strings.Contains(e.Hint, "LimitNOFILE=") {
			return fmt.Errorf("started: %w", err)
		}
		return ceilingsAre(dir, 3_700_000, 3_700_000)
	}
	if err != nil {
		return err
	}
	held := ceilingsAre(dir, 600_000, 2_500_000)
	kept := min(plannedCPUs, limit-before) // no more than one a policy, and room for others
	few, shown := n.health.Get("few-files")
	switch open := openFiles() - before; {
	case held != nil:
		return held
	case journals != 1:
		return fmt.Errorf("the journal was written %d times before the cap was held", journals)
	case open > kept+64 || limit < plannedCPUs && open > limit-128:
		return fmt.Errorf("%d files are open for %d policies", open, plannedCPUs)
	case shown != (limit < plannedCPUs):
		return fmt.Errorf("few files are told: %v (%s)", shown, few.Text)
	case shown && (!strings.Contains(few.Text, "may open 256") || !strings.Contains(few.Hint, "LimitNOFILE=")):
		return fmt.Errorf("few files are told as %+v", few)
	}
	err = errors.Join(messagesAreShort(n, log), backWithoutFiles(n))
	return errors.Join(err, n.close(), ceilingsAre(dir, 3_700_000, 3_700_000), os.RemoveAll(cfg.StateDir))
}

// openFiles counts the descriptors of this process.
func openFiles() int {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(all)
}

// ceilingsAre checks that every policy's ceiling lies between two.
func ceilingsAre(dir string, from, to int64) error {
	for c := range plannedCPUs {
		data, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("root/sys/devices/system/cpu/cpufreq/policy%d/scaling_max_freq", c)))
		if err != nil {
			return err
		}
		line, _, _ := strings.Cut(string(data), "\n")
		if v, err := strconv.ParseInt(line, 10, 64); err != nil || v < from || v > to {
			return fmt.Errorf("the ceiling of policy%d is %q, want %d to %d", c, line, from, to)
		}
	}
	return nil
}

// backWithoutFiles restores the originals while not one more file can be opened.
func backWithoutFiles(n *node) error {
	for {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		defer func() { _ = unix.Close(fd) }()
	}
	if _, err := os.Open("/dev/null"); !errors.Is(err, unix.EMFILE) {
		return fmt.Errorf("files can be opened: %w", err)
	}
	if out := n.release.putBack(); out.Failed > 0 || len(out.Kept) > 0 || len(out.Restored) < 2*plannedCPUs {
		return fmt.Errorf("%d controls went back, %d failed: %.300s", len(out.Restored), out.Failed, strings.Join(out.Kept, "; "))
	}
	return nil
}

// messagesAreShort checks what grows with the number of policies against its bounds, after
// every ceiling was changed by another program and every policy has refused.
func messagesAreShort(n *node, log *bytes.Buffer) error {
	for i := range n.machine.Freq.Report {
		r := &n.machine.Freq.Report[i]
		r.State, r.Err = "failed", fmt.Errorf("dvfs: %s: scaling_max_freq: %w", r.Policy, unix.EROFS)
	}
	failed := n.machine.Freq.Report.Err()
	n.health.Fail(true, "limit-refused", failed.Error(), "")
	n.machine.Freq.ReadBack()
	for i := range n.machine.Freq.Report {
		n.machine.Freq.Report[i].State = "drifted"
	}
	n.drift.look(instant().Boot, 0, false)
	var long []error
	bound := func(what string, size, most int) {
		if size > most {
			long = append(long, fmt.Errorf("%s has %d bytes, want at most %d", what, size, most))
		}
	}
	for _, item := range n.health.List() {
		bound("text of "+item.GetCode(), len(item.GetText()), 500)
	}
	bound("an error of all policies", len(failed.Error()), 200)
	bound("a report", proto.Size(&headroomv1.Heartbeat{Health: n.health.List()}), 4<<10)
	n.tuner.tune(instant().Boot, false)
	status := n.report.details(instant())
	bound("the status", proto.Size(status), 1<<20)
	bound("the log", log.Len(), 8<<10)
	page := httptest.NewRecorder()
	scraping.Handler(scraping.Gatherer(metrics.New(Version, func() *headroomv1.GetAgentStatusResponse { return status }, n.tally.loop)), n.log).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	bound("a scrape", page.Body.Len(), 1<<20)
	if data, err := os.ReadFile(filepath.Join(n.cfg.StateDir, statedir.JournalFile)); err != nil {
		long = append(long, err)
	} else {
		bound("the journal", len(data), 2<<20)
	}
	return errors.Join(long...)
}

// BenchmarkStartOfAWideMachine is the time to the first safe cap.
func BenchmarkStartOfAWideMachine(b *testing.B) {
	dir := b.TempDir()
	wideMachine(b, filepath.Join(dir, "root"), plannedCPUs, plannedSockets)
	cfg := wideConfig(dir)
	b.ReportAllocs()
	for b.Loop() {
		n, err := start(cfg, slog.New(slog.DiscardHandler), statedir.OS{Dir: cfg.StateDir})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := errors.Join(n.close(), os.RemoveAll(cfg.StateDir)); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
