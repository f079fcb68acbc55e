package cli

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
)

// Verdict is how a job ended and whether it kept its deadline, for programs; null while it runs and where nothing was
// promised.
type Verdict struct {
	EndedAt   *time.Time `json:"ended_at"`
	Verdict   *string    `json:"verdict"`
	MissedByS *float64   `json:"missed_by_s"`
	Why       *string    `json:"verdict_why"`
}

// VerdictOf is the verdict on a job's deadline.
func VerdictOf(e *headroomv1.JobEnd) (v Verdict) {
	if us := e.GetEndedUs(); us > 0 {
		v.EndedAt = new(time.UnixMicro(us).UTC())
	}
	v.Verdict, v.Why = Known(e.GetVerdict(), e.GetVerdict() != ""), Known(e.GetWhy(), e.GetWhy() != "")
	if e != nil {
		v.MissedByS = e.LateS
	}
	return v
}

// String returns the verdict in words: "met", "missed by 12s", or "missed" for a job that ended without a result.
func (v Verdict) String() string {
	switch {
	case v.Verdict == nil:
		return Unknown
	case v.MissedByS != nil:
		return *v.Verdict + " by " + Age(time.Duration(*v.MissedByS*float64(time.Second)))
	}
	return *v.Verdict
}

// JobFilter chooses jobs by their ends.
type JobFilter struct {
	missed bool
	since  Since
}

// Flags adds --missed and --since to cmd.
func (f *JobFilter) Flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.missed, "missed", false, "only jobs that missed their deadlines")
	f.since.Flag(cmd, "only jobs that run, or ended")
}

// Of returns the chosen jobs.
func (f *JobFilter) Of(jobs []*headroomv1.Job, now time.Time) []*headroomv1.Job {
	return slices.DeleteFunc(slices.Clone(jobs), func(j *headroomv1.Job) bool {
		e := j.GetEnd()
		return f.missed && e.GetVerdict() != "missed" || f.since.IsSet() && e != nil && time.UnixMicro(e.GetEndedUs()).Before(f.since.Time(now))
	})
}
