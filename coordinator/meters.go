package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"headroom/coordinator/view"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/ledger"
	"headroom/units"
)

// meterLife is how long a meter's reading counts: PDUs are read every few seconds, some every minute.
const meterLife = 90 * time.Second

// meters are the newest readings of domains' meters, by domain. They never enter the log.
type meters map[string]metered

// metered is a reading, and when it was made.
type metered struct {
	view.Reading

	at time.Duration // leader's monotonic time
}

// report takes in a reading.
func (m meters) report(domain string, r view.Reading, at time.Duration) { m[domain] = metered{r, at} }

// counting are the readings that count at a moment.
func (m meters) counting(now time.Duration) map[string]view.Reading {
	out := make(map[string]view.Reading, len(m))
	for domain, r := range m {
		if now-r.at <= meterLife {
			out[domain] = r.Reading
		}
	}
	return out
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
		d.meters.report(name, view.Reading{Power: units.Power(x.GetPowerUw()), Meter: x.GetMeter()}, d.now()-time.Duration(x.GetAgeMs())*time.Millisecond)
	})
	if err = cmp.Or(err, unknown); err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}
