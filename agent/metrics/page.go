package metrics

import "headroom/internal/scrape"

// processMetrics lists the metrics of Prometheus' process collector. One that the kernel
// does not provide is absent.
func processMetrics() scrape.Table {
	return scrape.Table{
		scrape.Counter("process_cpu_seconds_total", "CPU time used by powerd in seconds, user and system."),
		scrape.Gauge("process_resident_memory_bytes", "Resident memory of powerd in bytes."),
		scrape.Gauge("process_virtual_memory_bytes", "Address space of powerd in bytes."),
		scrape.Gauge("process_virtual_memory_max_bytes", "Maximum address space of powerd in bytes."),
		scrape.Gauge("process_start_time_seconds", "Start time of powerd as Unix time in seconds."),
		scrape.Gauge("process_open_fds", "Number of open files of powerd."),
		scrape.Gauge("process_max_fds", "Maximum number of open files of powerd."),
		scrape.Counter("process_network_receive_bytes_total", "Number of bytes received in the network namespace of powerd."),
		scrape.Counter("process_network_transmit_bytes_total", "Number of bytes sent in the network namespace of powerd."),
	}
}

// Page returns docs/metrics.md.
func Page() string {
	return pageIntro + append(all(), processMetrics()...).Rows() + pageOutro
}

const pageIntro = `<!-- Generated: go generate ./agent/command -->

# Metrics of powerd

powerd serves these metrics at ` + "`http://ADDRESS/metrics`" + ` if ` + "`metrics.listen`" + ` is set in powerd.yaml; the default is off.
Values are in base units, and ratios go from 0 to 1. An unknown value is absent, never 0 or -1. A counter is 0 before its first
event. A scrape resets nothing.

| metric | kind | labels | meaning |
| --- | --- | --- | --- |
`

const pageOutro = `
powerd uses no label named instance or job, which belong to Prometheus. Age and disagreement have no label ` + "`sensor`" + `, because they
are values of a source.

Reasons of ` + "`headroom_zone_write_errors_total`" + `:

| reason | meaning |
| --- | --- |
| ` + "`locked`" + ` | firmware has locked the control until the next reboot |
| ` + "`not-taken`" + ` | the write succeeded, but another value reads back |
| ` + "`refused`" + ` | the kernel, systemd or the BMC refused the write, or the value is never written |
| ` + "`io`" + ` | the write, the read-back, or the record on disk before the write failed |

Drift is checked on zones and policies, not on slices and the BMC.

## Histograms

The buckets of ` + "`headroom_control_step_duration_seconds`" + ` go from 50 us to 250 ms, those of ` + "`headroom_control_settle_seconds`" + ` from 50 ms
to 10 s. A Prometheus server that scrapes native histograms gets the first one as a native histogram too, with eight buckets for
each doubling. With OpenMetrics, each bucket of the second one has an exemplar: incarnation, epoch and sequence of the last lease
whose cap was met, as in ` + "`powerd lease show`" + `.

## Why values are rounded

Frequent and exact power readings leak what a processor computes (PLATYPUS, CVE-2020-8694 and CVE-2020-8695). This is why the
kernel lets only root read energy counters, and why powerd does not export them exactly. Values change at most once a second,
energy is in whole joules, and power is in tenths of a watt. The socket of ` + "`powerd status`" + ` is in the state directory, and open to
users who may enter it.

## Access

Anyone who can reach the address can scrape, so bind it to loopback or to a trusted network. A request must finish within 10 s.
powerd holds at most 16 connections and answers at most 4 scrapes at a time; it refuses the others.
`
