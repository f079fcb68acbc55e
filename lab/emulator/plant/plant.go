// Package plant simulates the physics of one emulated node: the power of its packages, its memory
// and its wall socket while it works under its limits.
//
// The one idea: power is a consequence, never a setting. The caller sets how busy the node is and
// for how long; frequency follows from the limits, power from frequency and load, energy from
// power. The same plant steps in virtual time (simulation, property tests) and in real time
// (powerlab node).
//
// The power of each package (Domain) is
//
//	P = Idle + Dynamic * utilisation * (f/FreqMax)^e
//
// and follows changes with a first-order response (about 40 ms). Each of the two limits (long term,
// short term) bounds a running average over its own window: power may exceed the limit for a while
// if the average is below it, and must stay below it afterwards. The frequency is the highest that
// both limits and the ceilings permit, but at least FreqMin, so a limit below the power at FreqMin
// is not met. Memory power follows the work done, and wall power includes the supply's losses. A
// package that becomes too hot throttles by itself, and a limit at the wall (SetWallLimit) takes
// effect within seconds, as with a management controller.
//
// Guarantees: energy is the integral of power, to the last fraction of a microjoule, across counter
// wraps. Limits and windows are rounded as by the kernel's driver. The same steps give the same
// numbers on every run. A Plant does no I/O, reads no clock, and belongs to one goroutine.
package plant

import (
	"cmp"
	"math"
	"slices"
	"time"

	"headroom/units"
)

// Plant is one machine at one moment.
type Plant struct {
	spec    Spec
	domains []*Domain

	elapsed    time.Duration
	wallEnergy float64 // uJ at the wall since the start, never wraps
	platform   float64 // uJ in the counter of the whole platform, which wraps
	manager    manager
}

// maxSubstep bounds the time over which power counts as constant; a quarter of
// the usual response, so that long steps and short ones agree.
const maxSubstep = 10 * time.Millisecond

// New is a machine that has been idle for long: factory limits, enabled, every
// ceiling at FreqMax. It fails with ErrSpec when spec describes no machine.
func New(spec Spec) (*Plant, error) {
	if err := spec.validate(); err != nil {
		return nil, err
	}
	p := &Plant{spec: spec}
	for i := range spec.packages() {
		p.domains = append(p.domains, newDomain(&p.spec, i))
	}
	return p, nil
}

// Clone is a machine in the same state that goes its own way from here.
func (p *Plant) Clone() *Plant {
	c := *p
	c.domains = make([]*Domain, len(p.domains))
	for i, d := range p.domains {
		c.domains[i] = d.clone(&c.spec)
	}
	return &c
}

// Spec describes the machine's parts.
func (p *Plant) Spec() Spec { return p.spec }

// Domains are the packages in their order, socket by socket. The slice is the
// plant's own.
func (p *Plant) Domains() []*Domain { return p.domains }

// SetLimit writes a limit of every package alike (bank MSR) and returns what the
// hardware holds of it; see Domain.SetLimit.
func (p *Plant) SetLimit(c Constraint, to units.Power) units.Power {
	for _, d := range p.domains {
		d.SetLimit(MSR, c, to)
	}
	return RoundLimit(to)
}

// SetWindow writes a limit's averaging window in every package alike (bank MSR)
// and returns what the hardware holds of it; see Domain.SetWindow.
func (p *Plant) SetWindow(c Constraint, to time.Duration) time.Duration {
	for _, d := range p.domains {
		d.SetWindow(MSR, c, to)
	}
	return RoundWindow(to)
}

// SetEnabled turns the limits of all packages on or off (bank MSR).
func (p *Plant) SetEnabled(on bool) {
	for _, d := range p.domains {
		d.SetEnabled(MSR, on)
	}
}

// At is the package that virtual CPU cpu (0 to Cores-1) is in.
func (p *Plant) At(cpu int) *Domain { return p.domains[cpu/p.perDomain()] }

func (p *Plant) perDomain() int { return p.spec.Cores / len(p.domains) }

// SetCeiling sets the frequency ceiling of one virtual CPU (0 to Cores-1) and
// returns the rung that holds (Spec.RoundFreq).
func (p *Plant) SetCeiling(cpu int, to units.Freq) units.Freq {
	return p.At(cpu).setCeiling(cpu%p.perDomain(), to)
}

// SetOnline takes one virtual CPU (0 to Cores-1) off or brings it back. Offline it
// does no work and draws nothing; its ceiling is kept.
func (p *Plant) SetOnline(cpu int, on bool) {
	d, own := p.At(cpu), cpu%p.perDomain()
	d.online[own] = on
	d.setCeiling(own, d.asked[own])
}

// Online reports whether a virtual CPU (0 to Cores-1) is online.
func (p *Plant) Online(cpu int) bool { return p.At(cpu).online[cpu%p.perDomain()] }

// Step lets dt go by with the CPUs of each package busy for util of the time that they may run at
// the present frequency: 0 idle, 1 fully loaded; anything outside counts as the nearer end.
// Packages beyond the last one named are as busy as that. A dt of 0 or less is no step.
func (p *Plant) Step(dt time.Duration, util ...float64) {
	for i, d := range p.domains {
		d.util = min(max(0, util[min(i, len(util)-1)]), 1)
	}
	for dt > 0 {
		h := min(dt, maxSubstep)
		p.substep(h)
		dt -= h
	}
}

func (p *Plant) substep(h time.Duration) {
	managed := p.manager.share(len(p.domains))
	for _, d := range p.domains {
		d.substep(h, managed)
	}
	p.elapsed += h
	micro := h.Seconds() * 1e6
	p.wallEnergy += p.wall() * micro
	p.platform = math.Mod(p.platform+p.direct()*micro, float64(p.spec.PackageWrap()+1))
	p.manager.watch(p, h)
}

// direct is all that is drawn behind the supply, in watts.
func (p *Plant) direct() float64 {
	return p.sum((*Domain).packageWatts) + p.sum((*Domain).memoryWatts) + p.spec.Other.Watts()
}

func (p *Plant) wall() float64 { return p.spec.wall(p.direct()) }

// sum adds up one figure of all packages.
func (p *Plant) sum(of func(*Domain) float64) float64 {
	total := 0.0
	for _, d := range p.domains {
		total += of(d)
	}
	return total
}

// Package returns the power of all packages.
func (p *Plant) Package() units.Power { return units.FromWatts(p.sum((*Domain).packageWatts)) }

// DRAM returns the power of all memory.
func (p *Plant) DRAM() units.Power { return units.FromWatts(p.sum((*Domain).memoryWatts)) }

// Platform returns the power of everything behind the supply.
func (p *Plant) Platform() units.Power { return units.FromWatts(p.direct()) }

// Wall returns the power of the whole machine at its wall socket.
func (p *Plant) Wall() units.Power { return units.FromWatts(p.wall()) }

// PackageEnergy is the first package's counter; see Domain.Energy.
func (p *Plant) PackageEnergy() units.Energy { return p.domains[0].Energy() }

// DRAMEnergy is the counter of the first package's memory; see Domain.DRAMEnergy.
func (p *Plant) DRAMEnergy() units.Energy { return p.domains[0].DRAMEnergy() }

// PlatformEnergy is the counter of the whole platform (psys), behind the supply:
// 0 to Spec.PackageWrap, then it wraps.
func (p *Plant) PlatformEnergy() units.Energy { return units.Energy(p.platform) }

// WallEnergy is what the machine has used at its socket since New; no counter of
// the machine's own, so it never wraps.
func (p *Plant) WallEnergy() units.Energy { return units.Energy(p.wallEnergy) }

// Elapsed is the sum of all steps.
func (p *Plant) Elapsed() time.Duration { return p.elapsed }

// Freq is the highest effective frequency of any CPU.
func (p *Plant) Freq() units.Freq {
	return slices.MaxFunc(p.domains, func(a, b *Domain) int { return cmp.Compare(a.freq, b.freq) }).freq
}

// CoreFreq is the effective frequency of one virtual CPU (0 to Cores-1); 0 offline.
func (p *Plant) CoreFreq(cpu int) units.Freq {
	d := p.At(cpu)
	return min(d.freq, d.ceilings[cpu%p.perDomain()])
}

// Speed is the mean effective frequency of the CPUs as a share of FreqMax: the
// share of its full CPU that the node's work may use now.
func (p *Plant) Speed() float64 {
	return p.sum(func(d *Domain) float64 { return d.speed }) / float64(len(p.domains))
}

// Utilisation returns the node's utilisation in the last step, 0 to 1.
func (p *Plant) Utilisation() float64 {
	return p.sum((*Domain).Utilisation) / float64(len(p.domains))
}
