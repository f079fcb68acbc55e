package metrics

import (
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/units"
)

// View is what a server knows at one moment.
type View struct {
	// Leads is whether this server leads and has just proved it.
	Leads bool
	// Revision of the state that is applied here.
	Revision uint64
	// Domains and Nodes as lists show them; what only the leader hears is missing in
	// those of a follower.
	Domains []*headroomv1.Domain
	Nodes   []*headroomv1.Node
	// JobsRunning counts the running jobs by engine, as far as the leader has heard of them.
	JobsRunning map[string]int
	// EnergyByClass is what nodes drew for the jobs of each class, and EnergyIdle what they drew
	// while no job ran on them, in joules since the leader began to lead.
	EnergyByClass map[string]float64
	EnergyIdle    float64
	// Health are the alarms of the cluster and of the group.
	Health []*headroomv1.HealthItem
	// Lag of each server in entries, as far as it is known.
	Lag map[string]uint64
	// SnapshotBytes and LogBytes are what is on disk; nil while unknown.
	SnapshotBytes, LogBytes *int64
	// CertificateEnds is when the server's certificate ends; zero without one.
	CertificateEnds time.Time
	// TurnedOut are the connections that were closed because they had not proved
	// themselves; nil where nothing bounds them.
	TurnedOut *uint64
}

// Source is what the server knows as of now. It may wait, within bounds.
type Source func() *View

// Collector turns a view and the server's counts into metrics. It keeps nothing
// between two scrapes.
type Collector struct {
	version string
	view    Source
	counts  *Counts
	descs   map[string]desc
}

// desc is a metric that a collector makes of a value.
type desc struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// New is the collector of a server of that version.
func New(version string, view Source, counts *Counts) *Collector {
	c := &Collector{version: version, view: view, counts: counts, descs: map[string]desc{}}
	kinds := map[kind]prometheus.ValueType{counter: prometheus.CounterValue, gauge: prometheus.GaugeValue}
	for _, m := range all() {
		if m.kind != histogram && m.name != rpcRequests { // those fill themselves
			c.descs[m.name] = desc{prometheus.NewDesc(m.name, m.help, m.labelNames(), nil), kinds[m.kind]}
		}
	}
	return c
}

// Describe tells every metric that Collect may tell.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, own := range c.counts.own() {
		own.Describe(ch)
	}
	for _, d := range c.descs {
		ch <- d.desc
	}
}

// Collect asks for the view once and tells what it says.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	v := c.view()
	for _, own := range c.counts.own() {
		own.Collect(ch)
	}
	p := &points{ch: ch, descs: c.descs, seen: map[string]bool{}}
	p.add(buildInfo, 1, c.version, runtime.Version())
	p.add(leader, oneIf(v.Leads))
	p.add(revision, float64(v.Revision))
	p.domains(v.Domains)
	p.counts(c.counts, v.Domains)
	p.disk(v)
	if v.Leads {
		p.nodes(v.Nodes)
		p.jobs(v.JobsRunning)
		for _, class := range slices.Sorted(maps.Keys(v.EnergyByClass)) {
			p.add(classJoules, v.EnergyByClass[class], class)
		}
		p.add(idleJoules, v.EnergyIdle)
		for _, id := range slices.Sorted(maps.Keys(v.Lag)) {
			p.add(memberLag, float64(v.Lag[id]), id)
		}
	}
	p.health(v)
}

// points are the metrics of one scrape. Invariant: no two have the same name and
// the same labels, for those would spoil the whole scrape.
type points struct {
	ch    chan<- prometheus.Metric
	descs map[string]desc
	seen  map[string]bool
}

const (
	// labelMax bounds a label's value: names of domains and servers come from operators.
	labelMax = 128
	// pointsMax bounds one scrape: a thousand domains make less.
	pointsMax = 1 << 14
)

// add tells a value. Of two with the same labels the first counts.
func (p *points) add(name string, value float64, labels ...string) {
	clean := make([]string, len(labels))
	for i, l := range labels {
		clean[i] = strings.ToValidUTF8(l[:min(len(l), labelMax)], "?")
	}
	key := name + "\xff" + strings.Join(clean, "\xff") // no label holds that byte
	if p.seen[key] || len(p.seen) >= pointsMax {
		return
	}
	p.seen[key] = true
	d := p.descs[name]
	m, err := prometheus.NewConstMetric(d.desc, d.kind, value, clean...)
	if err != nil {
		m = prometheus.NewInvalidMetric(d.desc, err) // told as an error; the others are served
	}
	p.ch <- m
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func watts(uw int64) float64 { return units.Power(uw).Watts() }

func (p *points) domains(all []*headroomv1.Domain) {
	for _, d := range all {
		name := d.GetName()
		p.add(budgetWatts, watts(d.GetBudgetUw()), name)
		p.add(reservedWatts, watts(d.GetReservedUw()), name)
		p.add(unmanagedWatts, watts(d.GetUnmanagedUw()), name)
		p.add(headroomWatts, watts(d.GetHeadroomUw()), name)
		if d.MeasuredUw != nil {
			p.add(measuredWatts, watts(d.GetMeasuredUw()), name)
		}
	}
}

// counts tells the server's own counts. A domain that is gone keeps none: only
// those that there are now are told, so that the label stays bounded.
func (p *points) counts(c *Counts, domains []*headroomv1.Domain) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.add(grants, float64(c.granted), granted)
	p.add(grants, float64(c.notAdmitted), notAdmitted)
	p.add(ticksMissed, float64(c.missed))
	p.add(leaderChanges, float64(c.changes))
	p.add(jobStops, float64(c.stops))
	p.add(tasksDropped, float64(c.dropped))
	p.add(jobSprints, float64(c.sprints))
	for _, kind := range moveKinds() {
		p.add(jobMoves, float64(c.moves[kind]), kind)
	}
	for _, d := range domains {
		x := c.over[d.GetName()]
		p.add(violationSeconds, x.violation.Seconds(), d.GetName())
		p.add(violationJoules, x.energy, d.GetName())
		p.add(shortfallSeconds, x.shortfall.Seconds(), d.GetName())
	}
}

func (p *points) disk(v *View) {
	if v.SnapshotBytes != nil {
		p.add(snapshotBytes, float64(*v.SnapshotBytes))
	}
	if v.TurnedOut != nil {
		p.add(turnedOut, float64(*v.TurnedOut))
	}
	if v.LogBytes != nil {
		p.add(logBytes, float64(*v.LogBytes))
	}
	if !v.CertificateEnds.IsZero() {
		p.add(certificateEnds, float64(v.CertificateEnds.Unix()))
	}
}

func (p *points) nodes(all []*headroomv1.Node) {
	count := map[string]int{}
	for _, n := range all {
		count[n.GetState()]++
	}
	for _, state := range nodeStates() {
		p.add(nodes, float64(count[state]), state)
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
		p.add(jobs, float64(count[engine]), engine)
	}
}

// otherEngine counts the jobs of engines without a line of their own: their names come from schedulers.
const otherEngine = "other"

// foreignMost is how many warnings of nodes one scrape tells: a node may report
// any code, and a label must not grow with what it makes up.
const foreignMost = 64

var codeForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)

// health tells what is there, then 0 for whatever else this server could know of.
func (p *points) health(v *View) {
	foreign := 0
	for _, i := range v.Health {
		own := slices.Contains(healthCodes(), i.GetCode())
		if !codeForm.MatchString(i.GetCode()) || !slices.Contains(severities(), i.GetSeverity()) || !own && foreign == foreignMost {
			continue
		}
		before := len(p.seen)
		p.add(healthShown, 1, i.GetCode(), i.GetSeverity())
		if !own {
			foreign += len(p.seen) - before
		}
	}
	for _, i := range HealthItems() {
		if v.Leads || !i.LeaderOnly {
			p.add(healthShown, 0, i.Code, i.Severity)
		}
	}
}
