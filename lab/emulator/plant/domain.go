package plant

import (
	"math"
	"slices"
	"time"

	"headroom/units"
)

// Constraint names one of a package's two limits.
type Constraint int

// A package's constraints, by the numbers that the kernel gives them.
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

// Bank names one of the sets of registers that hold a package's limits.
type Bank int

// The banks. Only a machine whose Spec sets Twin has the second.
const (
	MSR  Bank = 0 // model-specific registers
	MMIO Bank = 1 // memory-mapped registers
)

// limit is one constraint with the running average that it bounds.
type limit struct {
	watts   float64
	window  float64 // seconds
	average float64 // watts, exponentially weighted over the window
}

// bank is one set of limit registers.
type bank struct {
	limits  [2]limit
	enabled bool
}

// Indices into Domain.energy.
const (
	counterPackage = iota
	counterCore
	counterDRAM
	counterUncore
	counters
)

// Domain is one package, or one die of a package: what has counters and limits
// of its own. It belongs to its plant and to the plant's goroutine.
type Domain struct {
	spec  *Spec
	banks []bank

	// ceilings holds the frequency ceiling of each virtual CPU in kHz, 0 where it is
	// offline, and its share of FreqMax to the power of Exponent; ascending is the
	// latter, sorted. asked are the ceilings without regard to offline.
	asked     []units.Freq
	online    []bool
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

	energy [counters]float64 // uJ in the counters

	temp      float64 // degrees Celsius, as physics has it
	heat      float64 // degrees Celsius at least, a fault; 0: none
	unbound   bool    // its limits hold their values and bind nothing, a fault
	tripped   bool
	trips     int
	trippedIn time.Duration
}

// newDomain is package number of the machine.
func newDomain(spec *Spec, number int) *Domain {
	cores := spec.Cores / spec.packages()
	d := &Domain{
		spec: spec, pkg: spec.Idle.Watts(), dram: spec.DRAMIdle.Watts(),
		freq: spec.FreqMax, speed: 1, banks: make([]bank, 1, 2),
		asked: make([]units.Freq, cores), online: make([]bool, cores),
		ceilings: make([]units.Freq, cores), pows: make([]float64, cores),
	}
	if spec.Twin {
		d.banks = append(d.banks, bank{})
	}
	for b := range d.banks {
		d.banks[b].enabled = true
		d.banks[b].limits = [2]limit{{average: d.pkg}, {average: d.pkg}}
		d.SetLimit(Bank(b), LongTerm, spec.TDP)
		d.SetLimit(Bank(b), ShortTerm, spec.Peak)
		d.SetWindow(Bank(b), LongTerm, spec.LongWindow)
		d.SetWindow(Bank(b), ShortTerm, spec.ShortWindow)
	}
	for cpu := range cores {
		d.online[cpu] = true
		d.setCeiling(cpu, spec.FreqMax)
	}
	for i := range d.energy {
		d.add(i, float64(spec.EnergyStart)+offset(number, i))
	}
	d.temp = d.settled()
	return d
}

// offset is how far from EnergyStart, in uJ, a counter of a package begins. On a real
// machine no two counters were ever reset together, so each has its own, the same on
// every run; those of the first package, by which a wrap is placed, have none.
func offset(number, counter int) float64 {
	if number == 0 && (counter == counterPackage || counter == counterDRAM) {
		return 0
	}
	x := uint64(number*counters+counter) * 0x9e3779b97f4a7c15 // splitmix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x ^ x>>31) % uint64(DRAMRange))
}

// clone is a copy that shares nothing that changes.
func (d *Domain) clone(spec *Spec) *Domain {
	c := *d
	c.spec = spec
	c.banks, c.asked, c.online = slices.Clone(d.banks), slices.Clone(d.asked), slices.Clone(d.online)
	c.ceilings, c.pows, c.ascending = slices.Clone(d.ceilings), slices.Clone(d.pows), slices.Clone(d.ascending)
	return &c
}

// SetLimit writes a limit and returns what the hardware holds of it
// (RoundLimit). 0 W is accepted, as the kernel accepts it, and means 0 W.
func (d *Domain) SetLimit(b Bank, c Constraint, to units.Power) units.Power {
	held := RoundLimit(to)
	d.banks[b].limits[c].watts = held.Watts()
	return held
}

// Limit is the limit that the hardware holds.
func (d *Domain) Limit(b Bank, c Constraint) units.Power {
	return units.FromWatts(d.banks[b].limits[c].watts)
}

// SetWindow writes a limit's averaging window and returns what the hardware
// holds of it (RoundWindow).
func (d *Domain) SetWindow(b Bank, c Constraint, to time.Duration) time.Duration {
	held := RoundWindow(to)
	d.banks[b].limits[c].window = held.Seconds()
	return held
}

// Window is the averaging window that the hardware holds.
func (d *Domain) Window(b Bank, c Constraint) time.Duration {
	return time.Duration(math.Round(d.banks[b].limits[c].window*1e6)) * time.Microsecond
}

// SetEnabled turns the limits of one bank on or off.
func (d *Domain) SetEnabled(b Bank, on bool) { d.banks[b].enabled = on }

// Enabled reports whether the limits of one bank are enforced.
func (d *Domain) Enabled(b Bank) bool { return d.banks[b].enabled }

// setCeiling sets the frequency ceiling of one of the domain's own CPUs.
func (d *Domain) setCeiling(cpu int, to units.Freq) units.Freq {
	d.asked[cpu] = d.spec.RoundFreq(to)
	held := d.asked[cpu]
	if !d.online[cpu] {
		held = 0
	}
	if d.ceilings[cpu] == held && d.ascending != nil {
		return d.asked[cpu]
	}
	d.ceilings[cpu] = held
	d.pows[cpu] = math.Pow(float64(held)/float64(d.spec.FreqMax), d.spec.Exponent)
	d.ascending = append(d.ascending[:0], d.pows...)
	slices.Sort(d.ascending)
	d.sumPow = 0
	for _, pow := range d.ascending {
		d.sumPow += pow
	}
	return d.asked[cpu]
}

// substep is one move of gather, decide, apply: averages, frequency, power,
// energy. managed is what a slower authority lets the package draw, in watts.
func (d *Domain) substep(h time.Duration, managed float64) {
	seconds := h.Seconds()
	for b := range d.banks {
		for i := range d.banks[b].limits {
			l := &d.banks[b].limits[i]
			l.average += (d.pkg - l.average) * (1 - math.Exp(-seconds/l.window))
		}
	}
	want := d.decide(math.Min(d.allowed(), managed))
	toward := 1 - math.Exp(-seconds/d.spec.Response.Seconds())
	d.pkg += (want - d.pkg) * toward
	traffic := d.spec.DRAMIdle.Watts() + d.spec.DRAMDynamic.Watts()*d.util*d.speed
	d.dram += (traffic - d.dram) * toward

	micro := seconds * 1e6
	d.add(counterPackage, d.pkg*micro)
	d.add(counterCore, d.core()*micro)
	d.add(counterDRAM, d.dram*micro)
	d.add(counterUncore, d.uncore()*micro)
	d.warm(h)
}

// allowed is what the limits let the package draw now, in watts. An average
// below its limit earns as much again on top; one above it is paid back.
func (d *Domain) allowed() float64 {
	if d.tripped {
		return 0
	}
	allowed := math.Inf(1)
	for _, b := range d.banks {
		if !b.enabled || d.unbound {
			continue
		}
		for _, l := range b.limits {
			allowed = math.Min(allowed, l.watts+(l.watts-l.average))
		}
	}
	return allowed
}

// decide sets the frequency to the highest that draws no more than allowed
// watts, and returns the package power that it leads to.
func (d *Domain) decide(allowed float64) float64 {
	idle, full := d.spec.Idle.Watts(), d.spec.Dynamic.Watts()*d.util/float64(len(d.ceilings))
	if full == 0 || idle+full*d.sumPow <= allowed {
		d.setSpeed(1)
		return idle + full*d.sumPow
	}
	pow := d.level((allowed - idle) / full)
	speed := d.spec.slowest()
	if pow > 0 {
		speed = math.Max(speed, math.Pow(pow, 1/d.spec.Exponent))
	}
	d.setSpeed(speed)
	pow = math.Pow(speed, d.spec.Exponent)
	sum := 0.0
	for _, ceiling := range d.ascending {
		sum += math.Min(ceiling, pow)
	}
	return idle + full*sum
}

// level is the x for which the sum of min(x, ceiling) over all CPUs is total;
// total is below the sum of the ceilings.
func (d *Domain) level(total float64) float64 {
	for i, ceiling := range d.ascending {
		x := total / float64(len(d.ascending)-i)
		if x <= ceiling {
			return x
		}
		total -= ceiling
	}
	return d.ascending[len(d.ascending)-1]
}

// setSpeed runs every CPU at the share speed of FreqMax, or at its ceiling where
// that is lower.
func (d *Domain) setSpeed(speed float64) {
	top := units.Freq(math.Round(speed * float64(d.spec.FreqMax)))
	var sum, highest units.Freq
	for _, ceiling := range d.ceilings {
		f := min(ceiling, top)
		sum += f
		highest = max(highest, f)
	}
	d.freq = highest
	d.speed = float64(sum) / float64(d.spec.FreqMax) / float64(len(d.ceilings))
}

// add puts micro uJ on a counter, which wraps behind its highest value.
func (d *Domain) add(counter int, micro float64) {
	span := float64(d.spec.PackageWrap() + 1)
	if counter == counterDRAM {
		span = float64(d.spec.DRAMWrap() + 1)
	}
	d.energy[counter] = math.Mod(d.energy[counter]+micro, span)
}

// Temperatures, in degrees Celsius, follow power with this time constant, and a package that
// tripped slows down until it is so much cooler.
const (
	tempAmbient  = 32.0 // at no power
	tempFull     = 82.0 // at Idle + Dynamic
	tempResponse = 8 * time.Second
	tempRelease  = 3.0
	// TempTrip is the temperature at which a package slows down by itself.
	TempTrip = 100.0
)

// settled is the temperature that the present power leads to.
func (d *Domain) settled() float64 {
	return tempAmbient + (tempFull-tempAmbient)*d.pkg/(d.spec.Idle+d.spec.Dynamic).Watts()
}

// warm moves the temperature on and slows the package down where it is too hot.
func (d *Domain) warm(h time.Duration) {
	d.temp += (d.settled() - d.temp) * h.Seconds() / tempResponse.Seconds()
	switch now := d.Temperature(); {
	case now >= TempTrip && !d.tripped:
		d.tripped = true
		d.trips++
	case now < TempTrip-tempRelease:
		d.tripped = false
	}
	if d.tripped {
		d.trippedIn += h
	}
}

func (d *Domain) packageWatts() float64 { return d.pkg }
func (d *Domain) memoryWatts() float64  { return d.dram }

// core is the part of the package's power that its cores draw: everything that
// load adds, and a fifth of what idling costs.
func (d *Domain) core() float64 { return math.Max(0, d.pkg-0.8*d.spec.Idle.Watts()) }

// uncore is the part that graphics and the like draw: a tenth of idling.
func (d *Domain) uncore() float64 { return math.Min(d.pkg-d.core(), 0.1*d.spec.Idle.Watts()) }

// Package returns the domain's power without memory.
func (d *Domain) Package() units.Power { return units.FromWatts(d.pkg) }

// Energy is the package counter: 0 to Spec.PackageWrap, then it wraps.
func (d *Domain) Energy() units.Energy { return units.Energy(d.energy[counterPackage]) }

// CoreEnergy is the cores' counter: 0 to Spec.PackageWrap, then it wraps.
func (d *Domain) CoreEnergy() units.Energy { return units.Energy(d.energy[counterCore]) }

// UncoreEnergy is the uncore counter: 0 to Spec.PackageWrap, then it wraps.
func (d *Domain) UncoreEnergy() units.Energy { return units.Energy(d.energy[counterUncore]) }

// DRAMEnergy is memory's counter: 0 to Spec.DRAMWrap, then it wraps.
func (d *Domain) DRAMEnergy() units.Energy { return units.Energy(d.energy[counterDRAM]) }

// ResetEnergy sets all counters to 0, as a reset of the package does.
func (d *Domain) ResetEnergy() { d.energy = [counters]float64{} }

// SkipEnergy adds e to all counters without any power use, as a faulty
// counter does.
func (d *Domain) SkipEnergy(e units.Energy) {
	for i := range d.energy {
		d.add(i, float64(e))
	}
}

// Temperature is the package's in degrees Celsius.
func (d *Domain) Temperature() float64 { return math.Max(d.temp, d.heat) }

// SetHeat makes the package at least so hot, in degrees Celsius; 0 ends it.
func (d *Domain) SetHeat(celsius float64) { d.heat = celsius }

// Unbind lets the package draw what it likes under its limits, which keep their values;
// false ends it.
func (d *Domain) Unbind(on bool) { d.unbound = on }

// Trips counts the times that the package became too hot (TempTrip) and slowed
// down by itself, and sums up for how long it did.
func (d *Domain) Trips() (count int, total time.Duration) { return d.trips, d.trippedIn }

// Utilisation returns the domain's utilisation in the last step, 0 to 1.
func (d *Domain) Utilisation() float64 { return d.util }
