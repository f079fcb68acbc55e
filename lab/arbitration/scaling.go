package arbitration

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"headroom/jobs/containers"
	"headroom/jobs/scaling/runs"
	"headroom/lab/report"
)

// meter measures a run of a job whose tasks slow each other down: integrals over time of its containers, of their square, and of them times
// the part of their power that machines may draw. Policies learn the machines' curve from it, or not at all.
type meter struct{ busy, square, power float64 }

func (j *job) measure(dt float64) {
	if j.Scales == "" || len(j.running) == 0 {
		return
	}
	held := float64(len(j.running))
	j.meter.busy += held * dt
	j.meter.square += held * held * dt
	for _, a := range j.running {
		j.meter.power += a.node.cap.Watts() / a.node.rated.Watts() * dt
	}
}

func (j *job) teach(b *runs.Book) {
	if b == nil || j.Name == "" || j.meter.busy <= 0 || j.done == 0 {
		return
	}
	m := &j.meter
	if err := b.Note(j.Name, runs.Run{Containers: m.square / m.busy, Tasks: j.done, Busy: m.busy, Power: min(1, m.power/m.busy)}); err != nil {
		panic(err) // every run has containers and tasks
	}
	if b.Due(j.Name) {
		b.Learn(j.Name)
	}
}

// advised passes the known facts about an arrived job to the policy.
func (j *job) advised(b *runs.Book) {
	if b == nil || j.Name == "" {
		return
	}
	a := b.Advise(j.Name, j.Deadline == 0)
	if a == nil {
		return
	}
	c, err := containers.NewCurve(a.Points)
	if err != nil {
		panic(err) // what is learned is a curve
	}
	j.curve, j.limit = c, c.Peak()
}

// pace has tasks of jobs take as long as their number makes them. The part of a task that is done stays done.
func (r *run) pace() {
	for _, j := range r.live {
		if j.Scales == "" || len(j.running) == 0 {
			continue
		}
		slow := j.Scales.slowness(len(j.running))
		for _, a := range j.running {
			if ratio := slow / a.slow; ratio != 1 {
				done := a.node.done
				a.from, a.until, a.slow = done-(done-a.from)*ratio, done+(a.until-done)*ratio, slow
				a.node.running.Move(a.id, a.until)
			}
		}
	}
}

// scaleType is one of the four types of scaling; empty for none.
type scaleType string

const typeI, typeII, typeIII, typeIV scaleType = "I", "II", "III", "IV"

// slowness returns how many times as long a task takes on n containers as on one.
func (x scaleType) slowness(n int) float64 {
	c := float64(n)
	switch x {
	case typeII:
		return math.Pow(c, 0.2)
	case typeIII:
		return 0.95 + 0.05*c
	case typeIV:
		return 1 + 0.02*(c-1) + 0.005*c*(c-1)
	default:
		return 1
	}
}

// scalingLoad is the load of `powerlab arbitrate --scaling`: for three hours, long enough for some twenty of each type.
func scalingLoad() Load {
	const span = 3 * time.Hour
	jobs := streams(span, time.Minute, urgentJob, 2*time.Minute, func(r *rand.Rand, at time.Duration) []Job {
		x := []scaleType{typeI, typeII, typeIII, typeIV}[r.IntN(4)]
		return []Job{{Class: Tolerant, Arrival: at, Tasks: 40 + r.IntN(41), Task: based(12), Floor: 1, Name: "type-" + string(x), Scales: x}}
	})
	return Load{Name: "scaling", Containers: perServer, For: span, Budget: cut(), Jobs: jobs}
}

// Scaling is the benefit of knowing how jobs scale, for each policy.
type Scaling struct {
	Seed  uint64        `json:"seed"`
	Seeds int           `json:"seeds"`
	Load  string        `json:"load"`
	Pairs []ScalingPair `json:"pairs"`
}

// ScalingPair is one way to decide with and without curves.
type ScalingPair struct {
	Name    string                 `json:"name"`
	With    map[string]report.Stat `json:"with"`
	Without map[string]report.Stat `json:"without"`
	Change  map[string]report.Stat `json:"change"`  // the difference, seed by seed
	Arbiter map[string]report.Stat `json:"arbiter"` // that of the arbiter with curves to this one with curves
}

// measureScaling compares the arbiter, and the baselines that run jobs side by side and give up no task, on these seeds.
func measureScaling(ctx context.Context, seeds seedRange) (*Scaling, error) {
	l := scalingLoad()
	ways := []variant{member(noPrice, usual)}
	for _, b := range baselines() {
		if slices.Contains([]string{"cab", "cab-urgent-first", "urgent-first", "urgent-first-fair"}, b.name) {
			ways = append(ways, b.with(0))
		}
	}
	var all []variant
	for _, v := range ways {
		all = append(all, v, v)
		all[len(all)-2].learns = true
	}
	results, err := runAll(ctx, &l, all, seeds)
	if err != nil {
		return nil, err
	}
	out := &Scaling{Seed: seeds.first, Seeds: seeds.count, Load: l.Name}
	for i := 0; i < len(results); i += 2 {
		with, without := results[i], results[i+1]
		p := ScalingPair{with.Name, with.Figures, without.Figures, map[string]report.Stat{}, map[string]report.Stat{}}
		for name, xs := range with.each {
			p.Change[name] = report.Of(less(xs, without.each[name], 1))
			p.Arbiter[name] = report.Of(less(results[0].each[name], xs, 1))
		}
		out.Pairs = append(out.Pairs, p)
	}
	return out, nil
}
