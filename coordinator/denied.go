package coordinator

import (
	"context"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/secure"
	"headroom/ledger"
)

// ListDenied implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) ListDenied(ctx context.Context, r *connect.Request[headroomv1.ListDeniedRequest]) (*connect.Response[headroomv1.ListDeniedResponse], error) {
	out := &headroomv1.ListDeniedResponse{}
	var err error
	out.Meta, err = c.read(ctx, r.Msg.GetStale(), func(*ledger.State, *desk) {
		out.Denied = denialMessages(c.guard.revoked.All())
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

func denialMessages(all []secure.Denial) []*headroomv1.Denial {
	out := make([]*headroomv1.Denial, 0, len(all))
	for _, d := range all {
		out = append(out, &headroomv1.Denial{Identity: d.Identity, Serial: d.Serial, AtUs: d.At, Actor: d.Actor, Reason: d.Reason})
	}
	return out
}
