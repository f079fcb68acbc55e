// Package metrics serves powerd's metrics to Prometheus: its status, the counts of its
// loop, and the resource use of the process.
//
// The one idea: a scrape keeps no state. The collector turns the current status message
// and the loop's counts into metrics. Without scrapes the cost is a few atomic additions.
//
// Guarantees:
//   - values change at most once a second, whatever the rate of scrapes, and powers and
//     energies are rounded: frequent and exact RAPL readings leak what a processor
//     computes (PLATYPUS, CVE-2020-8694 and CVE-2020-8695);
//   - the loop is queried at most once a second, and a scrape resets nothing;
//   - an unknown value is absent; a counter is 0 before its first event;
//   - labels are valid and of bounded length, whatever names a machine uses; of two points
//     with the same labels the first is used;
//   - a slow or hostile client can hold a connection for seconds, and never blocks powerd.
//
// The package has its own registry and does not use Prometheus' default one.
package metrics

import (
	"headroom/internal/each"
	"headroom/internal/scrape"
)

// Names of the metrics.
const (
	zoneEnergy      = "headroom_zone_energy_joules_total"
	zonePower       = "headroom_zone_power_watts"
	zoneLimit       = "headroom_zone_limit_watts"
	zoneDrift       = "headroom_zone_limit_drift_total"
	zoneWriteErrors = "headroom_zone_write_errors_total"
	nodePower       = "headroom_node_power_watts"
	nodeCap         = "headroom_node_cap_watts"
	nodeFailSafe    = "headroom_node_fail_safe_watts"
	nodeDemand      = "headroom_node_demand_watts"
	nodeLimited     = "headroom_node_limited_ratio"
	nodeLimitedBy   = "headroom_node_limited_seconds_total"
	nodeOverTime    = "headroom_node_over_cap_seconds_total"
	nodeOverEnergy  = "headroom_node_over_cap_joules_total"
	nodeState       = "headroom_node_state"
	nodeRung        = "headroom_node_rung"
	nodeCutOff      = "headroom_node_cut_off"
	leaseRemaining  = "headroom_lease_remaining_seconds"
	leaseRenewals   = "headroom_lease_renewals_total"
	leaseExpiries   = "headroom_lease_expiries_total"
	controlStep     = "headroom_control_step_duration_seconds"
	controlMisses   = "headroom_control_deadline_misses_total"
	controlSettle   = "headroom_control_settle_seconds"
	sensorAge       = "headroom_sensor_age_seconds"
	sensorApart     = "headroom_sensor_disagreement_ratio"
	sensorTemp      = "headroom_sensor_temperature_celsius"
	sensorOK        = "headroom_sensor_ok"
	cpuFreq         = "headroom_cpu_frequency_hertz"
	cpuCeiling      = "headroom_cpu_frequency_ceiling_hertz"
	cpuThrottled    = "headroom_cpu_throttle_events_total"
	sprintEscrow    = "headroom_sprint_escrow_joules"
	sprintSpent     = "headroom_sprint_spent_joules"
	sprintsBegun    = "headroom_sprints_total"
	healthShown     = "headroom_health"
	healthItems     = "headroom_health_items"
	brakeGeneration = "headroom_brake_generation"
	brakeSet        = "headroom_brake_set"
	brakeDropped    = "headroom_brake_messages_dropped_total"
	savedControls   = "headroom_saved_controls"
	buildInfo       = "headroom_build_info"
)

// all returns the metrics of powerd, in the order of docs/metrics.md.
func all() scrape.Table {
	zone := scrape.Of("zone", "zones of powerd zone list")
	socket := scrape.Of("socket", "number of the socket, empty if the zone has none")
	control := scrape.Of("zone", "zones of powerd zone list, policies of powerd freq list (where there are more than 256, those with a count), names of slices, "+BMC)
	stage := scrape.Of("stage", "requested, written, effective")
	source := scrape.Of("source", sources)
	sensor := scrape.Of("sensor", "sensors of powerd sensor list")
	policy := scrape.Of("policy", "policies of powerd freq list")
	severity := scrape.Of("severity", scrape.Words(severities()))
	return scrape.Table{
		scrape.Counter(zoneEnergy, "Energy used by a zone since powerd started, in whole joules, across wraps and resets of its counter.", zone, socket),
		scrape.Gauge(zonePower, "Power of a zone in watts, rounded to 0.1 W.", zone, socket),
		scrape.Gauge(zoneLimit, "Limit of a zone in watts: requested, written, or effective (read back).", zone, scrape.Of("constraint", longTerm), stage),
		scrape.Counter(zoneDrift, "Number of times another program changed a limit or frequency ceiling. A lasting change counts once.", control),
		scrape.Counter(zoneWriteErrors, "Number of writes that failed or did not read back, by reason.", control, scrape.Of("reason", scrape.Words(reasons()))),
		scrape.Gauge(nodePower, "Power of the node in watts, rounded to 0.1 W, by source: rapl is packages and memory; dcmi, sdr and model are at the wall; best is the value that caps are enforced on.", scrape.Of("source", "best, rapl, dcmi, sdr, model")),
		scrape.Gauge(nodeCap, "Cap in force in watts at the wall. Absent while the node observes."),
		scrape.Gauge(nodeFailSafe, "Fail-safe cap in watts at the wall."),
		scrape.Gauge(nodeDemand, "Power in watts at the wall that the node could use without a cap, rounded to 0.1 W."),
		scrape.Gauge(nodeLimited, "Ratio of the last minute in which the node was limited."),
		scrape.Counter(nodeLimitedBy, "Time in seconds in which the node was limited, by cause.", scrape.Of("by", scrape.Words(limiters()))),
		scrape.Counter(nodeOverTime, "Time in seconds in which measured power (mean over 1 s) exceeded the cap in force by more than 2 %. Time with unknown power is not counted."),
		scrape.Counter(nodeOverEnergy, "Energy above the cap in whole joules, while measured power exceeded it by more than 2 %."),
		scrape.Gauge(nodeState, "1 for the current state of the node, 0 for the others.", scrape.Of("state", scrape.Words(nodeStates()))),
		scrape.Gauge(nodeRung, "1 for the control that enforces the cap, 0 for the others.", scrape.Of("rung", scrape.Words(rungs()))),
		scrape.Gauge(nodeCutOff, "1 if no link to a coordinator is up, 0 otherwise."),
		scrape.Gauge(leaseRemaining, "Time in seconds until the lease expires. Absent without a lease."),
		scrape.Counter(leaseRenewals, "Number of leases received, by result.", scrape.Of("result", "ok, refused")),
		scrape.Counter(leaseExpiries, "Number of leases that expired without a renewal."),
		scrape.Histogram(controlStep, "Duration in seconds of one control step. Also a native histogram."),
		scrape.Counter(controlMisses, "Number of control steps that missed their deadline."),
		scrape.Histogram(controlSettle, "Time in seconds from a new cap until measured power stayed within 2 % of it."),
		scrape.Gauge(sensorAge, "Time in seconds since a source's value last changed. Oldest sensor if it has several.", source),
		scrape.Gauge(sensorApart, "Absolute difference of source a from source b, as a ratio of b. best is the value that caps are enforced on.", scrape.Of("a", "dcmi, sdr"), scrape.Of("b", "best, model")),
		scrape.Gauge(sensorTemp, "Temperature of a sensor in degrees Celsius.", source, sensor),
		scrape.Gauge(sensorOK, "1 if the sensor is ok, 0 if it is stale, implausible or silent.", source, sensor),
		scrape.Gauge(cpuFreq, "Frequency in hertz of the processors of a cpufreq policy.", policy),
		scrape.Gauge(cpuCeiling, "Frequency ceiling in hertz of a cpufreq policy: requested, written, or effective (read back).", policy, stage),
		scrape.Counter(cpuThrottled, "Number of thermal throttle events: core and package are counters of the processor, event is a kernel event. One cause may count in each.", scrape.Of("kind", scrape.Words(throttleKinds()))),
		scrape.Gauge(sprintEscrow, "Energy in joules reserved for the active sprint. 0 without one."),
		scrape.Gauge(sprintSpent, "Energy in joules that the active sprint has used above its base cap. Absent if unknown."),
		scrape.Counter(sprintsBegun, "Number of sprints started."),
		scrape.Gauge(healthShown, "1 if the health item is active, 0 otherwise.", scrape.Of("code", scrape.Words(healthCodes())), severity),
		scrape.Gauge(healthItems, "Number of active health items.", severity),
		scrape.Gauge(brakeGeneration, "Highest brake generation that the node has received. 0 if none."),
		scrape.Gauge(brakeSet, "1 if the brake is in force on this node, 0 otherwise."),
		scrape.Counter(brakeDropped, "Number of brake messages dropped: old generation, forged (unknown key), or malformed.", scrape.Of("reason", "old, forged, malformed")),
		scrape.Gauge(savedControls, "Number of controls with a saved original value."),
		scrape.Gauge(buildInfo, "Always 1, labeled with the version of powerd.", scrape.Of("version", ""), scrape.Of("goversion", "")),
	}
}

const (
	// sources lists the sources of power and temperature.
	sources = "rapl, dcmi, sdr, hwmon, thermal, model"
	// longTerm is the constraint in the status.
	longTerm = "long_term"
	// BMC is the name of the BMC's limit in counters.
	BMC = "bmc"
)

// limiters returns the causes that may limit a node.
func limiters() []string { return []string{"cap", "thermal", "sprint", "local", "fail-safe"} }

func nodeStates() []string { return []string{"held", "fail-safe", observing} }

func rungs() []string { return []string{"rapl", "cpufreq", "bandwidth", "none"} }

func throttleKinds() []string { return []string{"core", "package", "event"} }

// Severities of health items.
const (
	warn = "warn"
	fail = "fail"
)

func severities() []string { return []string{warn, fail} }

// HealthItem is the code of a health item, with its severity.
type HealthItem struct{ Code, Severity string }

// HealthItems returns the health items of powerd, ordered by code. One that is missing
// here is served while it is active, and absent otherwise.
func HealthItems() []HealthItem {
	return []HealthItem{
		{"bios-lock", warn},
		{"bmc", warn},
		{"bmc-limit", warn},
		{"bmc-password", fail},
		{"brake-not-stored", fail},
		{"brake-set", warn},
		{"cap-below-floor", warn},
		{"cut-off", warn},
		{"denied-not-stored", warn},
		{"few-files", warn},
		{"gossip", fail},
		{"held-not-stored", warn},
		{"journal-not-stored", warn},
		{"lease-expired", warn},
		{"limit-drift", warn},
		{"limit-refused", fail},
		{"limit-unbound", fail},
		{"limit-unread", warn},
		{"lost-package", fail},
		{"metrics", warn},
		{"name-taken", fail},
		{"new-package", fail},
		{"no-leader", warn},
		{"no-rapl", warn},
		{"not-admitted", warn},
		{"range-moved", warn},
		{"restore-refused", warn},
		{"records-not-stored", warn},
		{"rival", warn},
		{"sensor", warn},
		{"sensor-disagree", warn},
		{"slices", warn},
		{"sprint-refused", warn},
		{"state-not-stored", fail},
		{"thermal", warn},
		{"tls", fail},
		{"tuning-drift", warn},
		{"tuning-refused", warn},
		{"twin-limit", warn},
		{"window-refused", warn},
	}
}

func healthCodes() []string {
	return each.List(HealthItems(), func(i HealthItem) string { return i.Code })
}
