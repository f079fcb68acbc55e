// Package admission decides at the submission of a job whether its deadline can be met: it admits the job with a
// number of slots, queues it, or refuses it with the shortest feasible deadline.
//
// The one idea: the duration of a new job need not be known. What ended jobs would have needed, as a fraction of what
// they asked for, predicts the need of a new one. PYTHIA (Dimopoulos, Krintz, Wolski, UCSB TR 2017-02) keeps the
// largest such fraction for all jobs and for ever. The policy adaptive keeps the newest ones of each size class and
// user as a distribution, so that it forgets, and states its confidence.
//
// Adaptive lends unpromised slots to running jobs, and takes them back when a new job needs them. Lent slots lower
// the remaining need of a job, so its promise shrinks and makes room. When the capacity falls, it keeps the promises
// that are closest to their ends, and pauses or stops the others.
//
// A Controller is a state machine. Its caller, the scheduler or a simulation, reports events (Submit, Finished,
// Withdraw, SetCapacity, Tick) and carries out the returned Decisions. NextTick returns when Tick is due. The
// capacity follows the power budget: Power.Slots converts the granted power into slots at full speed.
//
// Guarantees:
//   - slots held never exceed the capacity;
//   - each submitted job ends exactly once, by Finished, Withdraw, or a Decision with Refused or Stopped;
//   - with exact estimates, constant capacity and true times an admitted job meets its deadline;
//   - the same calls at the same times give the same decisions.
//
// A time before the newest one counts as the newest, so a late event may admit a job on too few slots. No estimator
// sees the work of a job before it ended, except that of Oracle, which is for comparison.
//
// The package reads no clock and starts nothing. It decides who is admitted and the fewest slots that keep each
// promise, and reports which deadlines stand (Decision.Due) and which jobs should end (Stopped). Package arbiter
// decides about sprints, drop ratios and the price of a second past a deadline.
package admission

import (
	"fmt"
	"time"
)

// Policy is how jobs are admitted.
type Policy uint8

// The policies.
const (
	// Adaptive learns a distribution for each size class and user, and checks promises again when capacity changes.
	Adaptive Policy = iota
	// Pythia is the paper's: the largest fraction seen, for all jobs.
	Pythia
	// Oracle knows the work of each job: an upper bound for comparison.
	Oracle
	// NoDrop shares fairly and ends no job.
	NoDrop
	// Reactive shares fairly and stops a job at its deadline.
	Reactive
)

var policyNames = [...]string{Adaptive: "adaptive", Pythia: "pythia", Oracle: "oracle", NoDrop: "nodrop", Reactive: "reactive"}

// Policies returns all policies, the default first.
func Policies() []Policy { return []Policy{Adaptive, Pythia, Oracle, NoDrop, Reactive} }

// String returns the name of the policy.
func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// ParsePolicy returns the policy of a name; the empty name is Adaptive.
func ParsePolicy(name string) (Policy, error) {
	for _, p := range Policies() {
		if name == p.String() || name == "" {
			return p, nil
		}
	}
	return 0, fmt.Errorf("%w: %q", ErrPolicy, name)
}

// fair reports whether the policy shares slots among all jobs without admission.
func (p Policy) fair() bool { return p == NoDrop || p == Reactive }

// Job is a job at its submission.
type Job struct {
	ID   string
	User string
	// Tasks is the maximum of slots that it can use.
	Tasks int
	// Deadline is counted from its submission.
	Deadline time.Duration
	// Waited is the time since its submission, for a job that comes from another controller.
	Waited time.Duration
	// Work is the time that all of its tasks take together. Only Oracle reads it.
	Work time.Duration
	// Earlier are its earlier runs (Earlier.Of): Adaptive and Pythia promise no deadline before its fastest could end.
	Earlier []Run
}

// Verdict is the kind of a decision.
type Verdict uint8

// The verdicts.
const (
	// Admitted: the job starts now, on Decision.Slots.
	Admitted Verdict = iota
	// Queued: the job waits until slots are free, at most until Decision.Until.
	Queued
	// Refused: the deadline cannot be promised, and the job never runs. It ends the job.
	Refused
	// Resized: a running job has another number of slots from now on, which may be 0.
	Resized
	// Stopped: a running job's promise is lost, and the caller must end it. It ends the job.
	Stopped
)

var verdictNames = [...]string{Admitted: "admitted", Queued: "queued", Refused: "refused", Resized: "resized", Stopped: "stopped"}

// String returns the word for the verdict.
func (v Verdict) String() string { return verdictNames[v] }

// Decision is one verdict about one job, with the numbers.
type Decision struct {
	ID      string
	Verdict Verdict
	// Slots is what the job holds from now on. Only the fair policies give fractions of slots.
	Slots float64
	// Need is the fewest slots on which it is expected to meet its deadline, Free the free slots before the decision,
	// and Limit the maximum that it can use.
	Need, Free, Limit int
	// Work is the expected work of the job; 0 while unknown.
	Work time.Duration
	// Confidence is the probability that the job needs no more than Work: n/(n+1) for the bound of n fractions, less if
	// a job runs on a chance. 0 while unknown, 1 for Oracle.
	Confidence float64
	// Samples is n.
	Samples int
	// Least is the time that the fastest of its Runs earlier runs would take on Limit slots; 0 while unknown.
	Least time.Duration
	Runs  int
	// Due is the deadline as a time.
	Due time.Time
	// Until is, for a queued job, when it is refused unless it has started.
	Until time.Time
	// Finish is, for an admitted job, its expected end; zero while unknown.
	Finish time.Time
	// Nearest is, for a refused job, the shortest deadline from its submission, not below its own, with which it would
	// not be refused now; 0 for none. What a policy expects of a job may grow with its deadline: then no deadline helps
	// a job that needs more slots than exist.
	Nearest time.Duration
}

// Reason returns the decision in words.
func (d *Decision) Reason() string {
	switch d.Verdict {
	case Admitted:
		if d.Need == 0 {
			return fmt.Sprintf("shares all slots with other jobs; starts on %g", d.Slots)
		}
		if d.Work == 0 {
			return fmt.Sprintf("no job has finished yet, so its need is unknown: gets %g of %d free slots", d.Slots, d.Free)
		}
		return fmt.Sprintf("needs %d slots for %s of work, gets %g of %d free (confidence %.0f %%)", d.Need, round(d.Work), d.Slots, d.Free, 100*d.Confidence)
	case Queued:
		return fmt.Sprintf("needs %d slots, %d are free; refused at %s unless it has started", d.Need, d.Free, d.Until.UTC().Format(time.RFC3339))
	case Refused:
		if d.Runs > 0 && d.Need <= d.Limit && d.Nearest > 0 {
			return fmt.Sprintf("the fastest of its %d earlier runs would take %s on the %d slots that it can use; the shortest feasible deadline is %s",
				d.Runs, roundUp(d.Least), d.Limit, roundUp(d.Nearest))
		}
		if d.Need > TasksMost || d.Need <= d.Limit && d.Nearest == 0 { // there are slots enough, and no time
			return "its deadline has passed"
		}
		if d.Nearest == 0 {
			return fmt.Sprintf("needs %d slots and can use %d; no longer deadline is feasible", d.Need, d.Limit)
		}
		return fmt.Sprintf("needs %d slots and can use %d; the shortest feasible deadline is %s", d.Need, d.Limit, roundUp(d.Nearest))
	case Resized:
		return fmt.Sprintf("capacity changed: holds %g slots, needs %d", d.Slots, d.Need)
	default:
		return "its deadline can no longer be met"
	}
}

const rounding = 10 * time.Millisecond

func round(d time.Duration) time.Duration { return d.Round(rounding) }

// roundUp returns round of a time below which a job is refused.
func roundUp(d time.Duration) time.Duration {
	return min(TimeMost, (d + rounding - 1).Truncate(rounding))
}
