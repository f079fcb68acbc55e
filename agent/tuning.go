package agent

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"headroom/agent/config"
	"headroom/agent/health"
	"headroom/agent/machine"
	"headroom/agent/originals"
	"headroom/agent/records"
	"headroom/agent/remote"
	"headroom/dvfs"
	"headroom/internal/each"
	"headroom/rapl/sysfs"
)

// knob is a control that does not enforce the cap: the energy preference of a policy, or the turbo switch.
type knob struct {
	originals.Control

	policy *dvfs.Policy // nil: the turbo switch
	set    func(v int64) (got int64, err error)
	wish   func(sprinting bool) (v int64, wanted bool)

	wished bool
	want   int64 // as the file has it
	now    int64 // as read back
	known  bool
	stood  bool // the wanted value read back at the last read or write
	state  string
	text   string
	// Time of the last overwrite of another program's value, and of the last refusal.
	rewroteAt, refusedAt time.Duration
}

// States of a knob, as status shows them.
const (
	knobLeft    = "left"
	knobHeld    = "held"
	knobPinned  = "pinned"
	knobDrift   = "drift"
	knobRefused = "refused"
	knobPending = "pending"
	knobOffline = "offline"
	knobAbsent  = "absent"
	knobLocked  = "locked"
)

const (
	// tuneEvery is the time between two drift checks of the knobs: reading a preference
	// wakes its processor.
	tuneEvery = 4 * time.Second
	// tuneRetry is the time between two attempts after a refusal.
	tuneRetry = 30 * time.Second
)

// tuner sets energy preferences and turbo. It never affects whether a cap is enforced; its
// failures are only reported. It belongs to the owner goroutine.
type tuner struct {
	cfg     *config.Config
	log     *slog.Logger
	health  *health.Items
	records *records.Records
	drift   *driftWatch
	tally   *tally
	remote  *remote.Remote
	files   *sysfs.Files
	freq    *machine.Frequency // nil: there are no policies

	inUse    bool    // any of it is configured
	knobs    []*knob // the turbo switch first
	byPolicy map[*dvfs.Policy]*knob
	closed   map[string]error // reason why a policy, or "" for the machine, has no knob
	noEPP    error            // reason why no preference may be written
	turbo    *dvfs.Turbo
	hands    []io.Closer

	back      []string      // what was restored in this step
	sprinting bool          // when it was last brought about
	due       time.Duration // of the next look
	driftAt   time.Duration // last drift seen
}

// open opens the configured knobs; it writes nothing.
func (t *tuner) open(m *machine.Machine) {
	t.files, t.freq = m.Files, m.Freq
	if !t.cfg.Enforce || !t.cfg.Frequency.Used() {
		return
	}
	t.inUse, t.closed, t.byPolicy = true, map[string]error{}, map[*dvfs.Policy]*knob{}
	if why := t.cfg.Controls.Denied([]string{config.EPPName}); why != "" {
		t.noEPP = config.DeniedError{Why: why}
	}
	why := t.cfg.Controls.Denied([]string{config.TurboName})
	switch {
	case !t.cfg.Frequency.Switches():
	case why != "":
		t.closed[""] = config.DeniedError{Why: why}
	default:
		t.openTurbo()
	}
	t.followPolicies()
}

func (t *tuner) openTurbo() {
	turbo, err := dvfs.OpenTurbo(t.files)
	if err != nil {
		t.closed[""] = err
		return
	}
	t.turbo, t.hands = turbo, append(t.hands, turbo)
	hand, err := turbo.Switch()
	if err != nil {
		t.closed[""] = err
		return
	}
	t.hands = append(t.hands, hand)
	k := hand.Knob()
	t.knobs = append(t.knobs, &knob{
		Control: originals.FileControl(k.Control, k.Label, turboKind(turbo)),
		set: func(v int64) (int64, error) {
			got, err := hand.Allow(v == turbo.Raw(true))
			return turbo.Raw(got), err
		},
		wish: func(sprinting bool) (int64, bool) {
			return turbo.Raw(t.cfg.Frequency.Turbo == config.TurboSprint && sprinting), true
		},
	})
}

// turboKind returns the kind of the switch: the kernel has two with opposite meanings.
func turboKind(t *dvfs.Turbo) originals.Kind {
	if t.Raw(true) == 0 {
		return originals.NoTurbo
	}
	return originals.Boost
}

// followPolicies opens the preference of every policy that has none yet.
func (t *tuner) followPolicies() {
	if !t.inUse || t.freq == nil || !t.cfg.Frequency.Prefers() {
		return
	}
	for _, p := range t.freq.Set.Policies() {
		if t.byPolicy[p] != nil {
			continue
		}
		if t.noEPP != nil {
			t.closed[p.Name] = t.noEPP
			continue
		}
		hand, err := p.Preference()
		if err != nil {
			t.closed[p.Name] = err
			continue
		}
		delete(t.closed, p.Name)
		k := hand.Knob()
		t.hands = append(t.hands, hand)
		t.byPolicy[p] = &knob{
			Control: originals.FileControl(k.Control, k.Label, originals.Preference), policy: p,
			set: func(v int64) (int64, error) {
				got, err := hand.Set(dvfs.EPP(v))
				return int64(got), err
			},
			wish: t.cfg.Frequency.WantedPreference,
		}
		t.knobs = append(t.knobs, t.byPolicy[p])
	}
}

// controls returns the files that may be written. Turbo includes the ceilings, because the
// switch changes their values with some drivers.
func (t *tuner) controls() []originals.Control {
	all := each.Of(t.knobs, func(k *knob) originals.Control { return k.Control })
	if t.turbo != nil && t.freq != nil && t.freq.Ceilings != nil {
		all = append(all, t.freq.Controls()...)
	}
	for i := range all {
		all[i].Optional = true // the cap does not need it
	}
	return all
}

// readable returns the controls that can be read, and so be saved, now: a policy whose
// processors are offline is saved when it returns.
func readable(all []originals.Control) []originals.Control {
	return slices.DeleteFunc(all, func(c originals.Control) bool {
		_, err := c.Read()
		return err != nil
	})
}

// tune writes the wanted values once the originals are saved, and checks for drift at an
// interval. moved reports whether the turbo switch changed.
func (t *tuner) tune(now time.Duration, sprinting bool) (moved bool) {
	if !t.inUse || t.records.Trail == nil {
		return false
	}
	if sprinting == t.sprinting && now < t.due {
		return false
	}
	t.sprinting, t.due = sprinting, now+tuneEvery
	saved := t.saved()
	if !saved {
		t.due = now + beat // the journal is under way
	}
	said := map[string][]*knob{} // by state, the numbers of policies left out
	for _, k := range t.knobs {
		was := k.state
		moved = t.turn(now, k, saved) || moved
		if k.state != was {
			like := originals.Unnumbered(k.words())
			said[like] = append(said[like], k)
		}
	}
	for _, like := range slices.Sorted(maps.Keys(said)) {
		k, more := said[like][0], len(said[like])-1
		t.log.Info("energy preference or turbo written", slog.String("state", k.words()), slog.String("control", k.Label), slog.Int("more", more))
	}
	t.records.LogPutBack("it is wished for no more", t.back)
	t.back = nil
	t.say(now)
	return moved
}

// saved reports whether everything that may be written is in the journal on disk.
func (t *tuner) saved() bool {
	unsaved := slices.DeleteFunc(t.controls(), func(c originals.Control) bool { return t.records.Trail.Has(c.Path) })
	unsaved = readable(unsaved)
	return len(unsaved) == 0 || t.records.Saved(unsaved...)
}

// turn is the step of one knob: gather, decide, apply, verify.
func (t *tuner) turn(now time.Duration, k *knob, saved bool) (moved bool) {
	wish, wished := k.wish(t.sprinting)
	if wished != k.wished || wish != k.want {
		k.stood, k.refusedAt = false, 0
	}
	k.want, k.wished = wish, wished
	if err := k.look(); err != nil {
		k.stood, k.state, k.text = false, knobOffline, err.Error()
		return false
	}
	switch {
	case !wished:
		t.putBack(k)
	case k.stands():
		k.stood, k.state, k.text = true, knobHeld, ""
	case k.pinned():
		k.state, k.text = knobPinned, dvfs.ErrPinned.Error()+"; that is how drivers are made, and no fault"
	case !saved || !t.records.Trail.Has(k.Path):
		k.state, k.text = knobPending, "its original is not on disk yet, so it is not written"
	case k.stood && !t.writesOver(now, k):
		k.state = knobDrift
		k.text = fmt.Sprintf("another program wrote %s; rivals is %s", k.Kind.Words(originals.Value{Number: k.now}), t.cfg.Rivals)
	case k.refusedAt == 0 || now-k.refusedAt >= tuneRetry:
		return t.set(now, k)
	}
	return false
}

// writesOver reports whether to overwrite the value of another program now.
func (t *tuner) writesOver(now time.Duration, k *knob) bool {
	if k.state != knobDrift {
		t.tally.counters.drifts++
	}
	t.drifted(now, k)
	if !t.cfg.Fights(now, k.rewroteAt) {
		return false
	}
	k.rewroteAt = now
	return true
}

// drifted reports whether another program has changed the knob.
func (t *tuner) drifted(now time.Duration, k *knob) {
	text, hint := t.drift.words(fmt.Sprintf("the %s is %s, %s was written", k.Label, k.Kind.Words(originals.Value{Number: k.now}), k.Kind.Words(originals.Value{Number: k.want})))
	if t.cfg.Rivals == config.RivalsYield {
		hint = "rivals is yield: its value stays; the cap is held all the same"
	}
	t.health.Warn(true, tuningDriftCode, text, hint)
	t.driftAt = now
}

// tuningDriftCode is the health item of a knob that another program changed.
const tuningDriftCode = "tuning-drift"

// set records the write, writes, and uses the value that reads back.
func (t *tuner) set(now time.Duration, k *knob) (moved bool) {
	err := t.records.Trail.Note(k.Path, k.want, k.now)
	if err == nil {
		k.now, err = k.set(k.want)
	}
	if err != nil {
		t.refused(now, k, err)
		return false
	}
	k.stood, k.state, k.text, k.refusedAt = true, knobHeld, "", 0
	return k.policy == nil
}

// refused records why a write failed. A property of driver or firmware is no refusal.
func (t *tuner) refused(now time.Duration, k *knob, err error) {
	switch {
	case errors.Is(err, dvfs.ErrPinned):
		k.state = knobPinned
	case errors.Is(err, dvfs.ErrTurboLocked):
		k.state = knobLocked
	case errors.Is(err, dvfs.ErrOffline):
		k.state = knobOffline
	default:
		k.state = knobRefused
		t.tally.counters.writeErrors++
	}
	k.stood, k.text, k.refusedAt = false, err.Error(), now
	_ = k.look() // the current value; unknown if that fails too
}

// putBack restores a knob that is no longer wanted.
func (t *tuner) putBack(k *knob) {
	k.state, k.text, k.stood = knobLeft, "", false
	wrote, ever := t.records.Trail.Wrote(k.Path)
	if !ever {
		return
	}
	i := slices.IndexFunc(t.records.Journal.Controls, func(c originals.Saved) bool { return c.Path == k.Path })
	if i < 0 || wrote == t.records.Journal.Controls[i].Found() {
		return
	}
	t.back = append(t.back, t.records.PutBackOne(t.records.Journal.Controls[i], t.remote.PutBack(), new(originals.SettleAll)))
	_ = k.look() // as above
}

// look reads the current value.
func (k *knob) look() error {
	v, err := k.Read()
	k.now, k.known = v.Number, err == nil
	return err
}

// stands reports whether the wanted value reads back.
func (k *knob) stands() bool {
	return k.known && k.Kind.Same(originals.Value{Number: k.now}, originals.Value{Number: k.want})
}

// pinned reports whether the performance governor fixes the preference, and so would refuse
// a write.
func (k *knob) pinned() bool {
	return k.policy != nil && k.Kind.Same(originals.Value{Number: k.now}, originals.Value{Number: int64(dvfs.EPPPerformance)}) && k.policy.Pinned()
}

// words describes the knob for the log.
func (k *knob) words() string {
	switch k.state {
	case knobLeft:
		return k.state
	case knobHeld:
		return k.state + " at " + k.Kind.Words(originals.Value{Number: k.now})
	}
	return k.state + ": " + k.text
}

// say updates the health items. Properties of drivers and firmware (pinned, locked, absent)
// are shown in the status only.
func (t *tuner) say(now time.Duration) {
	var refused []string
	for _, name := range slices.Sorted(maps.Keys(t.closed)) {
		if err := t.closed[name]; closedAs(err) == knobRefused {
			refused = append(refused, err.Error())
		}
	}
	drift := false
	for _, k := range t.knobs {
		if k.state == knobRefused {
			refused = append(refused, k.text)
		}
		drift = drift || k.state == knobDrift
	}
	t.health.Warn(len(refused) > 0, "tuning-refused",
		"not accepted (the cap is still enforced): "+health.Few(refused),
		"powerd freq list shows what the driver supports; or remove frequency: from powerd.yaml")
	if at := t.driftAt; !drift && (at == 0 || now-at > driftShown) {
		t.health.Clear(tuningDriftCode)
	}
}

// closedAs returns the state of a knob that could not be opened.
func closedAs(err error) string {
	var denied config.DeniedError
	switch {
	case errors.As(err, &denied):
		return knobLeft
	case errors.Is(err, dvfs.ErrNoPreference), errors.Is(err, dvfs.ErrNoTurbo):
		return knobAbsent
	case errors.Is(err, dvfs.ErrOffline):
		return knobOffline
	}
	return knobRefused
}

// forget is called when the originals are restored.
func (t *tuner) forget() {
	for _, k := range t.knobs {
		k.stood, k.wished, k.state, k.text = false, false, "", ""
	}
	t.due = 0
}

func (t *tuner) close() error {
	return errors.Join(each.Of(t.hands, io.Closer.Close)...)
}

// distinct returns all, plus those of more that it lacks.
func distinct(all, more []originals.Control) []originals.Control {
	known := map[string]bool{}
	for _, c := range all {
		known[c.Path] = true
	}
	for _, c := range more {
		if !known[c.Path] {
			known[c.Path] = true
			all = append(all, c)
		}
	}
	return all
}
