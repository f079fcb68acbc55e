package coordinator

import (
	"cmp"
	"context"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/access"
	"headroom/coordinator/leading"
	"headroom/internal/rpc"
	"headroom/ledger"
)

// ListTokens implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) ListTokens(ctx context.Context, r *connect.Request[headroomv1.ListTokensRequest]) (*connect.Response[headroomv1.ListTokensResponse], error) {
	out := &headroomv1.ListTokensResponse{}
	return filled(ctx, c.requests, r.Msg.GetStale(), out, &out.Meta, func(s *ledger.State, _ *leading.Known) {
		for _, t := range s.TokensByName() {
			out.Tokens = append(out.Tokens, &headroomv1.Token{Id: t.ID, Name: t.Name, Role: string(t.Role), CreatedUs: t.Created, ExpiresUs: t.Expires})
		}
	})
}

// GetSelf implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) GetSelf(ctx context.Context, _ *connect.Request[headroomv1.GetSelfRequest]) (*connect.Response[headroomv1.GetSelfResponse], error) {
	who := access.CallerOf(ctx)
	out := &headroomv1.GetSelfResponse{Name: cmp.Or(who.Name, "anybody on this machine"), Role: string(who.Role)}
	var err error
	out.Meta, err = c.requests.read(ctx, true, func(*ledger.State, *leading.Known) {})
	return rpc.Respond(out, err)
}
