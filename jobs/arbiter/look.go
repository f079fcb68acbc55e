package arbiter

import (
	"time"

	"headroom/jobs/containers"
	"headroom/units"
)

// Look is the input of one step of Movers.
type Look struct {
	Jobs []Contender
	// Pools are the containers of the engines, by engine.
	Pools map[string]Pool
	// Nodes are the nodes that may be held below their targets; none without holds.
	Nodes []Node
	// Joint weighs all levers against each other. Without it, CAB or the engine divides the containers, jobs run the
	// tasks that their class leaves, and only jobs whose sprint timers have fired sprint.
	Joint bool
}

// Contender is one job that runs or waits. Invalid numbers are replaced by the nearest valid ones: a negative count by
// 0, a floor or a ratio that is NaN by exact.
type Contender struct {
	// ID identifies the job. Class is the name of its class and Rank the class's place, 0 the highest. Engine is the
	// engine that runs it.
	ID, Class, Engine string
	Rank              int
	// Waiting is true from its submission until it runs.
	Waiting bool
	// Tasks are its map tasks. Dropped of them will never run, Running run now, and Pending have not started.
	Tasks, Dropped, Running, Pending int
	// Ahead is true if a drop ratio acts only on later stages, as in Spark.
	Ahead bool
	// Floor is the minimum fraction of its tasks for a result.
	Floor float64
	// Age is the time since its submission, Elapsed since the start of its first task.
	Age, Elapsed time.Duration
	// Run counts its executions: another one starts from scratch.
	Run uint32
	// On are its running containers, by node. Most is its maximum of containers; 0 for no limit.
	On   map[string]int
	Most int
	// Curve is its speed-up over its containers for tasks, by its earlier runs; nil while unknown: then its speed
	// follows its containers. CurveWords is its source, in words.
	Curve      *containers.Curve
	CurveWords string
	// Outlook is what Arbiter.Step expects of it.
	Outlook Outlook
	// Deadline is counted from the start of its first task. It may have passed; 0 is none.
	Deadline time.Duration
	// Percent is the price of quality of its class; 0: DefaultPercent.
	Percent time.Duration
	// Due is true once its sprint timer has fired. MaySprint is true if its class may sprint, MayDeflate if its
	// discipline and its engine permit a drop ratio to rise while it runs.
	Due, MaySprint, MayDeflate bool
	// SprintWords and DeflateWords give the reasons where MaySprint and MayDeflate are false.
	SprintWords, DeflateWords string
	// ClassTheta is the drop ratio of its class, Theta the one in force, and Seed the seed of that.
	ClassTheta, Theta float64
	Seed              uint64
	// Sprint is its open sprint; empty without one, and once it was told to end.
	Sprint string
	// Offer is what a sprint of it would use.
	Offer Offer
	// Promised are the containers for tasks that admission has promised it; 0 for none.
	Promised int
	// ErrorBound is the fraction of its tasks that it may miss: it ends as soon as the others are done. 0 for none.
	ErrorBound float64
	// Copies are the running copies of its tasks, CopiesWanted those that it would start now, and CopiesSave how much
	// earlier it would end with these; 0 while unknown.
	Copies, CopiesWanted int
	CopiesSave           time.Duration
}

// needless returns how many of its tasks need not run: its error bound permits it to miss them, and they are not
// dropped yet.
func (c *Contender) needless() int {
	return max(0, c.Tasks-c.Dropped-required(c.Tasks, c.Floor, c.ErrorBound))
}

// Offer is what a sprint of a job would use, and what is available.
type Offer struct {
	// Domain pays, from the pot Pot of the job's class. The pot holds Balance, and at most Capacity; 0 for a pot
	// without a capacity, of which nothing is reserved.
	Domain, Pot       string
	Balance, Capacity units.Energy
	// Rise is by how much all of the job's nodes together may exceed their base caps, as far as every domain permits.
	// Nodes is their number.
	Rise  units.Power
	Nodes int
	// Busy is the sprint of another job or of none that is open in the domain; empty for none. BusyRank is the rank of
	// that job, and BusyOn are its nodes. Yields is true if it may be ended for a job of a higher class, Ending while
	// it is over and not every node is back at its cap.
	Busy           string
	BusyRank       int
	BusyOn         []string
	Yields, Ending bool
	// Why is why there is no offer; empty if there is one.
	Why string
}

// pot returns the name of the pot that pays.
func (o *Offer) pot() string {
	if o.Pot == "" {
		return o.Domain
	}
	return o.Domain + ", class " + o.Pot
}

// Pool is what one engine has to divide.
type Pool struct {
	// Containers is how many there are; 0 when that is unknown or shares cannot be set.
	Containers int
	// Overhead is how many each job takes in addition to its tasks.
	Overhead int
}

// Node is one node that may be held below its target.
type Node struct {
	Name string
	// Target is its cap in the plan, Floor its minimum when held, Most its maximum.
	Target, Floor, Most units.Power
	// Held is the power that a hold keeps it at; 0 for none.
	Held units.Power
	// Sprints is true while it sprints.
	Sprints bool
}

const (
	// ranksMost bounds the distinguished classes: beyond it weights are too small to matter.
	ranksMost = 16
	// workMost and speedMost exceed those of any job: larger numbers are errors.
	workMost, speedMost = 1e9, 100
	riseMost            = 1e9 * units.Watt
)

// tidy replaces invalid numbers.
func (c *Contender) tidy() {
	c.Rank = min(max(c.Rank, 0), ranksMost)
	c.Tasks = max(c.Tasks, 0)
	c.Dropped = min(max(c.Dropped, 0), c.Tasks)
	c.Running, c.Pending, c.Most = max(c.Running, 0), max(c.Pending, 0), max(c.Most, 0)
	c.Promised = max(c.Promised, 0)
	c.Copies, c.CopiesWanted = min(max(c.Copies, 0), c.Tasks), min(max(c.CopiesWanted, 0), c.Tasks)
	c.CopiesSave, c.ErrorBound = max(c.CopiesSave, 0), fraction(c.ErrorBound)
	c.Age, c.Elapsed, c.Percent = max(c.Age, 0), max(c.Elapsed, 0), max(c.Percent, 0)
	if !(c.Floor > 0 && c.Floor <= 1) {
		c.Floor = 1
	}
	c.Offer.Rise = min(c.Offer.Rise, riseMost)
	c.Theta, c.ClassTheta = fraction(c.Theta), fraction(c.ClassTheta)
	if rest := &c.Outlook.Rest; rest.Known {
		rest.Known = rest.Work >= 0 && rest.Work <= workMost && rest.Task > 0 && rest.Tail >= 0
	}
	if !(c.Outlook.Speed >= 1 && c.Outlook.Speed <= speedMost) {
		c.Outlook.Speed = 0
	}
}

// fraction returns x within 0 and 1; 0 for what is no number.
func fraction(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return min(x, 1)
}
