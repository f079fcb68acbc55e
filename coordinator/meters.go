package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/ledger"
	"headroom/units"
)

const (
	// meterLife is how long a meter's reading counts: PDUs are read every few seconds, some every minute.
	meterLife = 90 * time.Second
	// measuredByNodes says that a domain's power is the sum of its nodes'.
	measuredByNodes = "nodes"
)

// reading is what a meter of a domain has read. It never enters the log.
type reading struct {
	power units.Power
	meter string
	at    time.Duration // leader's monotonic time
}

// metered is the reading that counts for a domain now, and false without one.
func (d *desk) metered(domain string) (reading, bool) {
	r, ok := d.meters[domain]
	return r, ok && d.now()-r.at <= meterLife
}

// ReportMeter implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) ReportMeter(ctx context.Context, r *connect.Request[headroomv1.ReportMeterRequest]) (*connect.Response[headroomv1.ReportMeterResponse], error) {
	x, out := r.Msg, &headroomv1.ReportMeterResponse{}
	if x.GetPowerUw() < 0 || x.GetPowerUw() > int64(ledger.MaxNodes*ledger.MaxPower) || x.GetAgeMs() < 0 || x.GetMeter() == "" {
		return nil, rpc.Refuse(connect.CodeInvalidArgument, "usage", cli.ExitUsage,
			"a meter report needs a meter's name, a power from 0 W on and an age from 0 s on", "coordinator domain report rack/r1 2310W --meter pdu-7")
	}
	var err, unknown error
	out.Meta, err = c.read(ctx, false, func(s *ledger.State, d *desk) {
		name := rootOr(s, x.GetDomain())
		if _, ok := s.Domains[name]; !ok {
			unknown = c.refuse(fmt.Errorf("domain %q: %w", name, ledger.ErrUnknownDomain))
			return
		}
		t := s.Totals()[name]
		out.ReservedUw = int64(t.Reserved + t.Unmanaged)
		d.meters[name] = reading{units.Power(x.GetPowerUw()), x.GetMeter(), d.now() - time.Duration(x.GetAgeMs())*time.Millisecond}
	})
	if err = cmp.Or(err, unknown); err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}
