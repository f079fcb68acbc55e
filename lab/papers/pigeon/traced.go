package pigeon

import (
	"math"
	"strconv"

	"headroom/lab/dispatch"
	"headroom/lab/traces"
)

// tracedScene is an experiment on a published trace.
type tracedScene struct {
	// name is the scene's, and file the trace's in package traces.
	name, file string
	// workers, groups and the parts that are reserved.
	workers, groups int
	pigeon, eagle   float64
	cutoff          float64
	// loads are the trace's, as its name has it; 0 where it has none.
	load int
}

// The traces of section 4.5 run on 120 workers in three groups. Those made of Yahoo's jobs are meant for 330: only there do they
// offer the loads of their names.
const (
	ec2Workers   = 120
	yahooWorkers = 330
	ec2Groups    = 3
	ec2Reserved  = 0.1
	ec2Cutoff    = 1 // s
)

// The clusters of the long traces have half as many workers as tasks would run at most at once if each ran when its job arrives. For
// the first of Yahoo's that is the size for which there are numbers.
const (
	yahoo1Workers = 3600
	yahoo2Workers = 6000
	googleWorkers = 8000
)

func googleLoads() []int { return []int{50, 60, 70, 80, 90} }
func yahooLoads() []int  { return []int{50, 70, 90} }

// ec2 is a scene of section 4.5.
func ec2(family string, load, workers int) tracedScene {
	return tracedScene{
		name: family + strconv.Itoa(load), file: family + strconv.Itoa(load), workers: workers, groups: ec2Groups, pigeon: ec2Reserved, eagle: ec2Reserved, cutoff: ec2Cutoff, load: load,
	}
}

// tracedScenes are all of them.
func tracedScenes() (all []tracedScene) {
	for _, load := range googleLoads() {
		all = append(all, ec2("pigeon-google", load, ec2Workers))
	}
	for _, load := range yahooLoads() {
		all = append(all, ec2("pigeon-yahoo", load, yahooWorkers))
	}
	y, g := yahoo(), google()
	return append(all,
		tracedScene{name: "hawk-yahoo1", file: "yahoo1", workers: yahoo1Workers, groups: yahoo1Workers / groupSize, pigeon: y.pigeon, eagle: y.eagle, cutoff: y.cutoff},
		tracedScene{name: "hawk-yahoo2", file: "yahoo2", workers: yahoo2Workers, groups: yahoo2Workers / groupSize, pigeon: y.pigeon, eagle: y.eagle, cutoff: y.cutoff},
		tracedScene{name: "hawk-google", file: "google", workers: googleWorkers, groups: googleWorkers / groupSize, pigeon: g.pigeon, eagle: g.eagle, cutoff: g.cutoff},
	)
}

// scene dispatches the jobs of the trace by Pigeon, Eagle and Sparrow.
func (x tracedScene) scene(jobs []traces.Job) scene {
	reserved := max(1, int(math.Round(x.pigeon*float64(x.workers/x.groups))))
	base := setup{Workers: x.workers, Groups: 1, Cutoff: x.cutoff, Hop: hop, Distributors: dispatch.DistributorsUsual}
	p, e, s := base, base, base
	p.Policy, p.Groups, p.Reserved = dispatch.Pigeon, x.groups, reserved
	e.Policy, e.Reserved = dispatch.Eagle, int(math.Round(x.eagle*float64(x.workers)))
	s.Policy = dispatch.Sparrow
	out := scene{name: x.name, cutoff: x.cutoff, draw: func(uint64) []traces.Job { return jobs }, runs: []run{{pigeonName, p}, {eagle, e}, {sparrow, s}}}
	if x.load == 0 {
		one := p
		one.Groups, one.Reserved = 1, reserved*x.groups
		out.runs = append(out.runs, run{oneGroup, one})
	}
	return out
}

// oneGroup is Pigeon with all workers in one group: what the paper calls its centralised version.
const oneGroup = "pigeon-one-group"
