package specs

// Claims: every claim of every experiment is met by figures that show what it claims, and each is broken by a
// mistake that it is there to detect. Seeds give the same jobs for all variants of a pair.

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/leaks"
	"headroom/internal/testkit"
	"headroom/lab/experiment"
	"headroom/lab/report"
	"headroom/lab/spark"
	"headroom/scheduler/jhist"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m, os.Stderr)) }

type figures = experiment.Figures

// good are the figures of a variant that show what a spec claims.
func good(spec, variant string) figures {
	switch {
	case strings.HasPrefix(spec, "arbiter"):
		if variant == arbiterOurs {
			return figures{"weighted_s": 10, "urgent_mean_s": 10, "urgent_p95_s": 15, "urgent_missed": 0.1}
		}
		return figures{"weighted_s": 12, "urgent_mean_s": 12, "urgent_p95_s": 18, "urgent_missed": 0.2}
	case strings.HasPrefix(spec, "promises"):
		if variant == ours {
			return figures{"sdr": 0.9, "accuracy": 0.9, "bound_s": 8}
		}
		return figures{"sdr": 0.7, "accuracy": 0.7, "bound_s": 10}
	case strings.HasSuffix(spec, "-drops"):
		var ratio float64
		_, _ = fmt.Sscan(variant, &ratio)
		return figures{"exec_s": 10 - ratio/12, "error_pct": ratio / 10}
	case strings.HasPrefix(spec, "dias"):
		return map[string]figures{
			"p":    {"killed_pct": 20, "high_response_s": 5, "low_response_s": 40, "high_exec_s": 5, "low_exec_s": 5, "joules": 1000, "low_error_pct": 0},
			"np":   {"high_response_s": 8, "low_response_s": 30, "high_exec_s": 5, "low_exec_s": 5, "joules": 950, "low_error_pct": 0},
			"da":   {"high_response_s": 7, "low_response_s": 25, "high_exec_s": 5, "low_exec_s": 4, "joules": 930, "low_error_pct": 5},
			"nps":  {"high_response_s": 7, "low_response_s": 28, "high_exec_s": 4, "low_exec_s": 5, "joules": 950, "high_sprints": 5, "high_sprinted_pct": 80, "sprint_j": 100},
			"dias": {"high_response_s": 6, "low_response_s": 22, "high_exec_s": 4, "low_exec_s": 4, "joules": 930, "high_sprints": 5, "sprint_j": 100, "low_error_pct": 5},
		}[variant]
	case spec == "cab-yarn":
		f := map[string]figures{
			cabUncapped: {"set_s": 100, "jobs_s": 90}, cabCapped: {"set_s": 150, "jobs_s": 135, "foreseen_ours": 1, "foreseen_filter": 4}, cabOurs: {"set_s": 110, "jobs_s": 99},
			cabStepped: {"set_s": 160, "step_filter": 1, "step_filter_blind": 2, "step_learned": 1, "step_learned_blind": 2},
		}[variant]
		for _, j := range cabJobs() {
			f["kept_"+j.name] = 1
		}
		return f
	case spec == "pigeon-power":
		return figures{"mean_s": map[string]float64{splitLearned: 1, splitEven: 1.3}[variant]}
	case strings.HasPrefix(spec, "scaling"):
		program, size, _ := strings.Cut(variant, "/")
		var c cell
		_, _ = fmt.Sscanf(size, "%dx%d", &c.size, &c.units)
		n, serial := float64(c.units), 1.
		if strings.Contains(program, "sort") {
			serial = n
		}
		return figures{"launch_s": 2, "stages_s": 1 + 10*float64(c.size)/n, "parallel_s": 10 * n, "slowest_s": 10, "serial_s": serial, "rest_s": 3}
	}
	f := figures{}
	for _, class := range []string{"short", "long"} {
		for _, q := range []string{"p50", "p90", "p99"} {
			f[class+"_"+q+"_s"], f[class+"_"+q+"_simulated_s"], f[class+"_"+q+"_simulated_sd_s"] = 1.01, 1, 0.1
		}
	}
	return f
}

// runs are six pairs of figures that spread a little; spoil changes them.
func runs(s *experiment.Spec, spoil func(variant string, f figures)) (all []experiment.Record) {
	for i := range uint64(6) {
		for _, v := range s.Variants {
			f := good(s.Name, v)
			spoil(v, f)
			for name := range f {
				if !strings.HasPrefix(name, "kept_") {
					f[name] *= 1 + 0.002*float64(i)
				}
			}
			all = append(all, experiment.Record{Spec: s.Name, Seed: 1001 + i, Variant: v, Machine: "here", Figures: f})
		}
	}
	return all
}

func TestClaimsAreMet(t *testing.T) {
	t.Parallel()
	for _, s := range All() {
		if s.Name == "scaling-spark" { // points that are made up do not determine the six parameters of USBA
			continue
		}
		for _, j := range experiment.Judge(s, runs(s, func(string, figures) {})) {
			if j.Verdict != report.Met {
				t.Errorf("%s %s: %s: %+v", s.Name, j.Claim, j.Verdict, j)
			}
		}
	}
}

// mutant is a mistake: a figure of these variants, which are separated by blanks, times a factor and plus a number.
type mutant struct {
	spec, variants, figure string
	times, plus            float64
	// broken are parts of the ids of the claims that it must break.
	broken string
}

func mutants() []mutant {
	return []mutant{
		{"arbiter", arbiterOurs, "weighted_s", 2, 0, "/weighted_s"},
		{"arbiter", arbiterOurs, "urgent_mean_s", 2, 0, "/urgent_mean_s"},
		{"arbiter", arbiterOurs, "urgent_p95_s", 2, 0, "/urgent_p95_s"},
		{"arbiter", arbiterOurs, "urgent_missed", 1, 0.5, "/urgent_missed"},
		{"promises", ours, "sdr", 0.5, 0, "/sdr"},
		{"promises", ours, "accuracy", 0.5, 0, "/accuracy"},
		{"promises", ours, "bound_s", 2, 0, "/bound_s"},
		{"dias", "p", "killed_pct", 0, 0, "1"},
		{"dias", "np", "reruns", 1, 1, "1/none"},
		{"dias", "np", "high_response_s", 0.5, 0, "2"},
		{"dias", "da", "low_response_s", 2, 0, "3"},
		{"dias", "da", "low_exec_s", 1.25, 0, "4"},
		{"dias", "nps", "high_sprints", 0, 0, "5"},
		{"dias", "nps", "high_exec_s", 1.25, 0, "5"},
		{"dias", "dias", "low_response_s", 2, 0, "6"},
		{"dias", "dias", "joules", 1.3, 0, "7"},
		{"dias", "nps", "high_sprinted_pct", 0, 0, "10"},
		{"dias", "da", "sprints", 1, 1, "10/none"},
		{"dias", "nps", "sprint_j", 0, 0, "11"},
		{"dias", "da dias", "low_error_pct", 1, 60, "12"},
		{"dias", "da dias", "low_error_pct", 0, 0, "12"},
		{"dias", "np", "inexact", 1, 1, "12/exact"},
		{"-drops", "20 90", "exec_s", 1, 20, "8"},
		{"-drops", "10 20", "error_pct", 0, 0, "9"},
		{"-drops", "0", "error_pct", 1, 1, "9/rises"},
		{"cab-yarn", cabOurs, "set_s", 1.3, 0, "Y1"},
		{"cab-yarn", cabOurs, "jobs_s", 1.3, 0, "Y1/jobs"},
		{"cab-yarn", cabCapped, "set_s", 0.67, 0, "Y1"}, // the cap slows nothing: nothing is measured
		{"cab-yarn", cabOurs, "kept_pi", 0.9, 0, "Y2/pi"},
		{"cab-yarn", cabStepped, "kept_wordcount", 0, 0, "Y2/wordcount"},
		{"cab-yarn", cabOurs, "kept_topn", 0.9, 0, "Y2/topn"},
		{"cab-yarn", cabCapped, "foreseen_ours", 3, 0, "Y3"},
		{"cab-yarn", cabStepped, "step_filter", 2.1, 0, "D10/yarn"},
		{"cab-yarn", cabStepped, "step_learned", 2.1, 0, "D10/yarn-learned"},
		{"pigeon-power", splitLearned, "mean_s", 1.4, 0, "capped/learned"},
		{"pigeon sparrow eagle", "50 90", "short_p50_s", 1.3, 0, "short-p50"},
		{"pigeon sparrow eagle", "50 90", "short_p90_s", 0.7, 0, "short-p90"},
		{"pigeon sparrow eagle", "50 90", "short_p99_s", 1.5, 0, "short-p99"},
		{"pigeon sparrow eagle", "50 90", "long_p50_s", 1.1, 0, "long-p50"},
		{"pigeon sparrow eagle", "50 90", "long_p90_s", 0.9, 0, "long-p90"},
		{"pigeon sparrow eagle", "50 90", "long_p99_s", 1.5, 0, "long-p99"},
		{"scaling-spark", "8x6 8x8 16x6 16x8", "stages_s", 3, 0, "R-"},
		{"scaling-yarn", "6x6 8x8", "slowest_s", 3, 0, "-6 -8"},
		{"scaling-yarn", "8x8", "parallel_s", 3, 0, "/EX"},
		{"scaling-yarn", "6x6 8x8", "serial_s", 0, 20, "wordcount/IN qmc/IN"},
		{"scaling-yarn", "1x1 2x2", "serial_s", 0, 100, "sort/IN terasort/IN"},
	}
}

// breaks reports whether a mutant must break a claim.
func (m *mutant) breaks(id string) bool {
	bare := strings.TrimLeft(id, "LG")
	for part := range strings.FieldsSeq(m.broken) {
		if bare == part || strings.ContainsAny(part, "/-") && strings.HasSuffix(id, part) || part == "R-" && strings.HasPrefix(id, part) {
			return true
		}
	}
	return false
}

func (m *mutant) of(spec string) bool {
	if m.spec == "dias" {
		return strings.HasPrefix(spec, "dias") && !strings.HasSuffix(spec, "-drops")
	}
	for part := range strings.FieldsSeq(m.spec) {
		if spec == part || strings.HasPrefix(spec, part+"-") && spec != "pigeon-power" || strings.HasSuffix(spec, part) {
			return true
		}
	}
	return false
}

func (m *mutant) spoil(variant string, f figures) {
	for v := range strings.FieldsSeq(m.variants) {
		if variant == v || strings.HasSuffix(variant, "/"+v) {
			f[m.figure] = m.times*f[m.figure] + m.plus
		}
	}
}

func TestMutants(t *testing.T) {
	t.Parallel()
	for _, s := range All() {
		left := map[string]bool{}
		for _, c := range s.Claims {
			left[c.ID] = true
		}
		for _, m := range mutants() {
			if !m.of(s.Name) {
				continue
			}
			for _, j := range experiment.Judge(s, runs(s, m.spoil)) {
				if !m.breaks(j.Claim) {
					continue
				}
				if j.Verdict == report.Met {
					t.Errorf("%s %s is met although %s of %s is spoilt: %+v", s.Name, j.Claim, m.figure, m.variants, j)
				}
				delete(left, j.Claim)
			}
		}
		for id := range left {
			t.Errorf("%s %s: no mutant", s.Name, id)
		}
	}
}

// The same seed gives the same jobs, whatever the variant; another one other jobs.
func TestJobsBySeed(t *testing.T) {
	t.Parallel()
	for _, e := range arbiterEngines() {
		a, b := e.jobs(1), e.jobs(2)
		if !reflect.DeepEqual(a, e.jobs(1)) || reflect.DeepEqual(a, b) || len(a) < 3 {
			t.Errorf("%s: %d and %d jobs", e.name, len(a), len(b))
		}
	}
	for _, e := range promiseEngines() {
		names := map[string]bool{}
		for _, j := range e.load.jobs(1) {
			names[j.Name] = true
			if j.Tasks < e.load.least || j.Tasks > e.load.most || j.Need() > j.Tasks || j.Slow(0, 0) < 1 {
				t.Errorf("%s: %+v", e.name, j)
			}
		}
		if len(names) != e.load.count {
			t.Errorf("%s: %d names of %d jobs", e.name, len(names), e.load.count)
		}
	}
	for _, p := range diasPrograms() {
		if a := p.arrivals(1); a[1].Class != high || a[0].Class != low || a[0].At >= a[1].At {
			t.Errorf("%s: %+v", p.name, a)
		}
	}
	if l := splitLoad(1, 2); len(l.Jobs) != splitJobs || l.Jobs[0].Arrival == splitLoad(2, 2).Jobs[0].Arrival {
		t.Errorf("%d jobs", len(l.Jobs))
	}
}

// A floor is kept if enough maps have run, each counted once, and the counters agree with the log.
func TestKept(t *testing.T) {
	t.Parallel()
	of := func(done, dropped, recorded int) float64 {
		h := &jhist.History{Counters: jhist.Counters{"headroom.hadoop.EarlyStopCounter": {"DROPPED_TASKS": int64(dropped)}}}
		for i := range done {
			for _, attempt := range []string{"0", "1"} { // a copy
				h.Attempts = append(h.Attempts, jhist.Attempt{ID: fmt.Sprintf("attempt_1_0001_m_%06d_%s", i, attempt), Kind: "MAP", Status: "SUCCEEDED"})
			}
		}
		j := &headroomv1.Job{}
		if recorded > 0 {
			j.Dropped = []*headroomv1.TaskRange{{First: 0, Last: uint32(recorded - 1)}}
		}
		return kept(h, j, 0.5)
	}
	if x := of(cabMaps, 0, 0); x != 2 {
		t.Errorf("all maps: %v", x)
	}
	if x := of(cabMaps/2, cabMaps/2, cabMaps/2); x != 1 {
		t.Errorf("half of the maps: %v", x)
	}
	if x := of(cabMaps-2, 2, 1); x != 0 {
		t.Errorf("counters that differ from the log: %v", x)
	}
}

func TestStages(t *testing.T) {
	t.Parallel()
	at := func(s float64) time.Time { return time.Unix(0, int64(s*1e9)) }
	f := testkit.Need(stages(at(0), []spark.TaskRecord{{Stage: 0, Begun: at(3), Ended: at(5)}, {Stage: 0, Begun: at(4), Ended: at(8)}, {Stage: 1, Begun: at(9), Ended: at(10)}}))(t)
	if f["launch_s"] != 3 || f["stages_s"] != 6 {
		t.Errorf("%v", f)
	}
	if _, err := stages(at(0), nil); err == nil {
		t.Error("no tasks are no error")
	}
}

// The table of the results is the one that the files give.
func TestResultsTableIsFresh(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "results")
	var b bytes.Buffer
	testkit.Check(t, experiment.Markdown(&b, dir, All()))
	page := string(testkit.Need(os.ReadFile(filepath.Join(dir, "README.md")))(t))
	if _, table, _ := strings.Cut(page, "\n\n| "); "| "+table != b.String() {
		t.Error("lab/results/README.md is not fresh: append the output of `powerlab campaign --report --markdown` to its text")
	}
}
