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
	// Nodes are the nodes that may be held below their targets; none where holds are not wanted.
	Nodes []Node
	// Joint weighs all levers against each other. Without it, containers are divided by CAB or by the engine, jobs
	// run on what their class leaves of their tasks, and only jobs whose sprint timers are due sprint.
	Joint bool
}

// Contender is one job that runs or waits to run. Numbers that make no sense are read as the nearest that do: a
// negative count as 0, a floor or a ratio that is no number as exact.
type Contender struct {
	// ID identifies the job. Class is the name of its class and Rank the class's place, 0 the highest. Engine is
	// what runs it.
	ID, Class, Engine string
	Rank              int
	// Waiting is true from its submission until it runs.
	Waiting bool
	// Tasks are its map tasks. Dropped of them will never run, Running run now, and Pending have not begun.
	Tasks, Dropped, Running, Pending int
	// Ahead is true where a drop ratio acts on stages to come alone, as it does in Spark.
	Ahead bool
	// Floor is the least fraction of its tasks that it may end on.
	Floor float64
	// Age is the time since it was submitted, Elapsed since its first task began.
	Age, Elapsed time.Duration
	// Run counts its executions: another one is a new beginning.
	Run uint32
	// On are its running containers, by node. Most is the most containers that it may hold; 0 for no bound.
	On   map[string]int
	Most int
	// Curve is its speed-up over its containers for tasks, as its earlier runs have shown; nil while unknown: its speed
	// follows its containers then. CurveWords say where it is from, for words.
	Curve      *containers.Curve
	CurveWords string
	// Outlook is what Arbiter.Step expects of it.
	Outlook Outlook
	// Deadline is when it ought to end, since its first task began. It may have passed; 0 stands for none.
	Deadline time.Duration
	// Percent is the price of quality of its class; 0: DefaultPercent.
	Percent time.Duration
	// Due is true once its sprint timer has fired. MaySprint is true where its class may sprint, MayDeflate where
	// its discipline and its engine allow a drop ratio to rise while it runs.
	Due, MaySprint, MayDeflate bool
	// SprintWords and DeflateWords give the reasons where MaySprint and MayDeflate are false.
	SprintWords, DeflateWords string
	// ClassTheta is the drop ratio of its class, Theta the one in force, and Seed the seed of that.
	ClassTheta, Theta float64
	Seed              uint64
	// Sprint is its open sprint; empty without one, and once it was told to end.
	Sprint string
	// Offer is what a sprint of it would take.
	Offer Offer
	// Promised are the containers for tasks that admission has promised it; 0 for none.
	Promised int
	// ErrorBound is the part of its tasks that it may leave out: it ends as soon as the others are done. 0 for none.
	ErrorBound float64
	// Copies are the copies of its tasks that run, CopiesWanted those that it would begin now, and CopiesSave
	// by how much its end would come sooner with these; 0 while unknown.
	Copies, CopiesWanted int
	CopiesSave           time.Duration
}

// needless is how many of its tasks need not run: its error bound leaves them out, and they are not dropped yet.
func (c *Contender) needless() int {
	return max(0, c.Tasks-c.Dropped-asked(c.Tasks, c.Floor, c.ErrorBound))
}

// Offer is what a sprint of a job would take, and what there is for it.
type Offer struct {
	// Domain pays, from the pot Pot of the job's class. The pot holds Balance, and at most Capacity; 0 for a pot
	// without a capacity, of which nothing is reserved.
	Domain, Pot       string
	Balance, Capacity units.Energy
	// Rise is by how much all of the job's nodes together may go above their base caps, as far as the watts of every
	// domain allow. Nodes counts them.
	Rise  units.Power
	Nodes int
	// Busy is the sprint of another job or of none that is open in the domain; empty for none. BusyRank is the rank
	// of that job, and BusyOn are the nodes that sprint in it. Yields is true where it may be ended for a job of a
	// higher class, Ending while it is over and not every node is back at its cap.
	Busy           string
	BusyRank       int
	BusyOn         []string
	Yields, Ending bool
	// Why is the reason why there is nothing to offer; empty where there is.
	Why string
}

// pot is the name of the pot that pays.
func (o *Offer) pot() string {
	if o.Pot == "" {
		return o.Domain
	}
	return o.Domain + ", class " + o.Pot
}

// Pool is what one engine has to share out.
type Pool struct {
	// Containers is how many there are; 0 when that is unknown or shares cannot be set.
	Containers int
	// Overhead is how many each job takes beside its tasks.
	Overhead int
}

// Node is one node that may be held below its target.
type Node struct {
	Name string
	// Target is what the plan gives it, Floor the least that it can be held at, Most the most that it may be given.
	Target, Floor, Most units.Power
	// Held is the power that a hold keeps it at; 0 for none.
	Held units.Power
	// Sprints is true while it sprints.
	Sprints bool
}

const (
	// ranksMost bounds the classes that are told apart: beyond it weights are too small to matter.
	ranksMost = 16
	// workMost and speedMost are beyond what any job has: larger numbers are mistakes.
	workMost, speedMost = 1e9, 100
	riseMost            = 1e9 * units.Watt
)

// tidy replaces numbers that make no sense.
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
