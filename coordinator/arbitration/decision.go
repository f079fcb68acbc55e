package arbitration

import (
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/arbiter"
	"headroom/ledger"
	"headroom/units"
)

// Job is the arbiter's input about one job.
type Job struct {
	Job      ledger.Job
	Progress *headroomv1.JobProgress
	// Power is what the nodes that it runs on may draw now, as read back, and Full what
	// they can use at full speed, means over its containers; both 0 while unknown.
	Power, Full units.Power
	// Base is what they may draw without a sprint, Fast what they may draw in one.
	Base, Fast units.Power
	// Offer is what a sprint of it would cost, Sprint its open sprint, if any; Rival is
	// another job's open sprint in its domain, RivalRank the rank of that job.
	Offer     ledger.SprintOffer
	Sprint    *ledger.Sprint
	Rival     *ledger.Sprint
	RivalRank int
	// Waiting reports whether it was submitted and does not run yet.
	Waiting bool
}

// Seen is the arbiter's input.
type Seen struct {
	Policy string
	// Wall is the wall clock.
	Wall time.Time
	// Discipline and Classes are as the scheduler reported; empty while unknown.
	Discipline string
	Classes    []*headroomv1.ClassPoint
	// Jobs by id: those that run, and those that wait.
	Jobs []Job
	// Nodes are the nodes that may be held below their targets.
	Nodes []arbiter.Node
	// Engines whose containers can be shared out, by name.
	Engines map[string]*headroomv1.EngineReport
	// Ended are the measured runtimes of recently ended jobs, by id.
	Ended map[string]time.Duration
}

// Decided is what the arbiter has decided.
type Decided struct {
	// Shares of the engines for which they are known; an engine with an empty list
	// divides its containers itself.
	Shares map[string]Sharing
	// Uncapped finish times that are known, by job.
	Uncapped map[string]time.Duration
	Stops    []Stop
	// Moves of the jobs, and the changes that they need.
	Moves    map[string]Move
	Ends     []ledger.EndSprint
	Sprints  []Sprint
	Deflates []Deflate
	// Holds are the nodes whose caps are limited in favour of other jobs.
	Holds []arbiter.Hold
	// Behind are the nodes that run jobs predicted to miss their deadlines.
	Behind   map[string]bool
	Outlooks map[string]*headroomv1.JobOutlook
	// Errors are the prediction errors of the finish times of jobs that ended since the last check.
	Errors map[string][]*headroomv1.EstimateError
	// Troubles describe engines whose containers do not suffice for all jobs.
	Troubles map[string]string
}

// Sharing is how many containers of an engine each job may hold, and why.
type Sharing struct {
	Jobs   []*headroomv1.JobShare
	Reason string
}

// Stop is an early stop, and why.
type Stop struct {
	ledger.StopJob

	Reason string
}

// Decider is the leader's view of the arbiter; now is the time since the leadership
// began. It keeps what it has learned about the jobs.
type Decider interface {
	Step(now time.Duration, seen Seen) Decided
}
