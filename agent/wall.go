package agent

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"headroom/agent/config"
	"headroom/agent/health"
	"headroom/agent/machine"
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
}

// startBMC begins to ask the BMC. It never waits, and what is wrong never stops
// the node: it is said.
func (w *wallMeter) start() {
	cfg, err := w.cfg.BMC()
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

// watch is what once a second is enough for: whether power is known, and what the BMC is
// good for, in words.
func (w *wallMeter) watch(now, began time.Duration, holding bool, busy float64, busyKnown bool) {
	w.watchSensor(now, began, holding)
	if w.bmc == nil {
		return
	}
	if p, ok := w.witness(busy, busyKnown); ok {
		w.bmc.Witness(p)
	}
	asked := w.cfg.IPMI.Mode == config.IPMILAN || w.cfg.IPMI.Mode == config.IPMIInBand
	late := now-began > quietBMC
	switch w.told.State {
	case ipmi.StateStale, ipmi.StateInsane:
		w.sayBMC(true)
	case ipmi.StateAbsent, ipmi.StateUnknown:
		w.sayBMC(asked && late)
	case ipmi.StateOK:
		w.health.Clear("bmc")
	}
	agreement := w.learner.Agreement(now)
	w.health.Warn(agreement.State == capping.Disagrees, "sensor-disagree",
		fmt.Sprintf("wall power of the BMC and of the model %v; the wall counts", agreement),
		"look at power.other and supply_efficiency, at the unit of the BMC's reading, and at energy filtering (SGX) in the BIOS")
}

// quietSensor is how long power may be unknown before that is a warning.
const quietSensor = 2 * time.Second

// quietBMC is how long a BMC that was asked for by name may take to say anything.
const quietBMC = 6 * time.Second

func (w *wallMeter) sayBMC(bad bool) {
	r := w.told
	w.health.Warn(bad, "bmc",
		fmt.Sprintf("wall power from the BMC is %s: %s; the model alone goes on, with a margin", r.State, r.Why),
		"see powerd sensor list; a BMC that hangs comes back with ipmitool mc reset cold, which leaves the host alone")
}

// close ends the asking.
func (w *wallMeter) close() {
	if w.bmc != nil {
		w.bmc.Close()
	}
}

// watchSensor says when nothing tells what the node draws.
func (w *wallMeter) watchSensor(now, began time.Duration, holding bool) {
	if len(w.machine.Packages) == 0 {
		w.health.Warn(w.blind() && now-began > quietSensor, "sensor",
			"nothing here measures power: "+blindWords(holding),
			"give the node a BMC that tells it (ipmi in powerd.yaml), or load the RAPL driver; see powerd sensor list")
		return
	}
	w.health.Warn(now-max(w.knownAt, began) > quietSensor, "sensor",
		"power cannot be read ("+strings.Join(w.machine.Unmeasured(), ", ")+"): limits hold or fall, and never rise",
		"energy_uj is readable by root only, and a counter that stands still counts for nothing; see powerd zone list")
}

// blindWords are what a node without any measurement goes by.
func blindWords(holding bool) string {
	if holding {
		return "the cap is held by what the configuration says full load draws"
	}
	return "what it draws is unknown to the cluster"
}
