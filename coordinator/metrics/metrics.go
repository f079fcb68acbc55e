// Package metrics exports the state of the cluster to Prometheus, as one coordinator server
// has it: the committed state, what the leader hears, and the counts of this process.
//
// The one idea: a server exports only what it has. A follower exports the committed state;
// what only the leader hears (measured power, states of nodes, lag of the other servers) is
// absent there. The collector converts a View of this moment, and the server's counts, to
// metrics at each scrape, and keeps nothing between two.
//
// Guarantees:
//   - an unknown value is absent, never 0; a counter is 0 before its first event; a scrape
//     resets nothing;
//   - labels are valid, and bounded in length and number, whatever a node reports; of two
//     points with the same labels the first counts;
//   - counting takes about ten nanoseconds and never waits for a scrape.
package metrics

import "headroom/internal/scrape"

// Names of the metrics.
const (
	budgetWatts      = "headroom_budget_watts"
	reservedWatts    = "headroom_reserved_watts"
	unmanagedWatts   = "headroom_unmanaged_watts"
	measuredWatts    = "headroom_measured_watts"
	knownWatts       = "headroom_measured_known_watts"
	unknownNodes     = "headroom_unknown_nodes"
	headroomWatts    = "headroom_budget_headroom_watts"
	violationSeconds = "headroom_budget_violation_seconds_total"
	violationJoules  = "headroom_budget_violation_joules_total"
	shortfallSeconds = "headroom_budget_shortfall_seconds_total"
	nodes            = "headroom_nodes"
	jobs             = "headroom_jobs_running"
	jobStops         = "headroom_job_stops_total"
	tasksDropped     = "headroom_tasks_dropped_total"
	deadlines        = "headroom_deadlines_total"
	jobMoves         = "headroom_job_moves_total"
	jobSprints       = "headroom_job_sprints_total"
	estimateError    = "headroom_job_estimate_error_ratio"
	classJoules      = "headroom_class_energy_joules_total"
	idleJoules       = "headroom_idle_energy_joules_total"
	grants           = "headroom_grants_total"
	grantLatency     = "headroom_grant_latency_seconds"
	revision         = "headroom_revision"
	commitDuration   = "headroom_commit_duration_seconds"
	applyDuration    = "headroom_apply_duration_seconds"
	policyDuration   = "headroom_policy_step_duration_seconds"
	ticksMissed      = "headroom_ticks_missed_total"
	leader           = "headroom_leader"
	leaderChanges    = "headroom_leader_changes_total"
	memberLag        = "headroom_member_lag_entries"
	rpcRequests      = "headroom_rpc_requests_total"
	rpcDuration      = "headroom_rpc_duration_seconds"
	turnedOut        = "headroom_connections_turned_out_total"
	snapshotBytes    = "headroom_snapshot_bytes"
	logBytes         = "headroom_log_bytes"
	certificateEnds  = "headroom_certificate_expiry_timestamp_seconds"
	nodeCertificate  = "headroom_node_certificate_expiry_timestamp_seconds"
	healthShown      = "headroom_health"
	buildInfo        = "headroom_build_info"
)

// all are the metrics of a coordinator server, in the order of the page that lists them.
func all() scrape.Table {
	domain := scrape.Of("domain", "domains of coordinator domain list")
	method := scrape.Of("method", "calls as /headroom.v1.SERVICE/CALL")
	return scrape.Table{
		scrape.Gauge(budgetWatts, "Power budget of a domain in watts.", domain),
		scrape.Gauge(reservedWatts, "Power in watts charged to the nodes of a domain: at least what they may draw.", domain),
		scrape.Gauge(unmanagedWatts, "Power in watts set aside in a domain for machines without powerd.", domain),
		scrape.Gauge(measuredWatts, "Measured power of a domain in watts: the reading of its meter, or else the sum of the domains and nodes below. Absent while the power of a node is unknown, and on followers.", domain),
		scrape.Gauge(knownWatts, "Sum in watts of the measured power that is known in a domain: a lower bound while nodes are unknown. Absent while nothing is known, and on followers.", domain),
		scrape.Gauge(unknownNodes, "Number of nodes in a domain whose power is unknown. Absent on followers.", domain),
		scrape.Gauge(headroomWatts, "Power in watts that a domain has left to grant; negative if it is short.", domain),
		scrape.Counter(violationSeconds, "Time in which the power drawn was above the budget, while this server was the leader. While nodes are unknown, the known power counts. Without a meter, unmanaged power is added.", domain),
		scrape.Counter(violationJoules, "Energy drawn above the budget in that time.", domain),
		scrape.Counter(shortfallSeconds, "Time in which the headroom of a domain was negative, while this server was the leader.", domain),
		scrape.Gauge(nodes, "Number of nodes by state. Absent on followers.", scrape.Of("state", scrape.Words(nodeStates()))),
		scrape.Gauge(jobs, "Number of running jobs by engine. Absent on followers.", scrape.Of("engine", scrape.Words(engines()))),
		scrape.Counter(jobStops, "Number of early stops of jobs that this server committed."),
		scrape.Counter(tasksDropped, "Number of map tasks that this server committed as dropped."),
		scrape.Counter(deadlines, "Number of jobs with a deadline whose end this server committed, by verdict.", scrape.Of("verdict", scrape.Words(verdicts()))),
		scrape.Counter(jobMoves, "Number of changed moves of jobs that this server decided.", scrape.Of("kind", scrape.Words(moveKinds()))),
		scrape.Counter(jobSprints, "Number of sprints that this server granted to jobs."),
		scrape.Histogram(estimateError, "Mean error of a job's predicted finish times, as a ratio of its runtime; one observation for each finished job, on the leader.", scrape.Of("policy", scrape.Words(estimators()))),
		scrape.Counter(classJoules, "Energy attributed to the jobs of a class by their containers since this server became the leader, measured at the wall. Time without a node's reports is not counted. Absent on followers.", scrape.Of("class", "classes of the scheduler")),
		scrape.Counter(idleJoules, "Energy of nodes while no job ran on them since this server became the leader. Absent on followers."),
		scrape.Counter(grants, "Number of answers to heartbeats by result: leases granted, and nodes not admitted.", scrape.Of("result", scrape.Words(grantResults()))),
		scrape.Histogram(grantLatency, "Time from a heartbeat until its lease was sent."),
		scrape.Gauge(revision, "Revision of the state that is applied on this server."),
		scrape.Histogram(commitDuration, "Time until an entry of the log was committed and applied, on the leader."),
		scrape.Histogram(applyDuration, "Time to apply one entry."),
		scrape.Histogram(policyDuration, "Time to plan one tick, by policy.", scrape.Of("policy", scrape.Words(policies()))),
		scrape.Counter(ticksMissed, "Number of ticks that came more than two tick intervals after the one before."),
		scrape.Gauge(leader, "1 if this server is the leader and can prove it, 0 otherwise."),
		scrape.Counter(leaderChanges, "Number of leader changes that this server has seen."),
		scrape.Gauge(memberLag, "Number of log entries that a server is behind the leader. Absent on followers.", scrape.Of("member", "servers of coordinator member list")),
		scrape.Counter(rpcRequests, "Number of finished calls by result; a stream counts when it ends.", method, scrape.Of("code", scrape.Words(codes()))),
		scrape.Histogram(rpcDuration, "Duration of calls, streams excluded.", method),
		scrape.Counter(turnedOut, "Number of connections to the RPC port that were closed before authentication. Absent with tls off."),
		scrape.Gauge(snapshotBytes, "Size in bytes of the newest snapshot on disk."),
		scrape.Gauge(logBytes, "Size in bytes of the log's files on disk."),
		scrape.Gauge(certificateEnds, "Time when this server's certificate expires, in seconds since the Unix epoch. Absent with tls off."),
		scrape.Gauge(nodeCertificate, "Time when the first certificate of a connected node expires, in seconds since the Unix epoch. Absent with tls off, and on followers."),
		scrape.Gauge(healthShown, "1 if the alarm is active, 0 otherwise. Followers have only alarms that follow from the committed state.", scrape.Of("code", scrape.Words(healthCodes())+", and those of nodes"), scrape.Of("severity", scrape.Words(severities()))),
		scrape.Gauge(buildInfo, "1, labelled with the version of the coordinator.", scrape.Of("version", ""), scrape.Of("goversion", "")),
	}
}

// nodeStates returns the states of nodes on the leader.
func nodeStates() []string {
	return []string{"ok", "unknown", "waiting", "lost", "observing", "released", "drained", "off"}
}

// engines returns the values of the label engine.
func engines() []string { return []string{"local", "yarn", otherEngine} }

// Results of a heartbeat.
const (
	granted     = "granted"
	notAdmitted = "not-admitted"
)

func grantResults() []string { return []string{granted, notAdmitted} }

func severities() []string { return []string{"warn", "fail"} }

// HealthItem is a code of the coordinator's alarms, with its severity.
type HealthItem struct {
	Code, Severity string
	// LeaderOnly is true if a follower cannot raise it.
	LeaderOnly bool
}

// HealthItems returns the alarms of the cluster and its servers, in the order of
// their codes. One that is missing here is exported while it is active, and absent
// otherwise.
func HealthItems() []HealthItem {
	return []HealthItem{
		{"brake-set", "fail", false},
		{"brake-unproven", "warn", true},
		{"cert-expires", "warn", true},
		{"clocks-disagree", "fail", true},
		{"deadline-missed", "warn", false},
		{"directive-refused", "warn", true},
		{"domain-lost", "fail", true},
		{"engine-trouble", "warn", true},
		{"gossip-foreign-key", "warn", true},
		{"gossip-keys", "warn", true},
		{"group-even", "warn", true},
		{"group-fragile", "warn", true},
		{"identity-conflict", "fail", true},
		{"measured-above-reserved", "fail", true},
		{"member-behind", "fail", true},
		{"member-clock", "fail", true},
		{"member-clock", "warn", true},
		{"member-disk-full", "fail", true},
		{"member-disk-full", "warn", true},
		{"member-disk-slow", "fail", true},
		{"member-disk-slow", "warn", true},
		{"member-ended", "fail", true},
		{"member-joining", "fail", true},
		{"member-joining", "warn", true},
		{"member-leaving", "warn", true},
		{"member-no-rpc", "warn", true},
		{"member-silent", "fail", true},
		{"member-version", "fail", true},
		{"member-version", "warn", true},
		{"no-leader", "fail", false},
		{"node-lost", "warn", true},
		{"outgrown", "fail", true},
		{"power-unknown", "warn", true},
		{"quality-floor", "fail", false},
		{"rating-exceeded", "warn", false},
		{"rating-waits", "fail", false},
		{"restored", "warn", false},
		{"shortfall", "fail", false},
	}
}

func healthCodes() []string {
	var codes []string
	for _, i := range HealthItems() {
		if len(codes) == 0 || codes[len(codes)-1] != i.Code {
			codes = append(codes, i.Code)
		}
	}
	return codes
}
