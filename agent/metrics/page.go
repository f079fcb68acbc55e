package metrics

import "headroom/internal/scrape"

// processMetrics are those of Prometheus' own process collector. Where the kernel
// does not tell one, it is absent.
func processMetrics() scrape.Table {
	return scrape.Table{
		scrape.Counter("process_cpu_seconds_total", "CPU time that powerd has used, user and system."),
		scrape.Gauge("process_resident_memory_bytes", "Memory of powerd that is resident."),
		scrape.Gauge("process_virtual_memory_bytes", "Address space of powerd."),
		scrape.Gauge("process_virtual_memory_max_bytes", "Most address space that powerd may have."),
		scrape.Gauge("process_start_time_seconds", "When powerd was started, as Unix time."),
		scrape.Gauge("process_open_fds", "Files that powerd has open."),
		scrape.Gauge("process_max_fds", "Most files that powerd may have open."),
		scrape.Counter("process_network_receive_bytes_total", "Bytes that powerd's network namespace has received."),
		scrape.Counter("process_network_transmit_bytes_total", "Bytes that powerd's network namespace has sent."),
	}
}

// Page is docs/metrics.md.
func Page() string {
	return pageIntro + append(all(), processMetrics()...).Rows() + pageOutro
}

const pageIntro = `# Metrics of powerd

This page is generated from the program (` + "`go generate ./agent/command`" + `).

powerd serves these for Prometheus at ` + "`http://ADDRESS/metrics`" + ` when ` + "`metrics.listen`" + ` names an address in powerd.yaml; by
default it serves none. The units are base units, ratios go from 0 to 1. What is unknown is absent: never 0, never -1. A counter
is there with 0 before its first event. A scrape changes nothing and resets nothing.

| metric | kind | labels | meaning |
| --- | --- | --- | --- |
`

const pageOutro = `
No label of powerd is called instance or job: those are Prometheus' own. The label ` + "`sensor`" + ` stands only where each sensor has
a value of its own; age and disagreement are those of the source.

The reasons of ` + "`headroom_zone_write_errors_total`" + `: locked, firmware holds the control until the next reboot; not-taken, it was written
without an error and something else reads back; refused, the kernel, systemd or the BMC said no, or the value is one that is never
written; io, it could not be written or read back, or not be recorded on disk before. Drift is looked for on zones and policies, not
on slices and the BMC.

## Histograms

The buckets of ` + "`headroom_control_step_duration_seconds`" + ` go from 50 us to 250 ms, those of ` + "`headroom_control_settle_seconds`" + ` from 50 ms
to 10 s. A Prometheus server that scrapes native histograms gets the first one as such too, with eight buckets to each doubling.
Where OpenMetrics is negotiated, each bucket of the second carries the lease whose cap was met last: incarnation, epoch and
sequence, as ` + "`powerd lease show`" + ` tells them.

## Why the values are coarse

Power that is read often and exactly gives away what a processor computes (PLATYPUS, CVE-2020-8694 and CVE-2020-8695): that is why
the kernel lets only root read energy counters. powerd may read them, so it must not hand them on. Whatever the rate of the
scrapes, values change at most once a second; energy is in whole joules and power in tenths of a watt. The socket on which
` + "`powerd status`" + ` asks is in the state directory and open to those who may enter that.

## Who may ask

Anybody who reaches the address: bind it to loopback or to a network that you trust. A request is read and answered within
10 s, 16 connections are held and 4 scrapes answered at a time; the others are turned away.
`
