// Claim: a schedule is a function of its seed, to the byte; clusters under
// every fault the simulation has break no promise; and each fault and rare
// path is really taken.
package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"headroom/internal/cli"
	"headroom/internal/testkit"
)

const (
	testSeed      = 20
	testSchedules = 200
)

// Lesson 15: no crash, partition, delay or clock leaves more reserved than budgeted.
func TestNoPromiseIsBroken(t *testing.T) {
	t.Parallel()
	r := testkit.Need(run(context.Background(), Options{Schedules: testSchedules, Seed: testSeed, Span: time.Minute}))(t)
	for _, v := range r.Violations {
		t.Errorf("%s at %.6f s: %s (powerlab simulate --schedules 1 --seed %d --trace)", v.Promise, v.At, v.What, v.Seed)
	}
	for name, n := range r.FaultsHit {
		if n == 0 {
			t.Errorf("%s was never hit: nothing is proved about it", name)
		}
	}
	if r.Schedules != testSchedules || r.Events < 1000*testSchedules {
		t.Errorf("%d schedules, %d events", r.Schedules, r.Events)
	}
}

// A mark that is not in the list would be missed where it is never hit.
func TestEveryMarkIsListed(t *testing.T) {
	t.Parallel()
	r := testkit.Need(run(context.Background(), Options{Schedules: 60, Seed: 3, Span: time.Minute}))(t)
	for name := range r.FaultsHit {
		if !slices.Contains(marks(), name) {
			t.Errorf("%s was hit and is not listed", name)
		}
	}
}

func TestSameSeedSameBytes(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) string {
		var trace bytes.Buffer
		r := testkit.Need(run(context.Background(), Options{Schedules: 3, Seed: seed, Span: time.Minute, Trace: &trace}))(t)
		data := testkit.Need(json.Marshal(r))(t)
		return string(data) + trace.String()
	}
	one := run(5)
	if one != run(5) {
		t.Error("the same seed gave another run")
	}
	if one == run(6) {
		t.Error("another seed gave the same run")
	}
}

// Each schedule of a run can be replayed alone.
func TestScheduleReplaysAlone(t *testing.T) {
	t.Parallel()
	trace := func(seed uint64, schedules int) string {
		var b bytes.Buffer
		if _, err := run(context.Background(), Options{Schedules: schedules, Seed: seed, Span: 20 * time.Second, Trace: &b}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	whole := trace(9, 3)
	if alone := trace(seedOf(9, 2), 1); alone == "" || !strings.HasSuffix(whole, alone) {
		t.Error("schedule 2 of seed 9 is another one when it runs alone")
	}
	if seedOf(9, 1) == seedOf(9, 2) || seedOf(9, 0) != 9 || seedOf(9, 1)>>seedBits != 0 {
		t.Errorf("seeds %d, %d, %d", seedOf(9, 0), seedOf(9, 1), seedOf(9, 2))
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := run(ctx, Options{Schedules: 100, Seed: 1, Span: time.Second})
	if !errors.Is(err, context.Canceled) || r.Schedules != 0 {
		t.Errorf("%d schedules, %v", r.Schedules, err)
	}
}

func TestCommandJSON(t *testing.T) {
	t.Parallel()
	out, stderr, exit := command("--schedules", "2", "--seed", "4", "--duration", "10s", "-o", "json")
	if exit != cli.ExitOK {
		t.Fatalf("exit %d: %s", exit, stderr)
	}
	var got map[string]any
	testkit.Check(t, json.Unmarshal([]byte(out), &got))
	for _, key := range []string{"seed", "schedules", "events", "violations", "faults_hit"} {
		if _, ok := got[key]; !ok {
			t.Errorf("no %q in %s", key, out)
		}
	}
	if list, ok := got["violations"].([]any); !ok || len(list) != 0 {
		t.Errorf("violations %v, want an empty list", got["violations"])
	}
	if !strings.Contains(stderr, "seed 4") {
		t.Errorf("stderr %q does not say the seed", stderr)
	}
}

func TestCommandTable(t *testing.T) {
	t.Parallel()
	out, stderr, exit := command("--schedules", "1", "--duration", "5s", "--trace")
	if exit != cli.ExitOK || !strings.Contains(out, "schedules 1") || !strings.Contains(out, "node_killed") {
		t.Errorf("exit %d:\n%s%s", exit, out, stderr)
	}
	if !strings.Contains(stderr, "c1 starts") {
		t.Errorf("no trace: %s", stderr)
	}
}

func TestCommandRefuses(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"no schedules":    {"--schedules", "0"},
		"no time":         {"--duration", "0s"},
		"a day":           {"--duration", "24h"},
		"a seed in words": {"--seed", "lucky"},
		"a rule unknown":  {"--sabotage", "physics"},
		"no file":         {"--replay", "testdata/seeds/none.json"},
		"an argument":     {"now"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if out, stderr, exit := command(args...); exit != cli.ExitUsage || out != "" || !strings.HasPrefix(stderr, "error: ") {
				t.Errorf("exit %d: %s%s", exit, out, stderr)
			}
		})
	}
}

// A broken promise ends with exit code 1, and the hint replays it.
func TestVerdict(t *testing.T) {
	t.Parallel()
	r := &Report{Schedules: 9, Violations: []Violation{{Promise: "P1", Seed: 123, At: 1.5, What: "n01 holds too much"}}}
	s := settings{Options: Options{Span: time.Minute}}
	e, ok := errors.AsType[*cli.Error](verdict(r, s.again()))
	if !ok || e.Exit != cli.ExitFailed || !strings.Contains(e.Hint, "--duration 1m0s --seed 123") || !strings.Contains(e.Message, "n01 holds too much") {
		t.Errorf("%+v", e)
	}
}

// Schedules run on all CPUs; the report does not depend on how many.
func TestReportIsTheSameOnOneProcessor(t *testing.T) {
	t.Parallel()
	o := Options{Schedules: 8, Seed: 2, Span: 20 * time.Second}
	many := testkit.Need(run(context.Background(), o))(t)
	o.Trace = io.Discard // which makes them run one after another
	one := testkit.Need(run(context.Background(), o))(t)
	if a, b := fmt.Sprintf("%+v", many), fmt.Sprintf("%+v", one); a != b {
		t.Errorf("%s\n%s", a, b)
	}
}

// Only and Keep leave the chances of what remains as they were: the occurrence
// that is kept is the one that the whole schedule had.
func TestKeptOccurrenceIsTheSame(t *testing.T) {
	t.Parallel()
	happened := func(only, keep []string) []string {
		w := Schedule{Seed: 77, SpanMS: 60_000, Only: only, Keep: keep}.run(nil)
		return w.happened
	}
	whole := happened([]string{"crash", "budget"}, nil)
	i := slices.IndexFunc(whole, func(name string) bool { return strings.HasPrefix(name, "crash#") })
	if i < 0 {
		t.Fatalf("no crash in %v", whole)
	}
	if got := happened([]string{"crash"}, whole[i:i+1]); !slices.Equal(got, whole[i:i+1]) {
		t.Errorf("kept %v of %v", got, whole)
	}
	if got := happened([]string{}, nil); len(got) != 0 {
		t.Errorf("without classes there was %v", got)
	}
}

// A schedule that breaks nothing is not shrunk.
func TestShrinkNeedsAViolation(t *testing.T) {
	t.Parallel()
	if _, ok := shrink(Schedule{Seed: 1, SpanMS: 5000}, "P1"); ok {
		t.Error("a schedule that breaks nothing was shrunk")
	}
}

func command(args ...string) (stdout, stderr string, exit int) {
	var out, errs bytes.Buffer
	exit = cli.Run(context.Background(), NewCommand(), args, &out, &errs)
	return out.String(), errs.String(), exit
}
