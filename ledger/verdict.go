package ledger

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// JobCourse is how an ended job went, by its scheduler.
type JobCourse struct {
	// Began is when its first task began and Ended when it ended, microseconds since the Unix epoch, by the clock that
	// Job.Submitted is of; 0 for a job that never began.
	Began int64 `json:"began_us,omitempty"`
	Ended int64 `json:"ended_us"`
	// Wasted is the slot time that counted for nothing, and Work that of the tasks that counted; 0 while unknown.
	Wasted time.Duration `json:"wasted_ns,omitempty"`
	Work   time.Duration `json:"work_ns,omitempty"`
	// Slots is the most that it held at once, Longest the time of its longest chain of tasks, and Input the bytes that it
	// was to read; 0 while unknown.
	Slots   uint32        `json:"slots,omitempty"`
	Longest time.Duration `json:"longest_ns,omitempty"`
	Input   int64         `json:"input_bytes,omitempty"`
}

// sound reports whether the numbers can be those of a job; unknown can.
func (x *JobCourse) sound() bool {
	return x == nil || x.Ended > 0 && x.Began >= 0 && x.Began <= x.Ended && min(x.Wasted, x.Work, x.Longest) >= 0 && x.Input >= 0
}

// The verdicts on deadlines.
const (
	VerdictMet    = "met"
	VerdictMissed = "missed"
)

// Verdict tells whether a job kept its deadline.
type Verdict struct {
	// Word is VerdictMet or VerdictMissed; empty where nothing was promised, or the promise was taken back.
	Word string
	// Late is by how much it ended after its deadline; 0 if it did not.
	Late time.Duration
	// Why has the numbers in words.
	Why string
}

// punctual is how much later than its deadline a job may end that runs until then and drops the rest: the scheduler
// looks at deadlines four times a second.
const punctual = time.Second

// Verdict tells whether an ended job kept its deadline (P13). None is passed on a job that runs, has no deadline, was
// cancelled before it, or was not admitted.
func (j Job) Verdict() (v Verdict) {
	ended, began := j.Ended, int64(0)
	if j.Course != nil {
		ended, began = j.Course.Ended, j.Course.Began
	}
	if j.State == JobAccepted || j.Deadline == 0 || ended == 0 {
		return v
	}
	late := time.Duration(ended-j.Submitted)*time.Microsecond - j.Deadline
	if j.State == JobDone && j.Floor > 0 && j.Floor < 1 && late <= punctual {
		late = 0
	}
	waiting := j.Course != nil && began == 0 && j.Runtime == 0
	switch {
	case j.State == JobCancelled && late <= 0, waiting && j.Admission != nil && j.Admission.Decision != "admitted":
		return v
	case j.State == JobDone && late <= 0:
		return Verdict{Word: VerdictMet, Why: j.account(began)}
	}
	return Verdict{Word: VerdictMissed, Late: max(0, late), Why: j.account(began)}
}

// account tells what the time of an ended job went into, as far as the log has it.
func (j Job) account(began int64) string {
	var parts []string
	if j.State != JobDone {
		parts = append(parts, fmt.Sprintf("%s: %s", j.State, cmp.Or(j.Outcome, "no reason given")))
	}
	if began > 0 {
		parts = append(parts, "waited "+spent(time.Duration(began-j.Submitted)*time.Microsecond)+" and ran "+spent(j.Runtime))
	} else {
		parts = append(parts, "ran "+spent(j.Runtime))
	}
	switch {
	case j.Uncapped == 0:
		parts = append(parts, "what the cap cost is unknown")
	case j.Runtime > j.Uncapped:
		parts = append(parts, fmt.Sprintf("the cap cost about %s, without it %s were expected", spent(j.Runtime-j.Uncapped), spent(j.Uncapped)))
	default:
		parts = append(parts, "the cap cost nothing")
	}
	if j.State == JobDone && j.Done < j.Tasks {
		parts = append(parts, fmt.Sprintf("%d of %d tasks dropped", j.Tasks-j.Done, j.Tasks))
	}
	if e := j.Energy; e != nil {
		parts = append(parts, fmt.Sprintf("%.0f J", e.Energy.Joules()))
	}
	return strings.Join(parts, "; ")
}

func spent(d time.Duration) string { return fmt.Sprintf("%.1f s", max(0, d).Seconds()) }
