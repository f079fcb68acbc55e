package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
)

// restoreOptions are the flags of `powerd limit restore`.
type restoreOptions struct {
	force     bool
	reason    string
	requestID string
}

func newRestoreCommand() *cobra.Command {
	var p place
	var o restoreOptions
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Put every limit back to what it was before powerd first wrote it",
		Long: "Put every limit back to what it was before powerd first wrote it, once the coordinator has committed that this node is released\n" +
			"and charged its rated watts. Works with powerd running, which then only observes until it is\n" +
			"started again, and with powerd dead. Without a release nothing changes, unless forced.",
		Example: "  powerd limit restore --reason \"taking n03 out of service\"\n  powerd limit restore --force",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := p.load()
			if err != nil {
				return err
			}
			done, err := restoreLimits(cmd.Context(), cfg, o)
			if err != nil {
				return err
			}
			return printOutcome(cmd.OutOrStdout(), &out, done)
		},
	}
	p.flags(cmd)
	out.Flags(cmd)
	cmd.Flags().BoolVar(&o.force, "force", false, "do not ask the coordinator: it goes on charging this node what it last held")
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, for the audit log")
	cmd.Flags().StringVar(&o.requestID, "request-id", "", "idempotency key; one is made when absent")
	return cmd
}

// restoreLimits asks the agent, or does its work when it is dead.
func restoreLimits(ctx context.Context, cfg Config, o restoreOptions) (outcome, error) {
	change := &headroomv1.Change{Actor: actor(), Reason: o.reason, RequestId: o.requestID}
	if change.GetRequestId() == "" {
		change.RequestId = cli.RequestID()
	}
	req := connect.NewRequest(&headroomv1.RestoreLimitsRequest{Force: o.force, Change: change})
	res, err := callAgent(ctx, func(ctx context.Context) (*connect.Response[headroomv1.RestoreLimitsResponse], error) {
		return agentClient(cfg.StateDir).RestoreLimits(ctx, req)
	})
	if err == nil {
		return outcome{restored: res.Msg.GetRestored(), kept: res.Msg.GetKept()}, nil
	}
	if e := rpc.AsCLI(err, "limit restore", cfg.StateDir+"/"+socketFile); e.Code != "unreachable" {
		return outcome{}, e
	}
	return restoreDead(ctx, cfg, o.force, change)
}

// restoreDead puts the originals back with no agent running.
func restoreDead(ctx context.Context, cfg Config, force bool, change *headroomv1.Change) (out outcome, err error) {
	if _, err := os.Stat(cfg.StateDir); errors.Is(err, os.ErrNotExist) {
		return outcome{}, nil
	}
	held, err := lock(cfg.StateDir)
	if err != nil {
		return outcome{}, err
	}
	defer func() { err = errors.Join(err, unlock(held)) }()
	d := osDisk{cfg.StateDir}
	j, err := loadJournal(d)
	if errors.Is(err, ErrDamaged) {
		return outcome{}, damaged(cfg.StateDir+"/"+journalFile, err)
	}
	if err != nil || j == nil {
		return outcome{}, err
	}
	root, err := openRoot(cfg.Root)
	if err != nil {
		return outcome{}, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if addrs := cachedAddresses(d, cfg); !force && !cfg.alone() {
		id, err := readIdentity(root)
		if err != nil {
			return outcome{}, err
		}
		req := &headroomv1.ReleaseRequest{Node: cfg.Node, MachineId: id.machine, Change: change}
		if err := askRelease(ctx, addrs, req); err != nil {
			return outcome{}, err
		}
	}
	return putBackDead(root, d, cfg, j)
}

// putBackDead writes held.json first, as the agent would, then the originals.
func putBackDead(root *os.Root, d disk, cfg Config, j *journal) (outcome, error) {
	t, err := openTrail(cfg.StateDir, j, false)
	if err != nil {
		return outcome{}, err
	}
	data, err := encodeHeld(cfg, cover{cap: cfg.Power.Rated, state: stateReleased}, nil)
	if err == nil {
		err = d.Replace(heldFile, data)
	}
	out := putBack(root, j, t, noAfar)
	err = errors.Join(err, t.close())
	if out.failed == 0 {
		err = errors.Join(err, d.Remove(journalFile), d.Remove(writtenFile))
	}
	return out, err
}

// cachedAddresses are the configured coordinators and those last seen.
func cachedAddresses(d disk, cfg Config) []string {
	addrs := slices.Clone(cfg.Coordinators)
	if data, err := d.Read(coordinatorsFile); err == nil {
		var c addressCache
		if json.Unmarshal(data, &c) == nil {
			addrs = append(addrs, c.Addresses...)
		}
	}
	return addrs[:min(len(addrs), linksMax)]
}

// actor names who runs the command, for the audit log.
func actor() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprintf("uid-%d", os.Getuid())
}

// printOutcome prints one line a control. Controls that did not go back make it
// "done but degraded".
func printOutcome(w io.Writer, out *cli.Output, o outcome) error {
	if out.IsJSON() {
		err := out.JSON(w, map[string][]string{"restored": append([]string{}, o.restored...), "kept": append([]string{}, o.kept...)})
		return errors.Join(err, o.degraded())
	}
	if len(o.restored)+len(o.kept) == 0 {
		_, err := io.WriteString(w, "nothing to restore: no limit is saved\n")
		return err
	}
	for _, line := range o.restored {
		if _, err := fmt.Fprintf(w, "restored  %s\n", line); err != nil {
			return err
		}
	}
	for _, line := range o.kept {
		if _, err := fmt.Fprintf(w, "kept      %s\n", line); err != nil {
			return err
		}
	}
	return o.degraded()
}

// degraded is the error of an outcome in which not every control went back.
func (o outcome) degraded() error {
	if len(o.kept) == 0 {
		return nil
	}
	return &cli.Error{
		Code: "degraded", Exit: cli.ExitDegraded,
		Message: fmt.Sprintf("%d of %d controls were not put back", len(o.kept), len(o.kept)+len(o.restored)),
		Hint:    "the lines above say why; what another program wrote is left to that program",
	}
}
