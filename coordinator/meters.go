package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/leading"
	"headroom/coordinator/view"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/ledger"
	"headroom/units"
)

// ReportMeter implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) ReportMeter(ctx context.Context, r *connect.Request[headroomv1.ReportMeterRequest]) (*connect.Response[headroomv1.ReportMeterResponse], error) {
	x, out := r.Msg, &headroomv1.ReportMeterResponse{}
	if x.GetPowerUw() < 0 || x.GetPowerUw() > int64(ledger.MaxNodes*ledger.MaxPower) || x.GetAgeMs() < 0 || x.GetMeter() == "" {
		return nil, rpc.Refuse(connect.CodeInvalidArgument, "usage", cli.ExitUsage,
			"a meter report needs the meter's name, a power of at least 0 W and an age of at least 0 s", "coordinator domain report rack/r1 2310W --meter pdu-7")
	}
	var err, unknown error
	out.Meta, err = c.requests.read(ctx, false, func(s *ledger.State, k *leading.Known) {
		name := rootOr(s, x.GetDomain())
		if _, ok := s.Domains[name]; !ok {
			unknown = c.requests.refuse(fmt.Errorf("domain %q: %w", name, ledger.ErrUnknownDomain))
			return
		}
		t := s.Totals()[name]
		out.ReservedUw = int64(t.Reserved + t.Unmanaged)
		k.ReportMeter(name, view.Reading{Power: units.Power(x.GetPowerUw()), Meter: x.GetMeter()}, time.Duration(x.GetAgeMs())*time.Millisecond)
	})
	return rpc.Respond(out, cmp.Or(err, unknown))
}
