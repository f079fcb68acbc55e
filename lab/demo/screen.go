package demo

import (
	"cmp"
	"context"
	"fmt"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
)

// Pace of the screen.
const (
	newsEvery = 500 * time.Millisecond
	lineEvery = 2 * time.Second
)

// print prints a line every 2 s and one for each event, until ctx ends.
func (d *show) print(ctx context.Context) error {
	next, told := time.Now(), 0
	news := func() {
		for ; told < len(d.tracker.events); told++ {
			e := d.tracker.events[told]
			d.say("%6.1f s  * %-14s %s", e.at.Seconds(), e.what, e.detail)
		}
	}
	_ = every(ctx, newsEvery, func() error {
		d.tracker.locked(func() {
			if len(d.tracker.samples) > 0 && !time.Now().Before(next) {
				next = time.Now().Add(lineEvery - newsEvery/2)
				d.say("%s", d.line())
			}
			news()
		})
		return nil
	})
	d.tracker.locked(news)
	return nil
}

// line is the state on one line. The tracker is locked.
func (d *show) line() string {
	last := d.tracker.samples[len(d.tracker.samples)-1]
	c := countJobs(d.tracker.jobs)
	return fmt.Sprintf("%6.1f s  budget %s  reserved %8s  held %8s  measured %8s  leader %-2s  jobs %d/%d  tasks %d/%d",
		last.at.Seconds(), cli.Watts(last.budget), cli.Opt(last.reserved, cli.Watts), cli.Opt(last.held, cli.Watts),
		cli.Opt(last.measured, cli.Watts), cmp.Or(last.leader, "-"), c.ended, c.jobs, c.done, c.tasks)
}

// counts sums up jobs and their tasks.
type counts struct {
	ended, jobs int
	done, tasks uint32
}

func countJobs(jobs []*headroomv1.Job) (c counts) {
	for _, j := range jobs {
		if c.jobs++; j.GetState() == headroomv1.JobState_JOB_STATE_DONE {
			c.ended++
		}
		c.tasks, c.done = c.tasks+j.GetProgress().GetTasks(), c.done+j.GetProgress().GetDone()
	}
	return c
}
