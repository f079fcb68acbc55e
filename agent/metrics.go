package agent

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Kinds of metric, as the exposition format names them.
const (
	counterKind   = "counter"
	gaugeKind     = "gauge"
	histogramKind = "histogram"
)

// family is one metric: what it is called, what it means, how it is labelled.
type family struct {
	name   string
	kind   string
	help   string
	labels []string
	// values says which values each label takes: label sets are bounded and listed.
	values []string
}

// Families by name, for those who fill them in.
const (
	mZoneEnergy   = "headroom_zone_energy_joules_total"
	mZonePower    = "headroom_zone_power_watts"
	mZoneLimit    = "headroom_zone_limit_watts"
	mDrifts       = "headroom_limit_drifts_total"
	mWriteErrors  = "headroom_limit_write_errors_total"
	mNodePower    = "headroom_node_power_watts"
	mNodeCap      = "headroom_node_cap_watts"
	mNodeFailSafe = "headroom_node_fail_safe_watts"
	mNodeDemand   = "headroom_node_demand_watts"
	mNodeLimited  = "headroom_node_limited_ratio"
	mLimitedBy    = "headroom_node_limited_seconds_total"
	mNodeState    = "headroom_node_state"
	mNodeRung     = "headroom_node_rung"
	mNodeCutOff   = "headroom_node_cut_off"
	mLeaseLeft    = "headroom_lease_remaining_seconds"
	mRenewals     = "headroom_lease_renewals_total"
	mExpiries     = "headroom_lease_expiries_total"
	mStep         = "headroom_control_step_duration_seconds"
	mMisses       = "headroom_control_deadline_misses_total"
	mSettle       = "headroom_control_settle_seconds"
	mSensorAge    = "headroom_sensor_age_seconds"
	mSensorDiff   = "headroom_sensor_disagreement_ratio"
	mSensorTemp   = "headroom_sensor_temperature_celsius"
	mSensorOK     = "headroom_sensor_ok"
	mFreq         = "headroom_cpu_frequency_hertz"
	mFreqCeiling  = "headroom_cpu_frequency_ceiling_hertz"
	mThermal      = "headroom_cpu_throttle_events_total"
	mEscrow       = "headroom_sprint_escrow_joules"
	mSprintSpent  = "headroom_sprint_spent_joules"
	mSprints      = "headroom_sprints_total"
	mHealth       = "headroom_health"
	mHealthItems  = "headroom_health_items"
	mSaved        = "headroom_saved_controls"
	mBuild        = "headroom_build_info"
	mCPU          = "process_cpu_seconds_total"
	mResident     = "process_resident_memory_bytes"
	mStart        = "process_start_time_seconds"
	mDescriptors  = "process_open_fds"
)

// families are all metrics of powerd, in the order of the page that lists them.
func families() []family {
	zone, socket := "zones of powerd zone list", "number of the socket, empty where the zone tells none"
	return []family{
		{mZoneEnergy, counterKind, "Energy that a zone has spent since powerd started, through wraps and resets of its counter; whole joules.", []string{"zone", "socket"}, []string{zone, socket}},
		{mZonePower, gaugeKind, "Power of a zone, rounded to 0.1 W.", []string{"zone", "socket"}, []string{zone, socket}},
		{mZoneLimit, gaugeKind, "Limit of a zone, as it was asked for, as it was written, and as it reads back.", []string{"zone", "constraint", "stage"}, []string{zone, "long_term", "requested, written, effective"}},
		{mDrifts, counterKind, "Limits that read back otherwise than powerd wrote them.", nil, nil},
		{mWriteErrors, counterKind, "Writes of a limit that failed or did not read back.", nil, nil},
		{mNodePower, gaugeKind, "Power of the node, rounded to 0.1 W: rapl is packages and memory; dcmi, sdr and model are at the wall; best is what caps are held by.", []string{"source"}, []string{"best, rapl, dcmi, sdr, model"}},
		{mNodeCap, gaugeKind, "Cap in force, at the wall; absent while the node only observes.", nil, nil},
		{mNodeFailSafe, gaugeKind, "Fail-safe cap, at the wall.", nil, nil},
		{mNodeDemand, gaugeKind, "What the node could use if it were not held, at the wall, rounded to 0.1 W.", nil, nil},
		{mNodeLimited, gaugeKind, "Part of the last minute in which the node was held back.", nil, nil},
		{mLimitedBy, counterKind, "Time in which the node was held back, by what did it.", []string{"by"}, []string{strings.Join(limiters(), ", ")}},
		{mNodeState, gaugeKind, "1 for what the node does with its cap, 0 for the others.", []string{"state"}, []string{strings.Join(nodeStates(), ", ")}},
		{mNodeRung, gaugeKind, "1 for the rung of the ladder on which the node stands, 0 for the others.", []string{"rung"}, []string{strings.Join(ladderRungs(), ", ")}},
		{mNodeCutOff, gaugeKind, "1 while no link that leads to a coordinator is up.", nil, nil},
		{mLeaseLeft, gaugeKind, "Time until the lease ends; absent without one.", nil, nil},
		{mRenewals, counterKind, "Answers to heartbeats: leases taken, and leases refused.", []string{"result"}, []string{"ok, refused"}},
		{mExpiries, counterKind, "Leases that ended without a new one.", nil, nil},
		{mStep, histogramKind, "Time that one turn of the loop took.", nil, nil},
		{mMisses, counterKind, "Turns of the loop that came later than the loop promises.", nil, nil},
		{mSettle, histogramKind, "Time from a new cap until the measured power stayed within 2 % of it.", nil, nil},
		{mSensorAge, gaugeKind, "Time since a source's value last changed.", []string{"source", "sensor"}, sensorLabels()},
		{mSensorDiff, gaugeKind, "Difference of a source to the node's best figure, as a ratio of it.", []string{"source", "sensor"}, sensorLabels()},
		{mSensorTemp, gaugeKind, "Temperature that a source tells.", []string{"source", "sensor"}, sensorLabels()},
		{mSensorOK, gaugeKind, "1 for a source that is believed, 0 for one that is stale, insane or silent.", []string{"source", "sensor"}, sensorLabels()},
		{mFreq, gaugeKind, "Frequency of a policy's processors.", []string{"policy"}, []string{"policies of powerd freq list"}},
		{mFreqCeiling, gaugeKind, "Frequency ceiling of a policy, as it was asked for, written, and reads back.", []string{"policy", "stage"}, []string{"policies of powerd freq list", "requested, written, effective"}},
		{mThermal, counterKind, "Events in which a processor was slowed down by heat.", []string{"kind"}, []string{"thermal"}},
		{mEscrow, gaugeKind, "Energy put aside for the sprint under way; 0 without one.", nil, nil},
		{mSprintSpent, gaugeKind, "Energy that the sprint under way has drawn above its base cap; absent while unknown.", nil, nil},
		{mSprints, counterKind, "Sprints begun.", nil, nil},
		{mHealth, gaugeKind, "1 while a health item is visible.", []string{"code", "severity"}, []string{"codes of powerd status", "warn, fail"}},
		{mHealthItems, gaugeKind, "Health items visible.", []string{"severity"}, []string{"warn, fail"}},
		{mSaved, gaugeKind, "Controls whose originals are saved.", nil, nil},
		{mBuild, gaugeKind, "1, with the version of powerd.", []string{"version", "goversion"}, []string{"", ""}},
		{mCPU, counterKind, "CPU time that powerd has used, user and system.", nil, nil},
		{mResident, gaugeKind, "Memory of powerd that is resident.", nil, nil},
		{mStart, gaugeKind, "When powerd was started, as Unix time.", nil, nil},
		{mDescriptors, gaugeKind, "Files that powerd has open.", nil, nil},
	}
}

func sensorLabels() []string {
	return []string{"rapl, dcmi, sdr, hwmon, thermal, model", "sensors of powerd sensor list"}
}

// limiters are what may hold a node back.
func limiters() []string { return []string{"cap", "thermal", "sprint", "local", "fail-safe"} }

func nodeStates() []string { return []string{"held", "fail-safe", stateObserving} }

func ladderRungs() []string { return []string{rungRAPL, rungCPUFreq, "bandwidth", rungNone} }

// point is one value of a family.
type point struct {
	labels []string // in the order of the family's
	value  float64
	hist   *histogramView // instead of value, for histograms
}

// exposition is what one scrape answers: points by family.
type exposition map[string][]point

// add adds a value. One that is no number is left out: unknown is absent.
func (e exposition) add(name string, value float64, labels ...string) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	clean := make([]string, len(labels))
	for i, l := range labels {
		clean[i] = cleanLabel(l)
	}
	e[name] = append(e[name], point{labels: clean, value: value})
}

// addKnown adds a value that may be unknown.
func (e exposition) addKnown(name string, value *float64, labels ...string) {
	if value != nil {
		e.add(name, *value, labels...)
	}
}

// text is the exposition in Prometheus' text format 0.0.4. A family without any
// point is left out, and of two points with the same labels the first counts.
func (e exposition) text() []byte {
	var b []byte
	for _, f := range families() {
		points := e[f.name]
		if len(points) == 0 {
			continue
		}
		b = fmt.Appendf(b, "# HELP %s %s\n# TYPE %s %s\n", f.name, escapeHelp(f.help), f.name, f.kind)
		points = slices.Clone(points)
		slices.SortStableFunc(points, func(x, y point) int { return slices.Compare(x.labels, y.labels) })
		points = slices.CompactFunc(points, func(x, y point) bool { return slices.Equal(x.labels, y.labels) })
		for _, p := range points {
			b = p.append(b, f)
		}
	}
	return b
}

func (p point) append(b []byte, f family) []byte {
	if p.hist != nil {
		return p.hist.append(b, f.name)
	}
	b = append(b, f.name...)
	b = appendLabels(b, f.labels, p.labels)
	b = append(b, ' ')
	b = strconv.AppendFloat(b, p.value, 'g', -1, 64)
	return append(b, '\n')
}

func appendLabels(b []byte, names, values []string) []byte {
	if len(names) == 0 {
		return b
	}
	b = append(b, '{')
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, name...)
		b = append(b, `="`...)
		b = append(b, escapeLabel(values[i])...)
		b = append(b, '"')
	}
	return append(b, '}')
}

// labelMax bounds a label's value: names of zones and sensors come from the machine.
const labelMax = 128

// cleanLabel is a label's value as valid UTF-8 of bounded length.
func cleanLabel(s string) string { return strings.ToValidUTF8(s[:min(len(s), labelMax)], "?") }

// escapeLabel is a label's value as the text format wants it: backslash, quote and
// line feed escaped.
func escapeLabel(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s)
}

func escapeHelp(s string) string { return strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(s) }

// MetricsPage is docs/metrics.md, as the program itself knows it.
func MetricsPage() string {
	var b strings.Builder
	b.WriteString(metricsIntro)
	b.WriteString("| metric | kind | labels | meaning |\n| --- | --- | --- | --- |\n")
	for _, f := range families() {
		labels := make([]string, 0, len(f.labels))
		for i, l := range f.labels {
			if f.values[i] == "" {
				labels = append(labels, "`"+l+"`")
				continue
			}
			labels = append(labels, "`"+l+"`: "+f.values[i])
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.name, f.kind, cmp.Or(strings.Join(labels, "; "), "-"), f.help)
	}
	b.WriteString(metricsOutro)
	return b.String()
}

const metricsIntro = `# Metrics of powerd

This page is generated from the program (` + "`go generate ./agent/command`" + `).

powerd serves these for Prometheus at ` + "`http://ADDRESS/metrics`" + ` when ` + "`metrics.listen`" + ` names an address in powerd.yaml; by
default it serves none. The units are base units, ratios go from 0 to 1. What is unknown is absent: never 0, never -1. A counter
is there with 0 before its first event. A scrape changes nothing and resets nothing.

`

const metricsOutro = `
The buckets of the histograms are ` + "`headroom_control_step_duration_seconds`" + `: 50 us to 250 ms, and ` + "`headroom_control_settle_seconds`" + `:
50 ms to 10 s. No label of powerd is called instance or job: those are Prometheus' own.

## Why the values are coarse

Power that is read often and exactly gives away what a processor computes (PLATYPUS, CVE-2020-8694 and CVE-2020-8695): that is why
the kernel lets only root read energy counters. powerd may read them, so it must not hand them on. Whatever the rate of the
scrapes, values change at most once a second; energy is in whole joules and power in tenths of a watt. The socket on which
` + "`powerd status`" + ` asks is in the state directory and open to those who may enter that.
`
