// Package plant is the physics of one emulated node: how much power its package,
// its memory and its wall socket draw while it works under its limits.
//
// The one idea: power is a consequence, never a setting. The caller says how busy
// the node is and for how long; frequency follows from the limits, power from
// frequency and load, energy from power. The same plant steps in virtual time
// (simulation, property tests) and in real time (powerlab node).
//
// The package draws
//
//	P = Idle + Dynamic * utilisation * (f/FreqMax)^e
//
// and follows changes with a first-order response (about 40 ms). Each of the two
// limits (long term, short term) bounds a running average over its own window: an
// average below its limit may be exceeded for a while, an average above it is paid
// back. The frequency is the highest that both limits and the ceilings permit,
// never below FreqMin, so a limit below what FreqMin draws is not met. Memory
// follows work done, and the wall pays for the supply's losses on top of it all.
//
// Guarantees: energy is the integral of power, to the last fraction of a
// microjoule, across counter wraps; limits and windows round as the kernel's own
// driver rounds them; the same steps give the same numbers on every run. A Plant
// does no I/O, reads no clock, and belongs to one goroutine.
package plant

import (
	"fmt"
	"math"
	"slices"
	"time"

	"headroom/units"
)

// Constraint names one of the package's two limits.
type Constraint int

// The package's constraints, by the numbers that the kernel gives them.
const (
	LongTerm  Constraint = 0 // "long_term", PL1
	ShortTerm Constraint = 1 // "short_term", PL2
)

// String is the name that the kernel shows in constraint_N_name.
func (c Constraint) String() string {
	if c == LongTerm {
		return "long_term"
	}
	return "short_term"
}

// limit is one constraint with the running average that it bounds.
type limit struct {
	watts   float64
	window  float64 // seconds
	average float64 // watts, exponentially weighted over the window
}

// Plant is one machine at one moment.
type Plant struct {
	spec Spec

	limits  [2]limit
	enabled bool
	// ceilings holds the frequency ceiling of each virtual CPU in kHz, and its
	// share of FreqMax to the power of Exponent; ascending is the latter, sorted.
	ceilings  []units.Freq
	pows      []float64
	ascending []float64
	sumPow    float64

	// What the last step came to.
	freq  units.Freq // highest effective frequency
	speed float64    // mean effective frequency over FreqMax
	util  float64
	pkg   float64 // watts
	dram  float64 // watts

	elapsed     time.Duration
	energy      [3]float64 // uJ in the counters of package, core, DRAM
	wallEnergy  float64    // uJ at the wall since the start, never wraps
	limitedTime time.Duration
}

// Indices into Plant.energy.
const (
	counterPackage = iota
	counterCore
	counterDRAM
)

// maxSubstep bounds the time over which power counts as constant; a quarter of
// the usual response, so that long steps and short ones agree.
const maxSubstep = 10 * time.Millisecond

// New is a machine that has been idle for long: factory limits, enabled, every
// ceiling at FreqMax. It fails with ErrSpec when spec describes no machine.
func New(spec Spec) (*Plant, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	idle := spec.Idle.Watts()
	p := &Plant{
		spec: spec, enabled: true,
		pkg: idle, dram: spec.DRAMIdle.Watts(),
		freq: spec.FreqMax, speed: 1,
		ceilings: make([]units.Freq, spec.Cores), pows: make([]float64, spec.Cores),
	}
	p.limits[LongTerm].average, p.limits[ShortTerm].average = idle, idle
	p.SetLimit(LongTerm, spec.TDP)
	p.SetLimit(ShortTerm, spec.Peak)
	p.SetWindow(LongTerm, spec.LongWindow)
	p.SetWindow(ShortTerm, spec.ShortWindow)
	for cpu := range p.ceilings {
		p.SetCeiling(cpu, spec.FreqMax)
	}
	for i := range p.energy {
		p.add(i, float64(spec.EnergyStart))
	}
	return p, nil
}

// Spec is what the machine is made of.
func (p *Plant) Spec() Spec { return p.spec }

// SetLimit writes a limit of the package and returns what the hardware holds of
// it (RoundLimit). 0 W is accepted, as the kernel accepts it.
func (p *Plant) SetLimit(c Constraint, to units.Power) units.Power {
	held := RoundLimit(to)
	p.limits[c].watts = held.Watts()
	return held
}

// Limit is the limit that the hardware holds.
func (p *Plant) Limit(c Constraint) units.Power { return units.FromWatts(p.limits[c].watts) }

// SetWindow writes a limit's averaging window and returns what the hardware
// holds of it (RoundWindow).
func (p *Plant) SetWindow(c Constraint, to time.Duration) time.Duration {
	held := RoundWindow(to)
	p.limits[c].window = held.Seconds()
	return held
}

// Window is the averaging window that the hardware holds.
func (p *Plant) Window(c Constraint) time.Duration {
	return time.Duration(math.Round(p.limits[c].window*1e6)) * time.Microsecond
}

// SetEnabled turns the package's limits on or off. Off, only the frequency
// ceilings hold the machine.
func (p *Plant) SetEnabled(on bool) { p.enabled = on }

// Enabled tells whether the package's limits are enforced.
func (p *Plant) Enabled() bool { return p.enabled }

// SetCeiling sets the frequency ceiling of one virtual CPU (0 to Cores-1) and
// returns the rung that holds (Spec.RoundFreq).
func (p *Plant) SetCeiling(cpu int, to units.Freq) units.Freq {
	held := p.spec.RoundFreq(to)
	if p.ceilings[cpu] == held {
		return held
	}
	p.ceilings[cpu] = held
	p.pows[cpu] = math.Pow(float64(held)/float64(p.spec.FreqMax), p.spec.Exponent)
	p.ascending = append(p.ascending[:0], p.pows...)
	slices.Sort(p.ascending)
	p.sumPow = 0
	for _, pow := range p.ascending {
		p.sumPow += pow
	}
	return held
}

// Step lets dt go by with the node's CPUs busy for util of the time that they
// may run at the present frequency: 0 idle, 1 fully loaded; anything outside
// counts as the nearer end. A dt of 0 or less is no step.
func (p *Plant) Step(dt time.Duration, util float64) {
	p.util = clampUnit(util)
	for dt > 0 {
		h := min(dt, maxSubstep)
		p.substep(h)
		dt -= h
	}
}

// substep is one move of gather, decide, apply: averages, frequency, power, energy.
func (p *Plant) substep(h time.Duration) {
	seconds := h.Seconds()
	for i := range p.limits {
		l := &p.limits[i]
		l.average += (p.pkg - l.average) * (1 - math.Exp(-seconds/l.window))
	}
	want, limited := p.decide(p.allowed())
	toward := 1 - math.Exp(-seconds/p.spec.Response.Seconds())
	p.pkg += (want - p.pkg) * toward
	traffic := p.spec.DRAMIdle.Watts() + p.spec.DRAMDynamic.Watts()*p.util*p.speed
	p.dram += (traffic - p.dram) * toward

	p.elapsed += h
	if limited {
		p.limitedTime += h
	}
	micro := seconds * 1e6
	p.add(counterPackage, p.pkg*micro)
	p.add(counterCore, p.core()*micro)
	p.add(counterDRAM, p.dram*micro)
	p.wallEnergy += p.wall() * micro
}

// allowed is what the limits let the package draw now, in watts. An average
// below its limit earns as much again on top; one above it is paid back.
func (p *Plant) allowed() float64 {
	if !p.enabled {
		return math.Inf(1)
	}
	allowed := math.Inf(1)
	for _, l := range p.limits {
		allowed = math.Min(allowed, l.watts+(l.watts-l.average))
	}
	return allowed
}

// decide sets the frequency to the highest that draws no more than allowed
// watts, and returns the package power that it leads to and whether the limits
// (not the ceilings) chose it.
func (p *Plant) decide(allowed float64) (want float64, limited bool) {
	idle, full := p.spec.Idle.Watts(), p.spec.Dynamic.Watts()*p.util/float64(p.spec.Cores)
	if full == 0 || idle+full*p.sumPow <= allowed {
		p.setSpeed(1)
		return idle + full*p.sumPow, false
	}
	pow := p.level((allowed - idle) / full)
	speed := p.spec.slowest()
	if pow > 0 {
		speed = math.Max(speed, math.Pow(pow, 1/p.spec.Exponent))
	}
	p.setSpeed(speed)
	pow = math.Pow(speed, p.spec.Exponent)
	sum := 0.0
	for _, ceiling := range p.ascending {
		sum += math.Min(ceiling, pow)
	}
	return idle + full*sum, true
}

// level is the x for which the sum of min(x, ceiling) over all CPUs is total;
// total is below the sum of the ceilings.
func (p *Plant) level(total float64) float64 {
	for i, ceiling := range p.ascending {
		x := total / float64(len(p.ascending)-i)
		if x <= ceiling {
			return x
		}
		total -= ceiling
	}
	return p.ascending[len(p.ascending)-1]
}

// setSpeed runs every CPU at the share speed of FreqMax, or at its ceiling where
// that is lower.
func (p *Plant) setSpeed(speed float64) {
	top := units.Freq(math.Round(speed * float64(p.spec.FreqMax)))
	var sum, highest units.Freq
	for _, ceiling := range p.ceilings {
		f := min(ceiling, top)
		sum += f
		highest = max(highest, f)
	}
	p.freq = highest
	p.speed = float64(sum) / float64(p.spec.FreqMax) / float64(len(p.ceilings))
}

// add puts micro uJ on a counter, which wraps behind its highest value.
func (p *Plant) add(counter int, micro float64) {
	span := float64(PackageRange + 1)
	if counter == counterDRAM {
		span = float64(DRAMRange + 1)
	}
	p.energy[counter] = math.Mod(p.energy[counter]+micro, span)
}

// core is the part of the package's power that its cores draw: everything that
// load adds, and a fifth of what idling costs.
func (p *Plant) core() float64 { return math.Max(0, p.pkg-0.8*p.spec.Idle.Watts()) }

func (p *Plant) wall() float64 { return p.spec.wall(p.pkg + p.dram + p.spec.Other.Watts()) }

// Package is what the package draws now.
func (p *Plant) Package() units.Power { return units.FromWatts(p.pkg) }

// Core is what the package's cores draw now; a part of Package.
func (p *Plant) Core() units.Power { return units.FromWatts(p.core()) }

// DRAM is what memory draws now.
func (p *Plant) DRAM() units.Power { return units.FromWatts(p.dram) }

// Wall is what the whole machine draws now at its socket.
func (p *Plant) Wall() units.Power { return units.FromWatts(p.wall()) }

// PackageEnergy is the package's counter: 0 to PackageRange, then it wraps.
func (p *Plant) PackageEnergy() units.Energy { return units.Energy(p.energy[counterPackage]) }

// CoreEnergy is the cores' counter: 0 to PackageRange, then it wraps.
func (p *Plant) CoreEnergy() units.Energy { return units.Energy(p.energy[counterCore]) }

// DRAMEnergy is memory's counter: 0 to DRAMRange, then it wraps.
func (p *Plant) DRAMEnergy() units.Energy { return units.Energy(p.energy[counterDRAM]) }

// WallEnergy is what the machine has used at its socket since New; no counter of
// the machine's own, so it never wraps.
func (p *Plant) WallEnergy() units.Energy { return units.Energy(p.wallEnergy) }

// Elapsed is the sum of all steps.
func (p *Plant) Elapsed() time.Duration { return p.elapsed }

// Limited is the part of Elapsed in which a limit, and not demand or a frequency
// ceiling, chose the frequency.
func (p *Plant) Limited() time.Duration { return p.limitedTime }

// Freq is the highest effective frequency of any CPU.
func (p *Plant) Freq() units.Freq { return p.freq }

// CoreFreq is the effective frequency of one virtual CPU (0 to Cores-1).
func (p *Plant) CoreFreq(cpu int) units.Freq { return min(p.freq, p.ceilings[cpu]) }

// Speed is the mean effective frequency of the CPUs as a share of FreqMax: the
// share of its full CPU that the node's work may use now.
func (p *Plant) Speed() float64 { return p.speed }

// Utilisation is how busy the node was in the last step, 0 to 1.
func (p *Plant) Utilisation() float64 { return p.util }

// String is the machine in one line, for test failures.
func (p *Plant) String() string {
	return fmt.Sprintf("package %.3f W, dram %.3f W, wall %.3f W, %d kHz, %.0f %% busy, after %v",
		p.pkg, p.dram, p.wall(), p.freq, p.util*100, p.elapsed)
}

// clampUnit is x within 0 to 1; what is no number counts as 0.
func clampUnit(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return math.Min(x, 1)
}
