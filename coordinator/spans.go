package coordinator

import (
	"context"

	"connectrpc.com/connect"

	"headroom/coordinator/access"
	"headroom/coordinator/traces"
	"headroom/ledger"
)

// changeSpans records each request that may change something. Reads are not recorded, and
// neither are streams: they last as long as a node runs.
func changeSpans(t *traces.Tracer) connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
			procedure := r.Spec().Procedure
			if need := access.Needs(procedure); t == nil || need != ledger.RoleOperator && need != ledger.RoleAdmin {
				return next(ctx, r)
			}
			ctx, span := t.Begin(ctx, "change")
			span.Text("rpc.method", procedure).Text("headroom.actor", access.CallerOf(ctx).Name)
			res, err := next(ctx, r)
			span.End(err)
			return res, err
		}
	}
}
