package coordinator

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/leading"
	"headroom/internal/secure"
	"headroom/ledger"
)

// checkDenial refuses a denial that matches no certificate.
func checkDenial(d *ledger.Denial) error {
	if x, err := secure.ParseDenial(d.Key()); err != nil || x.Identity != d.Identity || x.Serial != d.Serial {
		return fmt.Errorf("%w: %.60q", ledger.ErrDenial, d.Key())
	}
	return nil
}

// ListDenied implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) ListDenied(ctx context.Context, r *connect.Request[headroomv1.ListDeniedRequest]) (*connect.Response[headroomv1.ListDeniedResponse], error) {
	out := &headroomv1.ListDeniedResponse{}
	return filled(ctx, c.requests, r.Msg.GetStale(), out, &out.Meta, func(*ledger.State, *leading.Known) {
		out.Denied = denialMessages(c.guard.Revoked.All())
	})
}

func denialMessages(all []secure.Denial) []*headroomv1.Denial {
	out := make([]*headroomv1.Denial, 0, len(all))
	for _, d := range all {
		out = append(out, &headroomv1.Denial{Identity: d.Identity, Serial: d.Serial, AtUs: d.At, Actor: d.Actor, Reason: d.Reason})
	}
	return out
}

var errNoMember = errors.New("it is not a member of this cluster")

// vet refuses a server that is not a member of the cluster.
func (s *server) vet(who secure.Identity) error {
	if !s.opened.Load() || !s.members.Facts.Belongs(who.Name) {
		return fmt.Errorf("coordinator: %s: %w", who, errNoMember)
	}
	return nil
}
