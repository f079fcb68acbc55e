package coordinator

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/coordinator/access"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/ledger"
	"headroom/ledger/leader"
)

const (
	// detailMost bounds what a scheduler says of a refused call, bytes.
	detailMost = 256
	// noteWait bounds how long a refused caller waits for the entry about it.
	noteWait = 2 * time.Second
)

// errOldRules is returned while a server may not know notes.
var errOldRules = errors.New("the rules in force have no notes")

// RecordAction implements headroomv1connect.JobServiceHandler.
func (j jobService) RecordAction(ctx context.Context, r *connect.Request[headroomv1.RecordActionRequest]) (*connect.Response[headroomv1.RecordActionResponse], error) {
	what := map[headroomv1.SchedulerAction]string{
		headroomv1.SchedulerAction_SCHEDULER_ACTION_DRAIN: "scheduler drained", headroomv1.SchedulerAction_SCHEDULER_ACTION_RESUME: "scheduler resumed",
		headroomv1.SchedulerAction_SCHEDULER_ACTION_REFUSED: "refused: " + r.Msg.GetDetail(),
	}[r.Msg.GetAction()]
	if what == "" || len(r.Msg.GetDetail()) > detailMost {
		return nil, rpc.Refuse(connect.CodeInvalidArgument, "usage", cli.ExitUsage, "an action of a scheduler is drain, resume or refused, with at most 256 bytes about it", "")
	}
	c := command(ctx, r.Msg, "scheduler")
	c.Note = &ledger.Note{What: what}
	revision, err := j.requests.note(ctx, c)
	return rpc.Respond(&headroomv1.RecordActionResponse{Revision: revision}, err)
}

// note records a line of the audit log, unless a server may not know such a command.
func (q *requests) note(ctx context.Context, c ledger.Command) (revision uint64, err error) {
	a, err := q.request(ctx, &leader.Request{Command: c, Quiet: true, Build: func(v leader.View, _ *ledger.Command) error {
		if v.State.Rules < ledger.RulesOfNotes {
			return errOldRules
		}
		return nil
	}})
	switch {
	case err != nil:
		return 0, err
	case a.Err != nil && !errors.Is(a.Err, errOldRules):
		return 0, q.refuse(a.Err)
	}
	return a.Result.Revision, nil
}

// noteRefused records an attempt at this server; one that does not lead asks the leader to.
func (s *server) noteRefused(ctx context.Context, who access.Caller, action string) {
	ctx, cancel := context.WithTimeout(ctx, noteWait)
	defer cancel()
	var err error
	what, actor := action+" as role "+string(who.Role), who.Actor("")
	if s.requests.leads() {
		_, err = s.requests.note(ctx, ledger.Command{Actor: actor, Note: &ledger.Note{What: "refused: " + what}})
	} else if _, leader := s.requests.leader(); leader != "" {
		client := headroomv1connect.NewJobServiceClient(s.peers.HTTP(), s.peers.URL(leader), s.peers.Options()...)
		_, err = client.RecordAction(ctx, connect.NewRequest(&headroomv1.RecordActionRequest{
			Action: headroomv1.SchedulerAction_SCHEDULER_ACTION_REFUSED, Detail: what,
			Change: &headroomv1.Change{Actor: actor, OnBehalfOf: actor, RequestId: "refused-" + rand.Text()},
		}))
	}
	if err != nil {
		s.logger.Warn("refused attempt not recorded", slog.Any("error", err))
	}
}
