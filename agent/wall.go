package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"headroom/agent/config"
	"headroom/agent/health"
	"headroom/agent/machine"
	"headroom/agent/metrics"
	"headroom/agent/originals"
	"headroom/capping"
	"headroom/ipmi"
	"headroom/lease"
	"headroom/units"
)

// wallMeter makes wall power of what the packages draw and of what the BMC tells. The
// BMC, from which the model is learned, is the slow half: it is asked by a goroutine of
// its own, and here only looked at. It belongs to the owner goroutine.
type wallMeter struct {
	cfg     *config.Config
	log     *slog.Logger
	health  *health.Items
	machine *machine.Machine

	law    capping.Config // the model in force
	sample capping.Sample // the last look at the machine
	mean   wallMean
	drawn  drawnEnergy
	halted time.Duration // since mean was last added to

	knownAt time.Duration // when the packages were last measured

	bmc     *ipmi.Meter // nil: no BMC is asked
	learner *capping.Learner
	told    ipmi.Reading  // by the BMC, as last looked at
	serial  uint64        // of the reading that stood in for a sample last
	takenAt time.Duration // when that was

	configured capping.Config // the model before anything was learned
	counted    wallMean       // by that model

	limit      ipmi.Limit // the BMC's own, as last read
	limitKnown bool
	limitErr   error
	limitWant  units.Power
	limitAt    time.Duration
}

// startBMC begins to ask the BMC. It never waits, and what is wrong never stops
// the node: it is said.
func (w *wallMeter) start() {
	cfg, err := w.cfg.BMC()
	cfg.LoopPeriod = beat
	w.health.Fail(err != nil, "bmc-password",
		fmt.Sprintf("the BMC is not asked: %v", err), config.HintOf(err))
	if err != nil || cfg.Mode == ipmi.ModeOff {
		return
	}
	w.bmc = ipmi.Start(cfg, w.log)
	w.learner, w.configured = capping.NewLearner(w.law), w.law
}

// learning says that the learned model counts: there is a BMC, or there was one.
func (w *wallMeter) learning() bool {
	if w.learner == nil {
		return false
	}
	_, began := w.learner.Other()
	return began || w.told.State != ipmi.StateAbsent
}

// look takes a sample of the machine.
func (w *wallMeter) look(at lease.Instant) {
	w.sample = w.machine.Look(at)
	w.learn(at.Boot)
	w.standIn(at.Boot)
	if w.byPackages() {
		w.knownAt = at.Boot
	}
}

// add counts the sample towards the mean and the energy, and says whether it did: while
// a counter stands still for a moment, the next reading is of this time too.
func (w *wallMeter) add(now time.Duration) bool {
	w.halted += w.sample.Elapsed
	if w.machine.Halting() {
		return false
	}
	w.mean.add(w.reading(), w.halted)
	w.drawn.add(w.reading(), now)
	w.halted = 0
	return true
}

// learn takes in one sample and the BMC's newest reading.
func (w *wallMeter) learn(now time.Duration) {
	if w.bmc != nil {
		w.learnFrom(now, w.bmc.Latest())
	}
}

// learnFrom brings the law's model up to date.
func (w *wallMeter) learnFrom(now time.Duration, r ipmi.Reading) {
	w.told = r
	w.counted.add(w.byCounters(), w.sample.Elapsed)
	w.learner.Observe(now, w.sample)
	w.learner.Learn(now, capping.WallReading{
		Power: w.told.Power, Known: w.told.Known, Serial: w.told.Serial, ChangedAt: w.told.ChangedAt,
		AskedAt: w.told.AskedAt,
	})
	if w.learning() {
		w.law = w.learner.Config()
	}
}

// model is the best there is for making wall power of package power.
func (w *wallMeter) model() capping.Config {
	if w.learning() {
		return w.learner.Model()
	}
	return w.law
}

// wallReading is the wall power of the last sample: by the model from the
// packages, or where those are not measured, what the BMC says.
func (w *wallMeter) reading() capping.Reading {
	if in := w.sample; w.byPackages() {
		return capping.Reading{Power: w.model().Wall(in.Package.Power, in.DRAM.Power), Known: true}
	}
	return capping.Reading{Power: w.told.Power, Known: w.told.Known}
}

// byPackages says that the last sample measured the packages, and what belongs to them.
func (w *wallMeter) byPackages() bool {
	return w.sample.Package.Known && (w.sample.DRAM.Known || !w.law.HasDRAM)
}

// wallSource names what wallReading goes by, "" while power is unknown.
func (w *wallMeter) source() string {
	switch {
	case w.byPackages() && len(w.machine.Packages) > 0: // else the BMC stands in for them
		return "packages"
	case w.told.Known:
		return "bmc"
	}
	return ""
}

// standIn makes a sample of a new reading of the BMC where packages cannot be
// measured at all.
func (w *wallMeter) standIn(now time.Duration) {
	if len(w.machine.Packages) > 0 || !w.told.Known || w.told.Serial == w.serial {
		return
	}
	watts := w.told.Power.Watts()*w.cfg.Power.SupplyEfficiency - w.cfg.Power.Other.Watts()
	w.sample.Package = capping.Reading{Power: max(0, units.FromWatts(watts)), Known: true}
	w.sample.Elapsed = now - w.takenAt
	if w.takenAt == 0 {
		w.sample.Elapsed = period
	}
	w.serial, w.takenAt = w.told.Serial, now
}

// blind says that nothing measures power here.
func (w *wallMeter) blind() bool { return len(w.machine.Packages) == 0 && !w.told.Known }

// watchBMC is what once a second is enough for: what the BMC is good for, in
// words, and its own limit behind the cap.
func (n *node) watchBMC(now time.Duration) {
	b := n.meter
	if b.bmc == nil {
		return
	}
	if w, ok := b.witness(n.busy, n.busyOK); ok {
		b.bmc.Witness(w)
	}
	asked := n.cfg.IPMI.Mode == config.IPMILAN || n.cfg.IPMI.Mode == config.IPMIInBand
	late := now-n.began > quietBMC
	switch b.told.State {
	case ipmi.StateStale, ipmi.StateInsane:
		n.sayBMC(true)
	case ipmi.StateAbsent, ipmi.StateUnknown:
		n.sayBMC(asked && late)
	case ipmi.StateOK:
		n.health.Clear("bmc")
	}
	agreement := b.learner.Agreement(now)
	n.health.Warn(agreement.State == capping.Disagrees, "sensor-disagree",
		fmt.Sprintf("wall power of the BMC and of the model %v; the wall counts", agreement),
		"look at power.other and supply_efficiency, at the unit of the BMC's reading, and at energy filtering (SGX) in the BIOS")
	n.backstop(now)
}

// quietBMC is how long a BMC that was asked for by name may take to say anything.
const quietBMC = 6 * time.Second

func (n *node) sayBMC(bad bool) {
	r := n.meter.told
	n.health.Warn(bad, "bmc",
		fmt.Sprintf("wall power from the BMC is %s: %s; the model alone goes on, with a margin", r.State, r.Why),
		"see powerd sensor list; a BMC that hangs comes back with ipmitool mc reset cold, which leaves the host alone")
}

const (
	// backstopAbove is how far above the cap the BMC's own limit is kept: behind
	// the loop, never in its way.
	backstopAbove = 1.05
	// backstopStep and backstopEvery bound how often it is rewritten: some BMCs
	// keep it in flash.
	backstopStep  = 2 * units.Watt
	backstopEvery = 5 * time.Second
)

// backstop keeps the BMC's own limit a little above the cap.
func (n *node) backstop(now time.Duration) {
	b := n.meter
	if !n.cfg.KeepsLimit() || n.mode != holding || !b.limitKnown {
		return
	}
	want := units.FromWatts(n.caps.now.Watts() * backstopAbove)
	found := b.limit
	if !n.records.saved(originals.Control{Path: bmcPath, Label: "limit of the BMC", Kind: originals.BMC, Read: func() (originals.Value, error) {
		return originals.Value{Text: originals.EncodeLimit(found)}, nil
	}}) {
		return
	}
	if max(want-b.limitWant, b.limitWant-want) < backstopStep || now-b.limitAt < backstopEvery {
		return
	}
	expect := ipmi.Limit{Power: want, Active: true, Correction: max(found.Correction, beat), Period: found.Period}
	if err := n.records.trail.NoteValue(bmcPath, originals.Value{Text: originals.EncodeLimit(expect)}, originals.Value{Text: originals.EncodeLimit(found)}); err != nil {
		n.log.Warn("the BMC's limit is not written", slog.Any("error", err))
		return
	}
	b.limitWant, b.limitAt = want, now
	n.far.limit.put(want)
}

// limitTold takes a report about the BMC's limit.
func (n *node) limitTold(r limitReport) {
	b := n.meter
	b.limitErr = r.err
	if r.err == nil {
		if r.wrote && n.records.trail != nil && n.records.trail.Has(bmcPath) {
			// The bytes as the BMC took them, so that only they are ever put back over.
			if err := n.records.trail.NoteValue(bmcPath, originals.Value{Text: originals.EncodeLimit(r.limit)}, originals.Value{Text: originals.EncodeLimit(b.limit)}); err != nil {
				n.log.Warn("the BMC's limit is not recorded", slog.Any("error", err))
			}
		}
		b.limit, b.limitKnown = r.limit, true
	} else if r.wrote {
		b.limitWant = 0 // to be tried again
		n.countWrite(metrics.BMC, r.err)
	}
	n.health.Warn(r.err != nil && !errors.Is(r.err, ipmi.ErrAbsent), "bmc-limit",
		fmt.Sprintf("the BMC's own limit cannot be kept: %v", r.err),
		"the cap is held without it; set ipmi.limit: false if this BMC has none")
}

// limitInfo is the BMC's limit as a rung.
func (w *wallMeter) limitInfo() capping.RungInfo {
	info := capping.RungInfo{Rung: capping.RungDCMI, State: capping.RungMissing, Text: "no BMC is asked"}
	switch {
	case !w.cfg.IPMI.Limit:
		info.State, info.Text = capping.RungOff, "ipmi.limit is false"
	case !w.cfg.KeepsLimit():
		info.State, info.Text = capping.RungOff, w.cfg.Controls.Denied([]string{config.BMCName})
	case w.limitErr != nil:
		info.State, info.Text = capping.RungRefused, w.limitErr.Error()
	case w.limitKnown && w.limit.Active:
		info.State, info.Text = capping.RungReady, fmt.Sprintf("holds %v with exception action %v", w.limit.Power, w.limit.Action)
	case w.limitKnown:
		info.State, info.Text = capping.RungReady, "no limit is active"
	}
	return info
}

// close ends the asking.
func (w *wallMeter) close() {
	if w.bmc != nil {
		w.bmc.Close()
	}
}
