// Claims: the mixed load is the same for every way to decide; a seed gives the same figures
// again; no way spends joules that are not there or leaves a job below its floor; the joined
// arbiter is not behind CAB alone and DIAS alone in what users wait for, and says where it is
// behind and why.
package studies

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"headroom/internal/cli"
	"headroom/jobs/containers"
)

func TestMixedLoadIsLawful(t *testing.T) {
	t.Parallel()
	for _, v := range mixedVariants() {
		for seed := range uint64(3) {
			r := &mixedRun{mixedVariant: v, jobs: drawMixed(seed), balance: mixedJoules.Joules()}
			for r.now < mixedMost && (r.now < mixedSpan || len(r.running()) > 0) {
				r.step()
				if r.balance < -1e-6 || r.balance+r.escrow > mixedJoules.Joules()+1e-6 {
					t.Fatalf("%s, seed %d: %v J and %v J put aside at %v", v.name, seed, r.balance, r.escrow, r.now)
				}
			}
			r.settle()
			if most := mixedJoules.Joules() + mixedRefill.Watts()*r.now.Seconds(); r.spent > most || (r.spent > 0) != v.timer {
				t.Errorf("%s, seed %d: %v J are spent of %v J", v.name, seed, r.spent, most)
			}
			for _, j := range r.jobs {
				if j.end == 0 || j.Done < containers.MinTasks(len(j.Times), j.class.floor) || j.Done+j.Dropped != len(j.Times) {
					t.Errorf("%s, seed %d: %s ends at %v with %d of %d tasks, floor %v", v.name, seed, j.id, j.end, j.Done, len(j.Times), j.class.floor)
				}
			}
		}
	}
}

func TestMixedLoadIsTheSame(t *testing.T) {
	t.Parallel()
	a, b := measureMixed(3, 2), measureMixed(3, 2)
	if !reflect.DeepEqual(a, b) {
		t.Error("the same seed gives other figures")
	}
	if x, y := drawMixed(1), drawMixed(2); len(x) == 0 || reflect.DeepEqual(x, y) {
		t.Error("two seeds give the same jobs")
	}
}

// What users wait for, over 12 loads: at least as good as the better one.
func TestArbiterOnAMixedLoad(t *testing.T) {
	t.Parallel()
	a := measureMixed(1, 12)
	for _, v := range a.Judged {
		waits := strings.HasSuffix(v.Figure, "_s") || strings.HasSuffix(v.Figure, "_missed")
		if waits && !v.Met || v.Note == "" || strings.Contains(v.Note, "not explained") {
			t.Errorf("%s: behind %s by %v: %s", v.Figure, v.Better, v.Behind, v.Note)
		}
	}
	by := map[string]map[string]mixedFigure{}
	for _, v := range a.Variants {
		by[v.Name] = v.Figures
	}
	// It gives up fewer tasks than DIAS alone, and waits less than CAB alone.
	if by["both"]["tolerant_quality"].Mean <= by["dias"]["tolerant_quality"].Mean || by["both"]["tolerant_mean_s"].High >= by["cab"]["tolerant_mean_s"].Mean {
		t.Errorf("%v", by)
	}
	var out bytes.Buffer
	if err := a.print(&out, &cli.Output{}); err != nil || strings.Count(out.String(), "\n") < 18 {
		t.Errorf("%v\n%s", err, out.String())
	}
	out.Reset()
	var j struct {
		Judged   []struct{ Figure string }
		Variants []struct {
			Figures map[string]struct{ Mean, Low, High float64 }
		}
	}
	o := cli.Output{Format: "json"}
	if err := a.print(&out, &o); err != nil || json.Unmarshal(out.Bytes(), &j) != nil || len(j.Judged) != len(mixedJudgement()) || len(j.Variants) != 4 {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestArbitrateCommand(t *testing.T) {
	t.Parallel()
	for _, seeds := range []string{"1", "1001"} {
		cmd := NewArbitrateCommand()
		cmd.SetArgs([]string{"--seeds", seeds})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "bounds need more than one") {
			t.Errorf("%s seeds: %v", seeds, err)
		}
	}
	short := &mixedAnswer{Judged: []mixedVerdict{{Figure: "energy_j"}, {Figure: "urgent_mean_s", Met: true}}}
	if err := short.verdict(); err == nil || !strings.Contains(err.Error(), "in 1 of 2 figures: energy_j") {
		t.Errorf("%v", err)
	}
}

// Bounds of few runs are Student's, from tables: 2.571 for 5 degrees of freedom, 2.093 for 19.
func TestStudentT(t *testing.T) {
	t.Parallel()
	for freedom, want := range map[int]float64{5: 2.571, 9: 2.262, 19: 2.093, 39: 2.023} {
		if got := studentT(freedom); math.Abs(got-want) > 0.01*want {
			t.Errorf("%d: %v, want %v", freedom, got, want)
		}
	}
	for freedom, want := range map[int]float64{1: 12.706, 2: 4.303, 3: 3.182} {
		if got := studentT(freedom); got < want {
			t.Errorf("%d: %v is narrower than %v", freedom, got, want)
		}
	}
}
