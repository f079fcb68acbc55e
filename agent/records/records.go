// Package records keeps on disk what a node has changed and what it may hold.
//
// Three files are for the next process: the journal of original values, the trail of writes
// (both of package originals), and held.json, the highest limits that the hardware may hold.
// Nothing is written before its original value is durable, and nothing is raised before
// held.json covers it. The package also defines the format of state.json, which holds the
// stored leases.
//
// Records belong to one goroutine, powerd's loop, and never block it on a disk: after Start
// a separate goroutine writes. Only steps that end a node's control wait for it, at most
// SettleWait.
package records

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"headroom/agent/config"
	"headroom/agent/health"
	"headroom/agent/originals"
	"headroom/agent/statedir"
	"headroom/internal/cli"
	"headroom/rapl"
	"headroom/rapl/sysfs"
)

// Records are what powerd keeps on disk about the machine it changes: the journal of
// the originals, the trail of what was written since, and held.json, which says what
// the node may hold. Nothing is written before its original is durable, and nothing
// raised before held.json covers it. They belong to the owner goroutine.
type Records struct {
	cfg    *config.Config
	log    *slog.Logger
	disk   statedir.Disk
	health *health.Items
	files  *sysfs.Files
	Writer *statedir.Writer // nil before the loop runs

	Journal *originals.Journal // nil: nothing is saved
	Trail   *originals.Trail
	Own     bool               // the journal is of this process: nothing was written before it
	next    *originals.Journal // a longer journal on its way to disk

	onDisk  Bound  // what held.json on disk allows
	pending *Bound // what it will allow once the writer has written it
}

// New returns records that know nothing yet of what is on d.
func New(cfg *config.Config, log *slog.Logger, health *health.Items, d statedir.Disk) *Records {
	return &Records{cfg: cfg, log: log, health: health, disk: d}
}

// Start has a goroutine write from now on; Stop ends it.
func (r *Records) Start() { r.Writer = statedir.StartWriter(r.disk) }

// Stop ends the writing, and leaves a disk that does not answer to itself.
func (r *Records) Stop() { r.Writer.Stop(SettleWait) }

// Close gives the file of the trail back.
func (r *Records) Close() error {
	if r.Trail == nil {
		return nil
	}
	return r.Trail.Close()
}

// Load reads the journal of an earlier powerd, if there is one, and works on files from
// now on. The error may be originals.ErrDamaged.
func (r *Records) Load(files *sysfs.Files) (err error) {
	r.files = files
	r.Journal, err = originals.Load(r.disk)
	return err
}

// Resume takes over the journal of an earlier powerd.
func (r *Records) Resume(tree *rapl.Tree) (err error) {
	r.Journal.Relocate(tree)
	r.Trail, err = originals.OpenTrail(r.cfg.StateDir, r.Journal, false)
	return err
}

// Save makes the journal durable. Nothing has been written yet, or an
// earlier process wrote under the journal that is there.
func (r *Records) Save(boot string, controls []originals.Control) error {
	if r.Journal != nil {
		return r.saveMore(boot, controls)
	}
	j, err := originals.New(r.cfg.Node, boot, controls)
	if err != nil {
		return err
	}
	if err := j.Store(r.disk); err != nil {
		return saveFailed(r.cfg.StateDir, err)
	}
	r.Journal, r.Own = j, true
	r.Trail, err = originals.OpenTrail(r.cfg.StateDir, j, true)
	return err
}

// saveMore brings an earlier process's journal up to date. Where that cannot be
// stored, the fail-safe cap goes before fresh originals: those that are on disk
// are of the boot before.
func (r *Records) saveMore(boot string, controls []originals.Control) error {
	changed := r.Journal.Adopt(r.files, boot, r.Trail)
	more, err := r.Journal.Extend(r.files, controls)
	if err != nil || !(changed || more) {
		return err
	}
	err = r.Journal.Store(r.disk)
	if err != nil && !more {
		r.log.Warn("journal not updated for this boot", slog.Any("error", err))
		return nil
	}
	if err != nil || !more {
		return err
	}
	old := r.Trail
	r.Trail, err = originals.OpenTrail(r.cfg.StateDir, r.Journal, false)
	return errors.Join(err, old.Close())
}

// saveFailed is the error of a journal that could not be stored.
func saveFailed(stateDir string, err error) error {
	return &cli.Error{
		Code: "state-dir", Exit: cli.ExitFailed, Err: err,
		Message: fmt.Sprintf("original limits not saved, nothing written: %v", err),
		Hint:    "free space in " + stateDir + " and restart powerd",
	}
}

// SettleWait bounds waiting for the state directory: a stop must not hang on a
// disk that does.
const SettleWait = 2 * time.Second

// Saved makes controls that are met while the loop runs durable before they are
// first written. It says whether that is done; otherwise it is under way, and a
// later call will say so.
//
//headroom:control
func (r *Records) Saved(controls ...originals.Control) bool {
	if r.Journal == nil || r.Trail == nil {
		return false
	}
	if !slices.ContainsFunc(controls, func(c originals.Control) bool { return !r.Trail.Has(c.Path) }) {
		return true
	}
	if r.next != nil {
		return false
	}
	next := r.Journal.Clone()
	if _, err := next.Extend(r.files, controls); err != nil {
		r.log.Warn("controls not saved, not writing them", slog.Any("error", err))
		return false
	}
	r.storeJournal(next)
	return false
}

// storeJournal has a longer journal made durable.
func (r *Records) storeJournal(next *originals.Journal) {
	data, err := next.Encode()
	if err != nil {
		r.log.Error("journal not encoded", slog.Any("error", err))
		return
	}
	r.next = next
	r.Writer.Do(statedir.Job{Kind: statedir.Controls, Name: statedir.JournalFile, Data: data, Durable: true})
}

// JournalStored takes the longer journal into use.
//
//headroom:control
func (r *Records) JournalStored(err error) {
	next := r.next
	r.next = nil
	r.health.Warn(err != nil, "journal-not-stored",
		fmt.Sprintf("%s not written (%v): no further control is changed", statedir.JournalFile, err),
		"free space in "+r.cfg.StateDir)
	if err != nil || r.Journal == nil {
		return
	}
	r.Trail.Extend(next)
	r.Journal = next
}

// Keep stores what was written, and raises a health item if it is not on disk.
//
//headroom:control
func (r *Records) Keep() {
	var err error
	if r.Trail != nil {
		err = r.Trail.CatchUp()
	}
	r.health.Warn(err != nil, "records-not-stored",
		fmt.Sprintf("%s not written (%v): limits are lowered but not raised", statedir.WrittenFile, err),
		"check whether the disk of "+r.cfg.StateDir+" is full or not responding")
}

// forget removes the journal: nothing is left to be put back.
func (r *Records) forget() error {
	err := r.Trail.Close()
	r.Journal, r.Trail = nil, nil
	return errors.Join(err, r.now(statedir.Job{Remove: []string{statedir.JournalFile, statedir.WrittenFile}}))
}

// now carries out a job before it returns: here, before the loop runs, and otherwise by
// the writer, which is waited for no longer than settleWait.
func (r *Records) now(j statedir.Job) error {
	if r.Writer == nil {
		return j.CarryOut(r.disk)
	}
	return r.Writer.Now(j, SettleWait)
}

// PutBack restores all originals, and removes the journal when none is left. The
// error is about removing it.
func (r *Records) PutBack(because string, afar originals.Remote) (originals.Outcome, error) {
	out := originals.PutBack(r.files, r.Journal, r.Trail, afar)
	r.log.Info("original limits restored", slog.String("because", because),
		slog.Int("restored", len(out.Restored)), slog.Int("kept", len(out.Kept)), slog.Int("failed", out.Failed))
	for _, line := range originals.Alike(out.Kept) {
		r.log.Warn("control not restored", slog.String("control", line))
	}
	if out.Failed > 0 {
		return out, nil // the journal stays, and with it what is still to be put back
	}
	return out, r.forget()
}

// NotPutBack returns the outcomes of originals that were not restored, all of them.
func (r *Records) NotPutBack(why error) originals.Outcome {
	var out originals.Outcome
	for _, c := range r.Journal.Controls {
		out.Kept = append(out.Kept, fmt.Sprintf("%s: %v", c.Label, why))
		out.Failed++
	}
	return out
}

// PutBackOne restores one control that powerd wrote and no longer uses. It returns what came of it,
// for LogPutBack.
//
//headroom:control
func (r *Records) PutBackOne(c originals.Saved, afar originals.Remote, patience *time.Duration) string {
	line, _, err := originals.PutBackOne(r.files, c, r.Trail, afar, patience)
	if err != nil {
		line = "failed: " + err.Error()
	}
	return c.Label + ": " + line
}

// LogPutBack logs what came of controls that PutBackOne restored.
//
//headroom:control
func (r *Records) LogPutBack(because string, lines []string) {
	for _, line := range originals.Alike(lines) {
		r.log.Info("control restored", slog.String("because", because), slog.String("control", line))
	}
}

// Ask requests writing held.json. A bound that lies inside the present one counts
// from now on; one that allows more counts once it is on disk.
//
//headroom:control
func (r *Records) Ask(c Bound) {
	if r.pending != nil {
		return // the next turn asks again
	}
	data, err := EncodeHeld(r.cfg, c)
	if err != nil {
		r.log.Error("held.json not encoded", slog.Any("error", err))
		return
	}
	if r.onDisk.Allows(c) {
		r.onDisk = c
	}
	r.pending = &c
	r.Writer.Do(statedir.Job{Kind: statedir.Held, Name: statedir.HeldFile, Data: data})
}

// HeldStored records the writer's result for held.json, and reports whether more is
// covered now.
//
//headroom:control
func (r *Records) HeldStored(err error) bool {
	c := r.pending
	r.pending = nil
	if err == nil && c != nil {
		r.onDisk = *c
	}
	return err == nil && c != nil
}

// Busy reports whether the writer has something of these under way.
//
//headroom:control
func (r *Records) Busy() bool { return r.pending != nil || r.next != nil }

// OnDisk is what held.json on disk allows.
func (r *Records) OnDisk() Bound { return r.onDisk }

// Begin is for what the first writes have left: no raise goes beyond it before held.json
// says so.
func (r *Records) Begin(c Bound) {
	r.onDisk = c
	r.NoteHeld(r.WriteHeld(c))
}

// NoteHeld shows whether held.json could be written.
//
//headroom:control
func (r *Records) NoteHeld(err error) {
	r.health.Warn(err != nil, "held-not-stored",
		fmt.Sprintf("held.json not written (%v): limits are not raised", err),
		"free space in "+r.cfg.StateDir)
}

// WriteHeld writes held.json before it returns: before the loop runs, and when the
// originals go back.
func (r *Records) WriteHeld(c Bound) error {
	data, err := EncodeHeld(r.cfg, c)
	if err == nil {
		err = r.now(statedir.Job{Kind: statedir.Held, Name: statedir.HeldFile, Data: data})
	}
	switch {
	case err == nil:
		r.onDisk = c
	case errors.Is(err, statedir.ErrLate):
		r.onDisk.State = "" // the file may contain c: the next turn writes it again
	}
	return err
}
