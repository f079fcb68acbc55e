// Claims: a drop ratio drops tasks that have not begun, down to what it leaves and never
// below the floor, in the order of its seed, recorded first; a higher one later gives up more;
// beside an early stop the lower bound counts; a job whose owner does not let it, or that no hook
// asks for, takes none and says why; it survives the scheduler and the coordinators.
package yarn

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
	"headroom/jobs/dispatch"
	"headroom/scheduler/profiles"
	"headroom/units"
)

// named names tasks from first to below end, as a hook does.
func named(of, first, end int) string {
	var list []string
	for i := first; i < end; i++ {
		list = append(list, fmt.Sprintf(`{"task":%d,"bytes":10}`, i))
	}
	return fmt.Sprintf(`{"tasks":%d,"candidates":[%s]}`, of, strings.Join(list, ","))
}

func TestDropRatio(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		a, id, path := started(l, 40) // the floor is a half
		if p := l.progress(id); p.Theta != nil {
			l.Errorf("no hook has asked yet: %v", p)
		}
		l.want("GET", path+"/stop", "", 200, `{"stop":false,"dropped":[]}`)
		if p := l.progress(id); p.Theta == nil || p.GetTheta() != 0 {
			l.Errorf("it takes a drop ratio: %v", p)
		}
		testkit.Check(l, l.deflateJob(id, 0.1))
		l.want("GET", path+"/stop", "", 200, `{"stop":true,"min_tasks":36,"dropped":[]}`)
		l.want("POST", path+"/drop", named(41, 10, 40), 400, "")
		first := l.drop(path, named(40, 10, 40))
		if len(first) != 4 || len(l.log.dropped[id]) != 4 {
			l.Fatalf("dropped %v, recorded %v", first, l.log.dropped[id])
		}
		var want []int
		for _, task := range dispatch.DropOrder(40, rand.NewPCG(7, 0).Uint64) {
			if task >= 10 && len(want) < 4 {
				want = append(want, task)
			}
		}
		slices.Sort(want)
		if got := first.sorted(); !slices.Equal(got, want) {
			l.Errorf("dropped %v, by the seed it is %v", got, want)
		}
		if p := l.progress(id); p.GetTheta() != 0.1 || p.GetDropped() != 4 {
			l.Errorf("progress %v", p)
		}
		testkit.Check(l, l.engine.Deflate(&headroomv1.DeflateDirective{Id: id, Theta: 0.05, Seed: 9})) // an older view of it
		testkit.Check(l, l.deflateJob(id, 0.25))
		if all := l.drop(path, named(40, 10, 40)); len(all) != 10 {
			l.Errorf("dropped %v, want 10", all)
		}
		if r := l.log.drops[len(l.log.drops)-1]; r.GetOf() != 40 || !strings.Contains(r.GetChange().GetReason(), "drop ratio of 25 %: at least 30 of 40") {
			l.Errorf("recorded by %v", r)
		}
		l.plant.with(func() { a.drop = l.log.dropped[id] })
		l.pass(50 * time.Second)
		if j := l.log.job(id); j.GetState() != headroomv1.JobState_JOB_STATE_DONE || j.GetProgress().GetDone() != 30 {
			l.Errorf("ended as %v", j)
		}
	})
}

// drop is what is recorded once a hook has named its candidates.
func (l *lab) drop(path, body string) numbers {
	l.Helper()
	code, answer := l.ask("POST", path+"/drop", body)
	if code != 200 {
		l.Fatalf("%d %s", code, answer)
	}
	var said struct{ Dropped []int }
	testkit.Check(l, json.Unmarshal([]byte(answer), &said))
	all := numbers{}
	for _, task := range said.Dropped {
		all[task] = true
	}
	return all
}

// With an input wrapper the engine gives up what has not begun, once for each rise.
func TestDropRatioSweeps(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		_, id, path := started(l, 40) // 4 of 40 run, soon 8 have begun
		l.want("POST", path+"/begin", `{"task":0,"attempt":0,"bytes":1}`, 200, `{"run":true}`)
		testkit.Check(l, l.deflateJob(id, 0.1))
		l.pass(3 * time.Second)
		if n := len(l.log.dropped[id]); n != 4 {
			l.Errorf("%d dropped", n)
		}
		testkit.Check(l, l.deflateJob(id, 0.5))
		l.pass(3 * time.Second)
		if n := len(l.log.dropped[id]); n != 20 {
			l.Errorf("%d dropped after the rise", n)
		}
		l.pass(60 * time.Second)
		if j := l.log.job(id); j.GetProgress().GetDone() != 20 || len(l.log.drops) != 2 {
			l.Errorf("ended as %v after %d commands", j, len(l.log.drops))
		}
	})
}

// Of an early stop and a drop ratio the one that leaves fewer counts; the floor holds for both.
func TestDropRatioBesideAnEarlyStop(t *testing.T) {
	t.Parallel()
	for about, c := range map[string]struct {
		least, want int
		theta       float64
	}{
		"the stop": {24, 24, 0.2}, "the ratio": {36, 28, 0.3}, "both": {20, 20, 0.5},
	} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			inLab(t, func(l *lab) {
				_, id, path := started(l, 40)
				l.want("GET", path+"/stop", "", 200, "")
				l.stopJob(id, 40, uint32(c.least))
				testkit.Check(l, l.deflateJob(id, c.theta))
				l.want("GET", path+"/stop", "", 200, fmt.Sprintf(`{"stop":true,"min_tasks":%d,"dropped":[]}`, c.want))
				if all := l.drop(path, named(40, 0, 40)); len(all) != 40-c.want {
					l.Errorf("%d dropped, want %d", len(all), 40-c.want)
				}
			})
		})
	}
}

func TestDropRatioRefused(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		l.cfg.Queues = append(l.cfg.Queues, Queue{Name: "root.q3", Guarantee: 0.5, Deflate: new(false)})
		l.plant.queues = append(l.plant.queues, "root.q3")
		exact, whole, mute := l.plant.submit("root.q3", 40, 0), l.plant.submit("root.q2", 40, 0), l.plant.submit("root.q1", 40, 0)
		_, id, path := started(l, 40)
		for _, a := range []*plantApp{exact, whole} {
			l.want("GET", "/v1/jobs/"+l.plant.job(a)+"/stop", "", 200, `{"stop":false,"dropped":[]}`)
		}
		l.want("GET", path+"/stop", "", 200, "")
		deflate := func(id string, theta float64) error {
			return l.engine.Deflate(&headroomv1.DeflateDirective{Id: id, Theta: theta, Seed: 1})
		}
		for _, c := range []struct {
			id    string
			theta float64
			words string
			is    error
		}{
			{l.plant.id(exact), 0.1, "its owner does not allow drop ratios", errExact},
			{l.plant.id(whole), 0.1, "its quality floor is all tasks", errExact},
			{l.plant.id(mute), 0.1, "no hook that can drop tasks", errExact},
			{id, 0.6, "60 % would leave less than its floor of 50 %", errRequest},
			{id, -0.1, "is not from 0 to 1", errRequest},
			{id, math.NaN(), "is not from 0 to 1", errRequest},
			{id, math.Inf(1), "is not from 0 to 1", errRequest},
			{"application_1_0001", 0.1, "not a running job", errJob},
		} {
			if err := deflate(c.id, c.theta); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.words) {
				l.Errorf("%s, %v: %v; want %q", c.id, c.theta, err, c.words)
			}
		}
		for _, a := range []*plantApp{exact, whole, mute} {
			if p := l.progress(l.plant.id(a)); p.Theta != nil {
				l.Errorf("it takes no drop ratio: %v", p)
			}
		}
		if d := l.engine.Details(l.plant.id(exact)); len(d) != 1 || !strings.Contains(d[0].GetThetaWhy(), "its owner does not allow") {
			l.Errorf("shown as %v", d)
		}
		l.pass(hookLife) // its hook falls silent
		if err := deflate(id, 0.1); !errors.Is(err, errExact) {
			l.Errorf("%v", err)
		}
		if code, _ := l.ask("GET", path+"/stop", ""); code != 200 || deflate(id, 0.1) != nil {
			l.Error("its hook asks again, and the ratio is refused")
		}
	})
}

// A ratio in the log holds after a restart of the scheduler, before a hook has asked again; a directive that comes first is
// no error.
func TestDropRatioSurvives(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		_, id, path := started(l, 40)
		l.want("GET", path+"/stop", "", 200, "")
		testkit.Check(l, l.deflateJob(id, 0.2))
		before := l.drop(path, named(40, 30, 35))
		l.stop()
		l.start()
		l.pass(2 * time.Second)
		if p := l.progress(id); p.GetTheta() != 0.2 || p.GetDropped() != uint32(len(before)) {
			l.Errorf("progress %v", p)
		}
		l.want("GET", path+"/stop", "", 200, "")
		if all := l.drop(path, named(40, 10, 40)); len(all) != 8 {
			l.Errorf("dropped %v", all)
		}
		l.engine.book = newBook(l.cfg, l.engine.logger)
		if err := l.engine.Deflate(&headroomv1.DeflateDirective{Id: id, Theta: 0.3, Seed: 7}); err != nil {
			l.Error(err)
		}
	})
}

// Whatever comes in whatever order, no more is dropped than the lower bound leaves, and what was told to run runs.
func TestDropRatioLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const of = 20
		floor := rapid.Float64Range(0.05, 1).Draw(t, "floor")
		j := newJob(app{id: "application_1_0001"}, profiles.Bound{Fraction: floor})
		j.tasks = of
		at := time.Unix(0, 0)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				theta := rapid.Float64Range(0, 1-floor).Draw(t, "theta")
				was := j.theta
				j.deflate(at, theta, rapid.Uint64().Draw(t, "seed"))
				if j.theta < was {
					t.Fatalf("the ratio falls from %v to %v", was, j.theta)
				}
			case 1:
				j.decide(at, of, rapid.IntRange(units.Ratio(floor).Least(of), of).Draw(t, "least"))
			case 2:
				j.began[rapid.IntRange(0, of-1).Draw(t, "begins")] = true
			default:
				var list []candidate
				for range rapid.IntRange(0, of).Draw(t, "candidates") {
					list = append(list, candidate{task: rapid.IntRange(-2, of+2).Draw(t, "task")})
				}
				j.recorded(j.choose(list))
			}
			_, least, loose := j.bound()
			if left := of - len(j.dropped); left < units.Ratio(floor).Least(of) || least < units.Ratio(floor).Least(of) || !loose && left < of {
				t.Fatalf("%d of %d are left, bound %d, floor %v", left, of, least, floor)
			}
			for task := range j.dropped {
				if task < 0 || task >= of {
					t.Fatalf("task %d of %d is dropped", task, of)
				}
			}
		}
	})
}

// A share of 0 leaves an application its master, and no less where its share is smaller than that; a sum holds the jobs of
// one queue together.
func TestSharesOfOneQueue(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		first, second := l.plant.submit("root.q1", 40, 0), l.plant.submit("root.q1", 40, 0)
		alone := l.plant.submit("root.q2", 40, 0)
		l.start()
		l.pass(6 * time.Second)
		share := func(a *plantApp, n uint32) *headroomv1.JobShare {
			return &headroomv1.JobShare{Id: l.plant.id(a), Containers: n}
		}
		testkit.Check(l, l.engine.Share(&headroomv1.ShareDirective{Engine: Name, Jobs: []*headroomv1.JobShare{share(second, 5), share(first, 0), share(alone, 1)}}))
		jobs := []jobShare{{l.plant.id(second), 5 * 512, 5}, {l.plant.id(first), 2 * 512, 2}} // a master takes two containers
		want := []queueShare{{"root.q1", 7 * 512, 7, "drain", jobs}, {"root.q2", 2 * 512, 2, "drain", nil}}
		if got := l.engine.hookShares(time.Now(), 0).Queues; !slices.EqualFunc(got, want, queueShare.equal) {
			l.Errorf("served %v, want %v", got, want)
		}
	})
}
