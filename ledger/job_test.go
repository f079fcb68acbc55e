// Claim (promise P9): whoever writes whatever in whatever order, no job is left
// with fewer map tasks than its floor; a dropped task stays dropped, is dropped
// in the log only, all that is asked for or nothing; what an early stop leaves is
// never lowered. A drop ratio counts as much, rises only, and keeps its seed.
package ledger_test

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/ledger"
)

// stopped accepts a job with a floor and stops it early.
func stopped(t testing.TB, s *ledger.State, id string, floor float64, tasks, least uint32) {
	t.Helper()
	do(t, s, ledger.Command{Job: &ledger.Job{ID: id, State: ledger.JobAccepted, Engine: "yarn", Queue: "root.q", Floor: floor}})
	do(t, s, ledger.Command{StopJob: &ledger.StopJob{ID: id, Tasks: tasks, MinTasks: least}})
}

// drops names ranges of tasks: first, last, first, last.
func drops(id string, pairs ...uint32) *ledger.DropTasks {
	x := &ledger.DropTasks{ID: id}
	for p := range slices.Chunk(pairs, 2) {
		x.Ranges = append(x.Ranges, ledger.TaskRange{First: p[0], Last: p[1]})
	}
	return x
}

func drawJobCommand(t *rapid.T, s *ledger.State, c *ledger.Command) {
	id := rapid.SampledFrom([]string{"a", "b", "none"}).Draw(t, "job")
	tasks := uint32(1 + rng(t, 40, "tasks"))
	j := s.Jobs[id]
	if j.Stop != nil && !rarely(t, 10, "other tasks") {
		tasks = j.Stop.Tasks
	} else if d := j.Deflation; d != nil && d.Of > 0 && !rarely(t, 10, "other tasks by drops") {
		tasks = d.Of
	}
	switch rng(t, 14, "job command") {
	case 12, 13:
		theta := 1 - s.Jobs[id].Floor + float64(rng(t, 7, "theta")-5)/10
		c.DeflateJob = &ledger.DeflateJob{ID: id, Theta: theta, Seed: uint64(rng(t, 10, "seed") / 9)}
	case 0, 1:
		c.Job = &ledger.Job{ID: id, State: ledger.JobAccepted, Engine: map[string]string{"a": "yarn"}[id], Floor: float64(rng(t, 12, "floor")) / 10}
	case 2:
		c.SetUncapped = &ledger.SetUncapped{ID: id, Uncapped: time.Duration(rng(t, 20, "uncapped")-2) * second}
	case 3, 4, 5:
		least := int(ledger.LeastTasks(s.Jobs[id].Floor, tasks)) + rng(t, 5, "above") - 1
		c.StopJob = &ledger.StopJob{ID: id, Tasks: tasks, MinTasks: uint32(max(0, least))}
	case 6:
		if rarely(t, 3, "end") {
			c.Finish = &ledger.FinishJob{ID: id, State: ledger.JobDone, Tasks: tasks, Done: tasks - uint32(rng(t, int(tasks), "missing"))}
			return
		}
		fallthrough
	default:
		c.DropTasks = &ledger.DropTasks{ID: id, Of: tasks * uint32(rng(t, 2, "of"))}
		for range rng(t, 4, "ranges") {
			first := uint32(rng(t, int(tasks)+1, "first"))
			c.DropTasks.Ranges = append(c.DropTasks.Ranges, ledger.TaskRange{First: first, Last: first + uint32(rng(t, 4, "more")) - uint32(rng(t, 20, "less")/19)})
		}
	}
}

// kept is promise P9 for one accepted entry, counted task by task.
func kept(t *rapid.T, before, after *ledger.State) {
	for id, j := range after.Jobs {
		gone := map[uint32]bool{}
		for i, r := range j.Dropped {
			if i > 0 && r.First <= j.Dropped[i-1].Last+1 {
				t.Fatalf("job %s: dropped %v are not in order and apart", id, j.Dropped)
			}
			for task := r.First; task <= r.Last; task++ {
				gone[task] = true
			}
		}
		if len(gone) != int(j.DroppedTasks()) {
			t.Fatalf("job %s: %v are %d tasks, not %d", id, j.Dropped, len(gone), j.DroppedTasks())
		}
		was := before.Jobs[id]
		for _, r := range was.Dropped {
			for task := r.First; task <= r.Last; task++ {
				if !gone[task] {
					t.Fatalf("job %s: task %d was dropped and is back", id, task)
				}
			}
		}
		named := j.Engine == "yarn" && j.Deflation != nil && (j.Deflation.Of > 0 || j.Stop != nil)
		if len(gone) > 0 && j.Stop == nil && !named {
			t.Fatalf("job %s: %d tasks dropped without an early stop", id, len(gone))
		}
		// The floor as it was said, in whole numbers: floors are tenths here.
		tenths := int(math.Round(j.Floor * 10))
		if tenths == 0 {
			tenths = 10
		}
		if j.Stop != nil && int(j.Stop.MinTasks)*10 < tenths*int(j.Stop.Tasks) {
			t.Fatalf("job %s is stopped at %d of %d tasks, floor %v", id, j.Stop.MinTasks, j.Stop.Tasks, j.Floor)
		}
		if was.Floor != j.Floor && was.ID == id {
			t.Fatalf("job %s: floor %v becomes %v", id, was.Floor, j.Floor)
		}
		if was.Stop != nil && (j.Stop == nil || j.Stop.Tasks != was.Stop.Tasks || j.Stop.MinTasks < was.Stop.MinTasks) {
			t.Fatalf("job %s: the stop %+v becomes %+v", id, *was.Stop, *j.Stop)
		}
		if len(gone) == 0 {
			continue
		}
		// How many are left at the least: by the stop, or by a ratio whose drops are named.
		tasks, least := uint32(0), uint32(math.MaxUint32)
		if j.Stop != nil {
			tasks, least = j.Stop.Tasks, j.Stop.MinTasks
		}
		if named {
			tasks = max(tasks, j.Deflation.Of)
			least = min(least, ledger.KeptTasks(j.Deflation.Theta, tasks))
		}
		left := int(tasks) - len(gone)
		if left*10 < tenths*int(tasks) || left < int(least) {
			t.Fatalf("job %s is left with %d of %d tasks, floor %v, least %d", id, left, tasks, j.Floor, least)
		}
		if out := int(j.DeflatedTasks(tasks)); j.Engine != "yarn" && out > 0 && (left-out)*10 < tenths*int(tasks) {
			t.Fatalf("job %s is left with %d of %d tasks without the %d that are dropped by ratio, floor %v", id, left-out, tasks, out, j.Floor)
		}
	}
	for id, j := range after.Jobs {
		d, was := j.Deflation, before.Jobs[id].Deflation
		switch {
		case d == nil && was != nil:
			t.Fatalf("job %s: the drop ratio %v is forgotten", id, was.Theta)
		case d == nil:
			continue
		case was != nil && (d.Theta < was.Theta || d.Seed != was.Seed):
			t.Fatalf("job %s: %+v becomes %+v", id, *was, *d)
		}
		tenths := int(math.Round(j.Floor * 10))
		if tenths == 0 {
			tenths = 10
		}
		for _, n := range []uint32{1, 7, 40, 1000} {
			if left := ledger.KeptTasks(d.Theta, n); int(left)*10 < tenths*int(n) || left == 0 {
				t.Fatalf("job %s: of %d tasks %d are left by a ratio of %v, floor %v", id, n, left, d.Theta, j.Floor)
			}
		}
	}
	for id, was := range before.Jobs {
		if _, there := after.Jobs[id]; !there && was.State == ledger.JobAccepted {
			t.Fatalf("job %s is forgotten while it runs", id)
		}
	}
}

// Nothing but commands about jobs, so that stops and drops meet often.
func TestQualityFloorLaws(t *testing.T) {
	t.Parallel()
	dropped, refusedDrops := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := ledger.New()
		for _, c := range []ledger.Command{
			{Epoch: first(), Lead: &ledger.Lead{Server: "c1"}},
			{Epoch: first(), Found: &ledger.Found{Domains: ledger.PlainDomains(site(800))}},
		} {
			if _, err := s.Apply(c); err != nil {
				t.Fatal(err)
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "entries") {
			c := ledger.Command{Epoch: first()}
			drawJobCommand(t, s, &c)
			before, was := s.Clone(), bytesOf(t, s)
			_, err := s.Apply(c)
			switch {
			case err != nil && bytesOf(t, s) != was:
				t.Fatalf("refused with %v, and changed the state", err)
			case err != nil && c.DropTasks != nil:
				refusedDrops++
			case c.DropTasks != nil && bytesOf(t, s) != was:
				dropped++
			}
			kept(t, before, s)
			back, err := ledger.Restore([]byte(bytesOf(t, s)))
			if err != nil {
				t.Fatalf("it cannot be restored: %v", err)
			}
			if bytesOf(t, back) != bytesOf(t, s) {
				t.Fatal("it is restored as another")
			}
		}
	})
	if dropped == 0 || refusedDrops == 0 {
		t.Errorf("%d drops were taken and %d refused: the law has seen too little", dropped, refusedDrops)
	}
}

// The floor is rounded up, in whole tasks, as exact arithmetic on the decimal has it.
func TestLeastTasks(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		floor       float64
		tasks, want uint32
	}{{0, 40, 40}, {1, 40, 40}, {0.75, 40, 30}, {0.75, 41, 31}, {0.1, 30, 3}, {0.5, 1, 1}, {0.5, 0, 0}, {1e-12, 10, 1}, {math.NaN(), 10, 10}, {2, 10, 10}, {-1, 10, 10}} {
		if got := ledger.LeastTasks(x.floor, x.tasks); got != x.want {
			t.Errorf("%v of %d tasks are %d, want %d", x.floor, x.tasks, got, x.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		percent, tasks := rapid.Int64Range(1, 100).Draw(t, "percent"), rapid.Int64Range(0, 100_000).Draw(t, "tasks")
		product := new(big.Int).Mul(big.NewInt(percent), big.NewInt(tasks))
		want := product.Add(product, big.NewInt(99)).Div(product, big.NewInt(100)).Int64()
		if got := int64(ledger.LeastTasks(float64(percent)/100, uint32(tasks))); got != want {
			t.Fatalf("%d %% of %d tasks are %d, want %d", percent, tasks, got, want)
		}
	})
}

func TestStopsAndDropsAreRefused(t *testing.T) {
	t.Parallel()
	job := func(change func(*ledger.Job)) ledger.Command {
		j := &ledger.Job{ID: "new", State: ledger.JobAccepted, Engine: "yarn", Floor: 0.5}
		change(j)
		return ledger.Command{Job: j}
	}
	stop := func(id string, tasks, least uint32) ledger.Command {
		return ledger.Command{StopJob: &ledger.StopJob{ID: id, Tasks: tasks, MinTasks: least}}
	}
	drop := func(id string, pairs ...uint32) ledger.Command {
		return ledger.Command{DropTasks: drops(id, pairs...)}
	}
	uncapped := func(id string, d time.Duration) ledger.Command {
		return ledger.Command{SetUncapped: &ledger.SetUncapped{ID: id, Uncapped: d}}
	}
	for name, c := range map[string]struct {
		command ledger.Command
		want    error
		says    string
	}{
		"a job with a floor above 1":         {job(func(j *ledger.Job) { j.Floor = 1.1 }), ledger.ErrJob, "1.1"},
		"a job with a floor below 0":         {job(func(j *ledger.Job) { j.Floor = -0.1 }), ledger.ErrJob, "-0.1"},
		"a job with a floor that is none":    {job(func(j *ledger.Job) { j.Floor = math.NaN() }), ledger.ErrJob, "NaN"},
		"a job of an endless queue":          {job(func(j *ledger.Job) { j.Queue = strings.Repeat("q", 257) }), ledger.ErrJob, "257"},
		"a job of an endless engine":         {job(func(j *ledger.Job) { j.Engine = strings.Repeat("q", 257) }), ledger.ErrJob, "257"},
		"a job stopped at its birth":         {job(func(j *ledger.Job) { j.Stop = &ledger.EarlyStop{Tasks: 2, MinTasks: 1} }), ledger.ErrJob, "a new job must have no"},
		"a job with drops at its birth":      {job(func(j *ledger.Job) { j.Dropped = []ledger.TaskRange{{}} }), ledger.ErrJob, "a new job must have no"},
		"a job estimated at its birth":       {job(func(j *ledger.Job) { j.Uncapped = second }), ledger.ErrJob, "a new job must have no"},
		"a job that ended at its birth":      {job(func(j *ledger.Job) { j.Ended = 1 }), ledger.ErrJob, "a new job must have no"},
		"a lower floor later":                {job(func(j *ledger.Job) { j.ID = "run" }), ledger.ErrJob, "0.75"},
		"another engine later":               {job(func(j *ledger.Job) { j.ID, j.Floor, j.Engine = "run", 0.75, "" }), ledger.ErrJob, "yarn"},
		"a stop of an unknown job":           {stop("none", 40, 30), ledger.ErrUnknownJob, "none"},
		"a stop of a job that has ended":     {stop("over", 40, 40), ledger.ErrJob, "done"},
		"a stop below the floor":             {stop("run", 40, 29), ledger.ErrFloor, "30"},
		"a stop of a job without a floor":    {stop("exact", 40, 39), ledger.ErrFloor, "40"},
		"a stop of no tasks":                 {stop("run", 0, 0), ledger.ErrStop, "0 of 0"},
		"a stop at more than there are":      {stop("run", 40, 41), ledger.ErrStop, "41 of 40"},
		"a second stop that lowers":          {stop("stopped", 40, 31), ledger.ErrStop, "32 of 40"},
		"a second stop of other tasks":       {stop("stopped", 80, 60), ledger.ErrStop, "32 of 40"},
		"a raise that the drops contradict":  {stop("stopped", 40, 38), ledger.ErrFloor, "so 2 may"},
		"drops of an unknown job":            {drop("none", 1, 1), ledger.ErrUnknownJob, "none"},
		"drops without a stop":               {drop("run", 39, 39), ledger.ErrNoStop, "run"},
		"drops of a task that is not there":  {drop("stopped", 40, 40), ledger.ErrStop, "task 40 of 40"},
		"drops beyond what the stop leaves":  {drop("stopped", 20, 25), ledger.ErrFloor, "9 of 40"},
		"a good drop before one too many":    {drop("stopped", 30, 30, 0, 9), ledger.ErrFloor, "8 may be"},
		"a range that ends before it begins": {drop("stopped", 9, 8), ledger.ErrStop, "9 to 8"},
		"all tasks there can be":             {drop("stopped", 0, math.MaxUint32), ledger.ErrStop, "4294967295"},
		"more drops after the end":           {drop("over", 1, 1), ledger.ErrJob, "done"},
		"ranges without end":                 {drop("stopped", slices.Repeat([]uint32{39, 39}, 2001)...), ledger.ErrFull, "2001"},
		"an end before the start":            {uncapped("run", -second), ledger.ErrJob, "-1s"},
		"an end at the start":                {uncapped("run", 0), ledger.ErrJob, "0s"},
		"an end in another age":              {uncapped("run", math.MaxInt64), ledger.ErrJob, "at most"},
		"an estimate of an unknown job":      {uncapped("none", second), ledger.ErrUnknownJob, "none"},
		"an estimate of one that has ended":  {uncapped("over", second), ledger.ErrJob, "done"},
		"a container policy that is none":    {ledger.Command{ContainerPolicy: &ledger.Named{Name: "weighted"}}, ledger.ErrContainerPolicy, "stretch"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := founded(t, site(800))
			do(t, s, job(func(j *ledger.Job) { j.ID, j.Floor = "run", 0.75 }))
			do(t, s, job(func(j *ledger.Job) { j.ID, j.Floor, j.Engine = "exact", 0, "" }))
			stopped(t, s, "stopped", 0.75, 40, 32)
			do(t, s, drop("stopped", 35, 37))
			stopped(t, s, "over", 0.5, 4, 2)
			do(t, s, ledger.Command{Finish: &ledger.FinishJob{ID: "over", State: ledger.JobDone, Tasks: 4, Done: 4}})
			says(t, refusal(t, s, c.command, c.want), c.says)
		})
	}
}

// What is asked again after a lost answer changes nothing; what is new is added, merged.
func TestDropsAdd(t *testing.T) {
	t.Parallel()
	s := founded(t, site(800))
	stopped(t, s, "j", 0.5, 40, 20)
	same := func(c ledger.Command) {
		t.Helper()
		before := snapshot(t, s)
		do(t, s, c)
		if snapshot(t, s) != before {
			t.Errorf("asked again it made\n%s\nof\n%s", snapshot(t, s), before)
		}
	}
	want := func(text string, left uint32) {
		t.Helper()
		if got := fmt.Sprint(s.Jobs["j"].Dropped); got != text || 40-s.Jobs["j"].DroppedTasks() != left {
			t.Errorf("dropped %s, %d left; want %s, %d", got, 40-s.Jobs["j"].DroppedTasks(), text, left)
		}
	}
	do(t, s, ledger.Command{DropTasks: drops("j", 38, 39, 30, 30)})
	want("[{30 30} {38 39}]", 37)
	same(ledger.Command{DropTasks: drops("j", 39, 39)})
	same(ledger.Command{DropTasks: drops("j")})
	do(t, s, ledger.Command{DropTasks: drops("j", 31, 33, 37, 38)})
	want("[{30 33} {37 39}]", 33)
	do(t, s, ledger.Command{StopJob: &ledger.StopJob{ID: "j", Tasks: 40, MinTasks: 33}})
	same(ledger.Command{StopJob: &ledger.StopJob{ID: "j", Tasks: 40, MinTasks: 33}})
	refused(t, s, ledger.Command{DropTasks: drops("j", 34, 34)}, ledger.ErrFloor)
	next(t, s)
	same(ledger.Command{DropTasks: drops("j", 30, 33)})
	do(t, s, ledger.Command{Finish: &ledger.FinishJob{ID: "j", State: ledger.JobDone, Tasks: 40, Done: 33}})
	same(ledger.Command{DropTasks: drops("j", 30, 33)})
	if s.Jobs["j"].BelowFloor() {
		t.Error("33 of 40 are below a floor of a half")
	}
}

// An end below the floor is what has happened: it is taken, and the audit says it.
func TestEndBelowTheFloor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		floor float64
		end   ledger.JobState
		done  uint32
		below bool
	}{
		"at the floor":     {0.75, ledger.JobDone, 30, false},
		"below it":         {0.75, ledger.JobDone, 29, true},
		"failed":           {0.75, ledger.JobFailed, 3, false},
		"no floor was set": {0, ledger.JobDone, 39, false},
		"exact":            {1, ledger.JobDone, 39, true},
	} {
		s := founded(t, site(800))
		do(t, s, ledger.Command{Job: &ledger.Job{ID: "j", State: ledger.JobAccepted, Floor: c.floor}})
		do(t, s, ledger.Command{At: 77, Finish: &ledger.FinishJob{ID: "j", State: c.end, Tasks: 40, Done: c.done}})
		what := s.Events[len(s.Events)-1].What
		if got := s.Jobs["j"]; got.BelowFloor() != c.below || strings.Contains(what, "below its quality floor") != c.below || got.Ended != 77 {
			t.Errorf("%s: below %v, %q, ended at %d", name, got.BelowFloor(), what, got.Ended)
		}
	}
}

// An estimate counts a revision, so that readers see it, and writes no line: it is made again and again.
func TestEstimatesLeaveTheAuditAlone(t *testing.T) {
	t.Parallel()
	s := founded(t, site(800))
	do(t, s, ledger.Command{Job: &ledger.Job{ID: "j", State: ledger.JobAccepted}})
	events, revision := len(s.Events), s.Revision
	for range 2 {
		do(t, s, ledger.Command{SetUncapped: &ledger.SetUncapped{ID: "j", Uncapped: 95 * second}})
	}
	if s.Jobs["j"].Uncapped != 95*second || len(s.Events) != events || s.Revision != revision+1 {
		t.Errorf("%v, %d more lines, %d more revisions", s.Jobs["j"].Uncapped, len(s.Events)-events, s.Revision-revision)
	}
}

// A drop ratio is refused with the rule, the numbers and the way out: outside of 0 to 1,
// below the floor, of a job that is not there or has ended, lowered, by another seed, or
// beside dropped tasks that leave no room for it.
func TestDeflate(t *testing.T) {
	t.Parallel()
	s := founded(t, site(800))
	deflate := func(id string, theta float64, seed uint64) ledger.Command {
		return ledger.Command{At: 77, Reason: "class low", DeflateJob: &ledger.DeflateJob{ID: id, Theta: theta, Seed: seed}}
	}
	do(t, s, ledger.Command{Job: &ledger.Job{ID: "j", State: ledger.JobAccepted, Floor: 0.7, Rank: 1, Deadline: time.Minute}})
	do(t, s, ledger.Command{Job: &ledger.Job{ID: "exact", State: ledger.JobAccepted}})
	for _, theta := range []float64{-0.1, 1.1, math.NaN(), math.Inf(1)} {
		refused(t, s, deflate("j", theta, 7), ledger.ErrDeflation)
	}
	refused(t, s, deflate("none", 0.1, 7), ledger.ErrUnknownJob)
	refused(t, s, deflate("exact", 0.1, 7), ledger.ErrFloor)
	do(t, s, deflate("exact", 0, 7))
	refused(t, s, deflate("j", 0.31, 7), ledger.ErrFloor)
	_, err := s.Apply(func() ledger.Command { c := deflate("j", 0.31, 7); c.Epoch = s.Epoch; return c }())
	if err == nil || !strings.Contains(err.Error(), "its floor is 0.7 of them; at most 0.3 may be dropped") {
		t.Errorf("%v", err)
	}
	do(t, s, deflate("j", 0.1, 7))
	if d := s.Jobs["j"].Deflation; *d != (ledger.Deflation{Theta: 0.1, Seed: 7, Reason: "class low", At: 77}) {
		t.Errorf("%+v", d)
	}
	before := snapshot(t, s)
	do(t, s, deflate("j", 0.1, 7))
	if snapshot(t, s) != before {
		t.Error("asked again, it changed something")
	}
	refused(t, s, deflate("j", 0.05, 7), ledger.ErrDeflation)
	refused(t, s, deflate("j", 0.2, 8), ledger.ErrDeflation)
	do(t, s, deflate("j", 1-0.7, 7))
	do(t, s, ledger.Command{StopJob: &ledger.StopJob{ID: "j", Tasks: 40, MinTasks: 28}})
	refused(t, s, ledger.Command{DropTasks: drops("j", 39, 39)}, ledger.ErrFloor)
	do(t, s, ledger.Command{Job: &ledger.Job{ID: "k", State: ledger.JobAccepted, Floor: 0.7}})
	do(t, s, ledger.Command{StopJob: &ledger.StopJob{ID: "k", Tasks: 40, MinTasks: 28}})
	do(t, s, ledger.Command{DropTasks: drops("k", 36, 39)})
	refused(t, s, deflate("k", 0.25, 1), ledger.ErrFloor)
	do(t, s, deflate("k", 0.2, 1))
	do(t, s, ledger.Command{Finish: &ledger.FinishJob{ID: "j", State: ledger.JobDone, Tasks: 40, Done: 28}})
	refused(t, s, deflate("j", 0.3, 8), ledger.ErrJob)
	refused(t, s, ledger.Command{Job: &ledger.Job{ID: "l", State: ledger.JobAccepted, Deadline: -1}}, ledger.ErrJob)
	refused(t, s, ledger.Command{Job: &ledger.Job{ID: "l", State: ledger.JobAccepted, Floor: 0.5, Deflation: &ledger.Deflation{}}}, ledger.ErrJob)
	restored(t, s)
}

// Of an engine that names its drops (YARN), a drop ratio bounds what may be recorded, as an early stop does: without a
// stop too, once it is said how many map tasks there are; of both the lower bound counts.
func TestNamedDrops(t *testing.T) {
	t.Parallel()
	s := founded(t, site(800))
	named := func(of uint32, pairs ...uint32) ledger.Command {
		x := drops("j", pairs...)
		x.Of = of
		return ledger.Command{DropTasks: x}
	}
	deflate := func(theta float64) ledger.Command {
		return ledger.Command{DeflateJob: &ledger.DeflateJob{ID: "j", Theta: theta, Seed: 7}}
	}
	do(t, s, ledger.Command{Job: &ledger.Job{ID: "j", State: ledger.JobAccepted, Engine: "yarn", Floor: 0.5}})
	refused(t, s, named(40, 39, 39), ledger.ErrNoStop)
	do(t, s, deflate(0.1))
	refused(t, s, ledger.Command{DropTasks: drops("j", 39, 39)}, ledger.ErrNoStop)
	refused(t, s, named(40, 35, 39), ledger.ErrFloor)
	refused(t, s, named(40, 40, 40), ledger.ErrStop)
	do(t, s, named(40, 36, 39))
	if d := s.Jobs["j"].Deflation; d.Of != 40 || !strings.Contains(s.Events[len(s.Events)-1].What, "drops 4 tasks, 36 of 40 are left") {
		t.Errorf("%+v, %+v", d, s.Events[len(s.Events)-1])
	}
	refused(t, s, named(41, 39, 39), ledger.ErrStop)
	refused(t, s, named(40, 35, 35), ledger.ErrFloor)
	refused(t, s, ledger.Command{StopJob: &ledger.StopJob{ID: "j", Tasks: 41, MinTasks: 30}}, ledger.ErrStop)
	do(t, s, ledger.Command{StopJob: &ledger.StopJob{ID: "j", Tasks: 40, MinTasks: 38}}) // leaves less room than the ratio
	refused(t, s, named(40, 35, 35), ledger.ErrFloor)
	do(t, s, deflate(0.2))
	do(t, s, named(40, 32, 35))
	refused(t, s, named(0, 31, 31), ledger.ErrFloor)
	refused(t, s, deflate(0.6), ledger.ErrFloor)
	do(t, s, deflate(0.5))
	do(t, s, named(0, 20, 31))
	refused(t, s, named(40, 19, 19), ledger.ErrFloor)
	restored(t, s)
	do(t, s, ledger.Command{Finish: &ledger.FinishJob{ID: "j", State: ledger.JobDone, Tasks: 40, Done: 20}})
	if s.Jobs["j"].BelowFloor() || s.Jobs["j"].DroppedTasks() != 20 {
		t.Errorf("%+v", s.Jobs["j"])
	}
}
