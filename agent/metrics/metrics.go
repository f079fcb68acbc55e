// Package metrics tells Prometheus how a node is: what powerd's status says, what
// its loop alone can count, and what the process costs.
//
// The one idea: nothing is kept for a scrape. The collector turns the status
// message of this moment, and the loop's own counts, into metrics; whoever never
// scrapes pays for a few atomic additions and nothing else.
//
// Guarantees:
//   - whatever the rate of the scrapes, values change at most once a second, and
//     powers and energies are coarse: RAPL read often and exactly gives away what a
//     processor computes (PLATYPUS, CVE-2020-8694 and CVE-2020-8695);
//   - the loop is asked at most once for each of those seconds, and a scrape resets
//     nothing;
//   - what is unknown is absent; a counter is there with 0 before its first event;
//   - labels are valid and of bounded length, whatever a machine calls its parts, and
//     two points with the same labels never break a scrape: the first counts;
//   - a slow or hostile client holds a connection for seconds and never powerd.
//
// The registry is the package's own: nothing is registered with Prometheus' default
// one, and nothing in it is served.
package metrics

import "headroom/internal/scrape"

// Metrics by name, for those who fill them in.
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

// all are the metrics of powerd, in the order of the page that lists them.
func all() scrape.Table {
	zone := scrape.Of("zone", "zones of powerd zone list")
	socket := scrape.Of("socket", "number of the socket, empty where the zone tells none")
	control := scrape.Of("zone", "zones of powerd zone list; where something else is written, its name: policies of powerd freq list, names of slices, "+BMC)
	stage := scrape.Of("stage", "requested, written, effective")
	source := scrape.Of("source", sources)
	sensor := scrape.Of("sensor", "sensors of powerd sensor list")
	policy := scrape.Of("policy", "policies of powerd freq list")
	severity := scrape.Of("severity", scrape.Words(severities()))
	return scrape.Table{
		scrape.Counter(zoneEnergy, "Energy that a zone has spent since powerd started, through wraps and resets of its counter; whole joules.", zone, socket),
		scrape.Gauge(zonePower, "Power of a zone, rounded to 0.1 W.", zone, socket),
		scrape.Gauge(zoneLimit, "Limit of a zone, as it was asked for, as it was written, and as it reads back.", zone, scrape.Of("constraint", longTerm), stage),
		scrape.Counter(zoneDrift, "Times that a limit or ceiling was found at another value than powerd wrote; once however long it lasts.", control),
		scrape.Counter(zoneWriteErrors, "Writes that failed or did not read back, by why.", control, scrape.Of("reason", scrape.Words(reasons()))),
		scrape.Gauge(nodePower, "Power of the node, rounded to 0.1 W: rapl is packages and memory; dcmi, sdr and model are at the wall; best is what caps are held by.", scrape.Of("source", "best, rapl, dcmi, sdr, model")),
		scrape.Gauge(nodeCap, "Cap in force, at the wall; absent while the node only observes."),
		scrape.Gauge(nodeFailSafe, "Fail-safe cap, at the wall."),
		scrape.Gauge(nodeDemand, "What the node could use if it were not held, at the wall, rounded to 0.1 W."),
		scrape.Gauge(nodeLimited, "Part of the last minute in which the node was held back."),
		scrape.Counter(nodeLimitedBy, "Time in which the node was held back, by what did it.", scrape.Of("by", scrape.Words(limiters()))),
		scrape.Counter(nodeOverTime, "Time in which the measured power, as a mean over 1 s, stood above the cap in force by more than 2 %; time of unknown power counts neither way."),
		scrape.Counter(nodeOverEnergy, "Energy drawn above the cap in that time; whole joules."),
		scrape.Gauge(nodeState, "1 for what the node does with its cap, 0 for the others.", scrape.Of("state", scrape.Words(nodeStates()))),
		scrape.Gauge(nodeRung, "1 for the rung of the ladder on which the node stands, 0 for the others.", scrape.Of("rung", scrape.Words(rungs()))),
		scrape.Gauge(nodeCutOff, "1 while no link that leads to a coordinator is up."),
		scrape.Gauge(leaseRemaining, "Time until the lease ends; absent without one."),
		scrape.Counter(leaseRenewals, "Answers to heartbeats: leases taken, and leases refused.", scrape.Of("result", "ok, refused")),
		scrape.Counter(leaseExpiries, "Leases that ended without a new one."),
		scrape.Histogram(controlStep, "Time that one turn of the loop took; also a native histogram."),
		scrape.Counter(controlMisses, "Turns of the loop that came later than the loop promises."),
		scrape.Histogram(controlSettle, "Time from a new cap until the measured power stayed within 2 % of it."),
		scrape.Gauge(sensorAge, "Time since a source's value last changed; of several sensors, the oldest.", source),
		scrape.Gauge(sensorApart, "How far source a is from b, up or down, as a part of b; best is what caps are held by.", scrape.Of("a", "dcmi, sdr"), scrape.Of("b", "best, model")),
		scrape.Gauge(sensorTemp, "Temperature that a sensor tells.", source, sensor),
		scrape.Gauge(sensorOK, "1 for a sensor that is believed, 0 for one that is stale, insane or silent.", source, sensor),
		scrape.Gauge(cpuFreq, "Frequency of a policy's processors.", policy),
		scrape.Gauge(cpuCeiling, "Frequency ceiling of a policy, as it was asked for, written, and reads back.", policy, stage),
		scrape.Counter(cpuThrottled, "Events in which heat slowed a processor down: core and package are its own counters, event is what the kernel told; one cause may count in each.", scrape.Of("kind", scrape.Words(throttleKinds()))),
		scrape.Gauge(sprintEscrow, "Energy put aside for the sprint under way; 0 without one."),
		scrape.Gauge(sprintSpent, "Energy that the sprint under way has drawn above its base cap; absent while unknown."),
		scrape.Counter(sprintsBegun, "Sprints begun."),
		scrape.Gauge(healthShown, "1 while a health item is visible, 0 while it is not.", scrape.Of("code", scrape.Words(healthCodes())), severity),
		scrape.Gauge(healthItems, "Health items visible.", severity),
		scrape.Gauge(brakeGeneration, "Highest generation of the brake that the node has heard; 0 when it has heard none."),
		scrape.Gauge(brakeSet, "1 while a brake is in force on the node: no lease has told that it is lifted."),
		scrape.Counter(brakeDropped, "Brakes that were heard and not believed: of a generation that was known, signed with another key, or not understood.", scrape.Of("reason", "old, forged, malformed")),
		scrape.Gauge(savedControls, "Controls whose originals are saved."),
		scrape.Gauge(buildInfo, "1, with the version of powerd.", scrape.Of("version", ""), scrape.Of("goversion", "")),
	}
}

const (
	// sources are those of power and temperature.
	sources = "rapl, dcmi, sdr, hwmon, thermal, model"
	// longTerm is the constraint that status tells of.
	longTerm = "long_term"
	// BMC is the BMC's own limit, as counts name it.
	BMC = "bmc"
)

// limiters are what may hold a node back.
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

// HealthItem is a code of powerd's warnings, with its severity.
type HealthItem struct{ Code, Severity string }

// HealthItems are the warnings that powerd may show, in the order of their codes.
// One that is missing here is served while it is visible, and absent otherwise.
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
		{"held-not-stored", warn},
		{"journal-not-stored", warn},
		{"lease-expired", warn},
		{"limit-drift", warn},
		{"limit-refused", fail},
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
	codes := make([]string, 0, len(HealthItems()))
	for _, i := range HealthItems() {
		codes = append(codes, i.Code)
	}
	return codes
}
