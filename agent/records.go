package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"headroom/agent/config"
	"headroom/agent/health"
	"headroom/agent/originals"
	"headroom/agent/statedir"
	"headroom/internal/cli"
	"headroom/rapl"
)

// records are what powerd keeps on disk about the machine it changes: the journal of
// the originals, the trail of what was written since, and held.json, which says what
// the node may hold. Nothing is written before its original is durable, and nothing
// raised before held.json covers it. They belong to the owner goroutine.
type records struct {
	cfg    *config.Config
	log    *slog.Logger
	disk   statedir.Disk
	health *health.Items
	root   *os.Root
	writer *statedir.Writer // nil before the loop runs

	journal *originals.Journal // nil: nothing is saved
	trail   *originals.Trail
	own     bool               // the journal is of this process: nothing was written before it
	next    *originals.Journal // a longer journal on its way to disk

	cover    cover  // what held.json on disk allows
	covering *cover // what it will allow once the writer has written it
}

// resume takes over the journal of an earlier powerd.
func (r *records) resume(tree *rapl.Tree) (err error) {
	r.journal.Relocate(tree)
	r.trail, err = originals.OpenTrail(r.cfg.StateDir, r.journal, false)
	return err
}

// save makes the journal durable. Nothing has been written yet, or an
// earlier process wrote under the journal that is there.
func (r *records) save(boot string, controls []originals.Control) error {
	if r.journal != nil {
		return r.saveMore(boot, controls)
	}
	j, err := originals.New(r.cfg.Node, boot, controls)
	if err != nil {
		return err
	}
	if err := j.Store(r.disk); err != nil {
		return saveFailed(r.cfg.StateDir, err)
	}
	r.journal, r.own = j, true
	r.trail, err = originals.OpenTrail(r.cfg.StateDir, j, true)
	return err
}

// saveMore brings an earlier process's journal up to date. Where that cannot be
// stored, the fail-safe cap goes before fresh originals: those that are on disk
// are of the boot before.
func (r *records) saveMore(boot string, controls []originals.Control) error {
	changed := r.journal.Adopt(r.root, boot, r.trail)
	more, err := r.journal.Extend(r.root, controls)
	if err != nil || !(changed || more) {
		return err
	}
	err = r.journal.Store(r.disk)
	if err != nil && !more {
		r.log.Warn("journal not brought up to this boot", slog.Any("error", err))
		return nil
	}
	if err != nil || !more {
		return err
	}
	old := r.trail
	r.trail, err = originals.OpenTrail(r.cfg.StateDir, r.journal, false)
	return errors.Join(err, old.Close())
}

// saveFailed is the error of a journal that could not be stored.
func saveFailed(stateDir string, err error) error {
	return &cli.Error{
		Code: "state-dir", Exit: cli.ExitFailed, Err: err,
		Message: fmt.Sprintf("cannot save the original limits: %v; nothing was written", err),
		Hint:    "make room in " + stateDir + " and start powerd again",
	}
}

// saved makes controls that are met while the loop runs durable before they are
// first written. It says whether that is done; otherwise it is under way, and a
// later call will say so.
func (r *records) saved(controls ...originals.Control) bool {
	if r.journal == nil || r.trail == nil {
		return false
	}
	if !slices.ContainsFunc(controls, func(c originals.Control) bool { return !r.trail.Has(c.Path) }) {
		return true
	}
	if r.next != nil {
		return false
	}
	next := r.journal.Clone()
	if _, err := next.Extend(r.root, controls); err != nil {
		r.log.Warn("controls not saved, so they are not written", slog.Any("error", err))
		return false
	}
	r.storeJournal(next)
	return false
}

// storeJournal has a longer journal made durable.
func (r *records) storeJournal(next *originals.Journal) {
	data, err := next.Encode()
	if err != nil {
		r.log.Error("journal cannot be encoded", slog.Any("error", err))
		return
	}
	r.next = next
	r.writer.Do(statedir.Job{Kind: statedir.Controls, Name: statedir.JournalFile, Data: data, Durable: true})
}

// journalStored takes the longer journal into use.
//
//headroom:control
func (r *records) journalStored(err error) {
	next := r.next
	r.next = nil
	r.health.Warn(err != nil, "journal-not-stored",
		fmt.Sprintf("%s cannot be written (%v): no further control is touched", statedir.JournalFile, err),
		"make room in "+r.cfg.StateDir)
	if err != nil || r.journal == nil {
		return
	}
	r.trail.Extend(next)
	r.journal = next
}

// keep catches up with what was written, and says when they are not on disk.
func (r *records) keep() {
	var err error
	if r.trail != nil {
		err = r.trail.CatchUp()
	}
	r.health.Warn(err != nil, "records-not-stored",
		fmt.Sprintf("%s cannot be written (%v): lower limits are written, and nothing is raised", statedir.WrittenFile, err),
		"see whether the disk of "+r.cfg.StateDir+" hangs or is full")
}

// forget removes the journal: nothing is left to be put back.
func (r *records) forget() error {
	err := r.trail.Close()
	r.journal, r.trail = nil, nil
	return errors.Join(err, r.now(statedir.Job{Remove: []string{statedir.JournalFile, statedir.WrittenFile}}))
}

// now carries out a job before it returns: here, before the loop runs, and otherwise by
// the writer, which is waited for no longer than settleWait.
func (r *records) now(j statedir.Job) error {
	if r.writer == nil {
		return j.CarryOut(r.disk)
	}
	return r.writer.Now(j, settleWait)
}

// putBack puts all originals back, and forgets the journal when none is left. The
// error is about forgetting it.
func (r *records) putBack(because string, afar originals.Remote) (originals.Outcome, error) {
	out := originals.PutBack(r.root, r.journal, r.trail, afar)
	r.log.Info("originals put back", slog.String("because", because),
		slog.Int("restored", len(out.Restored)), slog.Int("kept", len(out.Kept)), slog.Int("failed", out.Failed))
	for _, line := range out.Kept {
		r.log.Warn("control not put back", slog.String("control", line))
	}
	if out.Failed > 0 {
		return out, nil // the journal stays, and with it what is still to be put back
	}
	return out, r.forget()
}

// notPutBack is what came of originals that stay where they are, all of them.
func (r *records) notPutBack(why error) originals.Outcome {
	var out originals.Outcome
	for _, c := range r.journal.Controls {
		out.Kept = append(out.Kept, fmt.Sprintf("%s: %v", c.Label, why))
		out.Failed++
	}
	return out
}

// putBackOne puts back one control that powerd wrote and wishes for no more.
func (r *records) putBackOne(c originals.Saved, because string, afar originals.Remote, patience *time.Duration) {
	line, kept, err := originals.PutBackOne(r.root, c, r.trail, afar, patience)
	r.log.Info("one control put back", slog.String("because", because), slog.String("control", c.Label), slog.String("outcome", line), slog.Bool("kept", kept), slog.Any("error", err))
}

// ask has held.json written. A cover that lies inside the present one counts
// from now on; one that allows more counts once it is on disk.
func (r *records) ask(c cover) {
	if r.covering != nil {
		return // the next turn asks again
	}
	data, err := encodeHeld(r.cfg, c)
	if err != nil {
		r.log.Error("held.json cannot be encoded", slog.Any("error", err))
		return
	}
	if r.cover.allows(c) {
		r.cover = c
	}
	r.covering = &c
	r.writer.Do(statedir.Job{Kind: statedir.Held, Name: statedir.HeldFile, Data: data})
}

// heldStored takes what the writer says of held.json, and answers whether more is
// covered now.
func (r *records) heldStored(err error) bool {
	c := r.covering
	r.covering = nil
	if err == nil && c != nil {
		r.cover = *c
	}
	return err == nil && c != nil
}

// busy says that the writer has something of these under way.
func (r *records) busy() bool { return r.covering != nil || r.next != nil }

// noteHeld shows whether held.json could be written.
func (r *records) noteHeld(err error) {
	r.health.Warn(err != nil, "held-not-stored",
		fmt.Sprintf("held.json cannot be written (%v): no raise is carried out", err),
		"make room in "+r.cfg.StateDir)
}

// writeHeld writes held.json before it returns: before the loop runs, and when the
// originals go back.
func (r *records) writeHeld(c cover) error {
	data, err := encodeHeld(r.cfg, c)
	if err == nil {
		err = r.now(statedir.Job{Kind: statedir.Held, Name: statedir.HeldFile, Data: data})
	}
	switch {
	case err == nil:
		r.cover = c
	case errors.Is(err, statedir.ErrLate):
		r.cover.state = "" // the file may come to hold c: the next turn has it written anew
	}
	return err
}
