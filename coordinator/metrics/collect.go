package metrics

import (
	"maps"
	"math"
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/scrape"
	"headroom/units"
)

// View is what a server has at one moment.
type View struct {
	// Leads reports whether this server is the leader and has just proved it.
	Leads bool
	// Revision of the state that is applied here.
	Revision uint64
	// Domains and Nodes as lists show them; on a follower without what only the leader hears.
	Domains []*headroomv1.Domain
	Nodes   []*headroomv1.Node
	// JobsRunning is the number of running jobs by engine, as far as schedulers have reported them.
	JobsRunning map[string]int
	// EnergyByClass is the energy of nodes attributed to the jobs of each class, and EnergyIdle
	// their energy while no job ran on them, in joules since this server became the leader.
	EnergyByClass map[string]float64
	EnergyIdle    float64
	// Health are the alarms of the cluster and its servers.
	Health []*headroomv1.HealthItem
	// Lag is how many entries each server is behind, where that is known.
	Lag map[string]uint64
	// SnapshotBytes and LogBytes are sizes on disk; nil while unknown.
	SnapshotBytes, LogBytes *int64
	// CertificateEnds is when the server's certificate expires; zero without one.
	CertificateEnds time.Time
	// TurnedOut is the number of connections closed before authentication; nil where
	// they are not bounded.
	TurnedOut *uint64
}

// Source returns the present view. It may wait, within bounds.
type Source func() *View

// Collector converts a view and the server's counts to metrics. It keeps nothing
// between two scrapes.
type Collector struct {
	version string
	view    Source
	counts  *Counts
	descs   scrape.Descs
}

// New returns the collector of a server of that version.
func New(version string, view Source, counts *Counts) *Collector {
	return &Collector{version: version, view: view, counts: counts, descs: all().Descs(rpcRequests)}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, own := range c.counts.own() {
		own.Describe(ch)
	}
	c.descs.Describe(ch)
}

// Collect implements prometheus.Collector. It takes the view once.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	v := c.view()
	for _, own := range c.counts.own() {
		own.Collect(ch)
	}
	p := &points{c.descs.Points(ch)}
	p.Add(buildInfo, 1, c.version, runtime.Version())
	p.Add(leader, scrape.OneIf(v.Leads))
	p.Add(revision, float64(v.Revision))
	p.domains(v.Domains)
	p.counts(c.counts, v.Domains)
	p.disk(v)
	if v.Leads {
		p.nodes(v.Nodes)
		p.jobs(v.JobsRunning)
		for _, class := range slices.Sorted(maps.Keys(v.EnergyByClass)) {
			p.Add(classJoules, v.EnergyByClass[class], class)
		}
		p.Add(idleJoules, v.EnergyIdle)
		for _, id := range slices.Sorted(maps.Keys(v.Lag)) {
			p.Add(memberLag, float64(v.Lag[id]), id)
		}
	}
	p.health(v)
}

// points are the metrics of one scrape.
type points struct{ scrape.Points }

func watts(uw int64) float64 { return units.Power(uw).Watts() }

func (p *points) domains(all []*headroomv1.Domain) {
	for _, d := range all {
		name := d.GetName()
		p.Add(budgetWatts, watts(d.GetBudgetUw()), name)
		p.Add(reservedWatts, watts(d.GetReservedUw()), name)
		p.Add(unmanagedWatts, watts(d.GetUnmanagedUw()), name)
		p.Add(headroomWatts, watts(d.GetHeadroomUw()), name)
		if d.MeasuredUw != nil {
			p.Add(measuredWatts, watts(d.GetMeasuredUw()), name)
		}
		if d.PowerKnownUw != nil {
			p.Add(knownWatts, watts(d.GetPowerKnownUw()), name)
		}
		if d.PowerUnknownNodes != nil {
			p.Add(unknownNodes, float64(d.GetPowerUnknownNodes()), name)
		}
	}
}

// counts adds the server's own counts, for the present domains only, so that the label
// stays bounded.
func (p *points) counts(c *Counts, domains []*headroomv1.Domain) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.Add(grants, float64(c.granted), granted)
	p.Add(grants, float64(c.notAdmitted), notAdmitted)
	p.Add(ticksMissed, float64(c.missed))
	p.Add(leaderChanges, float64(c.changes))
	p.Add(jobStops, float64(c.stops))
	p.Add(tasksDropped, float64(c.dropped))
	for _, v := range verdicts() {
		p.Add(deadlines, float64(c.verdicts[v]), v)
	}
	p.Add(jobSprints, float64(c.sprints))
	for _, kind := range moveKinds() {
		p.Add(jobMoves, float64(c.moves[kind]), kind)
	}
	for _, d := range domains {
		x := c.over[d.GetName()]
		p.Add(violationSeconds, x.violation.Seconds(), d.GetName())
		p.Add(violationJoules, x.energy, d.GetName())
		p.Add(shortfallSeconds, x.shortfall.Seconds(), d.GetName())
	}
}

func (p *points) disk(v *View) {
	if v.SnapshotBytes != nil {
		p.Add(snapshotBytes, float64(*v.SnapshotBytes))
	}
	if v.TurnedOut != nil {
		p.Add(turnedOut, float64(*v.TurnedOut))
	}
	if v.LogBytes != nil {
		p.Add(logBytes, float64(*v.LogBytes))
	}
	if !v.CertificateEnds.IsZero() {
		p.Add(certificateEnds, float64(v.CertificateEnds.Unix()))
	}
}

func (p *points) nodes(all []*headroomv1.Node) {
	count, first := map[string]int{}, int64(math.MaxInt64)
	for _, n := range all {
		count[n.GetState()]++
		if n.CertificateEndsUs != nil {
			first = min(first, n.GetCertificateEndsUs())
		}
	}
	if first < math.MaxInt64 {
		p.Add(nodeCertificate, float64(first)/float64(time.Second/time.Microsecond))
	}
	for _, state := range nodeStates() {
		p.Add(nodes, float64(count[state]), state)
	}
}

func (p *points) jobs(running map[string]int) {
	count := map[string]int{}
	for engine, n := range running {
		if !slices.Contains(engines(), engine) {
			engine = otherEngine
		}
		count[engine] += n
	}
	for _, engine := range engines() {
		p.Add(jobs, float64(count[engine]), engine)
	}
}

// otherEngine stands for engines that are not listed: their names come from schedulers.
const otherEngine = "other"

// foreignMost bounds the warnings of nodes in one scrape: a node may report any code, and
// a label must stay bounded.
const foreignMost = 64

var codeForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)

// health adds 1 for active alarms, then 0 for the others that this server could raise.
func (p *points) health(v *View) {
	foreign := 0
	for _, i := range v.Health {
		own := slices.Contains(healthCodes(), i.GetCode())
		if !codeForm.MatchString(i.GetCode()) || !slices.Contains(severities(), i.GetSeverity()) || !own && foreign == foreignMost {
			continue
		}
		if p.Add(healthShown, 1, i.GetCode(), i.GetSeverity()) && !own {
			foreign++
		}
	}
	for _, i := range HealthItems() {
		if v.Leads || !i.LeaderOnly {
			p.Add(healthShown, 0, i.Code, i.Severity)
		}
	}
}
