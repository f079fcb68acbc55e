package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/google/renameio/v2"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/jobs/buffers"
	"headroom/scheduler/access"
)

// standing is the state of the dispatcher that is kept across restarts, apart from its jobs.
type standing struct {
	Drained bool `json:"drained"`
	// Killed and Total are the machine time that "p" has wasted, and the total.
	Killed time.Duration `json:"killed_ns"`
	Total  time.Duration `json:"total_ns"`
	// Points are the operating points in force, for those that are found.
	Points []buffers.Class `json:"points,omitempty"`
}

// standingOf returns the present state of a dispatcher.
func standingOf(b *buffers.Buffers) standing {
	w := b.Waste()
	return standing{b.Drained(), w.Killed, w.Total, b.Classes}
}

func (k standing) equal(o standing) bool {
	return k.Drained == o.Drained && k.Killed == o.Killed && k.Total == o.Total && slices.Equal(k.Points, o.Points)
}

func standingFile(dir string) string { return filepath.Join(dir, "dispatch.json") }

// stand restores the state that was kept in dir into a new dispatcher. The configuration of a class takes precedence.
func stand(b *buffers.Buffers, cfg Config) error {
	dir := cfg.Dir
	path := standingFile(dir)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var k standing
	if err == nil {
		err = json.Unmarshal(data, &k)
	}
	if err != nil {
		return &cli.Error{
			Code: "state", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("%s cannot be used: %v", path, err),
			Hint: "remove it; the scheduler then starts jobs even if it was drained before: see scheduler drain",
		}
	}
	b.Drain(k.Drained)
	b.Resume(buffers.Waste{Killed: k.Killed, Total: k.Total})
	points := slices.Clone(b.Classes)
	for i, c := range cfg.Classes {
		for _, old := range k.Points {
			if old.Name == c.Name && c.Theta == auto {
				points[i].Theta = old.Theta
			}
			if old.Name == c.Name && c.SprintAfter == auto {
				points[i].Sprint, points[i].SprintAfter = old.Sprint, old.SprintAfter
			}
		}
	}
	return b.Point(points)
}

// keepStanding writes changes.
func (l *loop) keepStanding() error {
	k := standingOf(l.queue)
	if k.equal(l.kept) {
		return nil
	}
	data, err := json.Marshal(k)
	if err == nil {
		err = renameio.WriteFile(standingFile(l.cfg.Dir), append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("scheduler: write %s: %w", standingFile(l.cfg.Dir), err)
	}
	l.kept = k
	return nil
}

// noteStanding logs once that the state cannot be written.
func (l *loop) noteStanding(err error) {
	if err != nil && !l.unkept {
		l.logger.Warn("drain state not stored", slog.Any("error", err))
	}
	l.unkept = err != nil
}

// drainEvent stops or resumes the start of jobs; look changes nothing.
type drainEvent struct {
	off, look bool
	reply     chan<- drainAnswer
}

type drainAnswer struct {
	*headroomv1.DrainResponse
	err error
}

func (e drainEvent) apply(l *loop, _ time.Time) {
	if err := e.change(l); err != nil {
		e.reply <- drainAnswer{err: &cli.Error{
			Code: "state", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("drain state not changed: cannot store it: %v", err),
			Hint: "dir in scheduler.yaml must be writable and have free disk space",
		}}
		return
	}
	waiting := len(l.waiting)
	for class := range l.queue.Classes {
		waiting += len(l.queue.Waiting(class))
	}
	e.reply <- drainAnswer{DrainResponse: &headroomv1.DrainResponse{Drained: l.queue.Drained(), Running: count(len(l.queue.Running())), Waiting: count(waiting)}}
}

// change is durable, or not made.
func (e drainEvent) change(l *loop) error {
	if e.look || l.queue.Drained() == !e.off {
		return nil
	}
	l.queue.Drain(!e.off)
	if err := l.keepStanding(); err != nil {
		l.queue.Drain(e.off)
		return err
	}
	l.logger.Info("drain state changed", slog.Bool("drained", !e.off))
	return nil
}

// Drain starts no further jobs and lets running ones end, or resumes.
func (s *service) Drain(ctx context.Context, req *connect.Request[headroomv1.DrainRequest]) (*connect.Response[headroomv1.DrainResponse], error) {
	access.CallerOf(ctx).Sign(req.Msg.GetChange())
	reply := make(chan drainAnswer, 1)
	answer, err := ask(ctx, s.inbox, drainEvent{req.Msg.GetOff(), req.Msg.GetLook(), reply}, reply)
	if err == nil {
		err = answer.err
	}
	if err != nil {
		return nil, refusal(err, "drain")
	}
	if !req.Msg.GetLook() {
		c := req.Msg.GetChange()
		s.logger.Info("drain", slog.Bool("off", req.Msg.GetOff()), slog.String("actor", c.GetActor()), slog.String("reason", c.GetReason()))
		action := headroomv1.SchedulerAction_SCHEDULER_ACTION_DRAIN
		if req.Msg.GetOff() {
			action = headroomv1.SchedulerAction_SCHEDULER_ACTION_RESUME
		}
		s.commits.note(&headroomv1.RecordActionRequest{Action: action, Change: c})
	}
	return connect.NewResponse(answer.DrainResponse), nil
}
