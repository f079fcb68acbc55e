// Claims: whatever is submitted, handed over, refused, lost, repeated and cancelled in whatever order, a distributor loses no task and
// counts each result once; it hands over nothing beyond a window or to a group that is lost; splits add up and are as even, or as
// close to their weights, as whole tasks can be; what it learns of the groups' speeds is right within bounds and forgotten at a new cap.
package pigeon

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

type modelSent struct {
	name, attempt int
	high, sent    bool
	group         Group // where it is handed over
}

type distributorModel struct {
	d       *Distributor[int]
	most    int
	groups  []bool
	windows [][2]int
	tasks   map[ID]*modelSent
	done    []ID
	names   int
}

func TestDistributorLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := &distributorModel{most: rapid.SampledFrom([]int{0, 10, 40}).Draw(t, "most"), tasks: map[ID]*modelSent{}}
		x.d = NewDistributor[int](DistributorOptions{
			Spread: rapid.SampledFrom([]Spread{Even, Weighted, Level, Balanced, Shorter}).Draw(t, "spread"), Placement: rapid.SampledFrom([]Placement{RoundRobin, Block}).Draw(t, "placement"),
			WaitMost: x.most, Random: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)),
		})
		t.Repeat(map[string]func(*rapid.T){
			"": x.check, "join": x.join, "lost": x.lost, "up": x.up, "window": x.window, "submit": x.submit, "result": x.result, "again": x.again,
			"lost task": x.lostTask, "refused": x.refused, "cancel": x.cancel, "report": x.report,
		})
	})
}

func (x *distributorModel) group(t *rapid.T) Group {
	if len(x.groups) == 0 {
		t.Skip("no group")
	}
	return Group(rapid.IntRange(0, len(x.groups)-1).Draw(t, "group"))
}

func (x *distributorModel) task(t *rapid.T, is func(*modelSent) bool) ID {
	var some []ID
	for _, id := range slices.Sorted(maps.Keys(x.tasks)) {
		if is(x.tasks[id]) {
			some = append(some, id)
		}
	}
	if len(some) == 0 {
		t.Skip("no task")
	}
	return rapid.SampledFrom(some).Draw(t, "task")
}

func sent(k *modelSent) bool { return k.sent }

func (x *distributorModel) join(t *rapid.T) {
	if g := x.d.Join(); int(g) != len(x.groups) {
		t.Fatalf("group %d", g)
	}
	x.groups, x.windows = append(x.groups, true), append(x.windows, [2]int{})
}

func (x *distributorModel) lost(t *rapid.T) {
	g := x.group(t)
	x.d.Lost(g)
	if x.groups[g] {
		for _, k := range x.tasks {
			if k.sent && k.group == g {
				k.sent = false
				k.attempt++
			}
		}
	}
	x.groups[g], x.windows[g] = false, [2]int{}
	x.drain(t)
}

func (x *distributorModel) up(t *rapid.T) {
	g := x.group(t)
	x.d.Up(g)
	x.groups[g] = true
	x.drain(t)
}

func (x *distributorModel) window(t *rapid.T) {
	g := x.group(t)
	w := [2]int{rapid.IntRange(0, 20).Draw(t, "low"), rapid.IntRange(0, 20).Draw(t, "high")}
	x.d.Window(g, w[low], w[high])
	if x.groups[g] {
		x.windows[g] = w
	}
	x.drain(t)
}

func (x *distributorModel) report(t *rapid.T) {
	x.d.Report(x.group(t), rapid.Float64Range(0, 3).Draw(t, "power"), rapid.IntRange(0, 9).Draw(t, "ahead"), rapid.IntRange(0, 9).Draw(t, "ahead high"))
}

func (x *distributorModel) submit(t *rapid.T) {
	var tasks []int
	for range rapid.IntRange(0, 25).Draw(t, "tasks") {
		x.names++
		tasks = append(tasks, x.names)
	}
	isHigh := rapid.Bool().Draw(t, "high")
	ids, ok := x.d.Submit(tasks, isHigh, nil)
	if want := x.most == 0 || len(tasks)+x.waiting() <= x.most; ok != want || ok && len(ids) != len(tasks) {
		t.Fatalf("%d tasks: %d IDs, %v; %d wait of at most %d", len(tasks), len(ids), ok, x.waiting(), x.most)
	}
	for i, id := range ids {
		if x.tasks[id] != nil || slices.Contains(x.done, id) {
			t.Fatalf("ID %x was used before", id)
		}
		x.tasks[id] = &modelSent{name: tasks[i], high: isHigh}
	}
	x.drain(t)
}

func (x *distributorModel) waiting() (n int) {
	for _, k := range x.tasks {
		if !k.sent {
			n++
		}
	}
	return n
}

// result is one that comes for any task that was handed over once, even if it now waits again.
func (x *distributorModel) result(t *rapid.T) {
	id := x.task(t, func(k *modelSent) bool { return k.sent || k.attempt > 0 })
	if s, ok := x.d.Result(id); !ok || s.Task != x.tasks[id].name {
		t.Fatalf("%+v %v, want %+v", s, ok, x.tasks[id])
	}
	x.done = append(x.done, id)
	delete(x.tasks, id)
}

// again repeats what was said of ended tasks and earlier attempts.
func (x *distributorModel) again(t *rapid.T) {
	for _, id := range x.done {
		if s, ok := x.d.Result(id); ok || x.d.LostTask(id, 0) || x.d.Refused(id, 0) {
			t.Fatalf("%+v counted twice", s)
		}
	}
	id := x.task(t, func(k *modelSent) bool { return k.attempt > 0 })
	if x.d.LostTask(id, x.tasks[id].attempt-1) || x.d.Refused(id, x.tasks[id].attempt-1) {
		t.Fatalf("an earlier attempt of %+v was lost", x.tasks[id])
	}
}

func (x *distributorModel) lostTask(t *rapid.T) {
	k := x.task(t, sent)
	if !x.d.LostTask(k, x.tasks[k].attempt) {
		t.Fatalf("%+v was not lost", x.tasks[k])
	}
	x.tasks[k].sent = false
	x.tasks[k].attempt++
	x.drain(t)
}

func (x *distributorModel) refused(t *rapid.T) {
	id := x.task(t, sent)
	k := x.tasks[id]
	if !x.d.Refused(id, k.attempt) {
		t.Fatalf("%+v was not refused", k)
	}
	k.sent = false
	x.windows[k.group][kindOf(k.high)] = 0
	x.drain(t)
}

func (x *distributorModel) cancel(t *rapid.T) {
	id := x.task(t, func(*modelSent) bool { return true })
	if _, was, ok := x.d.Cancel(id); !ok || was != x.tasks[id].sent {
		t.Fatalf("sent %v, %v; want %+v", was, ok, x.tasks[id])
	}
	x.done = append(x.done, id)
	delete(x.tasks, id)
}

func (x *distributorModel) drain(t *rapid.T) {
	for s, more := x.d.Next(); more; s, more = x.d.Next() {
		k := x.tasks[s.ID]
		if k == nil || k.sent || k.name != s.Task || k.high != s.High || k.attempt != s.Attempt {
			t.Fatalf("sent %+v, which is %+v", s, k)
		}
		if w := &x.windows[s.Group][kindOf(s.High)]; !x.groups[s.Group] || *w <= 0 {
			t.Fatalf("sent %+v to a group that takes %v, up %v", s, *w, x.groups[s.Group])
		} else {
			*w--
		}
		k.sent, k.group = true, s.Group
	}
}

func (x *distributorModel) check(t *rapid.T) {
	if got, want := x.d.Waiting(), x.waiting(); got != want {
		t.Fatalf("%d wait, want %d", got, want)
	}
	for g := range x.groups {
		for s := range x.d.Outstanding(Group(g)) {
			if k := x.tasks[s.ID]; k == nil || !k.sent || k.group != s.Group {
				t.Fatalf("outstanding %+v is %+v", s, k)
			}
		}
	}
	open := true // a group that takes everything
	for g, up := range x.groups {
		open = open && up && x.windows[g][low] > 0 && x.windows[g][high] > 0
	}
	if open && len(x.groups) > 0 && x.waiting() > 0 {
		t.Fatalf("%d wait, but all groups take tasks", x.waiting())
	}
}

// Each gets the whole part of its share; the remainder goes to distinct ones.
func TestSplitsAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newSplitter(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))
		tasks := rapid.IntRange(1, 400).Draw(t, "tasks")
		weights := rapid.SliceOfN(rapid.OneOf(rapid.Float64Range(0, 9), rapid.Just(0.0)), 1, 30).Draw(t, "weights")
		total, sum := 0, 0.0
		for _, w := range weights {
			sum += w
		}
		for _, x := range s.even(tasks, len(weights)) {
			total += x.Tasks
			if extra := x.Tasks - tasks/len(weights); extra < 0 || extra > 1 {
				t.Fatalf("group %d gets %d of %d", x.Group, x.Tasks, tasks)
			}
		}
		if total != tasks {
			t.Fatalf("%d tasks of %d", total, tasks)
		}
		if sum == 0 {
			return
		}
		ahead := rapid.SliceOfN(rapid.IntRange(0, 9), len(weights), len(weights)).Draw(t, "ahead")
		by := s.weighted
		if rapid.Bool().Draw(t, "balanced") {
			by = func(tasks int, weights []float64) []share { return s.balanced(tasks, weights, ahead) }
		}
		total = 0
		for _, x := range by(tasks, weights) {
			total += x.Tasks
			if quota := float64(tasks) * weights[x.Group] / sum; math.Abs(float64(x.Tasks)-quota) > 1+1e-9 || weights[x.Group] == 0 {
				t.Fatalf("group %d gets %d, its quota is %v", x.Group, x.Tasks, quota)
			}
		}
		if total != tasks {
			t.Fatalf("%d tasks of %d", total, tasks)
		}
	})
}

// Jobs of one task reach each group as often as its weight says.
func TestWeightedIsUnbiased(t *testing.T) {
	t.Parallel()
	const jobs = 20_000
	for tasks, weights := range map[int][]float64{1: {1, 2, 3, 4}, 7: {5, 1, 1, 1}} {
		s := newSplitter(rand.New(rand.NewPCG(4, 2)))
		got := make([]float64, len(weights))
		for range jobs {
			for _, x := range s.weighted(tasks, weights) {
				got[x.Group] += float64(x.Tasks)
			}
		}
		sum := 0.0
		for _, w := range weights {
			sum += w
		}
		for g, w := range weights {
			if mean, want := got[g]/jobs, float64(tasks)*w/sum; math.Abs(mean-want) > 5*0.5/math.Sqrt(jobs) { // five standard deviations of a mean
				t.Errorf("%d tasks: group %d gets %v, want %v", tasks, g, mean, want)
			}
		}
	}
}

// Of a job with fewer tasks than groups, each goes where least is ahead for the power.
func TestBalancedFillsShortQueues(t *testing.T) {
	t.Parallel()
	s := newSplitter(rand.New(rand.NewPCG(1, 1)))
	power, ahead := []float64{1, 1, 2, 0, 1}, []int{5, 0, 7, 0, 2}
	if got := s.balanced(3, power, ahead); !slices.Equal(got, []share{{1, 1}, {2, 2}}) && !slices.Equal(got, []share{{1, 1}, {2, 1}, {4, 1}}) {
		t.Errorf("%v", got)
	}
	if got := s.balanced(1, power, ahead); !slices.Equal(got, []share{{1, 1}}) {
		t.Errorf("%v", got)
	}
}

// No task would end sooner in another group.
func TestLevelIsBest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newSplitter(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))
		power := rapid.SliceOfN(rapid.Float64Range(0.1, 4), 1, 8).Draw(t, "power")
		ahead := rapid.SliceOfN(rapid.IntRange(0, 50), len(power), len(power)).Draw(t, "ahead")
		tasks := rapid.IntRange(1, 100).Draw(t, "tasks")
		got := make([]int, len(power))
		total := 0
		for _, x := range s.level(tasks, power, ahead) {
			got[x.Group] = x.Tasks
			total += x.Tasks
		}
		for g := range power {
			for other := range power {
				if ends, better := float64(ahead[g]+got[g])/power[g], float64(ahead[other]+got[other]+1)/power[other]; got[g] > 0 && better < ends-1e-9 {
					t.Fatalf("the last task of group %d ends at %v, in group %d at %v", g, ends, other, better)
				}
			}
		}
		if total != tasks {
			t.Fatalf("%d tasks of %d", total, tasks)
		}
	})
}

func TestDeal(t *testing.T) {
	t.Parallel()
	shares := []share{{0, 3}, {2, 1}, {3, 2}}
	for p, want := range map[Placement][]int{RoundRobin: {0, 2, 3, 0, 3, 0}, Block: {0, 0, 0, 2, 3, 3}} {
		if got := p.deal(shares, nil); !slices.Equal(got, want) {
			t.Errorf("%d: %v, want %v", p, got, want)
		}
	}
}

// Two groups of the same slots, one at half speed: the power tells it within a tenth although tasks vary by a factor of e; after a
// change of the cap it starts anew, and what began before teaches nothing.
func TestPowerIsLearned(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7))
	p := NewPower(2)
	now := time.Duration(0)
	run := func(slow [2]float64) {
		for job := range uint64(200) {
			now += 1000 * time.Hour
			scale := math.Exp(3 * r.NormFloat64())
			for task := range 20 {
				g := task % 2
				took := scale * math.Exp(0.5*r.NormFloat64()) * slow[g]
				p.Ended(now, Group(g), job, time.Duration(took*float64(time.Second)))
			}
			p.Done(now, job)
			now -= 1000*time.Hour - time.Second
		}
	}
	p.Cap(now, 0, 10)
	p.Cap(now, 1, 10)
	run([2]float64{1, 2})
	if ratio := p.Power(0) / p.Power(1); math.Abs(ratio-2) > 0.2 {
		t.Errorf("learned %v, want 2", ratio)
	}
	p.Cap(now, 1, 5)
	if got := p.Power(1); got != 5 {
		t.Errorf("power %v after a new cap, want 5", got)
	}
	for job := range uint64(9) {
		p.Ended(now, 0, job, time.Second)
		p.Ended(now, 1, job, time.Hour)
		p.Done(now, job)
	}
	if got := p.Speed(1); got != 1 {
		t.Errorf("speed %v learned from what began at the cap before", got)
	}
	p.Cap(now, 0, 10)
	run([2]float64{1, 1})
	if ratio := p.Speed(0) / p.Speed(1); math.Abs(ratio-1) > 0.1 {
		t.Errorf("learned %v at the new cap, want 1", ratio)
	}
}

// The tasks of kinds that are not done are bounded, and so is what remembers the kinds.
func TestPowerForgetsKinds(t *testing.T) {
	t.Parallel()
	p := NewPower(1)
	for kind := range uint64(5 * samplesMost / 4) {
		p.Ended(time.Hour, 0, kind, time.Second)
		if kind%3 == 0 {
			p.Done(time.Hour, kind)
		}
	}
	if p.count > samplesMost || len(p.kinds) != p.count || len(p.order) > 3*samplesMost {
		t.Errorf("%d samples of %d kinds, %d in order", p.count, len(p.kinds), len(p.order))
	}
}
