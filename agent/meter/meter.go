// Package meter measures what a node draws at the wall.
//
// It computes wall power from the energy counters of packages and memory, with a model that
// is learned from the BMC if there is one. Without counters it uses the BMC alone. Unknown
// power is unknown, never 0, and is part of no mean and no energy. An implausible reading is
// unknown.
//
// A Meter belongs to one goroutine, powerd's loop. The BMC may take seconds, so a separate
// goroutine queries it (package ipmi); the Meter uses its newest reading.
package meter

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

// Meter computes wall power from the packages' power and the BMC's readings. The
// BMC, from which the model is learned, is the slow half: it is asked by a goroutine of
// its own, and here only looked at. It belongs to the owner goroutine.
type Meter struct {
	cfg     *config.Config
	log     *slog.Logger
	health  *health.Items
	machine *machine.Machine

	Model  capping.Config // the model in force
	Sample capping.Sample // the last look at the machine
	Mean   Mean
	Drawn  Drawn
	halted time.Duration // since mean was last added to

	knownAt time.Duration // when the packages were last measured

	BMC     *ipmi.Meter // nil: no BMC is asked
	learner *capping.Learner
	told    ipmi.Reading  // by the BMC, as last looked at
	serial  uint64        // of the reading that stood in for a sample last
	takenAt time.Duration // when that was
	fresh   time.Duration // the time that a new reading of the BMC is of; 0: none came in this look

	configured capping.Config // the model before anything was learned
	counted    Mean           // by that model
}

// New returns a meter of a machine that attach gives it.
func New(cfg *config.Config, log *slog.Logger, health *health.Items) *Meter {
	return &Meter{cfg: cfg, log: log, health: health}
}

// Attach gives the meter its machine, and the model that the configuration tells.
func (w *Meter) Attach(m *machine.Machine) {
	w.machine, w.Model = m, w.cfg.Model(m.PackageMax(), m.HasDRAM())
	w.Model.PackageLeast = m.PackageLeast()
}

// Start begins to ask the BMC. It never waits, and what is wrong never stops
// the node: it is logged.
func (w *Meter) Start() {
	cfg, err := w.cfg.BMC()
	w.health.Fail(err != nil, "bmc-password",
		fmt.Sprintf("BMC not queried: %v", err), config.HintOf(err))
	if err != nil || cfg.Mode == ipmi.ModeOff {
		return
	}
	w.BMC = ipmi.Start(cfg, w.log)
	w.BeginLearning()
}

// BeginLearning has the model learned from now on.
func (w *Meter) BeginLearning() { w.learner, w.configured = capping.NewLearner(w.Model), w.Model }

// learning reports whether the learned model counts: there is a BMC, or there was one.
func (w *Meter) learning() bool {
	if w.learner == nil {
		return false
	}
	_, began := w.learner.Other()
	return began || w.told.State != ipmi.StateAbsent
}

// Look takes a sample of the machine.
//
//headroom:control
func (w *Meter) Look(at lease.Instant) {
	w.Sample = w.machine.Look(at)
	w.learn(at.Boot)
	w.standIn(at.Boot)
	if w.byPackages() {
		w.knownAt = at.Boot
	}
}

// Add counts the sample towards the mean and the energy, and says whether it did: while
// a counter stands still for a moment, the next reading is of this time too.
//
//headroom:control
func (w *Meter) Add(now time.Duration) bool {
	w.halted += w.Sample.Elapsed
	if w.machine.Halting() {
		return false
	}
	w.Mean.Add(w.Reading(), w.halted)
	w.Drawn.add(w.Reading(), now)
	w.halted = 0
	return true
}

// learn takes in one sample and the BMC's newest reading.
func (w *Meter) learn(now time.Duration) {
	if w.BMC != nil {
		w.LearnFrom(now, w.BMC.Latest())
	}
}

// LearnFrom brings the law's model up to date.
func (w *Meter) LearnFrom(now time.Duration, r ipmi.Reading) {
	w.told = r
	w.counted.Add(w.ByCounters(), w.Sample.Elapsed)
	w.learner.Observe(now, w.Sample)
	w.learner.Learn(now, capping.WallReading{
		Power: w.told.Power, Known: w.told.Known, Serial: w.told.Serial, ChangedAt: w.told.ChangedAt,
		AskedAt: w.told.AskedAt,
	})
	if w.learning() {
		w.Model = w.learner.Config()
	}
}

// best is the best there is for making wall power of package power.
func (w *Meter) best() capping.Config {
	if w.learning() {
		return w.learner.Model()
	}
	return w.Model
}

// Reading is the wall power of the last sample: by the model from the
// packages, or where those are not measured, what the BMC says.
func (w *Meter) Reading() capping.Reading {
	if in := w.Sample; w.byPackages() {
		return capping.Reading{Power: w.best().Wall(in.Package.Power, in.DRAM.Power), Known: true}
	}
	return capping.Reading{Power: w.told.Power, Known: w.told.Known}
}

// byPackages reports whether the last sample measured the packages, and what belongs to them.
func (w *Meter) byPackages() bool {
	return w.Sample.Package.Known && (w.Sample.DRAM.Known || !w.Model.HasDRAM)
}

// Source names what reading goes by, "" while power is unknown.
func (w *Meter) Source() string {
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
func (w *Meter) standIn(now time.Duration) {
	w.fresh = 0
	if !w.told.Known || w.told.Serial == w.serial {
		return
	}
	w.fresh = now - w.takenAt
	if w.takenAt == 0 {
		w.fresh = config.Period
	}
	w.serial, w.takenAt = w.told.Serial, now
	if len(w.machine.Packages) > 0 {
		return
	}
	watts := w.told.Power.Watts()*w.cfg.Power.SupplyEfficiency - w.cfg.Power.Other.Watts()
	w.Sample.Package = capping.Reading{Power: max(0, units.FromWatts(watts)), Known: true}
	w.Sample.Elapsed = w.fresh
}

// Again makes the last sample one that was counted already.
func (w *Meter) Again() { w.Sample.Elapsed, w.fresh = 0, 0 }

// Fresh returns the time that Reading is a new mean over, 0 where it was there before, and
// how much older it may be: what a BMC shows may be of the time before its last reading.
func (w *Meter) Fresh() (over, late time.Duration) {
	if w.byPackages() && len(w.machine.Packages) > 0 {
		return w.Sample.Elapsed, 0
	}
	return w.fresh, w.fresh
}

// Other is what is drawn by neither package nor memory, and whether that was learned.
func (w *Meter) Other() (p units.Power, learned bool) {
	if w.learning() {
		return w.learner.Other()
	}
	return w.cfg.Power.Other, false
}

// Blind reports whether nothing measures power here.
func (w *Meter) Blind() bool { return len(w.machine.Packages) == 0 && !w.told.Known }

// Watch runs once a second: it checks whether power is known, and what the BMC is
// good for, in words.
//
//headroom:control
func (w *Meter) Watch(now, began time.Duration, holding bool, busy float64, busyKnown bool) {
	w.watchSensor(now, began, holding)
	if w.BMC == nil {
		return
	}
	if p, ok := w.Reference(busy, busyKnown); ok {
		w.BMC.Reference(p)
	}
	asked := w.cfg.IPMI.Mode == config.IPMILAN || w.cfg.IPMI.Mode == config.IPMIInBand || w.cfg.IPMI.ChoosesSource()
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
		fmt.Sprintf("wall power of BMC and model: %v; the BMC is used", agreement),
		"check power.other and power.supply_efficiency (docs/calibration.md), the unit of the BMC reading, and energy filtering (SGX) in the BIOS")
}

// quietSensor is how long power may be unknown before that is a warning.
const quietSensor = 2 * time.Second

// quietBMC is how long a BMC that is configured explicitly may take for its first answer.
const quietBMC = 6 * time.Second

func (w *Meter) sayBMC(bad bool) {
	r := w.told
	hint := "see powerd sensor list; if the BMC hangs, run ipmitool mc reset cold, which does not affect the host"
	if r.State == ipmi.StateInsane || r.State == ipmi.StateAbsent {
		hint = "compare with ipmitool dcmi power reading and ipmitool sdr elist; ipmi.source in powerd.yaml selects the source, ipmi.mode: off none"
	}
	w.health.Warn(bad, "bmc", fmt.Sprintf("BMC power reading %s: %s; using the model with a margin", r.State, r.Why), hint)
}

// Close stops the queries.
func (w *Meter) Close() {
	if w.BMC != nil {
		w.BMC.Close()
	}
}

// watchSensor says when nothing tells what the node draws.
func (w *Meter) watchSensor(now, began time.Duration, holding bool) {
	if len(w.machine.Packages) == 0 {
		w.health.Warn(w.Blind() && now-began > quietSensor, "sensor",
			"no source of power: "+blindWords(holding),
			"configure a BMC (ipmi: in powerd.yaml) or load the RAPL driver; see powerd sensor list")
		return
	}
	w.health.Warn(now-max(w.knownAt, began) > quietSensor, "sensor",
		"power not readable ("+strings.Join(w.machine.Unmeasured(), ", ")+"): limits are kept or lowered, not raised",
		"only root may read energy_uj, and a counter that does not advance is ignored; see powerd zone list")
}

// blindWords are what a node without any measurement goes by.
func blindWords(holding bool) string {
	if holding {
		return "the cap is held by the configured power at full load"
	}
	return "its power is unknown to the cluster"
}
