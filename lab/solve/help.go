package solve

import (
	"fmt"
	"strings"

	"headroom/jobs/containers"
	"headroom/jobs/speculation"
)

// policies has a line for each policy.
func policies[P interface {
	~string
	Sentence() string
}](all []P) string {
	var text strings.Builder
	for _, p := range all {
		fmt.Fprintf(&text, "\n  %-9s %s", p, p.Sentence())
	}
	return text.String()
}

// formats describes the input of each kind.
func formats() map[string]string {
	return map[string]string{
		"estimate": `  {"policy": "paper", "interval_s": 5, "history": [{"rate_per_s": 0.50, "power_w": 250, "containers": 9}, ...],
   "cap_w": 175, "elapsed_s": 120, "tasks": 200, "done": 60, "containers": [9, 12]}

history is newest first. Each entry covers interval_s (default 5): the tasks completed per second, and the cap and
containers at that time. cap_w is the cap now, and containers lists the numbers to try. In the answer, rate_per_s and
finish_s (seconds after the job's start) are null if no estimate is possible. Policies: learned (default; with 90 %
bounds), paper (CAB, equations 1 and 2), released (CAB's published code).`,
		"allocate": `  {"policy": "paper", "containers": 28, "jobs": [{"name": "a", "finish_s": 150, "uncapped_finish_s": 100}, ...]}

finish_s is the expected end of a job, uncapped_finish_s that without a cap; a job with neither gets an equal share.
containers is the number it holds now (default: an equal share), elapsed_s the time since its start, and least the
fewest containers that it may get (default 1). Policies:` + policies(containers.Policies()) + `

share is the policy's own value, before rounding. The sum of containers is always the total.`,
		"queue": `  {"discipline": "np", "arrivals": {"rates": [0.004, 0.0005]},
   "services": [{"alpha": [1, 0], "A": [[-0.02, 0.02], [0, -0.01]]}, {"alpha": [1], "A": [[-0.02]]}],
   "percentiles": [0.95], "moments": 3}

Classes are listed from lowest to highest priority. rates are arrivals per unit of time. D may be given in place of
rates: the matrices of a marked Markovian arrival process, D0 and one per class. A service is a phase-type distribution.
Disciplines: np (non-preemptive), pr (preemptive resume), p (preemptive restart: simulated, with 95 % intervals; it takes
"simulation": {"jobs": 20000, "replications": 10, "seed": 1}). sojourn is the time from arrival to end, wait from arrival
to the first service.`,
		"deflate": `  {"discipline": "np", "sprint_budget": {"capacity_j": 22000, "refill_w": 9}, "classes": [
    {"name": "low", "rate_per_s": 0.0042, "error_max": 0.3,
     "job": {"slots": 20, "maps": 50, "map_s": 40, "setup_s": 8},
     "profile": [{"drop": 0.1, "error": 0.085}, {"drop": 0.2, "error": 0.15}, {"drop": 0.4, "error": 0.32}],
     "percentiles_max_s": {"0.95": 900}},
    {"name": "high", "rate_per_s": 0.0018, "mean_max_s": 150,
     "job": {"measured": [{"drop": 0, "mean_s": 148.5, "cv": 0.2}]}, "sprint": {"speed_up": 2.5, "extra_w": 90}}]}

Classes are listed from lowest to highest priority. A job is measured at drop ratios, or a model: maps and reduces on
slots with mean times; with "model": "wave", waves with the coefficient of variation cv. "stages": "all" drops reduces too.
profile is a table, or the output of "scheduler profile --out". thetas, and timeouts_s of sprint, are values to try.
Of the settings within all bounds, the one with the least error is chosen, then the least power, then the least latency.`,
		"speculate": `  {"policy": "ras", "bound": {"deadline_s": 6}, "slots": 1, "now_s": 1, "tasks": [
    {"id": 1, "state": "running", "t_rem_s": 5, "t_new_s": 2, "copies": 1},
    {"id": 2, "state": "done"}, {"id": 3, "state": "waiting", "t_new_s": 1}, ...]}

t_rem_s is the time that the fastest running copy still needs, t_new_s the time of a new copy. The bound is deadline_s, on
the clock of now_s, or {"error": 0.2, "rounding": "floor"}. Policies:` + policies(speculation.Policies()) + `

Optional: width (all slots of the job), typical_s (median duration of completed tasks), greedy (the job has switched to
gs). grass and ours also take utilisation, accuracy and samples of past jobs. For ours, a task may have speed and
speed_measured, and slot_speeds lists the speeds of the free slots' nodes. For late, rate is a task's progress per second.`,
		"admit": `  {"policy": "adaptive", "capacity": 100, "jobs": [{"arrival_s": 0, "tasks": 40, "work_s": 1000, "deadline_s": 50}, ...]}

Jobs are in order of arrival. work_s is the total time of a job's tasks, deadline_s counts from arrival_s. A job may have a
user. capacity is in slots, and may change: "capacity_changes": [{"at_s": 600, "capacity": 50}, ...], or, with
"power": {"idle_w": 1000, "full_w": 3000}, [{"at_s": 600, "budget_w": 2000}, ...]. Policies: adaptive (default), pythia,
oracle, nodrop, reactive. In the answer, sdr is the fraction of jobs that met their deadlines, ptr their fraction of all
work, and wasted the fraction of slot time of jobs that missed.`,
		"dispatch": `  {"policy": "pigeon", "workers": 120, "groups": 3, "reserved": 4, "w": null, "cutoff_s": 1, "hop_s": 0.0005,
   "distributors": 10, "seed": 1, "trace": "trace.txt", "load": null}

trace is a file with a line per job: arrival, number of tasks, mean task time, then the time of each task, in seconds. load
rescales the arrivals. Jobs with a mean task time up to cutoff_s are short. reserved are workers per group for short jobs
only. While tasks of both priorities wait, at least one of every w has low priority. Policies: pigeon, central, sparrow,
eagle ("srpt", "sbp"), ours, ours-weighted, queues, two-queues. Policies with groups take "placement": "round-robin" or
"block", and "caps": [{"at_s": 0, "group": 2, "speed": 0.5, "usable": 30}, ...].`,
		"scale": `  {"model": "ipso", "points": [{"n": 1, "speedup": 1}, {"n": 10, "speedup": 7.5}, ...], "predict": [{"n": 200}]}
  {"model": "ipso", "parameters": {"eta": 0.97, "beta": 0.001, "gamma": 1.8}, "predict": [{"n": 16}, {"n": 200}]}

The first fits, the second predicts. Models: ipso, amdahl, gustafson and sunni (n is the scale-out degree), and usba (n is
the problem size, m the degree). "fixed": {"delta": 0} holds known parameters. Bounds are 95 %.`,
	}
}
