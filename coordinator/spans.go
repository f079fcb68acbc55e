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
type changeSpans struct{ traces *traces.Tracer }

// WrapUnary implements connect.Interceptor.
func (c changeSpans) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	if c.traces == nil {
		return next
	}
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		procedure := r.Spec().Procedure
		if need := access.Needs(procedure); need != ledger.RoleOperator && need != ledger.RoleAdmin {
			return next(ctx, r)
		}
		ctx, span := c.traces.Begin(ctx, "change")
		span.Text("rpc.method", procedure).Text("headroom.actor", access.CallerOf(ctx).Name)
		res, err := next(ctx, r)
		span.End(err)
		return res, err
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (changeSpans) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (changeSpans) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
