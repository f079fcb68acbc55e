package coordinator

import (
	"cmp"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"headroom/coordinator/alarms"
	"headroom/coordinator/view"

	"headroom/coordinator/arbitration"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/metrics"
	"headroom/internal/listen"
	"headroom/internal/scrape"
	"headroom/ledger"
	"headroom/units"
)

// viewWait bounds how long a scrape waits for the desk and for the proof that this
// server leads; then it tells what a follower would.
const viewWait = 2 * time.Second

// observe is what this server knows as of now, for the metrics.
func (s *server) observe() *metrics.View {
	ctx, cancel := context.WithTimeout(context.Background(), viewWait)
	defer cancel()
	v := &metrics.View{}
	_, _ = s.read(ctx, true, func(st *ledger.State, d *desk) { // a stale read is never refused
		v.Leads, v.Revision = d != nil, st.Revision
		v.Nodes = view.Nodes(st, d.heard())
		v.Domains = view.Domains(st, d.heard(), v.Nodes)
		v.JobsRunning = jobsRunning(st, d)
		if d != nil {
			v.EnergyByClass, v.EnergyIdle = classEnergy(d), idleEnergy(d)
		}
		v.Health = alarms.Items(append(s.brakeAlarms(st), d.allAlarms(st, v.Nodes)...))
	})
	if v.Leads {
		s.observeGroup(v)
	}
	if s.identity != nil {
		v.CertificateEnds = s.identity.Ends()
	}
	if l := s.port.Load(); l != nil {
		if n, bounded := listen.Count(*l); bounded {
			v.TurnedOut = &n
		}
	}
	v.LogBytes, v.SnapshotBytes = sizeOf(filepath.Join(s.cfg.StateDir, "log")), newestSnapshot(filepath.Join(s.cfg.StateDir, "snapshots"))
	return v
}

// jobsRunning counts the running jobs by engine.
func jobsRunning(s *ledger.State, d *desk) map[string]int {
	out := map[string]int{}
	if d == nil {
		return out
	}
	for _, j := range s.Jobs {
		if d.board.of(j.ID, time.Now()).GetState() == headroomv1.JobState_JOB_STATE_RUNNING && j.State == ledger.JobAccepted {
			out[cmp.Or(j.Engine, arbitration.EngineLocal)]++
		}
	}
	return out
}

// observeGroup adds what the leader knows of the servers.
func (s *server) observeGroup(v *metrics.View) {
	now, err := s.membershipNow(lately())
	if err != nil {
		return // the lead is just gone
	}
	v.Lag = map[string]uint64{}
	members := s.judge(now)
	for _, m := range members {
		v.Health = append(v.Health, m.GetHealth()...)
		if m.Lag != nil {
			v.Lag[m.GetId()] = m.GetLag()
		}
	}
	v.Health = slices.Concat(v.Health, groupHealth(now), gossipKeys(members))
}

// sizeOf is the size of the files below a folder, nil where it cannot be read.
func sizeOf(dir string) *int64 {
	var sum int64
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if info, err := e.Info(); err == nil { // a file of the log may just have gone
			sum += info.Size()
		}
		return nil
	})
	if err != nil {
		return nil
	}
	return &sum
}

// newestSnapshot is the size of the newest snapshot, nil where there is none.
func newestSnapshot(dir string) *int64 {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var newest time.Time
	var size *int64
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(dir, e.Name(), "state.bin"))
		if err == nil && info.ModTime().After(newest) {
			bytes := info.Size()
			newest, size = info.ModTime(), &bytes
		}
	}
	return size
}

// serveMetrics answers Prometheus until ctx ends.
func (s *server) serveMetrics(ctx context.Context) error {
	l, err := scrape.Listen(s.cfg.Metrics.Listen, "coordinator.yaml")
	if err != nil {
		return err
	}
	return scrape.Serve(ctx, l, scrape.Handler(s.told, s.logger))
}

// watchBudgets counts the time since the last look in which domains drew, or were
// charged, more than their budgets. A gap in which nothing was decided counts as
// far as what was measured is still believed.
func (d *desk) watchBudgets(domains []*headroomv1.Domain) {
	now := d.now()
	passed := min(now-d.looked, view.StaleReport)
	d.looked = now
	for _, m := range domains {
		drawn := m.GetMeasuredUw()
		if m.GetMeasuredBy() == view.MeasuredByNodes {
			drawn += m.GetUnmanagedUw() // a meter sees what nobody manages as well
		}
		if m.MeasuredUw != nil && drawn > m.GetBudgetUw() {
			d.counts.Violated(m.GetName(), units.Power(drawn-m.GetBudgetUw()), passed)
		}
		if m.GetHeadroomUw() < 0 {
			d.counts.Short(m.GetName(), passed)
		}
	}
}

// punctual counts a tick that comes too late, and keeps what the process did before it.
func (d *desk) punctual(ticked, now time.Duration) {
	if ticked == 0 || now-ticked <= 2*d.timing.Tick {
		return
	}
	d.counts.Missed()
	d.missed()
}

// countGrant counts an answer that is about to go out.
func (d *desk) countGrant(ctx context.Context, g ledger.NodeGrant) {
	if v, ok := d.lead.Table().View(g.Node, d.now()); ok {
		d.counts.Granted(v.Age)
		d.traces.Past(ctx, "exchange", v.Age).Text("headroom.node", g.Node).Number("headroom.sequence", g.Grant.Stamp.Seq).End(nil)
	}
}
