// Claims: over random jobs on machines whose speed follows their cap by a law that
// no policy knows, Learned foresees the end with less than half of Paper's mean
// error, told the work of running tasks or not; its bounds hold what they promise;
// it tells what would have been without a cap; jobs that ran before make it better.
package progress

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/units"
)

// jobs is how many jobs, of the seeds 0, 1, 2 and so on.
const jobs = 200

// tally is how far predictions were off.
type tally struct{ n, off, bias, covered float64 }

func (x *tally) note(f Finish, truth float64) {
	x.n++
	x.off += math.Abs(f.At.Seconds()-truth) / truth
	x.bias += (f.At.Seconds() - truth) / truth
	if f.Low.Seconds() <= truth && truth <= f.High.Seconds() {
		x.covered++
	}
}

func (x *tally) log(t *testing.T, name string) {
	t.Helper()
	t.Logf("%-8s mean error %5.2f %%, bias %+5.2f %%, within its bounds %.1f %%, %v predictions", name, 100*x.off/x.n, 100*x.bias/x.n, 100*x.covered/x.n, x.n)
}

// disturb changes cap and containers now and then.
type disturb struct{ next float64 }

func (d *disturb) step(p *plant, r *rand.Rand) {
	if p.seconds < d.next {
		return
	}
	p.cap = []float64{350, 250, 200, 175}[r.IntN(4)]
	if r.IntN(2) == 0 {
		p.containers = max(2, p.containers+r.IntN(9)-4)
	}
	d.next = p.seconds + 40 + 160*r.Float64()
}

func TestLearnedForeseesTwiceAsWell(t *testing.T) {
	t.Parallel()
	for _, work := range []bool{true, false} {
		var learned, paper tally
		var score [2]float64
		for seed := range uint64(jobs) {
			r := rand.New(rand.NewPCG(seed, 6))
			p, d := newPlant(r), disturb{}
			l, f := NewTracker(Learned), NewTracker(Paper)
			var s Score
			for !p.over() {
				d.step(p, r)
				o := p.observe(work)
				if l.Observe(o) != nil || f.Observe(o) != nil {
					t.Fatalf("seed %d: refused %+v", seed, o)
				}
				power, c := units.FromWatts(p.cap), float64(p.containers)
				fl, ff := l.Finish(power, c, float64(o.Tasks)), f.Finish(power, c, float64(o.Tasks))
				if fl.Known && ff.Known {
					// The end as things are: what comes later nobody can foresee.
					truth := p.end()
					learned.note(fl, truth)
					paper.note(ff, truth)
					s.Note(Learned, fl)
					s.Note(Paper, ff)
				}
				p.run(5)
			}
			for i, v := range s.Judge(time.Duration(p.seconds * float64(time.Second))) {
				score[i] += v.Error / jobs
			}
		}
		t.Logf("%d jobs, seeds 0 to %d, work of running tasks told: %v", jobs, jobs-1, work)
		learned.log(t, "learned")
		paper.log(t, "paper")
		t.Logf("against the true runtime, with caps nobody could foresee: learned %.2f %%, paper %.2f %%", 100*score[0], 100*score[1])
		if learned.off >= paper.off/2 {
			t.Errorf("learned is off by %.4f, paper by %.4f", learned.off/learned.n, paper.off/paper.n)
		}
		if c := learned.covered / learned.n; c < 0.87 || c > 0.985 {
			t.Errorf("bounds of 9 in 10 cases hold in %.3f of them", c)
		}
		if score[0] >= score[1] {
			t.Errorf("over whole runs learned is off by %.4f, paper by %.4f", score[0], score[1])
		}
	}
}

// A job that never ran without a cap is told its time without one.
func TestUncapped(t *testing.T) {
	t.Parallel()
	var learned, paper tally
	for seed := range uint64(jobs) {
		r := rand.New(rand.NewPCG(seed, 7))
		p := newPlant(r)
		truth := p.end()
		l, f := NewTracker(Learned), NewTracker(Paper)
		next := 0.0
		for !p.over() {
			if p.seconds >= next {
				p.cap = []float64{250, 200, 175}[r.IntN(3)]
				next = p.seconds + 40 + 160*r.Float64()
			}
			o := p.observe(true)
			if l.Observe(o) != nil || f.Observe(o) != nil {
				t.Fatalf("seed %d: refused %+v", seed, o)
			}
			c := float64(p.containers)
			fl, ff := l.Uncapped(c, float64(o.Tasks)), f.Uncapped(c, float64(o.Tasks))
			if fl.Known && ff.Known {
				learned.note(fl, truth)
				paper.note(ff, truth)
			}
			p.run(5)
		}
	}
	learned.log(t, "learned")
	paper.log(t, "paper")
	if learned.off >= paper.off/2 {
		t.Errorf("learned is off by %.4f, paper by %.4f", learned.off/learned.n, paper.off/paper.n)
	}
	if c := learned.covered / learned.n; c < 0.87 {
		t.Errorf("bounds of 9 in 10 cases hold in %.3f of them", c)
	}
}

// ended runs a job to its end under one cap and then others.
func ended(r *rand.Rand, p *plant, prior Prior, note func(f Finish, truth float64)) *Tracker {
	l, d := NewTrackerWith(Learned, prior), disturb{}
	for {
		d.step(p, r)
		o := p.observe(true)
		_ = l.Observe(o)
		if p.over() {
			return l
		}
		if f := l.Finish(units.FromWatts(p.cap), float64(p.containers), float64(o.Tasks)); f.Known {
			note(f, p.end())
		}
		p.run(5)
	}
}

// Jobs of one name: what the first have shown of pace, power and reduce part is
// known of the later ones before their first task has ended.
func TestPoolLearns(t *testing.T) {
	t.Parallel()
	var pool Pool
	var fresh, taught tally
	var first Finish
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 8))
		same := rand.New(rand.NewPCG(3, 8)) // one kind of job
		p := newPlant(same)
		p.reduce = 60 * (0.9 + 0.2*r.Float64())
		for i := range p.lengths {
			p.lengths[i] *= 0.8 + 0.4*r.Float64()
		}
		q := p.clone()
		l := ended(rand.New(rand.NewPCG(seed, 9)), p, pool.Prior("words"), taught.note)
		ended(rand.New(rand.NewPCG(seed, 9)), q, DefaultPrior(), fresh.note)
		pool.Learn("words", l)
	}
	taught.log(t, "taught")
	fresh.log(t, "fresh")
	if taught.off/taught.n >= 0.7*fresh.off/fresh.n {
		t.Errorf("taught by the jobs before it is off by %.4f, fresh by %.4f", taught.off/taught.n, fresh.off/fresh.n)
	}
	for name, x := range map[string]tally{"taught": taught, "fresh": fresh} {
		if x.covered/x.n < 0.87 {
			t.Errorf("%s: bounds of 9 in 10 cases hold in %.3f of them", name, x.covered/x.n)
		}
	}
	l := NewTrackerWith(Learned, pool.Prior("words"))
	_ = l.Observe(Observation{Elapsed: 2 * time.Second, Tasks: 100, Work: -1, Reduced: 0, Phase: Map, Power: 200 * units.Watt, Full: plantFull, Containers: 8})
	if first = l.Finish(0, 8, 100); !first.Known {
		t.Error("nothing is expected of a job of a known name before its first task has ended")
	}
	if l := NewTrackerWith(Learned, pool.Prior("other")); l.Finish(200*units.Watt, 8, 100).Known {
		t.Error("something is expected of a job of which nothing is known")
	}
	if x := pool.Prior("other").Power; x.SD >= DefaultPrior().Power.SD || pool.Jobs() != 60 {
		t.Errorf("after %d jobs the exponent is %v", pool.Jobs(), x)
	}
}

// The exponents that are told are those of the machine.
func TestExponents(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	p := newPlant(r)
	p.idle, p.bound, p.share, p.containers = 100, 1, 1, 20
	p.lengths = make([]float64, 2000)
	for i := range p.lengths {
		p.lengths[i] = 20 * math.Exp(0.1*r.NormFloat64())
	}
	l := NewTracker(Learned)
	for i := 0; !p.over(); i++ {
		p.cap = []float64{350, 250, 200, 175}[i/20%4]
		p.containers = []int{20, 10}[i/30%2]
		testkit.Check(t, l.Observe(p.observe(true)))
		p.run(5)
	}
	p.cap = 200
	l.last.Power = 200 * units.Watt
	power, containers := l.Exponents()
	// d ln((p-idle)^(1/2.4)) / d ln p at 200 W.
	if want := 200.0 / 100 / 2.4; math.Abs(power.Value-want) > 0.12 || power.SD > 0.12 {
		t.Errorf("power exponent %+v, want %.3f", power, want)
	}
	if math.Abs(containers.Value-1) > 0.1 || containers.SD > 0.1 {
		t.Errorf("container exponent %+v, want 1", containers)
	}
	if power, containers := NewTracker(Paper).Exponents(); power.Value != 1 || containers.Value != 1 {
		t.Errorf("paper's exponents are %v and %v", power, containers)
	}
}

// Jobs returns how many jobs have been learned from.
func (p *Pool) Jobs() int { return p.jobs }
