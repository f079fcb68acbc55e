package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/dvfs"
	"headroom/internal/rpc"
	"headroom/rapl"
)

// Outcome is what putting back came to, one line a control.
type Outcome struct {
	// Restored are the controls that hold their originals again.
	Restored []string
	// Kept are those that do not, with the reason.
	Kept []string
	// failed counts the controls that should have gone back and did not: the
	// journal has to stay.
	failed int
}

// RestoreOptions say how originals are to go back.
type RestoreOptions struct {
	// Force does without a release: the coordinator goes on charging this node what
	// it last held.
	Force bool
	// Change is who asks and why, for the audit log of the coordinator.
	Change *headroomv1.Change
}

// Restore puts the originals of every control back, once the coordinator has
// committed that the node is released, or without that when forced. The powerd
// that runs on cfg.StateDir does it; where none answers, its work is done here,
// under its lock. Nothing saved is no error but an empty Outcome.
//
// The error is a *cli.Error or wraps one: ErrDamaged for a journal that cannot be
// trusted, exit code 6 when nobody released the node. Both put nothing back.
func Restore(ctx context.Context, cfg Config, o RestoreOptions) (Outcome, error) {
	req := &headroomv1.RestoreLimitsRequest{Force: o.Force, Change: o.Change}
	res, err := Client(cfg.StateDir).RestoreLimits(ctx, connect.NewRequest(req))
	if err == nil {
		return Outcome{Restored: res.Msg.GetRestored(), Kept: res.Msg.GetKept()}, nil
	}
	if e := rpc.AsCLI(err, "limit restore", SocketPath(cfg.StateDir)); e.Code != "unreachable" {
		return Outcome{}, e
	}
	return restoreDead(ctx, cfg, o)
}

// restoreDead is Restore with no powerd running.
func restoreDead(ctx context.Context, cfg Config, o RestoreOptions) (out Outcome, err error) {
	if _, err := os.Stat(cfg.StateDir); errors.Is(err, os.ErrNotExist) {
		return Outcome{}, nil
	}
	held, err := lock(cfg.StateDir)
	if err != nil {
		return Outcome{}, err
	}
	defer func() { err = errors.Join(err, unlock(held)) }()
	d := osDisk{cfg.StateDir}
	j, err := loadJournal(d)
	if errors.Is(err, ErrDamaged) {
		return Outcome{}, damaged(cfg.StateDir+"/"+JournalFile, err)
	}
	if err != nil || j == nil {
		return Outcome{}, err
	}
	root, err := OpenRoot(cfg.Root)
	if err != nil {
		return Outcome{}, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	claimed, err := claim(root)
	if err != nil {
		return Outcome{}, err
	}
	defer func() { err = errors.Join(err, unlock(claimed)) }()
	if !o.Force && !cfg.Alone() {
		id, err := readIdentity(root)
		if err != nil {
			return Outcome{}, err
		}
		req := &headroomv1.ReleaseRequest{Node: cfg.Node, MachineId: id.machine, Change: o.Change}
		peers, err := cfg.Peers()
		if err != nil {
			return Outcome{}, err
		}
		defer peers.Close()
		if err := askRelease(ctx, peers, KnownCoordinators(cfg), req); err != nil {
			return Outcome{}, err
		}
	}
	return putBackDead(root, d, cfg, j)
}

// putBackDead writes held.json first, as the agent would, then the originals.
func putBackDead(root *os.Root, d disk, cfg Config, j *journal) (Outcome, error) {
	relocateDead(root, j)
	t, err := openTrail(cfg.StateDir, j, false)
	if err != nil {
		return Outcome{}, err
	}
	data, err := encodeHeld(cfg, cover{cap: cfg.Power.Rated, state: stateReleased}, nil)
	if err == nil {
		err = d.Replace(HeldFile, data)
	}
	out := putBack(root, j, t, noAfar)
	err = errors.Join(err, t.close())
	if out.failed == 0 {
		err = errors.Join(err, d.Remove(JournalFile), d.Remove(writtenFile))
	}
	return out, err
}

// relocateDead follows the journal's zones with no agent that has them open. A machine
// without such zones has none that could have moved.
func relocateDead(root *os.Root, j *journal) {
	tree, err := rapl.Open(root)
	if err != nil {
		return
	}
	defer func() { _ = tree.Close() }()
	j.relocate(tree)
}

// afar puts back a control that is no file. It answers like putBackOne.
type afar func(c saved, wrote value, ever bool) (line string, kept bool, err error)

// putBack writes every original that powerd replaced. It goes on past controls
// that fail, leaves alone what another program has written since, and never
// writes 0 W. The turbo switch goes first, because ceilings read back lower while it is
// off, then the other files in the order of the journal; what is reached through
// another program, by far, comes last.
func putBack(root *os.Root, j *journal, t *trail, far afar) Outcome {
	var o Outcome
	patience := settleAll
	for _, its := range []func(kind) bool{
		kind.turbo,
		func(k kind) bool { return k.file() && !k.turbo() },
		func(k kind) bool { return !k.file() },
	} {
		for _, c := range j.Controls {
			if !its(c.Kind) {
				continue
			}
			line, kept, err := putBackOne(root, c, t, far, &patience)
			switch {
			case err != nil:
				o.Kept = append(o.Kept, fmt.Sprintf("%s: %v", c.Label, err))
				o.failed++
			case kept:
				o.Kept = append(o.Kept, c.Label+": "+line)
			default:
				o.Restored = append(o.Restored, c.Label+": "+line)
			}
		}
	}
	return o
}

// settleAll bounds waiting for the kernel while many bounds of frequency go back, each
// of them for dvfs.SettleMost: where none of them takes, the node must not hang.
const settleAll = time.Second

// putBackOne puts one original back; what it waits is taken off patience.
func putBackOne(root *os.Root, c saved, t *trail, far afar, patience *time.Duration) (line string, kept bool, err error) {
	if !c.Kind.file() {
		wrote, ever := t.wrote(c.Path)
		return far(c, wrote, ever)
	}
	c = c.asFound(root) // turbo is back by now
	wait := min(*patience, dvfs.SettleMost)
	*patience -= wait
	defer func() { *patience += max(0, wait) }()
	now, err := c.standing(root, t, &wait)
	if err != nil {
		return "", false, err
	}
	was := c.Kind.words(c.found())
	switch {
	case now == c.found():
		return was + " (already)", false, nil
	case !t.ours(c, now) && !c.byTurbo(root, t, now):
		return fmt.Sprintf("holds %s, which powerd did not write; left alone (it was %s)", c.Kind.words(now), was), true, nil
	case c.Kind == powerControl && c.Original == 0:
		return "was 0 W, which is never written; holds " + c.Kind.words(now), true, nil
	}
	if err := t.noteValue(c.Path, c.found(), now); err != nil {
		return "", false, err
	}
	got, err := c.write(root, c.found(), &wait)
	switch {
	case err != nil || c.Kind.same(got, c.found()):
	case rangeMoved(root, c, got.number):
		was = fmt.Sprintf("%s, which is as far as the range goes now (it was %s)", c.Kind.words(got), was)
	case c.took(root, got, c.found()):
	default:
		err = fmt.Errorf("wrote %s, reads %s", was, c.Kind.words(got))
	}
	return was, false, err
}

// noAfar is the hand of a command with the agent dead: it reaches files only.
func noAfar(c saved, _ value, ever bool) (string, bool, error) {
	switch {
	case !ever:
		return c.Kind.words(c.found()) + " (never written)", false, nil
	case c.Kind == bandwidthControl:
		return "", false, errors.New("only the agent puts a slice's bandwidth back: start powerd, or reboot (the bound ends with the boot); it was " +
			c.Kind.words(c.found()))
	}
	return "", false, errors.New("only the agent reaches the BMC: start powerd, or set the limit by hand; it was " + c.Kind.words(c.found()))
}
