// Package metrics tells Prometheus how the group and the cluster are, as one
// coordinator server knows it: the committed state, what the leader has heard,
// and what this process alone can count.
//
// The one idea: a server tells what it knows and nothing else. A follower tells
// the committed state; what only the leader hears (measured power, states of
// nodes, lag of the other servers) is absent there. Nothing is kept for a scrape:
// the collector turns a View of this moment, and the server's own counts, into
// metrics.
//
// Guarantees:
//   - what is unknown is absent, never 0; a counter is there with 0 before its
//     first event; a scrape resets nothing;
//   - labels are valid, and bounded in length and number, whatever a node reports;
//     two points with the same labels never break a scrape: the first counts;
//   - counting costs some ten nanoseconds and never waits for a scrape.
package metrics

import "headroom/internal/scrape"

// Metrics by name, for those who fill them in.
const (
	budgetWatts      = "headroom_budget_watts"
	reservedWatts    = "headroom_reserved_watts"
	unmanagedWatts   = "headroom_unmanaged_watts"
	measuredWatts    = "headroom_measured_watts"
	headroomWatts    = "headroom_budget_headroom_watts"
	violationSeconds = "headroom_budget_violation_seconds_total"
	violationJoules  = "headroom_budget_violation_joules_total"
	shortfallSeconds = "headroom_budget_shortfall_seconds_total"
	nodes            = "headroom_nodes"
	jobs             = "headroom_jobs_running"
	jobStops         = "headroom_job_stops_total"
	tasksDropped     = "headroom_tasks_dropped_total"
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
	healthShown      = "headroom_health"
	buildInfo        = "headroom_build_info"
)

// all are the metrics of a coordinator server, in the order of the page that lists them.
func all() scrape.Table {
	domain := scrape.Of("domain", "domains of coordinator domain list")
	method := scrape.Of("method", "calls as /headroom.v1.SERVICE/CALL")
	return scrape.Table{
		scrape.Gauge(budgetWatts, "Budget of a domain.", domain),
		scrape.Gauge(reservedWatts, "What the nodes of a domain are charged: at least what they may draw.", domain),
		scrape.Gauge(unmanagedWatts, "Power in a domain that no node is charged for.", domain),
		scrape.Gauge(measuredWatts, "Measured power of a domain: by its meter, else the sum of its nodes; absent while one of them is unknown, and on followers.", domain),
		scrape.Gauge(headroomWatts, "What a domain has left to give; below 0 it is short.", domain),
		scrape.Counter(violationSeconds, "Time in which the measured power was above the budget, while this server led and the power was known; where it is the sum of nodes, above what the budget leaves beside unmanaged power.", domain),
		scrape.Counter(violationJoules, "Energy drawn above the budget in that time.", domain),
		scrape.Counter(shortfallSeconds, "Time in which a domain was short, its headroom below 0, while this server led: power that may be drawn, not power that was.", domain),
		scrape.Gauge(nodes, "Nodes by what they are to the leader; absent on followers.", scrape.Of("state", scrape.Words(nodeStates()))),
		scrape.Gauge(jobs, "Jobs that run, by the engine that runs them; absent on followers.", scrape.Of("engine", scrape.Words(engines()))),
		scrape.Counter(jobStops, "Early stops of jobs that this server has committed."),
		scrape.Counter(tasksDropped, "Map tasks that will never run, as this server has committed them."),
		scrape.Counter(jobMoves, "Moves of jobs that differ from the ones before, as this server has decided them.", scrape.Of("kind", scrape.Words(moveKinds()))),
		scrape.Counter(jobSprints, "Sprints that this server's job loop has granted."),
		scrape.Histogram(estimateError, "How far the finish times foreseen of a job were off, in the mean, as a part of its runtime; one for each job that is done, on the leader.", scrape.Of("policy", scrape.Words(estimators()))),
		scrape.Counter(classJoules, "Energy that nodes have measured at the wall for the jobs of a class, shared by containers, since this server leads; time in which a node was silent counts nothing; absent on followers.", scrape.Of("class", "classes of the scheduler")),
		scrape.Counter(idleJoules, "Energy that nodes have measured while no job ran on them, since this server leads; absent on followers."),
		scrape.Counter(grants, "Answers to heartbeats: leases sent, and nodes told that they are not admitted.", scrape.Of("result", scrape.Words(grantResults()))),
		scrape.Histogram(grantLatency, "Time from a heartbeat until its lease was sent."),
		scrape.Gauge(revision, "Revision of the state that is applied here."),
		scrape.Histogram(commitDuration, "Time until an entry of the log was committed and applied, on the leader."),
		scrape.Histogram(applyDuration, "Time that applying one entry took."),
		scrape.Histogram(policyDuration, "Time that planning one tick took, by policy.", scrape.Of("policy", scrape.Words(policies()))),
		scrape.Counter(ticksMissed, "Ticks that came later than two ticks after the one before."),
		scrape.Gauge(leader, "1 while this server leads and can prove it, else 0."),
		scrape.Counter(leaderChanges, "Times that this server saw another leader than before."),
		scrape.Gauge(memberLag, "Entries that a server is behind the leader; absent on followers.", scrape.Of("member", "servers of coordinator member list")),
		scrape.Counter(rpcRequests, "Calls that have ended, by outcome; a stream counts when it ends.", method, scrape.Of("code", scrape.Words(codes()))),
		scrape.Histogram(rpcDuration, "Time that calls took; streams are not counted, they last.", method),
		scrape.Counter(turnedOut, "Connections to the RPC port that were closed because they had not proved who they are: strangers, or a flood of them; absent with tls off."),
		scrape.Gauge(snapshotBytes, "Size of the newest snapshot on disk."),
		scrape.Gauge(logBytes, "Size of the log's files on disk."),
		scrape.Gauge(certificateEnds, "When this server's certificate ends, as Unix time; absent with tls off."),
		scrape.Gauge(healthShown, "1 while an alarm is there, 0 while it is not; on followers only those that the committed state shows. Warnings of nodes are there while they last.", scrape.Of("code", scrape.Words(healthCodes())+", and those of nodes"), scrape.Of("severity", scrape.Words(severities()))),
		scrape.Gauge(buildInfo, "1, with the version of the coordinator.", scrape.Of("version", ""), scrape.Of("goversion", "")),
	}
}

// nodeStates are the states of nodes in lists.
func nodeStates() []string {
	return []string{"ok", "waiting", "lost", "observing", "released", "drained", "off"}
}

// engines are those that jobs are counted by.
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
	// LeaderOnly says that a follower cannot know it.
	LeaderOnly bool
}

// HealthItems are the alarms of the cluster and of the group, in the order of
// their codes. One that is missing here is served while it is there, and absent
// otherwise.
func HealthItems() []HealthItem {
	return []HealthItem{
		{"brake-set", "fail", false},
		{"brake-unproven", "warn", true},
		{"clocks-disagree", "fail", true},
		{"deadline-missed", "warn", false},
		{"directive-refused", "warn", true},
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
		{"node-lost", "warn", true},
		{"outgrown", "fail", true},
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
