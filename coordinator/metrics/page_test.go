// Claims: none of its own; the text of docs/metrics-coordinator.md around the table of the metrics.
package metrics

// Page is docs/metrics-coordinator.md.
func Page() string {
	return pageIntro + all().Rows() + pageOutro
}

const pageIntro = `<!-- Generated: UPDATE=1 go test ./coordinator/metrics -->

# Metrics of the coordinator

A coordinator server exports these metrics to Prometheus at ` + "`http://ADDRESS/metrics`" + ` when ` + "`metrics.listen`" + ` names an address in
coordinator.yaml; by default it exports none. All units are base units. An unknown value is absent: never 0, never -1. A counter is
0 before its first event. A scrape resets nothing.

Scrape every server of the cluster. A follower exports the committed state; what only the leader receives is absent there. Counters
belong to a process: they start at 0 with it, and a new leader continues with its own, so sum them over the servers.

| metric | kind | labels | meaning |
| --- | --- | --- | --- |
`

const pageOutro = `
The process metrics are those of [powerd](metrics.md): ` + "`process_cpu_seconds_total`" + `, ` + "`process_resident_memory_bytes`" + ` and the others.
Where OpenMetrics is negotiated, each bucket of ` + "`headroom_commit_duration_seconds`" + ` has an exemplar with the newest revision.

An answer is cached for one second. There is no authentication: bind the address to loopback or to a trusted network. A request
is limited to 10 s, and the server to 16 connections and 4 scrapes at a time.

Alerting rules for these metrics are in [deploy/prometheus/alerts.yaml](../deploy/prometheus/alerts.yaml), with a page of
[docs/runbooks](runbooks/README.md) for each.
`
