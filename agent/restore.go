package agent

import (
	"context"
	"errors"
	"os"

	"connectrpc.com/connect"

	"headroom/agent/config"
	"headroom/agent/machine"
	"headroom/agent/originals"
	"headroom/agent/records"
	"headroom/agent/statedir"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/rpc"
	"headroom/rapl"
	"headroom/rapl/sysfs"
)

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
func Restore(ctx context.Context, cfg config.Config, o RestoreOptions) (originals.Outcome, error) {
	req := &headroomv1.RestoreLimitsRequest{Force: o.Force, Change: o.Change}
	res, err := Client(cfg.StateDir).RestoreLimits(ctx, connect.NewRequest(req))
	if err == nil {
		return originals.Outcome{Restored: res.Msg.GetRestored(), Kept: res.Msg.GetKept()}, nil
	}
	if e := rpc.AsCLI(err, "limit restore", SocketPath(cfg.StateDir)); e.Code != "unreachable" {
		return originals.Outcome{}, e
	}
	return restoreDead(ctx, cfg, o)
}

// restoreDead is Restore with no powerd running.
func restoreDead(ctx context.Context, cfg config.Config, o RestoreOptions) (out originals.Outcome, err error) {
	if _, err := os.Stat(cfg.StateDir); errors.Is(err, os.ErrNotExist) {
		return originals.Outcome{}, nil
	}
	held, err := statedir.Lock(cfg.StateDir)
	if err != nil {
		return originals.Outcome{}, err
	}
	defer func() { err = errors.Join(err, statedir.Unlock(held)) }()
	d := statedir.OS{Dir: cfg.StateDir}
	j, err := originals.Load(d)
	if errors.Is(err, originals.ErrDamaged) {
		return originals.Outcome{}, damaged(cfg.StateDir+"/"+statedir.JournalFile, err)
	}
	if err != nil || j == nil {
		return originals.Outcome{}, err
	}
	root, err := machine.OpenRoot(cfg.Root)
	if err != nil {
		return originals.Outcome{}, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	files, err := sysfs.NewFiles(root)
	if err != nil {
		return originals.Outcome{}, err
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	claimed, err := statedir.Claim(root)
	if err != nil {
		return originals.Outcome{}, err
	}
	defer func() { err = errors.Join(err, statedir.Unlock(claimed)) }()
	if !o.Force && !cfg.Alone() {
		id, err := machine.ReadIdentity(root)
		if err != nil {
			return originals.Outcome{}, err
		}
		req := &headroomv1.ReleaseRequest{Node: cfg.Node, MachineId: id.Machine, Change: o.Change}
		peers, err := cfg.Peers()
		if err != nil {
			return originals.Outcome{}, err
		}
		defer peers.Close()
		if err := askRelease(ctx, peers, KnownCoordinators(cfg), req); err != nil {
			return originals.Outcome{}, err
		}
	}
	return putBackDead(files, d, cfg, j)
}

// putBackDead writes held.json first, as the agent would, then the originals.
func putBackDead(files *sysfs.Files, d statedir.Disk, cfg config.Config, j *originals.Journal) (originals.Outcome, error) {
	relocateDead(files.Root(), j)
	t, err := originals.OpenTrail(cfg.StateDir, j, false)
	if err != nil {
		return originals.Outcome{}, err
	}
	data, err := records.EncodeHeld(&cfg, records.Bound{Cap: cfg.Power.Rated, State: records.StateReleased})
	if err == nil {
		err = d.Replace(statedir.HeldFile, data)
	}
	out := originals.PutBack(files, j, t, originals.FilesOnly)
	err = errors.Join(err, t.Close())
	if out.Failed == 0 {
		err = errors.Join(err, d.Remove(statedir.JournalFile), d.Remove(statedir.WrittenFile))
	}
	return out, err
}

// relocateDead follows the journal's zones with no agent that has them open. A machine
// without such zones has none that could have moved.
func relocateDead(root *os.Root, j *originals.Journal) {
	tree, err := rapl.Open(root)
	if err != nil {
		return
	}
	defer func() { _ = tree.Close() }()
	j.Relocate(tree)
}
