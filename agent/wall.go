package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"headroom/agent/metrics"
	"headroom/agent/originals"
	"headroom/capping"
	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/ipmi"
	"headroom/lease"
	"headroom/units"
)

// wallMeter makes wall power of what the packages draw and of what the BMC tells. The
// BMC, from which the model is learned, is the slow half: it is asked by a goroutine of
// its own, and here only looked at. It belongs to the owner goroutine.
type wallMeter struct {
	cfg     Config
	log     *slog.Logger
	health  *health
	machine *machine

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

// saneAbove: a reading above this multiple of rated is no reading.
const saneAbove = 2

// startBMC begins to ask the BMC. It never waits, and what is wrong never stops
// the node: it is said.
func (w *wallMeter) start() {
	cfg, err := w.cfg.BMC()
	w.health.set(err != nil, item{
		"bmc-password", fail, fmt.Sprintf("the BMC is not asked: %v", err), hintOf(err),
	})
	if err != nil || cfg.Mode == ipmi.ModeOff {
		return
	}
	w.bmc = ipmi.Start(cfg, w.log)
	w.learner, w.configured = capping.NewLearner(w.law), w.law
}

// BMC is where the node's BMC is, with the password. One in-band belongs to this
// machine, so a node below another root has none: its mode is off. The error is a
// *cli.Error about the password's file.
func (c *Config) BMC() (ipmi.Config, error) {
	cfg := ipmi.Config{
		Mode: ipmi.Mode(c.IPMI.Mode), Address: c.IPMI.Address, User: c.IPMI.User,
		Most: saneAbove * c.Power.Rated, LoopPeriod: beat,
	}
	if c.Root != "/" && cfg.Mode == ipmi.ModeAuto {
		cfg.Mode = ipmi.ModeOff
	}
	var err error
	if cfg.Mode == ipmi.ModeLAN {
		cfg.Password, err = readPassword(c.IPMI.PasswordFile)
	}
	return cfg, err
}

// passwordMax bounds the password file: IPMI takes 20 bytes.
const passwordMax = 1 << 10

// readPassword reads the file that holds the BMC's password and nothing else. One
// that others may read is refused.
func readPassword(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	refuse := func(problem, hint string, err error) (string, error) {
		return "", &cli.Error{Code: "config", Exit: cli.ExitUsage, Message: "ipmi.password_file: " + problem, Hint: hint, Err: err}
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refuse(path+": no such file", "write the password into it, and chmod 0600", err)
	case err != nil:
		return refuse(err.Error(), "it must be readable by the user that runs powerd", err)
	case info.Mode().Perm()&0o007 != 0:
		return refuse(fmt.Sprintf("%s may be read or written by everybody (mode %04o)", path, info.Mode().Perm()), "chmod 0600 "+path, nil)
	case info.Size() > passwordMax:
		return refuse(fmt.Sprintf("%s holds %d bytes", path, info.Size()), "it must hold the password and nothing else", nil)
	}
	data, err := config.ReadFile(path, passwordMax)
	if err != nil {
		return refuse(err.Error(), "it must be readable by the user that runs powerd", err)
	}
	return strings.TrimRight(string(data), "\r\n"), nil
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
	w.sample = w.machine.look(at)
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
	if w.machine.halting() {
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
	case w.byPackages() && len(w.machine.sockets) > 0: // else the BMC stands in for them
		return "packages"
	case w.told.Known:
		return "bmc"
	}
	return ""
}

// standIn makes a sample of a new reading of the BMC where packages cannot be
// measured at all.
func (w *wallMeter) standIn(now time.Duration) {
	if len(w.machine.sockets) > 0 || !w.told.Known || w.told.Serial == w.serial {
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
func (w *wallMeter) blind() bool { return len(w.machine.sockets) == 0 && !w.told.Known }

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
	asked := n.cfg.IPMI.Mode == ipmiLAN || n.cfg.IPMI.Mode == ipmiInBand
	late := now-n.began > quietBMC
	switch b.told.State {
	case ipmi.StateStale, ipmi.StateInsane:
		n.health.set(true, bmcItem(b.told))
	case ipmi.StateAbsent, ipmi.StateUnknown:
		n.health.set(asked && late, bmcItem(b.told))
	case ipmi.StateOK:
		n.health.clear("bmc")
	}
	agreement := b.learner.Agreement(now)
	n.health.set(agreement.State == capping.Disagrees, item{
		"sensor-disagree", warn,
		fmt.Sprintf("wall power of the BMC and of the model %v; the wall counts", agreement),
		"look at power.other and supply_efficiency, at the unit of the BMC's reading, and at energy filtering (SGX) in the BIOS",
	})
	n.backstop(now)
}

// quietBMC is how long a BMC that was asked for by name may take to say anything.
const quietBMC = 6 * time.Second

func bmcItem(r ipmi.Reading) item {
	return item{
		"bmc", warn, fmt.Sprintf("wall power from the BMC is %s: %s; the model alone goes on, with a margin", r.State, r.Why),
		"see powerd sensor list; a BMC that hangs comes back with ipmitool mc reset cold, which leaves the host alone",
	}
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
	if !n.cfg.keepsLimit() || n.mode != holding || !b.limitKnown {
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
	n.health.set(r.err != nil && !errors.Is(r.err, ipmi.ErrAbsent), item{
		"bmc-limit", warn, fmt.Sprintf("the BMC's own limit cannot be kept: %v", r.err),
		"the cap is held without it; set ipmi.limit: false if this BMC has none",
	})
}

// limitInfo is the BMC's limit as a rung.
func (w *wallMeter) limitInfo() capping.RungInfo {
	info := capping.RungInfo{Rung: capping.RungDCMI, State: capping.RungMissing, Text: "no BMC is asked"}
	switch {
	case !w.cfg.IPMI.Limit:
		info.State, info.Text = capping.RungOff, "ipmi.limit is false"
	case !w.cfg.keepsLimit():
		info.State, info.Text = capping.RungOff, w.cfg.Controls.Denied([]string{bmcName})
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
