package agent

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/procfs"

	"headroom/agent/status"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/rapl"
)

// metricsPath is where Prometheus asks.
const metricsPath = "/metrics"

// metricsAge is how long one answer stands: power at a higher rate would give away
// what a processor computes (PLATYPUS), whoever asks how often.
const metricsAge = time.Second

// metricsType is the text format that Prometheus reads.
const metricsType = "text/plain; version=0.0.4; charset=utf-8"

// statusSource is the node's state as of now; nil while there is none.
type statusSource func(context.Context) *headroomv1.GetAgentStatusResponse

// scraper answers scrapes from the status that the loop publishes. It resets
// nothing and asks the loop nothing.
type scraper struct {
	status statusSource
	loop   *loopMetrics
	now    func() time.Duration

	mu     sync.Mutex
	answer []byte
	madeAt time.Duration
}

// startMetrics serves metrics.listen until ctx ends; without an address it does
// nothing. loop is what the owner counts. The error is a *cli.Error.
func (n *node) startMetrics(ctx context.Context, loop *loopMetrics) error {
	if n.cfg.Metrics.Listen == "" {
		return nil
	}
	l, err := listenMetrics(n.cfg.Metrics.Listen)
	if err != nil {
		return err
	}
	n.log.Info("metrics are served", slog.String("address", l.Addr().String()))
	n.servers.Go(func() { serveMetrics(ctx, l, n.scraped, loop, n.log) })
	return nil
}

// scraped is the state for one scrape: fresh where the owner answers in time, and
// the last published one otherwise.
func (n *node) scraped(ctx context.Context) *headroomv1.GetAgentStatusResponse {
	res, err := front{n: n}.GetAgentStatus(ctx, connect.NewRequest(&headroomv1.GetAgentStatusRequest{}))
	if err != nil {
		return n.snapshot()
	}
	return res.Msg
}

// listenMetrics opens metrics.listen. The error is a *cli.Error.
func listenMetrics(addr string) (net.Listener, error) {
	l, err := rpc.Listen(addr)
	if err != nil {
		return nil, &cli.Error{
			Code: "metrics", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("metrics.listen: %v", err),
			Hint: "choose another port in powerd.yaml, or leave metrics.listen empty",
		}
	}
	return l, nil
}

// serveMetrics answers Prometheus until ctx ends. status is the state as of now,
// with what remains of the lease; it is called at most once a second.
func serveMetrics(ctx context.Context, l net.Listener, status statusSource, loop *loopMetrics, log *slog.Logger) {
	s := &scraper{status: status, loop: loop, now: func() time.Duration { return instant().Boot }}
	mux := http.NewServeMux()
	mux.Handle("GET "+metricsPath, s)
	if err := rpc.Serve(ctx, l, mux); err != nil {
		log.Error("metrics closed", slog.Any("error", err))
	}
}

// ServeHTTP answers one scrape, with an answer that may be a second old.
func (s *scraper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", metricsType)
	_, _ = w.Write(s.text(context.WithoutCancel(r.Context()))) // whoever asked may have gone; the answer serves others too
}

func (s *scraper) text(ctx context.Context) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.answer == nil || now-s.madeAt >= metricsAge {
		e := collect(s.status(ctx), s.loop)
		collectProcess(e)
		s.answer, s.madeAt = e.text(), now
	}
	return s.answer
}

// collect turns a status into metrics: unknown is absent, and what counts is
// there with 0 before its first event.
func collect(s *headroomv1.GetAgentStatusResponse, loop *loopMetrics) exposition {
	e := exposition{}
	e.add(mBuild, 1, Version, runtime.Version())
	e[mStep] = []point{{hist: loop.step.view()}}
	e[mSettle] = []point{{hist: loop.settle.view()}}
	for i, by := range limiters() {
		e.add(mLimitedBy, time.Duration(loop.limited[i].Load()).Seconds(), by)
	}
	collectCounters(e, s.GetCounters())
	if s == nil {
		return e
	}
	collectZones(e, s)
	collectNode(e, s)
	collectSensors(e, s)
	for _, p := range s.GetPolicies() {
		e.addKnown(mFreq, status.Kilo(p.FreqKhz), p.GetPolicy())
		e.addKnown(mFreqCeiling, status.Kilo(p.RequestedKhz), p.GetPolicy(), "requested")
		e.addKnown(mFreqCeiling, status.Kilo(p.WrittenKhz), p.GetPolicy(), "written")
		e.addKnown(mFreqCeiling, status.Kilo(p.EffectiveKhz), p.GetPolicy(), "effective")
	}
	shown := map[string]float64{warn: 0, fail: 0}
	for _, i := range s.GetHealth() {
		e.add(mHealth, 1, i.GetCode(), i.GetSeverity())
		shown[i.GetSeverity()]++
	}
	for severity, n := range shown {
		e.add(mHealthItems, n, severity)
	}
	return e
}

func collectCounters(e exposition, c *headroomv1.AgentCounters) {
	e.add(mRenewals, float64(c.GetRenewals()), "ok")
	e.add(mRenewals, float64(c.GetRefusals()), "refused")
	e.add(mExpiries, float64(c.GetExpiries()))
	e.add(mMisses, float64(c.GetDeadlineMisses()))
	e.add(mDrifts, float64(c.GetDrifts()))
	e.add(mWriteErrors, float64(c.GetWriteErrors()))
	e.add(mThermal, float64(c.GetThermalEvents()), "thermal")
	e.add(mSprints, float64(c.GetSprints()))
}

func collectZones(e exposition, s *headroomv1.GetAgentStatusResponse) {
	for _, z := range s.GetZones() {
		name, socket := z.GetZone(), status.Socket(z.GetZone())
		if z.EnergyUj != nil {
			e.add(mZoneEnergy, math.Floor(float64(z.GetEnergyUj())/1e6), name, socket)
		}
		e.addKnown(mZonePower, tenths(z.PowerUw), name, socket)
		e.addKnown(mZoneLimit, status.Micro(z.RequestedUw), name, rapl.LongTerm, "requested")
		e.addKnown(mZoneLimit, status.Micro(z.WrittenUw), name, rapl.LongTerm, "written")
		e.addKnown(mZoneLimit, status.Micro(z.EffectiveUw), name, rapl.LongTerm, "effective")
	}
}

func collectNode(e exposition, s *headroomv1.GetAgentStatusResponse) {
	h := s.GetHolding()
	state := status.State(h)
	for _, other := range nodeStates() {
		e.add(mNodeState, oneIf(other == state), other)
	}
	for _, rung := range ladderRungs() {
		e.add(mNodeRung, oneIf(rung == s.GetRung()), rung)
	}
	if state != stateObserving {
		e.add(mNodeCap, float64(h.GetCapUw())/1e6)
	}
	e.add(mNodeFailSafe, float64(h.GetFailSafeUw())/1e6)
	e.addKnown(mNodePower, tenths(s.PowerUw), "best")
	e.addKnown(mNodePower, tenths(packagesAndMemory(s)), "rapl")
	for _, source := range []string{"dcmi", "sdr", "model"} {
		e.addKnown(mNodePower, tenths(onlySensor(s, source)), source)
	}
	e.addKnown(mNodeDemand, tenths(s.DemandUw))
	e.addKnown(mNodeLimited, s.LimitedRatio)
	e.add(mNodeCutOff, oneIf(s.GetCutOff()))
	e.addKnown(mLeaseLeft, status.Milli(s.LeaseMs))
	e.add(mEscrow, float64(s.GetSprint().GetEscrowUj())/1e6)
	if s.GetSprint() != nil {
		e.addKnown(mSprintSpent, status.Micro(s.GetSprint().SpentUj))
	}
	e.add(mSaved, float64(s.GetSaved()))
}

func collectSensors(e exposition, s *headroomv1.GetAgentStatusResponse) {
	for _, n := range s.GetSensors() {
		labels := []string{n.GetSource(), n.GetName()}
		if n.GetState() != "absent" {
			e.add(mSensorOK, oneIf(n.GetState() == status.OK), labels...)
		}
		e.addKnown(mSensorAge, status.Milli(n.AgeMs), labels...)
		e.addKnown(mSensorDiff, n.Disagreement, labels...)
		e.addKnown(mSensorTemp, status.Milli(n.TempMc), labels...)
	}
}

// packagesAndMemory is the sum over the zones that count what no other does, nil
// when one of them is unknown.
func packagesAndMemory(s *headroomv1.GetAgentStatusResponse) *int64 {
	var sum *int64
	for _, z := range s.GetZones() {
		switch {
		case z.GetKind() != rapl.Package.String() && z.GetKind() != rapl.DRAM.String(), z.GetControlType() == rapl.ControlMMIO:
		case z.PowerUw == nil:
			return nil
		case sum == nil:
			sum = new(z.GetPowerUw())
		default:
			*sum += z.GetPowerUw()
		}
	}
	return sum
}

// onlySensor is the power that the one sensor of a source tells, nil when it tells
// none, is not believed, or is not the only one.
func onlySensor(s *headroomv1.GetAgentStatusResponse, source string) *int64 {
	var found *int64
	for _, n := range s.GetSensors() {
		if n.GetSource() != source || n.PowerUw == nil || n.GetState() != status.OK {
			continue
		}
		if found != nil {
			return nil
		}
		found = n.PowerUw
	}
	return found
}

// tenths is a power in watts, rounded to 0.1 W.
func tenths(uw *int64) *float64 {
	if uw == nil {
		return nil
	}
	return new(math.Round(float64(*uw)/1e5) / 10)
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// collectProcess adds what the kernel knows about this process, under the names
// that every Prometheus client uses.
func collectProcess(e exposition) {
	self, err := procfs.Self()
	if err != nil {
		return
	}
	if stat, err := self.Stat(); err == nil {
		e.add(mCPU, stat.CPUTime())
		e.add(mResident, float64(stat.ResidentMemory()))
		if at, err := stat.StartTime(); err == nil {
			e.add(mStart, at)
		}
	}
	if n, err := self.FileDescriptorsLen(); err == nil {
		e.add(mDescriptors, float64(n))
	}
}
