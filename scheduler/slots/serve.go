package slots

import (
	"cmp"
	"context"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/rpc"
	"headroom/scheduler/access"
)

// waitMost bounds Await: longer silences are hard to tell from a dead peer.
const waitMost = 30 * time.Second

// Group is the master as the service needs it.
type Group interface {
	// Book runs f in the goroutine that owns the book, and then makes the master decide. The book is nil while the master is on standby.
	Book(ctx context.Context, f func(b *Book, now time.Time)) error
	// Describe fills in what the master says of itself; in the owner's goroutine too.
	Describe(ctx context.Context, g *headroomv1.SlotGrants) error
}

// Service serves SlotService for a group.
type Service struct{ Group Group }

// Report tells what an application wants and holds, and returns at once what it was granted.
func (s Service) Report(ctx context.Context, req *connect.Request[headroomv1.SlotReport]) (*connect.Response[headroomv1.SlotGrants], error) {
	r, who := req.Msg, access.CallerOf(ctx)
	r.Application = own(who, r.GetApplication())
	var refused error
	err := s.Group.Book(ctx, func(b *Book, now time.Time) {
		if b != nil {
			refused = b.Report(now, who.Name, r)
		}
	})
	if err = cmp.Or(err, refused); err != nil {
		return nil, err
	}
	g, _, err := s.grants(ctx, r.GetApplication(), r.GetInstance(), r.GetSeen())
	return rpc.Respond(g, err)
}

// Await returns once there are grants that the application has not seen, and at once where the application is not known.
func (s Service) Await(ctx context.Context, req *connect.Request[headroomv1.SlotAwait]) (*connect.Response[headroomv1.SlotGrants], error) {
	r := req.Msg
	r.Application = own(access.CallerOf(ctx), r.GetApplication())
	late := time.NewTimer(min(time.Duration(r.GetWaitMs())*time.Millisecond, waitMost))
	defer late.Stop()
	for over := false; ; {
		g, more, err := s.grants(ctx, r.GetApplication(), r.GetInstance(), r.GetSeen())
		if err != nil {
			return nil, err
		}
		if len(g.GetSlots()) > 0 || over || more == nil {
			return connect.NewResponse(g), nil
		}
		select {
		case <-more:
		case <-late.C:
			over = true
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// own returns the name of an application among those of all callers: nobody reports for another's.
func own(who access.Caller, application string) string {
	if who.Proven() && application != "" {
		return who.Name + " " + application
	}
	return application
}

func (s Service) grants(ctx context.Context, application, instance string, seen uint32) (*headroomv1.SlotGrants, <-chan struct{}, error) {
	g := &headroomv1.SlotGrants{}
	var more <-chan struct{}
	err := s.Group.Book(ctx, func(b *Book, _ time.Time) {
		if b != nil {
			g.Active, g.Instance = true, b.instance
			g.Slots, more = b.Grants(application, instance, seen)
		}
	})
	if err == nil {
		err = s.Group.Describe(ctx, g)
	}
	return g, more, err
}
