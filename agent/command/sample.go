package command

import (
	"cmp"
	"context"
	"errors"
	"time"

	"headroom/agent"
	"headroom/agent/status"
	"headroom/internal/cli"
	"headroom/rapl"
	"headroom/units"
)

// zonePower is the power of one zone in a sample.
type zonePower struct {
	zone, kind string
	power      *units.Power // nil: unknown
}

// sample holds the means since the sample before; nil is unknown.
type sample struct {
	at      time.Time
	elapsed time.Duration
	zones   []zonePower
	pack    *units.Power // all packages
	dram    *units.Power // all memory, nil also where there is no zone for it
	hasDRAM bool
	wall    *units.Power
	limit   *units.Power // the cap in force
	bmc     *units.Power // the BMC's reading at the wall
	limited bool         // a limit held the node back
	// bmcSource is dcmi or sdr.
	bmcSource string
}

// sampler takes samples for `powerd measure` and `powerd record`: from the counters of
// the machine, or from the running powerd if this user may not read them.
type sampler struct {
	site    site
	own     *own
	last    time.Duration
	askedAt time.Duration
}

// askEvery is the time between two queries of powerd, whose status changes once a second.
const askEvery = time.Second

func (p *place) sampler(ctx context.Context) (*sampler, error) {
	s, err := p.find(ctx)
	if err != nil {
		return nil, err
	}
	o, err := openOwn(s.root)
	if err != nil && s.status == nil {
		return nil, err
	}
	sm := &sampler{site: s, own: o, last: agent.BootTime(), askedAt: agent.BootTime()}
	if sm.readable() {
		sm.own.look()
		return sm, nil
	}
	if s.status != nil {
		return sm, nil
	}
	why := errors.New("energy counters not readable")
	if o != nil && o.bare != nil {
		why = o.bare
	}
	return nil, errors.Join(&cli.Error{
		Code: "no-sensor", Exit: cli.ExitFailed, Err: why, Message: "no source of power: " + why.Error(),
		Hint: "only root may read energy_uj: run as root, or start powerd; see powerd check",
	}, sm.close())
}

// readable reports whether this user may read a package's counter.
func (s *sampler) readable() bool {
	if s.own == nil {
		return false
	}
	for _, z := range s.own.zones() {
		if _, err := z.Energy(); z.Kind == rapl.Package && err == nil {
			return true
		}
	}
	return false
}

// take returns the means since the sample before.
func (s *sampler) take(ctx context.Context) sample {
	now := agent.BootTime()
	out := sample{at: time.Now().UTC(), elapsed: now - s.last}
	s.last = now
	if s.site.stateDir != "" && now-s.askedAt >= askEvery {
		s.site.status, _ = answering(ctx, s.site.stateDir)
		s.askedAt = now
	}
	if s.readable() {
		s.ownSample(&out)
	} else {
		s.toldSample(&out)
	}
	out.bmcSource, out.bmc = wallOf(s.site.status)
	if st := s.site.status; st.GetHolding().GetCapUw() > 0 && status.State(st.GetHolding()) != status.Observing {
		out.limit = new(units.Power(st.GetHolding().GetCapUw()))
	}
	for _, z := range s.site.status.GetZones() {
		out.limited = out.limited || z.GetState() == "limited"
	}
	return out
}

func (s *sampler) ownSample(out *sample) {
	s.own.look()
	for i, z := range s.own.zones() {
		out.zones = append(out.zones, zonePower{zone: z.Label, kind: z.Kind.String(), power: s.own.powers[i]})
		out.hasDRAM = out.hasDRAM || z.Kind == rapl.DRAM
	}
	out.pack, out.dram = s.own.total(rapl.Package), s.own.total(rapl.DRAM)
	if s.site.cfg == nil || out.pack == nil || (out.hasDRAM && out.dram == nil) {
		return
	}
	p := s.site.cfg.Power
	behind := *out.pack + p.Other
	if s.site.status != nil && s.site.status.OtherUw != nil {
		behind = *out.pack + units.Power(s.site.status.GetOtherUw())
	}
	if out.dram != nil {
		behind += *out.dram
	}
	out.wall = new(units.FromWatts(behind.Watts() / p.SupplyEfficiency))
}

// toldSample takes the figures of the running powerd.
func (s *sampler) toldSample(out *sample) {
	var pack, dram units.Power
	known := len(s.site.status.GetZones()) > 0
	for _, z := range s.site.status.GetZones() {
		zp := zonePower{zone: z.GetZone(), kind: z.GetKind()}
		if z.PowerUw != nil {
			zp.power = new(units.Power(z.GetPowerUw()))
		}
		out.zones = append(out.zones, zp)
		switch {
		case z.GetControlType() == rapl.ControlMMIO:
		case z.GetKind() == rapl.Package.String():
			pack, known = pack+units.Power(z.GetPowerUw()), known && z.PowerUw != nil
		case z.GetKind() == rapl.DRAM.String():
			dram, out.hasDRAM = dram+units.Power(z.GetPowerUw()), true
		}
	}
	if known {
		out.pack = &pack
		if out.hasDRAM {
			out.dram = &dram
		}
	}
	if s.site.status != nil && s.site.status.PowerUw != nil {
		out.wall = new(units.Power(s.site.status.GetPowerUw()))
	}
}

func (s *sampler) close() error {
	if s.own == nil {
		return nil
	}
	return s.own.close()
}

// energySum adds up energy over samples; one unknown sample makes it unknown.
type energySum struct {
	energy units.Energy
	seen   bool
	gap    bool
}

func (t *energySum) add(p *units.Power, d time.Duration) {
	if p == nil {
		t.gap = true
		return
	}
	t.energy, t.seen = t.energy+p.For(d), true
}

// joules returns the energy in joules, nil if unknown.
func (t *energySum) joules() *float64 {
	if t.gap || !t.seen {
		return nil
	}
	return new(t.energy.Joules())
}

// best returns the wall power if it is known, else that of packages and memory.
func (s *sample) best() (p *units.Power, wall bool) {
	if s.wall != nil {
		return s.wall, true
	}
	return s.behind(), false
}

// behind returns the power of packages and memory, nil if it is unknown.
func (s *sample) behind() *units.Power {
	if s.pack == nil || (s.hasDRAM && s.dram == nil) {
		return nil
	}
	return new(*s.pack + *cmp.Or(s.dram, new(units.Power)))
}
