package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/units"
)

// Pace of the screen.
const (
	redrawEvery = 500 * time.Millisecond
	lineEvery   = 2 * time.Second
)

// screen shows the run: a table that is refreshed in place on a terminal,
// otherwise a line every 2 s and one for each event.
type screen struct {
	out      io.Writer
	terminal bool
	tracker  *tracker
	nodes    []string
	rated    units.Power
	run      time.Duration
	// engine is what an engine's queues have, in words; nil without one. The tracker is locked.
	engine func() string

	told int // events already printed as lines
}

// show runs until ctx ends.
func (s *screen) show(ctx context.Context) error {
	if s.terminal {
		_, _ = io.WriteString(s.out, "\x1b[2J")
	}
	next := time.Now()
	_ = every(ctx, redrawEvery, func() error {
		s.tracker.locked(func() {
			switch {
			case s.tracker.zero.IsZero() || len(s.tracker.samples) == 0:
			case s.terminal:
				_, _ = io.WriteString(s.out, "\x1b[H"+strings.Join(s.fit(s.table()), "\x1b[K\n")+"\x1b[K\n\x1b[J")
			case !time.Now().Before(next):
				next = time.Now().Add(lineEvery - redrawEvery/2)
				_, _ = fmt.Fprintln(s.out, s.line())
			}
			s.news()
		})
		return nil
	})
	s.tracker.locked(s.news)
	return nil
}

// news prints new events as lines of their own; the table has them anyway. The tracker is locked.
func (s *screen) news() {
	for ; !s.terminal && s.told < len(s.tracker.events); s.told++ {
		_, _ = fmt.Fprintln(s.out, eventLine(s.tracker.events[s.told]))
	}
}

// fit cuts the lines to the size of the terminal: a line that wraps would push
// the table off its place.
func (s *screen) fit(lines []string) []string {
	cols, rows := cli.Screen(s.out)
	if cols == 0 || rows < 2 {
		return lines
	}
	lines = lines[:min(len(lines), rows-1)]
	for i, l := range lines {
		lines[i] = l[:min(len(l), cols)] // plain ASCII: a byte is a column
	}
	return lines
}

func eventLine(e event) string {
	return fmt.Sprintf("%6.1f s  * %-14s %s", e.at.Seconds(), e.what, e.detail)
}

// line is the state on one line.
func (s *screen) line() string {
	last := s.tracker.samples[len(s.tracker.samples)-1]
	c := countJobs(s.tracker.jobs)
	text := fmt.Sprintf("%6.1f s  budget %s  reserved %8s  held %8s  measured %8s  leader %-2s  jobs %d/%d  tasks %d/%d",
		last.at.Seconds(), cli.Watts(last.budget), cli.Opt(last.reserved, cli.Watts), cli.Opt(last.held, cli.Watts),
		cli.Opt(last.measured, cli.Watts), s.tracker.leading(), c.ended, c.jobs, c.done, c.tasks)
	if s.engine != nil {
		text += "  " + s.engine()
	}
	return text
}

// table is the whole screen. The tracker is locked.
func (s *screen) table() []string {
	b := s.tracker
	last := b.samples[len(b.samples)-1]
	lines := []string{
		fmt.Sprintf("Headroom demo  %.1f s of %.0f s   %d nodes", b.sinceZero().Seconds(), s.run.Seconds(), len(s.nodes)),
		fmt.Sprintf("budget %s | reserved %s | held %s | measured %s", cli.Watts(last.budget),
			cli.Opt(last.reserved, cli.Watts), cli.Opt(last.held, cli.Watts), cli.Opt(last.measured, cli.Watts)),
		"", fmt.Sprintf(rowFormat, "NODE", "HELD", "MEASURED", "0......of rated.....", "TASKS"),
	}
	for i, name := range s.nodes[:min(len(s.nodes), nodesShown)] {
		lines = append(lines, s.nodeLine(name, last.nodes[i]))
	}
	if s.engine != nil {
		lines = append(lines, "", s.engine())
	}
	c := countJobs(b.jobs)
	lines = append(lines, "", fmt.Sprintf("leader %s epoch %v   jobs %d of %d done, tasks %d of %d", s.tracker.leading(), b.epoch, c.ended, c.jobs, c.done, c.tasks))
	for _, j := range b.jobs[max(0, len(b.jobs)-jobsShown):] {
		p := j.GetProgress()
		lines = append(lines, fmt.Sprintf("  %-10s %-5s %-9s %3d of %-3d tasks  %2d run", j.GetName(), j.GetClass(), stateWord(j.GetState()),
			p.GetDone(), p.GetTasks(), p.GetRunning()))
	}
	lines = append(lines, "")
	for _, e := range b.events[max(0, len(b.events)-eventsShown):] {
		lines = append(lines, eventLine(e))
	}
	return lines
}

// nodesShown keeps the table on a screen of 24 lines.
const nodesShown = 8

// barWidth is the width of a node's bar; rowFormat is a line of the table of nodes.
const (
	barWidth  = 20
	rowFormat = "%-8s  %8s  %8s  [%s]  %5v"
)

func (s *screen) nodeLine(name string, measured *units.Power) string {
	b := s.tracker
	p, known := b.holding[name]
	held := cli.Opt(cli.Known(p, known), cli.Watts)
	fill := 0
	if measured != nil {
		fill = min(barWidth, int(barWidth*measured.Watts()/s.rated.Watts()+0.5))
	}
	tasks := uint32(0)
	for _, j := range b.jobs {
		tasks += j.GetProgress().GetRunningOn()[name]
	}
	return fmt.Sprintf(rowFormat, name, held, cli.Opt(measured, cli.Watts),
		strings.Repeat("#", fill)+strings.Repeat(" ", barWidth-fill), tasks)
}

// jobsShown bounds the list of jobs on the screen.
const jobsShown = 4

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
