package metrics

// Page is docs/metrics-coordinator.md.
func Page() string {
	return pageIntro + all().Rows() + pageOutro
}

const pageIntro = `# Metrics of the coordinator

This page is generated from the program (` + "`UPDATE=1 go test ./coordinator/metrics`" + `).

A coordinator server serves these for Prometheus at ` + "`http://ADDRESS/metrics`" + ` when ` + "`metrics.listen`" + ` names an address in
coordinator.yaml; by default it serves none. The units are base units. What is unknown is absent: never 0, never -1. A counter is
there with 0 before its first event. A scrape changes nothing and resets nothing.

Scrape every server of the group. A follower tells the committed state; what only the leader hears is absent there. Counters
belong to the process that counts: they begin at 0 when it starts, and a new leader goes on with its own, so sum them over the servers.

| metric | kind | labels | meaning |
| --- | --- | --- | --- |
`

const pageOutro = `
The process metrics are those of [powerd](metrics.md): ` + "`process_cpu_seconds_total`" + `, ` + "`process_resident_memory_bytes`" + ` and the others.
Where OpenMetrics is negotiated, each bucket of ` + "`headroom_commit_duration_seconds`" + ` carries the revision that was made last.

An answer stands for a second, whoever asks how often. Anybody may ask who reaches the address: bind it to loopback or to a network
that you trust. A request is read and answered within 10 s, 16 connections are held and 4 scrapes answered at a time.

Rules that alert on these metrics are in [deploy/prometheus/alerts.yaml](../deploy/prometheus/alerts.yaml), with a page of
[docs/runbooks](runbooks/README.md) for each.
`
