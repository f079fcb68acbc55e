package ledger

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"headroom/lease"
	"headroom/units"
)

// Rules is the newest version of Apply's rules that this version of Headroom
// knows. A group works under the version in State, which an Upgrade raises once
// every server knows it, so that all servers apply every entry alike.
const Rules = 4

// RulesOfFloors are the first rules under which a schedule below its domain's floor takes
// Force. Before them no command may have it: older servers could not read it.
const RulesOfFloors = 2

// RulesOfRuns are the first rules under which jobs have inputs and runs. Before them no command may have these.
const RulesOfRuns = 3

// RulesOfNotes are the first rules under which the audit log has notes.
const RulesOfNotes = 3

// RulesOfCourses are the first rules under which an ended job has its course. Before them no command may have one.
const RulesOfCourses = 4

// OldestRules is the oldest version that this server reads. A group is upgraded
// across one at a time.
const OldestRules = 1

// Known is the newest version of the rules that a server knows: Rules, unless a
// test stands in for a version to come.
type Known int

// Command is one entry of the log. Exactly one of the pointers is set.
type Command struct {
	// Rules is the version of the rules that the command was written under.
	Rules int `json:"rules"`
	// Ignorable: a server that does not know these rules may pass over the command,
	// because it changes nothing that others depend on.
	Ignorable bool `json:"ignorable,omitempty"`
	// Epoch of the leadership that wrote the command.
	Epoch lease.Epoch `json:"epoch"`
	// At is the writer's wall clock, microseconds since the Unix epoch: for the
	// audit log, and for what is due by the clock.
	At int64 `json:"at_us,omitempty"`
	// Actor, Reason and RequestID say who asked for it, why, and under which idempotency key.
	Actor     string `json:"actor,omitempty"`
	Reason    string `json:"reason,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	// Requester says whose key it is, Content is a digest of what was asked for: since rules 2.
	Requester
	Content string `json:"content,omitempty"`
	// Check, when set, refuses the command if budgets or nodes changed after that revision.
	Check *uint64 `json:"check_revision,omitempty"`
	// SchedulerEpoch, when set, refuses the command of a scheduler that is no longer the active one.
	SchedulerEpoch uint64 `json:"scheduler_epoch,omitempty"`

	Lead    *Lead      `json:"lead,omitempty"`
	Found   *Found     `json:"found,omitempty"`
	Tick    *Tick      `json:"tick,omitempty"`
	Budget  *SetBudget `json:"budget,omitempty"`
	Release *Release   `json:"release,omitempty"`
	Job     *Job       `json:"job,omitempty"`
	Finish  *FinishJob `json:"finish,omitempty"`

	Upgrade        *Upgrade         `json:"upgrade,omitempty"`
	Domain         *SetDomain       `json:"domain,omitempty"`
	RemoveDomain   *Named           `json:"remove_domain,omitempty"`
	Node           *SetNode         `json:"node,omitempty"`
	Move           *MoveNode        `json:"move,omitempty"`
	Drain          *DrainNode       `json:"drain,omitempty"`
	Remove         *RemoveNode      `json:"remove,omitempty"`
	PowerOff       *PowerOff        `json:"power_off,omitempty"`
	Policy         *Named           `json:"policy,omitempty"`
	Brake          *SetBrake        `json:"brake,omitempty"`
	LiftBrake      *LiftBrake       `json:"lift_brake,omitempty"`
	SprintBudget   *SetSprintBudget `json:"sprint_budget,omitempty"`
	Sprint         *GrantSprint     `json:"sprint,omitempty"`
	EndSprint      *EndSprint       `json:"end_sprint,omitempty"`
	Schedule       *SetSchedule     `json:"schedule,omitempty"`
	RemoveSchedule *Named           `json:"remove_schedule,omitempty"`
	Reincarnate    *Reincarnate     `json:"reincarnate,omitempty"`
	Token          *Token           `json:"token,omitempty"`
	RevokeToken    *Named           `json:"revoke_token,omitempty"`
	Server         *Server          `json:"server,omitempty"`
	RemoveServer   *Named           `json:"remove_server,omitempty"`
	AckAlarm       *Named           `json:"ack_alarm,omitempty"`

	SetUncapped     *SetUncapped `json:"set_uncapped,omitempty"`
	StopJob         *StopJob     `json:"stop_job,omitempty"`
	DropTasks       *DropTasks   `json:"drop_tasks,omitempty"`
	ContainerPolicy *Named       `json:"container_policy,omitempty"`

	DeflateJob *DeflateJob `json:"deflate_job,omitempty"`

	Deny      *Denial    `json:"deny,omitempty"`
	SkipBrake *SkipBrake `json:"skip_brake,omitempty"`
	SetLease  *SetLease  `json:"set_lease,omitempty"`
	RunJob    *RunJob    `json:"run_job,omitempty"`
	Note      *Note      `json:"note,omitempty"`

	HoldScheduler    *HoldScheduler    `json:"hold_scheduler,omitempty"`
	ReleaseScheduler *ReleaseScheduler `json:"release_scheduler,omitempty"`
}

// Named is a command about something that has a name and nothing else.
type Named struct {
	Name string `json:"name"`
}

// Upgrade raises the rules in force.
type Upgrade struct {
	Rules int `json:"rules"`
}

// Lead begins a leadership: from here on only commands of its epoch are applied.
type Lead struct {
	// Server that leads.
	Server string `json:"server"`
	// Gap is the server's own monotonic time since it applied the newest tick; 0 where it
	// is unknown, as after a start.
	Gap time.Duration `json:"gap_ns,omitempty"`
}

// Found gives an empty cluster its power tree.
type Found struct {
	Domains []Domain `json:"domains"`
}

// Tick is the leader's entry of each second. Parts are applied in the order of
// the fields: what was seen and acknowledged first, then what is granted.
type Tick struct {
	// Elapsed is the leader's own monotonic time since its last tick entry.
	Elapsed time.Duration `json:"elapsed_ns"`
	// Seen are nodes that are new, or whose process or declaration changed.
	Seen []Sighting `json:"seen,omitempty"`
	// Drawn are measurements above what nodes are rated.
	Drawn []Draw `json:"drawn,omitempty"`
	// Acks are read-backs that change what a node is charged.
	Acks []Ack `json:"acks,omitempty"`
	// Admit names the nodes that may be given leases from now on.
	Admit []string `json:"admit,omitempty"`
	// Targets are the new caps.
	Targets []Target `json:"targets,omitempty"`
	// Lapsed are lost nodes that can hold no lease any more.
	Lapsed []Lapse `json:"lapsed,omitempty"`
	// EndSprints are sprints whose time is over, or that every node has ended.
	EndSprints []EndSprint `json:"end_sprints,omitempty"`
}

// Sighting is what a node declares about itself.
type Sighting struct {
	Node       string      `json:"node"`
	MachineID  string      `json:"machine_id"`
	Process    uint64      `json:"process"`
	Domain     string      `json:"domain"`
	Rated      units.Power `json:"rated_uw"`
	Floor      units.Power `json:"floor_uw"`
	Max        units.Power `json:"max_uw"`
	FailSafe   units.Power `json:"fail_safe_uw"`
	Weight     float64     `json:"weight"`
	Controlled bool        `json:"controlled"`
	// Granted: it says that it has been granted leases before. Where the log knows of
	// none, they are of a log that was lost, or from before the node was removed.
	Granted bool `json:"granted,omitempty"`
}

// Validate checks a declaration on its own.
func (s Sighting) Validate() error {
	switch {
	case s.Node == "" || s.MachineID == "":
		return fmt.Errorf("%w: a node needs a name and a machine id", ErrDeclaration)
	case s.Floor <= 0 || s.FailSafe < s.Floor || s.Max < s.FailSafe || s.Rated < s.Max:
		return fmt.Errorf("%w: %s needs 0 W < floor (%v) <= fail-safe (%v) <= max (%v) <= rated (%v)",
			ErrDeclaration, s.Node, s.Floor, s.FailSafe, s.Max, s.Rated)
	case s.Rated > MaxPower:
		return fmt.Errorf("%w: %s is rated at %v; the limit is one megawatt", ErrDeclaration, s.Node, s.Rated)
	case !(s.Weight > 0 && s.Weight <= 1000):
		return fmt.Errorf("%w: the weight of %s is %v; it must be above 0 and at most 1000", ErrDeclaration, s.Node, s.Weight)
	}
	return nil
}

// Ack is a node's read-back.
type Ack struct {
	Node string `json:"node"`
	// Process that read it back; a read-back of another process than the one last seen counts for nothing.
	Process uint64 `json:"process"`
	// Number of the heartbeat that brought it; one older than the last that counted counts for nothing.
	Number uint64 `json:"number"`
	// Seq is the highest sequence number that the node has stored: it takes no older target.
	Seq uint64 `json:"seq"`
	// Effective is the cap that its hardware really holds, as read back.
	Effective units.Power `json:"effective_uw"`
	// Stored is the fail-safe cap that it has stored.
	Stored units.Power `json:"stored_uw"`
	// Sprinting: the sprint that the node owes is still under way there, if only its end.
	Sprinting bool `json:"sprinting,omitempty"`
	// Ended are sprints that are over on the node.
	Ended []SprintSpent `json:"ended,omitempty"`
}

// Target is a new cap for one node.
type Target struct {
	Node string      `json:"node"`
	Cap  units.Power `json:"cap_uw"`
}

// Release lets a node put its original controls back; it is charged its rated watts from then on.
type Release struct {
	Node      string `json:"node"`
	MachineID string `json:"machine_id"`
}

// JobState is where a job is in its life, as the log knows it.
type JobState string

// States of a job in the log. Whether an accepted job runs already is not in the log.
const (
	JobAccepted  JobState = "accepted"
	JobDone      JobState = "done"
	JobFailed    JobState = "failed"
	JobCancelled JobState = "cancelled"
)

// Job is an accepted job. As a command it accepts the job; State must be JobAccepted.
type Job struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Class string `json:"class"`
	// Spec is the job file as submitted.
	Spec []byte `json:"spec"`
	// Submitted is the scheduler's wall clock, microseconds since the Unix epoch.
	Submitted int64    `json:"submitted_us"`
	State     JobState `json:"state"`
	// Outcome in words, Tasks, Done and Runtime once it has ended.
	Outcome string        `json:"outcome,omitempty"`
	Tasks   uint32        `json:"tasks,omitempty"`
	Done    uint32        `json:"done,omitempty"`
	Runtime time.Duration `json:"runtime_ns,omitempty"`
	// Engine that runs it; empty is the scheduler itself. Queue of the engine; empty where there is none.
	Engine string `json:"engine,omitempty"`
	Queue  string `json:"queue,omitempty"`
	// Floor is the least fraction of its map tasks that the job may end on, 0 to 1. 0
	// counts as 1, and says that nobody has named one.
	Floor float64 `json:"floor,omitempty"`
	// Uncapped is when it would end without a cap, counted from its start; 0 while unknown.
	Uncapped time.Duration `json:"uncapped_ns,omitempty"`
	// Stop is the early stop in force, nil without one.
	Stop *EarlyStop `json:"stop,omitempty"`
	// Dropped are the map tasks that will never run. Invariant: in order, apart from
	// each other, below Stop.Tasks or Deflation.Of, and no more than Stop.MinTasks or,
	// where drops are named, the ratio leaves.
	Dropped []TaskRange `json:"dropped,omitempty"`
	// Ended is when the job's end was written, microseconds since the Unix epoch; 0
	// while it runs, and for jobs that ended under older rules.
	Ended int64 `json:"ended_us,omitempty"`
	// Rank is the place of its class among the scheduler's classes; 0 is the highest.
	Rank uint32 `json:"rank,omitempty"`
	// Deadline is when it ought to have ended, counted from Submitted; 0 for none.
	Deadline time.Duration `json:"deadline_ns,omitempty"`
	// Deflation is the drop ratio that it runs with, nil while it runs on all of its
	// tasks. Invariant: its ratio leaves the floor, rises only, and its seed stays.
	Deflation *Deflation `json:"deflation,omitempty"`
	// Energy is what nodes drew for it, once it has ended; nil while unknown.
	Energy *JobEnergy `json:"energy,omitempty"`
	// Admission is what was decided about its deadline at the door; nil for a job that was not asked about.
	Admission *Admission `json:"admission,omitempty"`
	// Scaling is how its speed follows its containers; nil while unknown.
	Scaling *Scaling `json:"scaling,omitempty"`
	// Inputs are its map tasks; nil for a job of an engine, and for jobs of older schedulers.
	Inputs *JobInputs `json:"inputs,omitempty"`
	// Run is its latest run, nil before the first.
	Run *JobRun `json:"run,omitempty"`
	// Course is how it went, once it has ended; nil for jobs that ended under older rules.
	Course *JobCourse `json:"course,omitempty"`
}

// FinishJob tells how a job ended.
type FinishJob struct {
	ID      string        `json:"id"`
	State   JobState      `json:"state"`
	Outcome string        `json:"outcome,omitempty"`
	Tasks   uint32        `json:"tasks"`
	Done    uint32        `json:"done"`
	Runtime time.Duration `json:"runtime_ns"`
	// Energy is what was measured of what nodes drew for it; nil while unknown.
	Energy *JobEnergy `json:"energy,omitempty"`
	// Course is how it went, nil for unknown and before RulesOfCourses.
	Course *JobCourse `json:"course,omitempty"`
}

// JobEnergy is what nodes drew for a job, as the leader under which it ended has measured it.
type JobEnergy struct {
	Energy units.Energy `json:"uj"`
	// Measured is for how long it was, and Unknown for how long it was not: seconds times nodes.
	Measured time.Duration `json:"measured_ns"`
	Unknown  time.Duration `json:"unknown_ns,omitempty"`
	// Since is from when it was measured, microseconds since the Unix epoch. What the job drew
	// before, under another leader, is not part of it.
	Since int64 `json:"since_us"`
	// From is by what nodes measured it.
	From []string `json:"from,omitempty"`
}

// SetUncapped tells when a job would end without a cap, counted from its start.
type SetUncapped struct {
	ID       string        `json:"id"`
	Uncapped time.Duration `json:"uncapped_ns"`
}

// StopJob lets map tasks of a job that have not begun be dropped, down to MinTasks of its Tasks.
type StopJob struct {
	ID       string `json:"id"`
	Tasks    uint32 `json:"tasks"`
	MinTasks uint32 `json:"min_tasks"`
}

// DropTasks records map tasks of a job that will never run.
type DropTasks struct {
	ID     string      `json:"id"`
	Ranges []TaskRange `json:"ranges"`
	// Of is how many map tasks the job has; needed under a drop ratio without an early stop.
	Of uint32 `json:"of,omitempty"`
}

// DeflateJob lets a job run on a part of its tasks: of n tasks ceil(n (1 - Theta)), chosen by Seed.
type DeflateJob struct {
	ID    string  `json:"id"`
	Theta float64 `json:"theta"`
	Seed  uint64  `json:"seed"`
}

// parts counts the pointers that are set: a command of two would be carried out
// by half.
func (c Command) parts() (n int) {
	for _, set := range [...]bool{
		c.Lead != nil, c.Found != nil, c.Tick != nil, c.Budget != nil, c.Release != nil, c.Job != nil, c.Finish != nil,
		c.Upgrade != nil, c.Domain != nil, c.RemoveDomain != nil, c.Node != nil, c.Move != nil, c.Drain != nil, c.Remove != nil,
		c.PowerOff != nil, c.Policy != nil, c.Brake != nil, c.LiftBrake != nil, c.SprintBudget != nil, c.Sprint != nil,
		c.EndSprint != nil, c.Schedule != nil, c.RemoveSchedule != nil, c.Reincarnate != nil, c.Token != nil,
		c.RevokeToken != nil, c.Server != nil, c.RemoveServer != nil, c.AckAlarm != nil,
		c.SetUncapped != nil, c.StopJob != nil, c.DropTasks != nil, c.ContainerPolicy != nil, c.DeflateJob != nil,
		c.Deny != nil, c.SkipBrake != nil, c.SetLease != nil, c.RunJob != nil, c.HoldScheduler != nil, c.ReleaseScheduler != nil, c.Note != nil,
	} {
		if set {
			n++
		}
	}
	return n
}

// Encode is the command as it stands in the log. Rules 0 stands for the newest.
func (c Command) Encode() ([]byte, error) {
	c.Rules = cmp.Or(c.Rules, Rules)
	data, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("ledger: encode command: %w", err)
	}
	return data, nil
}

// Decode reads a command as a server of this version does, see Known.Decode.
//
//headroom:apply
func Decode(data []byte) (Command, error) { return Known(Rules).Decode(data) }

// Decode reads a command. A field that these rules do not know is an error: a
// server must never apply half of what its writer meant. A command of newer
// rules that says of itself that it may be ignored comes back without any part.
//
//headroom:apply
func (k Known) Decode(data []byte) (Command, error) {
	c, ok := readTick(data)
	var err error
	if !ok {
		c, err = strict(data)
	}
	switch {
	case err != nil && k.ignores(data, &c):
		return c, nil
	case err != nil:
		return Command{}, fmt.Errorf("ledger: command of %d bytes: %w: %w", len(data), ErrUnknownCommand, err)
	case c.Rules > int(k) && c.Ignorable:
		return Command{Rules: c.Rules, Ignorable: true}, nil
	case c.Rules < OldestRules || c.Rules > int(k):
		return Command{}, fmt.Errorf("ledger: command of rules %d, this server knows %d to %d: %w", c.Rules, OldestRules, k, ErrUnknownCommand)
	}
	return c, nil
}

// ignores reports whether a command that these rules cannot read says that it may be
// ignored, and makes c the command without any part.
func (k Known) ignores(data []byte, c *Command) bool {
	var head struct {
		Rules     int  `json:"rules"`
		Ignorable bool `json:"ignorable"`
	}
	if json.Unmarshal(data, &head) != nil || head.Rules <= int(k) || !head.Ignorable {
		return false
	}
	*c = Command{Rules: head.Rules, Ignorable: true}
	return true
}
