package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/internal/each"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/scheduler/hookserver"
	"headroom/scheduler/jobfile"
	"headroom/scheduler/leader"
	"headroom/scheduler/spark"
	"headroom/scheduler/yarn"
)

// openYarn opens the engine for YARN, if it is configured.
func (e *engines) openYarn(s *Server, keeper *secure.Keeper) error {
	if !s.cfg.Yarn.On() {
		return nil
	}
	var hooks net.Listener
	if s.cfg.Yarn.Hooks != "" {
		var err error
		if hooks, err = rpc.Listen(s.cfg.Yarn.Hooks); err != nil {
			return hooksError(s.cfg.Yarn.Hooks, err)
		}
	}
	var guard *hookserver.Guard
	if hooks != nil && keeper != nil {
		hooks = hookserver.Secure(hooks, keeper)
		var err error
		if guard, err = hookGuard(s.cfg.Yarn); err != nil {
			return errors.Join(err, hooks.Close())
		}
	}
	if hooks != nil {
		s.ports[portYarn] = hooks
	}
	e.yarn = yarn.New(s.cfg.Yarn, s.cfg.Dir, hooks, s.profiles, yarnCoordinators{s.commits}, s.logger)
	e.yarn.Require(guard)
	e.yarn.Rank(s.cfg.yarnClasses())
	e.yarn.Learn(s.scaling)
	e.yarn.Speculate(s.cfg.Speculation.rule().Policy)
	return nil
}

// yarnClasses returns the classes for the engine for YARN.
func (c *Config) yarnClasses() []yarn.Class {
	return each.Of(c.Classes, func(k Class) yarn.Class { return yarn.Class{Name: k.Name, Deadline: k.deadline()} })
}

// hookGuard reads the secrets that hooks authenticate with.
func hookGuard(c yarn.Config) (*hookserver.Guard, error) {
	guard := &hookserver.Guard{}
	var err error
	if c.HooksTokenFile != "" {
		if guard.Token, err = hookserver.OpenToken(c.HooksTokenFile); err != nil {
			return nil, config.Bad("create a token with head -c 32 /dev/urandom | base64; mode 0640, group of Hadoop", "yarn.hooks_token_file: %v", err)
		}
	}
	if c.HooksKeyFile != "" {
		if guard.Keys, err = hookserver.OpenKeys(c.HooksKeyFile); err != nil {
			return nil, config.Bad("create a key with head -c 32 /dev/urandom | base64; mode 0600, owner scheduler", "yarn.hooks_key_file: %v", err)
		}
	}
	return guard, nil
}

// sparkOnYARN returns the interface of Spark's engine to YARN; nil with a standalone master.
func (s *Server) sparkOnYARN() spark.YARN {
	if !s.cfg.Spark.OnYARN() {
		return nil
	}
	c := s.cfg.Yarn
	if len(s.cfg.Spark.ResourceManager) > 0 {
		c.ResourceManager = s.cfg.Spark.ResourceManager
	}
	return yarn.NewApplications(c, s.logger)
}

// hooksError returns the error for hooks that cannot be served, with the key to correct.
func hooksError(address string, cause error) *cli.Error {
	e := &cli.Error{
		Code: "listen", Exit: cli.ExitFailed, Err: cause, Message: fmt.Sprintf("yarn.hooks: %v", cause),
		Hint: "another process may use the port (see ss -ltnp); choose another port for yarn.hooks, and for headroom.url in Hadoop",
	}
	if errors.Is(cause, syscall.EADDRNOTAVAIL) {
		e.Hint = address + " is not an address of this machine: use one of its addresses, or 0.0.0.0:PORT for all"
	}
	return e
}

// yarnCoordinators is the interface of the engine to the coordinators.
type yarnCoordinators struct{ *committer }

// final marks errors that a retry will not change.
func final(err error) error {
	if err != nil && leader.Settled(err) {
		return fmt.Errorf("%w: %w", yarn.ErrRefused, err)
	}
	return err
}

// CommitJob implements yarn.Coordinators.
func (y yarnCoordinators) CommitJob(ctx context.Context, r *headroomv1.CommitJobRequest) error {
	_, err := leader.Ask(ctx, y.leader, "submit "+r.GetJob().GetId(), headroomv1connect.JobServiceClient.CommitJob, r)
	return final(err)
}

// FinishJob implements yarn.Coordinators.
func (y yarnCoordinators) FinishJob(ctx context.Context, r *headroomv1.FinishJobRequest) error {
	_, err := y.commitFinish(ctx, r)
	return final(err)
}

// DropTasks implements yarn.Coordinators.
func (y yarnCoordinators) DropTasks(ctx context.Context, r *headroomv1.DropTasksRequest) ([]*headroomv1.TaskRange, error) {
	resp, err := leader.Ask(ctx, y.leader, "drop tasks of "+r.GetId(), headroomv1connect.JobServiceClient.DropTasks, r)
	return resp.GetDropped(), final(err)
}

// ofYarn reports whether a job belongs to YARN's engine.
func (e *engines) ofYarn(id string) bool { return e.yarn != nil && yarn.Names(id) }

// carryOut carries out a directive to an engine. It ignores a directive for no engine.
func (e *engines) carryOut(d *headroomv1.Directive) error {
	share, stop := d.GetShare(), d.GetStop()
	if e.yarn != nil && d.GetCap() != nil {
		e.yarn.Cap(d.GetCap())
	}
	switch {
	case e.ofYarn(d.GetDeflate().GetId()):
		return e.yarn.Deflate(d.GetDeflate())
	case e.ofYarn(d.GetSprint().GetId()):
		e.yarn.Sprint(d.GetSprint())
		return nil
	case share == nil && stop == nil, share.GetEngine() == engineLocal:
		return nil // for the loop
	case share.GetEngine() == spark.Name && e.spark != nil:
		return e.shareSpark(share)
	case e.yarn == nil || (share != nil && share.GetEngine() != yarn.Name):
		return fmt.Errorf("engine %q: %w", cmp.Or(share.GetEngine(), yarn.Name), errNoEngine)
	case share != nil:
		return e.yarn.Share(share)
	default:
		return e.yarn.Stop(stop)
	}
}

// serve reports why a job of the log cannot run here; nil if it can. engine is the one that the log has; the record is nil
// if the job file is not one of ours.
func (e *engines) serve(r *record, engine string) error {
	own := engine
	if r != nil && (engine == "" || engine == engineLocal) {
		own = r.file.Engine()
	}
	switch {
	case own == "" || own == engineLocal, own == spark.Name && e.spark != nil, own == jobfile.Pigeon && e.masters != nil:
		return nil
	}
	return fmt.Errorf("engine %q: %w", own, errNoEngine)
}

// withOwn adds the jobs of YARN's engine to those of the scheduler, in the order of submission.
func (e *engines) withOwn(jobs []*headroomv1.Job, id string) []*headroomv1.Job {
	if e.yarn == nil {
		return jobs
	}
	all := slices.Concat(jobs, e.yarn.List(id))
	slices.SortStableFunc(all, func(a, b *headroomv1.Job) int { return cmp.Compare(a.GetSubmittedUs(), b.GetSubmittedUs()) })
	return all
}

// ownDetails returns the details of YARN's jobs for listings.
func (e *engines) ownDetails(id string) []*headroomv1.RunDetail {
	if e.yarn == nil {
		return nil
	}
	return e.yarn.Details(id)
}

// notOurs refuses to cancel a job of an engine.
func (e *engines) notOurs(id string) error {
	if e.yarn == nil || id == "" {
		return nil
	}
	for _, j := range e.yarn.List(id) {
		return &cli.Error{
			Code: "engine", Exit: cli.ExitRefused, Message: fmt.Sprintf("job %s runs on YARN; the scheduler cannot kill YARN applications", j.GetId()),
			Hint: "yarn application -kill " + j.GetId(),
		}
	}
	return nil
}
