package coordinator

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/alarms"
	"headroom/coordinator/leading"
	"headroom/coordinator/members"
	"headroom/coordinator/metrics"
	"headroom/coordinator/view"
	"headroom/internal/listen"
	"headroom/internal/scrape"
	"headroom/ledger"
)

// viewWait bounds how long a scrape waits for the loop and for the proof of leadership; then
// the scrape is that of a follower.
const viewWait = 2 * time.Second

// observe returns this server's present view for the metrics.
func (s *server) observe() *metrics.View {
	ctx, cancel := context.WithTimeout(context.Background(), viewWait)
	defer cancel()
	v := &metrics.View{}
	_, _ = s.requests.read(ctx, true, func(st *ledger.State, k *leading.Known) { // a stale read is never refused
		v.Leads, v.Revision = k != nil, st.Revision
		v.Nodes = view.Nodes(st, k.Heard())
		v.Domains = view.Domains(st, k.Heard(), v.Nodes)
		v.JobsRunning = k.JobsRunning(st)
		if k != nil {
			v.EnergyByClass, v.EnergyIdle = k.Energy()
		}
		v.Health = alarms.Items(s.alarms(st, k, v.Nodes))
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

// alarms returns the alarms of the cluster as far as this server can tell; k is nil on a follower.
func (s *server) alarms(st *ledger.State, k *leading.Known, nodes []*headroomv1.Node) []alarms.Alarm {
	if k != nil {
		return k.Alarms(st, nodes)
	}
	out := append(s.braking.Alarms(st), k.Alarms(st, nodes)...)
	if id, _ := s.group.Leader(); id == "" {
		out = append([]alarms.Alarm{alarms.NoLeader(s.cfg.ID)}, out...)
	}
	return out
}

// ownAlarms returns those of a leader's servers and of its brakes.
func (s *server) ownAlarms(st *ledger.State) []alarms.Alarm {
	return slices.Concat(s.members.Alarms(), s.braking.Alarms(st), s.brakes.Alarms())
}

// observeGroup adds the leader's data about the servers.
func (s *server) observeGroup(v *metrics.View) {
	h, err := s.members.Health(members.Lately())
	if err != nil {
		return // leadership was just lost
	}
	v.Lag = map[string]uint64{}
	for _, m := range h.Members {
		if m.Lag != nil {
			v.Lag[m.GetId()] = m.GetLag()
		}
	}
}

// sizeOf returns the size of the files below a folder, nil if it cannot be read.
func sizeOf(dir string) *int64 {
	var sum int64
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if info, err := e.Info(); err == nil { // a file of the log may just have been removed
			sum += info.Size()
		}
		return nil
	})
	if err != nil {
		return nil
	}
	return &sum
}

// newestSnapshot returns the size of the newest snapshot, nil if there is none.
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
			newest, size = info.ModTime(), new(info.Size())
		}
	}
	return size
}

// serveMetrics serves the metrics until ctx ends.
func (s *server) serveMetrics(ctx context.Context) error {
	l, err := scrape.Listen(s.cfg.Metrics.Listen, "coordinator.yaml")
	if err != nil {
		return err
	}
	return scrape.Serve(ctx, l, scrape.Handler(s.told, s.logger))
}
