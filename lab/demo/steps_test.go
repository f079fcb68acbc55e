package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	plan "headroom/budget"
	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/jobs/arbiter"
	"headroom/lab/cluster"
	"headroom/lab/experiment/harness"
	"headroom/ledger"
	"headroom/units"
)

// two are looks at two queues.
func two(urgent, batch int, urgentShare, batchShare *int) []harness.Queue {
	return []harness.Queue{{Name: "urgent", Used: urgent, Share: urgentShare}, {Name: "batch", Used: batch, Share: batchShare}}
}

// The steps of the budget take in what was seen while they held, and what moved or was
// dropped since the look before.
func TestStepsOfARun(t *testing.T) {
	t.Parallel()
	samples := rows([2]float64{100, 90}, [2]float64{0, 80}, [2]float64{60, 50}, [2]float64{0, -1})
	for i := range samples {
		samples[i].at = time.Duration(i) * time.Second
	}
	looks := []look{
		{at: 0, queues: two(0, 8, nil, nil), dropped: 1},
		{at: time.Second, queues: two(2, 6, new(3), new(7)), dropped: 1},
		{at: 1500 * time.Millisecond, dropped: 1}, // the engine did not answer
		{at: 2 * time.Second, queues: two(4, 4, new(6), new(4)), dropped: 5},
		{at: 3 * time.Second, queues: two(5, 1, new(6), nil), dropped: 5},
		{at: 4 * time.Second, queues: two(0, 0, new(10), nil), dropped: 9}, // the story is over
	}
	got := testkit.Need(json.Marshal(stepsOf([]stepSeen{{0, 100 * w}, {2 * time.Second, 60 * w}}, 3500*time.Millisecond, samples, looks)))(t)
	want := `[{"t_s":0,"budget_w":100,"measured_w":85,"queues":[{"name":"urgent","used":1,"share":3},{"name":"batch","used":7,"share":7}],"dropped":1,"moved":0},` +
		`{"t_s":2,"budget_w":60,"measured_w":50,"queues":[{"name":"urgent","used":4.5,"share":6},{"name":"batch","used":2.5,"share":null}],"dropped":4,"moved":3}]`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The book counts containers by which shares moved, and reports it; what was not answered is
// no move.
func TestMovesOfShares(t *testing.T) {
	t.Parallel()
	k := lookBook{sprinted: map[string]bool{}}
	var told []string
	for _, q := range [][]harness.Queue{two(0, 8, new(2), new(8)), nil, two(1, 8, new(2), new(8)), two(2, 6, new(5), new(5)), two(2, 6, nil, nil)} {
		if moved := k.add(look{queues: q}); moved != "" {
			told = append(told, moved)
		}
	}
	if !slices.Equal(told, []string{"urgent 2, batch 8 -> urgent 5, batch 5"}) {
		t.Errorf("%q", told)
	}
}

// A sprint is reported once per job, and none that was refused.
func TestSprintsAreToldOnce(t *testing.T) {
	t.Parallel()
	k := lookBook{sprinted: map[string]bool{}}
	job := func(id, refused string, kind headroomv1.MoveKind) *headroomv1.Job {
		return &headroomv1.Job{Id: id, Outlook: &headroomv1.JobOutlook{Move: &headroomv1.JobMove{Kind: kind, Refused: refused}}}
	}
	sprint := headroomv1.MoveKind_MOVE_KIND_SPRINT
	for _, c := range []struct {
		job  *headroomv1.Job
		want bool
	}{
		{job("a", "no joules", sprint), false},
		{job("a", "", headroomv1.MoveKind_MOVE_KIND_CAP), false},
		{job("a", "", sprint), true},
		{job("a", "", sprint), false},
		{&headroomv1.Job{Id: "b"}, false},
	} {
		if got := k.sprints(c.job); got != c.want {
			t.Errorf("%v: %v", c.job, got)
		}
	}
}

// keptAll is the summary of a run on a real cluster that kept every promise.
func keptAll() summary {
	return summary{
		Engine: engineYARN,
		Steps:  stepsOf([]stepSeen{{0, 484 * w}}, time.Minute, nil, []look{{queues: two(1, 9, new(4), nil)}}),
		Events: []eventSummary{{1, eventLowered}, {2, eventShares}, {3, eventSprint}, {4, eventDrops}, {5, eventRaised}},
		Jobs: []jobSummary{
			{State: "done", Tasks: 24, Done: 18, engineJob: &engineJob{ID: "application_1_0001", Floor: 0.5, Dropped: 6, DroppedByCounters: new(6), Moves: map[string]int{"deflate": 2}}},
			{State: "cancelled", Tasks: 24, Done: 1, engineJob: &engineJob{ID: "application_1_0002", Floor: 0.5}},
		},
	}
}

func TestEngineVerdict(t *testing.T) {
	t.Parallel()
	if words := keptAll().broken(); len(words) > 0 {
		t.Errorf("a good run is said to be broken: %v", words)
	}
	if words := keptAll().missing(); len(words) > 0 {
		t.Errorf("a whole run is said to miss something: %v", words)
	}
	for name, spoil := range map[string]func(*summary){
		"held was above the budget for 0.250 s":                                           func(s *summary) { s.OverBudget.Held = 0.25 },
		`event "budget raised" did not happen`:                                            func(s *summary) { s.Events = s.Events[:4] },
		"job application_1_0002 is running with 1 of 24":                                  func(s *summary) { s.Jobs[1].State = "running" },
		"job application_1_0001 dropped 7 tasks by its own counters, but 6 are committed": func(s *summary) { s.Jobs[0].DroppedByCounters = new(7) },
		"job application_1_0001 dropped 6 of 24 tasks; its floor is 22 of them":           func(s *summary) { s.Jobs[0].Floor = 0.9 },
		"no jobs ran": func(s *summary) { s.Jobs = nil },
		"a breaker rated for the budget would have tripped": func(s *summary) { s.Breaker = &breakerSummary{Tripped: true} },
	} {
		s := keptAll()
		spoil(&s)
		if words := strings.Join(s.broken(), "; "); !strings.Contains(words, name) {
			t.Errorf("want %q, got %q", name, words)
		}
	}
	s := keptAll()
	s.Events = s.Events[:2]
	if got := s.missing(); !slices.Equal(got, []string{eventSprint, eventDrops}) {
		t.Errorf("missing %v", got)
	}
	s.Events = nil
	if got := s.missing(); !slices.Equal(got, []string{eventSprint, eventDrops, eventShares}) {
		t.Errorf("missing %v", got)
	}
	s.Steps[0].Queues = []queueSummary{{Name: classHigh}}
	if got := s.missing(); !slices.Equal(got, []string{eventSprint, eventDrops}) {
		t.Errorf("without shares: missing %v", got)
	}
}

// The table names each queue with what it used and may use, what is unknown is "-".
func TestEngineTable(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	keptAll().print(&b, "/out")
	for _, want := range []string{"URGENT USED/SHARE", "484.0 W          -", "1.0/4", "9.0/-", "6 dropped (its own counters: 6), moves deflate 2", "(its own counters: -), moves none", "/out/power.csv"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// The story goes forward, steps the budget down twice before it raises it, and ends with all
// of it; jobs of both classes come.
func TestStoryOnARealCluster(t *testing.T) {
	t.Parallel()
	last, downs, budget := 0.0, 0, 1.0
	classes := map[string]bool{}
	for _, a := range engineSteps() {
		if a.at <= last || a.at >= 1 || (a.budget == 0) == (a.class == "") {
			t.Errorf("%+v after %v", a, last)
		}
		last = a.at
		if a.class != "" {
			classes[a.class] = true
			continue
		}
		if a.budget < budget {
			downs++
		}
		budget = a.budget
	}
	if downs != 2 || budget != 1 || !classes[classHigh] || !classes[classLow] {
		t.Errorf("%d steps down, the last budget is %v of the full one, classes %v", downs, budget, classes)
	}
}

// Without the jars of the hooks the demo refuses before it makes anything, and explains how to
// get them; an unknown engine is a mistake of the command line.
func TestEngineRefusals(t *testing.T) {
	t.Parallel()
	bin := testkit.Programs(t)
	for engine, want := range map[string]struct {
		exit int
		hint string
	}{
		engineYARN:  {cli.ExitFailed, "make hooks"},
		engineSpark: {cli.ExitFailed, "make hooks"},
		"slurm":     {cli.ExitUsage, ""},
	} {
		out := filepath.Join(t.TempDir(), "o")
		cmd := NewCommand()
		cmd.SetArgs([]string{"--engine", engine, "--bin", bin, "--out", out})
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SilenceUsage = true
		err := cmd.ExecuteContext(t.Context())
		typed, ok := errors.AsType[*cli.Error](err)
		if !ok || typed.Exit != want.exit || !strings.Contains(typed.Hint, want.hint) {
			t.Errorf("%s: %v", engine, err)
		}
		if _, err := os.Stat(out); !os.IsNotExist(err) {
			t.Errorf("%s: the output folder was made", engine)
		}
	}
}

// An engine has fewer nodes and more time, unless the command line sets others.
func TestEngineDefaults(t *testing.T) {
	t.Parallel()
	bin := testkit.Programs(t)
	for _, jar := range []string{harness.JarHadoop, harness.JarHadoopApps} {
		testkit.WriteFile(t, filepath.Join(bin, jar), "")
	}
	given := options{engine: engineYARN, length: time.Minute, nodes: 4, out: t.TempDir(), bin: bin}
	o := given
	if err := o.complete(func(string) bool { return false }); err != nil || o.nodes != engineNodes || o.length != engineLength {
		t.Errorf("%v: %+v", err, o)
	}
	o = given
	if err := o.complete(func(string) bool { return true }); err != nil || o.nodes != 4 || o.length != time.Minute {
		t.Errorf("%v: %+v", err, o)
	}
}

func TestDroppedTasks(t *testing.T) {
	t.Parallel()
	named := &headroomv1.Job{Dropped: []*headroomv1.TaskRange{{First: 3, Last: 3}, {First: 5, Last: 9}}, Progress: &headroomv1.JobProgress{Dropped: 4}}
	if n := droppedTasks(named); n != 6 {
		t.Errorf("%d", n)
	}
	if n := droppedTasks(&headroomv1.Job{Progress: &headroomv1.JobProgress{Dropped: 4}}); n != 4 {
		t.Errorf("%d", n)
	}
}

// siteOf is a site with the demo's nodes, each given as much of the budget as its bound lets
// it have, and with joules for sprints.
func siteOf(budget, most units.Power, joules float64) *ledger.State {
	rated := cluster.Rated()
	s := &ledger.State{
		Domains: map[string]ledger.Domain{cluster.Domain: {Domain: plan.Domain{Name: cluster.Domain, Budget: budget}, Sprint: &ledger.SprintBudget{
			Capacity: units.FromJoules(sprintJoules), Balances: map[string]units.Energy{"": units.FromJoules(joules)},
		}}},
		Nodes: map[string]ledger.Node{},
	}
	for _, name := range []string{"n01", "n02"} {
		target := min(most, budget/engineNodes)
		s.Nodes[name] = ledger.Node{Name: name, Domain: cluster.Domain, Rated: rated, Max: rated, Admitted: true, Controlled: true, Target: target, Ceiling: target}
	}
	return s
}

// A job of class high sprints in the story while the budget is full, and in part after the
// first step: its nodes have less than they are rated for, and the pot is full. It could not
// if the nodes had all their watts, under the lowest budget, or with the pot as it begins.
func TestRoomForSprints(t *testing.T) {
	t.Parallel()
	sprints := func(budget, most units.Power, joules float64) int {
		o := ledger.OfferSprint(siteOf(budget, most, joules), []string{"n01", "n02"}, classHigh)
		var m arbiter.Movers
		job := arbiter.Contender{
			ID: "high-1", Class: classHigh, Engine: engineSpark, Tasks: 40, Running: 4, Pending: 36, On: map[string]int{"n01": 2, "n02": 2}, Floor: 1, Due: true, MaySprint: true,
			Offer: arbiter.Offer{Domain: o.Domain, Pot: o.Pot, Balance: o.Balance, Capacity: o.Capacity, Rise: o.Rise, Nodes: len(o.Caps), Why: o.Why},
		}
		return len(m.Step(0, arbiter.Look{Joint: true, Jobs: []arbiter.Contender{job}}).Grants)
	}
	full, step := cluster.Rated()*engineNodes, units.Power(0)
	for _, a := range engineSteps() {
		if a.budget > 0 {
			step = units.Power(a.budget * float64(full))
			break
		}
	}
	rated := full / engineNodes
	most, lowest := units.Power(engineMost*float64(rated)), units.Power(cutTo*float64(full))
	for name, c := range map[string]struct {
		budget, most units.Power
		joules       float64
		want         int
	}{
		"full budget":              {full, most, sprintJoules, 1},
		"first step":               {step, most, sprintJoules, 1},
		"lowest budget":            {lowest, most, sprintJoules, 0},
		"nodes have all watts":     {full, rated, sprintJoules, 0},
		"the pot as it begins":     {full, most, 0, 0},
		"a minute of slow refills": {full, most, 60 * sprintRefill, 0},
	} {
		if got := sprints(c.budget, c.most, c.joules); got != c.want {
			t.Errorf("%s: %d sprints, want %d", name, got, c.want)
		}
	}
}

func TestFilled(t *testing.T) {
	t.Parallel()
	pot := func(balance int64) *headroomv1.Domain {
		return &headroomv1.Domain{Sprint: &headroomv1.SprintBudget{CapacityUj: 5, Pots: []*headroomv1.SprintPot{{BalanceUj: balance}}}}
	}
	if filled(&headroomv1.Domain{}) || filled(pot(4)) || !filled(pot(5)) {
		t.Error("a pot is full when it holds its capacity, and one that is not there is not")
	}
}
