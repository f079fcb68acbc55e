// Claims: every screen keeps requested, effective and measured apart, shows what is
// unknown as "-" or null and never as 0; JSON only ever gains fields; what a check
// finds decides its exit code; a measurement adds up and an unknown interval makes
// it unknown.
package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"headroom/agent"
	"headroom/agent/config"
	"headroom/agent/statedir"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/units"
)

func TestScreens(t *testing.T) {
	t.Parallel()
	var out cli.Output
	s := testkit.FullStatus()
	for name, show := range map[string]func(io.Writer) error{
		"status.txt": func(w io.Writer) error { return printStatus(w, &out, s) },
		"empty.txt": func(w io.Writer) error {
			return printStatus(w, &out, &headroomv1.GetAgentStatusResponse{Node: "n04", Domain: "rack/r1"})
		},
		"top.txt":     func(w io.Writer) error { return printTop(w, s) },
		"limits.txt":  func(w io.Writer) error { return printLimits(w, &out, limitRows(s)) },
		"sensors.txt": func(w io.Writer) error { return printSensors(w, &out, cli.Filled[sensorJSON](s.GetSensors())) },
		"freqs.txt":   func(w io.Writer) error { return printFreqs(w, &out, cli.Filled[policyJSON](s.GetPolicies())) },
		"zones.txt": func(w io.Writer) error {
			return printZones(w, &cli.Output{Format: "wide"}, zoneRows(site{status: s}, nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			if err := show(&b); err != nil {
				t.Fatal(err)
			}
			testkit.Golden(t, "golden/"+name, strings.ReplaceAll(b.String(), cli.Clock(time.UnixMicro(0)), "THEN"))
		})
	}
}

// The JSON of a status is read by scripts: a field that was there once stays.
func TestStatusJSON(t *testing.T) {
	t.Parallel()
	j := statusJSON(testkit.FullStatus())
	j.AsOf = "NOW"
	var b bytes.Buffer
	var out cli.Output
	if err := out.JSON(&b, j); err != nil {
		t.Fatal(err)
	}
	testkit.Golden(t, "golden/status.json", b.String())
	for name, v := range map[string]any{"status": statusJSON(&headroomv1.GetAgentStatusResponse{}), "zone": zoneRow{}} {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(data, &fields); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"power_w", "effective_w", "requested_w", "written_w", "demand_w", "cap_w", "energy_j", "window_s"} {
			if v, ok := fields[key]; ok && v != nil {
				t.Errorf("%s: unknown %s is %v, want null", name, key, v)
			}
		}
	}
}

// tree writes files of a machine and returns its root.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// zoneFiles are the files of one zone as the kernel has them.
func zoneFiles(dir, name string, more map[string]string) map[string]string {
	files := map[string]string{dir + "/name": name, dir + "/energy_uj": "123000000", dir + "/max_energy_range_uj": "262143328850"}
	for file, text := range more {
		files[dir+"/"+file] = text
	}
	return files
}

func limitFiles() map[string]string {
	return map[string]string{
		"enabled": "1", "constraint_0_name": "long_term", "constraint_0_power_limit_uw": "185000000",
		"constraint_0_time_window_us": "999424", "constraint_0_max_power_uw": "185000000",
	}
}

func merge(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}

const powercap = "sys/class/powercap/"

// Lesson 21: AMD is normal: a zone that only counts energy is shown, without a limit,
// and so are a platform zone and the twin of a package through other registers.
func TestZonesOfMachines(t *testing.T) {
	t.Parallel()
	root := tree(t, merge(
		zoneFiles(powercap+"intel-rapl:0", "package-0", limitFiles()),
		zoneFiles(powercap+"intel-rapl:0:0", "dram", map[string]string{
			"enabled": "0", "constraint_0_name": "long_term", "constraint_0_power_limit_uw": "0", "constraint_0_time_window_us": "976",
		}),
		zoneFiles(powercap+"intel-rapl:1", "psys", nil),
		zoneFiles(powercap+"intel-rapl-mmio:0", "package-0", limitFiles()),
	))
	o, err := openOwn(root)
	if err != nil {
		t.Fatal(err)
	}
	defer o.close() //nolint:errcheck // only read
	o.look()
	if err := os.WriteFile(filepath.Join(root, powercap+"intel-rapl:0/energy_uj"), []byte("123000100\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rows := zoneRows(site{root: root}, o)
	by := map[string]zoneRow{}
	for _, r := range rows {
		by[r.Kind+" "+r.Control] = r
	}
	if len(rows) != 4 {
		t.Fatalf("%d zones: %+v", len(rows), rows)
	}
	if r := by["package intel-rapl"]; r.EffectiveW == nil || *r.EffectiveW != 185 || r.State != "ok" || r.RequestedW != nil || r.WrittenW != nil {
		t.Errorf("package: %+v", r)
	}
	if r := by["dram intel-rapl"]; r.EffectiveW != nil || r.State != "off" || r.EnergyJ == nil || *r.EnergyJ != 123 {
		t.Errorf("memory whose limit was never set has none, not one of 0 W: %+v", r)
	}
	if r := by["psys intel-rapl"]; r.EffectiveW != nil || r.State != "read-only" {
		t.Errorf("psys: %+v", r)
	}
	if r := by["package intel-rapl-mmio"]; r.EffectiveW == nil || r.Zone == by["package intel-rapl"].Zone {
		t.Errorf("the twin has a name of its own: %+v", r)
	}
}

func TestCheckVerdicts(t *testing.T) {
	t.Parallel()
	ok, warned, failed := finding{"a", checkOK, "fine", ""}, finding{"b", checkWarn, "so so", "do this"}, finding{"c", checkFail, "bad", "do that"}
	for _, c := range []struct {
		name           string
		found          []finding
		exit, nagios   int
		line, contains string
	}{
		{"well", []finding{ok}, 0, 0, "POWERD OK - 1 check passed | failed=0 warnings=0\n", "ok    a           fine\n"},
		{"warned", []finding{ok, warned}, cli.ExitDegraded, 1, "POWERD WARNING - b: so so | failed=0 warnings=1\n", "      hint: do this\n"},
		{"failed", []finding{warned, failed}, cli.ExitFailed, 2, "POWERD CRITICAL - c: bad | failed=1 warnings=1\n", "FAIL  c           bad\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var b, n bytes.Buffer
			if got := exitOf(report(&b, &cli.Output{}, c.found)); got != c.exit || !strings.Contains(b.String(), c.contains) {
				t.Errorf("exit %d, want %d:\n%s", got, c.exit, b.String())
			}
			if got := exitOf(reportNagios(&n, c.found)); got != c.nagios || n.String() != c.line {
				t.Errorf("nagios exit %d, want %d: %q", got, c.nagios, n.String())
			}
		})
	}
}

func exitOf(err error) int {
	if e, ok := errors.AsType[*cli.Error](err); ok {
		return e.Exit
	}
	return 0
}

// Lesson 8: each thing that a machine may lack is said in words, and none ends the
// check.
func TestCheckSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	locked := limitFiles()
	locked["enabled"] = "0"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  map[string]string // check: state and a part of the text
	}{
		{"bare virtual machine", map[string]string{"sys/kernel/x": ""}, map[string]string{"kernel": "warn no powercap tree", "ladder": "warn no control can enforce a cap"}},
		{
			"locked", zoneFiles(powercap+"intel-rapl:0", "package-0", locked),
			map[string]string{"bios-lock": "warn limits are disabled, or locked", "sensor": "warn does not advance", "ladder": "ok rapl"},
		},
		{"AMD", zoneFiles(powercap+"intel-rapl:0", "package-0", nil), map[string]string{"permission": "ok normal on AMD", "ladder": "warn no package limits"}},
		{
			"rival",
			map[string]string{"proc/17/comm": "thermald", "proc/18/comm": "power-profiles-", "proc/self/comm": "tuned", "sys/x": ""},
			map[string]string{"rival": "warn power-profiles-daemon, thermald"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			found := checkAll(t.Context(), &place{config: "none.yaml", root: tree(t, c.files)}, false)
			for check, want := range c.want {
				state, part, _ := strings.Cut(want, " ")
				at := slices.IndexFunc(found, func(f finding) bool { return f.Check == check })
				if at < 0 || found[at].State != state || !strings.Contains(found[at].Text, part) {
					t.Errorf("%s: want %s with %q in %+v", check, state, part, found)
				}
			}
			for _, f := range found {
				if f.State != checkOK && f.Hint == "" {
					t.Errorf("%s: no way out: %+v", f.Check, f)
				}
			}
		})
	}
}

// A probe that every limit took is well and leaves no note; one that was refused is
// a warning that says why.
func TestProbe(t *testing.T) {
	t.Parallel()
	root := tree(t, zoneFiles(powercap+"intel-rapl:0", "package-0", limitFiles()))
	limit := filepath.Join(root, powercap+"intel-rapl:0/constraint_0_power_limit_uw")
	cfg := config.Defaults()
	cfg.Node, cfg.Domain, cfg.Root, cfg.StateDir = "n01", "rack/r1", root, filepath.Join(t.TempDir(), "state")
	o, err := openOwn(root)
	if err != nil {
		t.Fatal(err)
	}
	defer o.close() //nolint:errcheck // only read
	s := site{cfg: &cfg, root: root, stateDir: cfg.StateDir}
	if f := checkLock(s, o, true); f.State != checkOK {
		t.Errorf("%+v", f)
	}
	data, err := os.ReadFile(limit)
	if err != nil || strings.Split(string(data), "\n")[0] != "185000000" {
		t.Errorf("the limit holds %q after the probe (%v)", data, err)
	}
	if _, err := os.Stat(filepath.Join(cfg.StateDir, agent.ProbeFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the probe left its note: %v", err)
	}
	journal := filepath.Join(cfg.StateDir, statedir.JournalFile)
	if err := os.WriteFile(journal, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f := checkLock(s, o, true); f.State != checkWarn || !strings.Contains(f.Text, "not probed") || f.Hint == "" {
		t.Errorf("over what an earlier powerd has saved: %+v", f)
	}
}

func TestTightest(t *testing.T) {
	t.Parallel()
	domains := []*headroomv1.Domain{
		{Name: "site/lab", HeadroomUw: 50}, {Name: "rack/r1", Parent: "site/lab", HeadroomUw: 80}, {Name: "loop", Parent: "loop", HeadroomUw: 1},
	}
	for name, want := range map[string]units.Power{"rack/r1": 50, "site/lab": 50, "loop": 1} {
		if room, _, err := tightest(domains, name); err != nil || room != want {
			t.Errorf("%s: %v, %v, want %v", name, room, err, want)
		}
	}
	if _, _, err := tightest(domains, "rack/r9"); !errors.Is(err, errNoDomain) {
		t.Errorf("unknown domain: %v", err)
	}
}

func powerOf(w float64) *units.Power { return new(units.FromWatts(w)) }

func TestTally(t *testing.T) {
	t.Parallel()
	quarter := 250 * time.Millisecond
	take := func(pack, dram, wall *units.Power) sample {
		return sample{elapsed: quarter, pack: pack, dram: dram, wall: wall, hasDRAM: true, zones: []zonePower{{"package-0", "package", pack}}, limited: true}
	}
	m := &tally{peakOver: quarter}
	m.add(take(powerOf(60), powerOf(8), powerOf(100)))
	m.add(take(powerOf(80), powerOf(8), powerOf(120)))
	r := m.result(true, &childEnd{code: 3})
	got := []float64{*r.EnergyJ, *r.PackageJ, *r.DRAMJ, *r.OtherJ, *r.MeanW, *r.PeakW, *r.LimitedS, r.TimeS, *r.Zones[0].EnergyJ, float64(*r.ExitCode)}
	if want := []float64{55, 35, 4, 16, 110, 120, 0.5, 0.5, 35, 3}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	m.add(take(nil, powerOf(8), nil))
	if r := m.result(false, nil); r.EnergyJ != nil || r.PackageJ != nil || r.MeanW != nil || r.DRAMJ == nil || r.LimitedS != nil || r.ExitCode != nil {
		t.Errorf("an unknown interval must make the sum unknown: %+v", r)
	}
}

func TestSeries(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC)
	lines := []sample{
		{at: at, elapsed: time.Second, pack: powerOf(60), wall: powerOf(100), zones: []zonePower{{"package-0", "package", powerOf(60)}}},
		{at: at.Add(time.Second), elapsed: time.Second, limit: powerOf(95), zones: []zonePower{{"package-0", "package", nil}}},
	}
	for format, want := range map[string]string{
		"csv": "time,elapsed_s,wall_w,package_w,dram_w,cap_w,package-0_w\n" +
			"2026-11-21T14:00:00Z,1.000,100.000,60.000,,,60.000\n2026-11-21T14:00:01Z,2.000,,,,95.000,\n",
		"json": `{"time":"2026-11-21T14:00:00Z","elapsed_s":1,"wall_w":100,"package_w":60,"dram_w":null,"cap_w":null,"zones_w":{"package-0":60}}` + "\n" +
			`{"time":"2026-11-21T14:00:01Z","elapsed_s":2,"wall_w":null,"package_w":null,"dram_w":null,"cap_w":95,"zones_w":{"package-0":null}}` + "\n",
	} {
		var b bytes.Buffer
		s := newSeries(&b, format)
		for _, l := range lines {
			if err := s.write(l); err != nil {
				t.Fatal(err)
			}
		}
		if b.String() != want {
			t.Errorf("%s:\n%s\nwant\n%s", format, b.String(), want)
		}
	}
}

func TestFindProgram(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"a/plain": "", "b/tool": "", "b/sub/x": ""})
	if err := os.Chmod(filepath.Join(dir, "b/tool"), 0o755); err != nil {
		t.Fatal(err)
	}
	search := filepath.Join(dir, "a") + string(os.PathListSeparator) + filepath.Join(dir, "b")
	for name, want := range map[string]string{"tool": filepath.Join(dir, "b/tool"), "./x": "./x", "plain": "", "sub": "", "nowhere": ""} {
		got, err := findProgram(name, search)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("findProgram(%q) = %q, %v, want %q", name, got, err, want)
		}
	}
}

// Whatever the files of a machine hold, looking at it ends with answers: no panic,
// no number that is none, nothing written.
func FuzzMachineFiles(f *testing.F) {
	f.Add(uint8(0), "package-0")
	f.Add(uint8(1), "-1")
	f.Add(uint8(2), "99999999999999999999")
	f.Add(uint8(5), "\x00\xff")
	f.Fuzz(func(t *testing.T, which uint8, content string) {
		files := merge(zoneFiles(powercap+"intel-rapl:0", "package-0", limitFiles()), zoneFiles(powercap+"intel-rapl:0:0", "dram", nil))
		names := slices.Sorted(maps.Keys(files))
		name := names[int(which)%len(names)]
		files[name] = content
		root := tree(t, files)
		o, err := openOwn(root)
		if err != nil {
			return
		}
		defer o.close() //nolint:errcheck // only read
		for _, r := range zoneRows(site{root: root}, o) {
			if _, err := json.Marshal(r); err != nil {
				t.Errorf("%s = %q: %+v: %v", name, content, r, err)
			}
		}
		for _, found := range []finding{checkKernel(o), checkPermission(site{}, o), checkLock(site{}, o, false), checkLadder(site{}, o)} {
			if found.State != checkOK && found.Hint == "" {
				t.Errorf("%s = %q: %+v has no way out", name, content, found)
			}
		}
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || string(data) != content+"\n" {
			t.Errorf("%s holds %q afterwards (%v)", name, data, err)
		}
	})
}

// A node that only observes shows what it would write apart from what it wrote, which
// is nothing.
func TestZonesOfANodeThatObserves(t *testing.T) {
	t.Parallel()
	s := &headroomv1.GetAgentStatusResponse{Zones: []*headroomv1.ZoneStatus{{
		Zone: "package-0", Kind: "package", RequestedUw: new(int64(57_500_000)), EffectiveUw: new(int64(185_000_000)), State: "read-only",
	}}}
	data, err := json.Marshal(cli.NewList("ZoneList", zoneRows(site{status: s}, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"requested_w":57.5`, `"written_w":null`, `"effective_w":185`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s lacks %s", data, want)
		}
	}
}
