// Claims: a limit that reads back well and does not bind is found in 10 s, whether it stopped
// to bind or never took a cut, and by a slow BMC as soon as two of its readings prove it; it
// is charged what is drawn, and no longer half a minute after it binds again; noise, late and
// unknown readings, single insane ones, cuts that settle and limits that bind lower than the
// cap are no excess: at most one false alarm in 30 days of each kind of load.
package capping_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/capping"
	"headroom/lab/emulator/plant"
	"headroom/units"
)

// watched is an emulated node whose limits are watched.
type watched struct {
	t     *testing.T
	plant *plant.Plant
	spec  plant.Spec
	rng   *rand.Rand
	now   time.Duration
	cap   units.Power
	load  func() float64
	law   func(fresh bool)
	bmc   time.Duration // between two readings; 0: the law and the watch go by counters

	config capping.Config
	state  capping.State
	freq   capping.FreqConfig
	speed  capping.FreqState

	looked     time.Duration
	pkg, dram  units.Energy
	publishAt  time.Duration
	shown      [2]units.Energy
	wallBefore units.Energy
	bmcAt      time.Duration
	reading    units.Power // the BMC's
	coming     units.Power // its next, shown a second later
	sample     capping.Sample

	bind   capping.Bind
	alarms int
	shownA bool
}

// newWatched is a node whose law holds it by package limits, or by frequency with a BMC as
// its only meter. twin bounds the packages lower than the law does.
func newWatched(t *testing.T, seed uint64, bmc time.Duration, twin units.Power) *watched {
	t.Helper()
	spec := plant.DefaultSpec()
	spec.Twin = twin > 0
	p, err := plant.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{t: t, plant: p, spec: spec, rng: rand.New(rand.NewPCG(seed, 7)), cap: 160 * units.Watt, load: func() float64 { return 1 }, bmc: bmc}
	w.config = capping.Config{Other: spec.Other, Efficiency: spec.WorstEfficiency(), PackageMin: 5 * units.Watt, PackageMax: spec.TDP, HasDRAM: true}
	w.law = w.packages
	if bmc > 0 {
		p.SetEnabled(false)
		w.freq = capping.FreqConfig{
			Config: capping.Config{Other: spec.Other, Efficiency: spec.WorstEfficiency()}, Min: spec.FreqMin, Max: spec.FreqMax,
			Policies: spec.Cores, Rated: spec.Rated(), Floor: spec.Floor(), Strict: true,
		}
		w.law = w.frequencies
	}
	p.SetWindow(plant.LongTerm, capping.LongWindow)
	p.SetWindow(plant.ShortTerm, capping.ShortWindow)
	if twin > 0 {
		for c := plant.LongTerm; c <= plant.ShortTerm; c++ {
			p.Domains()[0].SetLimit(plant.MMIO, c, twin)
		}
	}
	w.pkg, w.dram = p.PackageEnergy(), p.DRAMEnergy()
	w.shown = [2]units.Energy{w.pkg, w.dram}
	return w
}

func (w *watched) packages(bool) {
	var act capping.Actions
	act, w.state = capping.Step(w.now, w.sample, w.cap, w.state, w.config)
	w.plant.SetLimit(plant.LongTerm, act.Long)
	w.plant.SetLimit(plant.ShortTerm, act.Short)
}

func (w *watched) frequencies(fresh bool) {
	in := capping.FreqSample{Sample: capping.Sample{Elapsed: period}}
	if fresh {
		in.Package = capping.Reading{Power: units.FromWatts(w.reading.Watts()*w.config.Efficiency) - w.config.Other, Known: true}
		in.Elapsed = w.bmc
	}
	var act capping.FreqActions
	act, w.speed = capping.StepFreq(in, w.cap, w.speed, w.freq)
	for cpu := range w.spec.Cores {
		f := act.Low
		if cpu < act.HighPolicies {
			f = act.High
		}
		w.plant.SetCeiling(cpu, f)
	}
}

// turn is one of the node's loop, and the quarter of a second after it.
func (w *watched) turn() {
	look := capping.BindLook{Cap: w.cap}
	fresh := false
	if w.bmc > 0 {
		if fresh = w.now-w.bmcAt >= w.bmc; fresh { // it averages, rounds to 4 W and comes an update late
			mean := (w.plant.WallEnergy() - w.wallBefore).Over(w.now - w.bmcAt).Watts()
			w.reading, w.coming = w.coming, units.FromWatts(4*math.Round(mean/4))
			w.wallBefore, w.bmcAt = w.plant.WallEnergy(), w.now
			look.Drawn, look.Elapsed, look.Late = capping.Reading{Power: w.reading, Known: w.reading > 0}, w.bmc, w.bmc
		}
	} else if elapsed := w.now - w.looked; elapsed > 0 {
		w.sample = capping.Sample{Elapsed: elapsed, Package: w.counted(0, &w.pkg, elapsed), DRAM: w.counted(1, &w.dram, elapsed)}
		w.looked = w.now
		look.Drawn, look.Elapsed = capping.Reading{Power: w.config.Wall(w.sample.Package.Power, w.sample.DRAM.Power), Known: true}, elapsed
	}
	w.law(fresh)
	w.observe(look)
	util := w.load()
	for range int(period / (10 * time.Millisecond)) {
		w.plant.Step(10*time.Millisecond, util)
		w.now += 10 * time.Millisecond
		if w.now >= w.publishAt { // counters come up to 40 ms late
			w.shown, w.publishAt = [2]units.Energy{w.plant.PackageEnergy(), w.plant.DRAMEnergy()}, w.now+time.Duration(w.rng.Int64N(int64(40*time.Millisecond)))
		}
	}
}

// counted is the power that a counter shows, across its wraps.
func (w *watched) counted(i int, before *units.Energy, d time.Duration) capping.Reading {
	moved := w.shown[i] - *before
	if moved < 0 {
		moved += []units.Energy{w.spec.PackageWrap(), w.spec.DRAMWrap()}[i] + 1
	}
	*before = w.shown[i]
	return capping.Reading{Power: moved.Over(d), Known: true}
}

func (w *watched) observe(look capping.BindLook) {
	w.bind.Observe(w.now, look)
	on := w.bind.Draws() > w.cap
	if on && !w.shownA {
		w.alarms++
		if w.alarms < 4 {
			w.t.Logf("%v: charged %v under a cap of %v (%v)", w.now, w.bind.Draws(), w.cap, w.plant)
		}
	}
	w.shownA = on
}

func (w *watched) pass(d time.Duration) {
	for end := w.now + d; w.now < end; {
		w.turn()
	}
}

// rest passes over time in which nothing changes: the load is steady and the law has settled.
func (w *watched) rest(d time.Duration) {
	if w.now += d; w.bmc == 0 {
		w.looked, w.publishAt = w.now, w.now
		w.observe(capping.BindLook{Cap: w.cap, Drawn: capping.Reading{Power: w.plant.Wall(), Known: true}, Elapsed: d})
		return
	}
	w.bmcAt = w.now
	w.observe(capping.BindLook{Cap: w.cap, Drawn: capping.Reading{Power: w.plant.Wall(), Known: true}, Elapsed: d, Late: w.bmc})
}

// unbind lets the hardware ignore its limits, which read back all the same.
func (w *watched) unbind(loose bool) {
	if w.bmc == 0 {
		w.plant.Domains()[0].Unbind(loose)
		return
	}
	w.law = w.frequencies
	if loose {
		w.law = func(bool) {
			for cpu := range w.spec.Cores {
				w.plant.SetCeiling(cpu, w.spec.FreqMax)
			}
		}
	}
}

func TestUnboundLimitIsChargedInTenSeconds(t *testing.T) {
	t.Parallel()
	for name, bmc := range map[string]time.Duration{"counters": 0, "BMC every 2 s": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			most := 10*time.Second - time.Second // a heartbeat is sent each second
			if bmc > 0 {
				most += 3 * bmc // what two readings late prove
			}
			for seed := range uint64(12) {
				w := newWatched(t, seed, bmc, 0)
				w.pass(20*time.Second + time.Duration(seed)*period)
				if w.bind.Draws() != 0 {
					t.Fatalf("charged %v while it binds", w.bind.Draws())
				}
				w.unbind(true)
				if seed%2 == 1 { // it never takes the cut
					w.cap = 110 * units.Watt
				}
				began := w.now
				for w.bind.Draws() == 0 && w.now-began < time.Minute {
					w.turn()
				}
				if w.now-began > most {
					t.Errorf("seed %d: found after %v, want %v", seed, w.now-began, most)
				}
				w.pass(10 * time.Second)
				if off := w.bind.Draws().Watts() / w.plant.Wall().Watts(); off < 0.98 || off > 1.06 {
					t.Errorf("charged %v, draws %v", w.bind.Draws(), w.plant.Wall())
				}
				w.unbind(false)
				began = w.now
				for w.bind.Draws() > 0 && w.now-began < 2*time.Minute {
					w.turn()
				}
				if after := w.now - began; after < 25*time.Second || after > 50*time.Second {
					t.Errorf("seed %d: ended %v after it bound again, want half a minute and what it takes to settle", seed, after)
				}
			}
		})
	}
}

// loads are the kinds of load of the claim: each returns what happens in a while of changes,
// and the load that it comes to rest at.
func loads() map[string]func(w *watched) float64 {
	return map[string]func(w *watched) float64{
		"idle": func(w *watched) float64 {
			job, until := 0.2+0.8*w.rng.Float64(), w.now+time.Duration(1+w.rng.IntN(5))*time.Second
			w.load = func() float64 {
				if w.now < until {
					return job
				}
				return 0.02
			}
			w.pass(6 * time.Second)
			return 0.02
		},
		"bursty": func(w *watched) float64 {
			for range 1 + w.rng.IntN(4) {
				w.load = func() float64 { return 1 }
				w.pass(time.Duration(1+w.rng.IntN(8)) * period)
				low := 0.3 * w.rng.Float64()
				w.load = func() float64 { return low }
				w.pass(time.Duration(1+w.rng.IntN(8)) * period)
			}
			return w.rng.Float64()
		},
		"I/O-bound": func(w *watched) float64 {
			w.load = func() float64 { return 0.05 + 0.6*w.rng.Float64()*w.rng.Float64() }
			w.pass(6 * time.Second)
			return 0.25
		},
	}
}

func TestLimitsThatBindRaiseNoAlarm(t *testing.T) {
	t.Parallel()
	for load, change := range loads() {
		for kind, w := range map[string]*watched{
			"package limits": newWatched(t, 1, 0, 0), "a twin that binds lower": newWatched(t, 2, 0, 70*units.Watt), "frequency and a late BMC": newWatched(t, 3, 2*time.Second, 0),
		} {
			t.Run(load+", "+kind, func(t *testing.T) {
				t.Parallel()
				w.t = t
				changes, cuts := w.days(30, 45*time.Minute, change)
				t.Logf("%d alarms in %v, %d changes of load, %d of the cap", w.alarms, w.now.Round(time.Hour), changes, cuts)
				if w.alarms > 1 || changes < 500 {
					t.Errorf("%d false alarms in 30 days", w.alarms)
				}
			})
		}
	}
}

// days lets days go by in virtual time: stretches of changing load and cap are stepped through
// with noise, what lies between them is at rest.
func (w *watched) days(n int, between time.Duration, change func(w *watched) float64) (changes, cuts int) {
	floor, rated := w.spec.Floor().Watts()*1.06, w.spec.Rated().Watts()
	for w.now < time.Duration(n)*24*time.Hour {
		if w.rng.IntN(2) == 0 {
			w.cap = units.FromWatts(floor + w.rng.Float64()*(rated-floor))
			cuts++
		}
		rests := change(w)
		w.load = func() float64 { return rests }
		w.pass(8 * time.Second)
		w.rest(time.Duration(w.rng.ExpFloat64() * float64(between)))
		changes++
	}
	return changes, cuts
}

// BenchmarkFalseAlarms sweeps 30 days in which load and cap change every minute.
func BenchmarkFalseAlarms(b *testing.B) {
	for load, change := range loads() {
		b.Run(load, func(b *testing.B) {
			for seed := range b.N {
				t := &testing.T{}
				w := newWatched(t, uint64(seed), time.Duration(seed%2)*2*time.Second, 0)
				w.days(30, time.Minute, change)
				b.ReportMetric(float64(w.alarms), "alarms")
			}
		})
	}
}

// at is a node at a cap with counters, looked at every period.
type at struct {
	bind capping.Bind
	now  time.Duration
}

func (a *at) look(d time.Duration, granted units.Power, watts float64, isKnown bool) {
	for end := a.now + d; a.now < end; {
		a.now += period
		a.bind.Observe(a.now, capping.BindLook{Cap: granted, Drawn: capping.Reading{Power: units.FromWatts(watts), Known: isKnown}, Elapsed: period})
	}
}

// reads takes in n readings of a BMC that updates every 2 s, with the mean of the 2 s before.
func (a *at) reads(n int, granted units.Power, watts float64) {
	for range n {
		a.now += 2 * time.Second
		a.bind.Observe(a.now, capping.BindLook{Cap: granted, Drawn: known(watts), Elapsed: 2 * time.Second, Late: 2 * time.Second})
	}
}

func TestWhatIsNoExcess(t *testing.T) {
	t.Parallel()
	const granted = 100 * units.Watt
	for name, happens := range map[string]func(a *at){
		"unknown power": func(a *at) { a.look(time.Hour, granted, 400, false) },
		"a cut that settles": func(a *at) {
			a.look(4500*time.Millisecond, 60*units.Watt, 99, true) // 2 s to settle, and no 3 s after that
			a.look(5*time.Second, 60*units.Watt, 59, true)         // not long enough to end an excess
		},
		"a cut that a BMC shows late": func(a *at) {
			a.reads(5, 60*units.Watt, 99) // the first brings the cut
			a.reads(3, 60*units.Watt, 59)
		},
		"an insane reading":           func(a *at) { a.look(period, granted, 4000, true); a.look(time.Minute, granted, 99, true) },
		"readings that are none":      func(a *at) { a.look(time.Minute, granted, -5, true); a.look(time.Minute, granted, 1e9, true) },
		"a mean within the tolerance": func(a *at) { a.look(time.Hour, granted, 102.9, true) },
		"excesses with breaks between": func(a *at) {
			for range 50 {
				a.look(2*time.Second, granted, 120, true)
				a.look(2*time.Second, granted, 90, true)
			}
		},
		"excesses with silence between": func(a *at) {
			for range 50 {
				a.look(2*time.Second, granted, 120, true)
				a.look(6*time.Second, granted, 0, false)
			}
		},
		"a raise": func(a *at) { a.look(time.Minute, 200*units.Watt, 199, true) },
		"a new process": func(a *at) {
			*a = at{now: a.now}
			a.look(bindsAfter, granted, 300, true) // not cut yet
			a.look(5*time.Second, granted, 99, true)
		},
	} {
		a := &at{now: time.Hour}
		a.look(time.Minute, granted, 99, true)
		if happens(a); a.bind.Draws() != 0 {
			t.Errorf("%s: charged %v", name, a.bind.Draws())
		}
	}
}

// bindsAfter is how long a cut may take.
const bindsAfter = 2 * time.Second

func TestExcessIsHeldAndFollows(t *testing.T) {
	t.Parallel()
	a := &at{}
	want := func(what string, p units.Power) {
		t.Helper()
		if got := a.bind.Draws(); got != p {
			t.Errorf("%s: charged %v, want %v", what, got, p)
		}
	}
	a.look(time.Minute, 100*units.Watt, 99, true)
	a.look(10*time.Second, 100*units.Watt, 150, true)
	want("above the cap", 150*units.Watt)
	a.look(5*time.Second, 100*units.Watt, 180, true)
	want("rising", 180*units.Watt)
	a.look(time.Minute, 100*units.Watt, 130, true)
	want("fallen for a minute", 130*units.Watt)
	a.look(time.Hour, 100*units.Watt, 0, false)
	want("unknown for an hour", 130*units.Watt)
	a.look(20*time.Second, 100*units.Watt, 90, true)
	a.look(3*time.Second, 100*units.Watt, 130, true)
	a.look(20*time.Second, 100*units.Watt, 90, true)
	want("met for 20 s twice", 130*units.Watt)
	for i := range 20 { // cuts of 1 W a second hide nothing
		a.look(time.Second, units.Power(100-i)*units.Watt, 130, true)
	}
	want("under a cap that falls", 130*units.Watt)
	a.look(31*time.Second, 81*units.Watt, 80, true)
	want("met for half a minute", 0)
}

// A plan that lowers a cap a little each second must not keep the watch waiting for it to settle.
func TestCreepingCutsHideNothing(t *testing.T) {
	t.Parallel()
	a := &at{}
	a.look(time.Minute, 200*units.Watt, 199, true)
	for i := range 15 {
		a.look(time.Second, units.Power(200-5*i)*units.Watt, 199, true)
	}
	if a.bind.Draws() < 199*units.Watt {
		t.Errorf("charged %v", a.bind.Draws())
	}
}

// However a node is looked at, one that never draws above its cap is charged nothing, one that
// draws more than the tolerance above it throughout is charged, and never more than was drawn.
func TestBindLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var b capping.Bind
		now := time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "booted"))
		over := rapid.SampledFrom([]float64{0.2, 0.99, 1, 1.1, 2}).Draw(t, "over")
		granted, most, seen := 100*units.Watt, 0.0, time.Duration(0)
		for range rapid.IntRange(20, 100).Draw(t, "looks") {
			d := time.Duration(rapid.Int64Range(int64(50*time.Millisecond), int64(3*time.Second)).Draw(t, "elapsed"))
			now += d
			if over <= 1 { // the cap may do anything
				granted = units.Power(rapid.IntRange(50, 300).Draw(t, "cap_w")) * units.Watt
			}
			drawn := granted.Watts() * over
			if over <= 1 {
				drawn = 50 * over
			}
			most, seen = max(most, drawn), seen+d
			b.Observe(now, capping.BindLook{Cap: granted, Drawn: known(drawn), Elapsed: d})
		}
		switch draws := b.Draws(); {
		case over <= 1 && draws != 0, draws.Watts() > math.Ceil(most):
			t.Fatalf("charged %v, drew at most %.1f W", draws, most)
		case over > 1 && seen > 20*time.Second && draws.Watts() < most-1e-6:
			t.Fatalf("charged %v after %v at %.1f W", draws, seen, most)
		}
	})
}
