package arbitration

import (
	"math"
	"time"

	"headroom/units"
)

// atBase is how fast tasks run on a full server at 250 of 350 W, as a part of full speed: the tasks of the loads
// are given by their times there.
var atBase = math.Pow(float64(250*units.Watt-idleServer)/float64(ratedServer-idleServer), 1/exponent)

// based returns a task that takes so many seconds on a full server at 250 of 350 W.
func based(s float64) time.Duration { return seconds(s * atBase) }

func urgentJob(at time.Duration) Job {
	return Job{Class: Urgent, Arrival: at, Tasks: 40, Task: based(10), Deadline: 90 * time.Second, Floor: 1}
}

func tolerantJob(at time.Duration) Job {
	return Job{Class: Tolerant, Arrival: at, Tasks: 240, Task: based(12), Floor: 0.6}
}

// hour is how long jobs come.
const hour = time.Hour

// streams are two Poisson streams of jobs.
func streams(urgent, tolerant time.Duration) func(seed uint64) []Job {
	return func(seed uint64) (jobs []Job) {
		arrivals(drawn(seed, streamUrgent), urgent, hour, func(at time.Duration) { jobs = append(jobs, urgentJob(at)) })
		arrivals(drawn(seed, streamTolerant), tolerant, hour, func(at time.Duration) { jobs = append(jobs, tolerantJob(at)) })
		return sorted(jobs)
	}
}

// bursts are jobs that come several at a time.
func bursts(seed uint64) (jobs []Job) {
	r := drawn(seed, streamUrgent)
	arrivals(r, 4*time.Minute, hour, func(at time.Duration) {
		for range 2 + r.IntN(5) {
			jobs = append(jobs, urgentJob(at+seconds(10*r.Float64())))
		}
	})
	r = drawn(seed, streamTolerant)
	arrivals(r, 14*time.Minute, hour, func(at time.Duration) {
		for range 1 + r.IntN(5) {
			jobs = append(jobs, tolerantJob(at+seconds(30*r.Float64())))
		}
	})
	return sorted(jobs)
}

// mixed are jobs of many sizes, deadlines and floors.
func mixed(seed uint64) (jobs []Job) {
	r := drawn(seed, streamUrgent)
	arrivals(r, time.Minute, hour, func(at time.Duration) {
		j := urgentJob(at)
		j.Tasks, j.Task = 10+r.IntN(61), based(4+12*r.Float64())
		j.Deadline = seconds(60 + 120*r.Float64())
		jobs = append(jobs, j)
	})
	r = drawn(seed, streamTolerant)
	floors := []float64{1, 0.9, 0.75, 0.5}
	arrivals(r, 280*time.Second, hour, func(at time.Duration) {
		j := tolerantJob(at)
		sigma := lognormal(1)
		j.Tasks = min(1500, max(20, int(240*math.Exp(sigma*r.NormFloat64()-sigma*sigma/2))))
		j.Floor = floors[r.IntN(len(floors))]
		jobs = append(jobs, j)
	})
	return sorted(jobs)
}

// narrow are urgent jobs of few long tasks, beside the usual tolerant ones: what they wait for is the speed of the
// few machines that they run on.
func narrow(seed uint64) (jobs []Job) {
	arrivals(drawn(seed, streamUrgent), 90*time.Second, hour, func(at time.Duration) {
		jobs = append(jobs, Job{Class: Urgent, Arrival: at, Tasks: 2, Task: based(40), Deadline: 90 * time.Second, Floor: 1})
	})
	arrivals(drawn(seed, streamTolerant), 200*time.Second, hour, func(at time.Duration) { jobs = append(jobs, tolerantJob(at)) })
	return sorted(jobs)
}

// cut is the usual budget: 250 W of 350, 175 W from minute 20 to 35.
func cut() []Step {
	return []Step{{0, 250 * units.Watt}, {20 * time.Minute, 175 * units.Watt}, {35 * time.Minute, 250 * units.Watt}}
}

// hourlyLoad is the metered load of the zone PJM East on Friday, 24 May 2002, by the hour that ends at 1:00 to 24:00,
// in MW: published by PJM Interconnection as its hourly metered load; in the data set "Hourly Energy Consumption"
// (Kaggle, R. Mulla) as PJME_hourly.csv, of which the public repository KaniamLaes/EnergyConsumption holds a copy.
var hourlyLoad = [24]float64{
	23630, 22362, 21704, 21487, 21761, 23116, 25996, 28785, 30203, 31391, 32408, 33004,
	33279, 33895, 34179, 34248, 34323, 34105, 33386, 32602, 33074, 32849, 30588, 27772,
}

// The trace's budget: what the rest of a site leaves of its limit. The rest draws restLeast at the day's least load and
// restMost at its peak; an hour of the day takes traceHour.
const (
	siteLimit           = 500 * units.Watt
	restLeast, restMost = 200 * units.Watt, 340 * units.Watt
	traceHour           = 150 * time.Second
)

// traced is the budget that the day leaves: 300 W at night, 160 W at the peak.
func traced() (steps []Step) {
	least, most := hourlyLoad[0], hourlyLoad[0]
	for _, x := range hourlyLoad {
		least, most = min(least, x), max(most, x)
	}
	for i, x := range hourlyLoad {
		rest := restLeast + units.Power(float64(restMost-restLeast)*(x-least)/(most-least))
		steps = append(steps, Step{time.Duration(i) * traceHour, siteLimit - rest})
	}
	return steps
}

// Loads returns the loads that have a name.
func Loads() []Load {
	usual := Load{Containers: perServer, For: hour, Budget: cut()}
	named := func(name, says string, change func(l *Load)) Load {
		l := usual
		l.Name, l.Says = name, says
		change(&l)
		return l
	}
	return []Load{
		named("steady", "urgent jobs once a minute, tolerant ones every 280 s, at random; the budget is cut from 250 W to 175 W from minute 20 to 35", func(l *Load) {
			l.Jobs = streams(time.Minute, 280*time.Second)
		}),
		named("heavy", "the same, tolerant jobs every 200 s", func(l *Load) { l.Jobs = streams(time.Minute, 200*time.Second) }),
		named("bursty", "urgent jobs 2 to 6 at once, tolerant ones 1 to 5", func(l *Load) { l.Jobs = bursts }),
		named("heterogeneous", "jobs of many sizes, deadlines and floors", func(l *Load) { l.Jobs = mixed }),
		named("failures", "the steady load; each machine fails about every 20 minutes, for one, and a task in 20 takes three times as long", func(l *Load) {
			l.Jobs, l.Fails, l.Stragglers = streams(time.Minute, 280*time.Second), 20*time.Minute, 0.05
		}),
		named("power-trace", "urgent jobs every 75 s, tolerant ones every 400 s; the budget follows a day of PJM East's load, 300 W at night to 160 W at the peak", func(l *Load) {
			l.Jobs, l.Budget = streams(75*time.Second, 400*time.Second), traced()
		}),
		named("narrow", "urgent jobs of two long tasks every 90 s, tolerant ones every 200 s: how fast single machines are matters", func(l *Load) { l.Jobs = narrow }),
	}
}
