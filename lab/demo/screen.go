package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

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
	// engine is what an engine has to show: lines for the table, and the same in short.
	// The tracker is locked. nil where no engine but the workers runs.
	engine func() (lines []string, short string)

	told  int // events already printed as lines
	drawn bool
}

// show runs until ctx ends.
func (s *screen) show(ctx context.Context) {
	pace := lineEvery
	if s.terminal {
		pace = redrawEvery
	}
	next := time.Now()
	every(ctx, min(pace, redrawEvery), func() {
		s.news()
		if now := time.Now(); !now.Before(next) {
			next = now.Add(pace - redrawEvery/2)
			s.draw()
		}
	})
	s.news()
}

// draw shows the state once.
func (s *screen) draw() {
	s.tracker.mu.Lock()
	defer s.tracker.mu.Unlock()
	if s.tracker.zero.IsZero() || len(s.tracker.samples) == 0 {
		return
	}
	if !s.terminal {
		_, _ = fmt.Fprintln(s.out, s.line())
		return
	}
	start := "\x1b[H"
	if !s.drawn {
		start, s.drawn = "\x1b[2J\x1b[H", true
	}
	_, _ = io.WriteString(s.out, start+strings.Join(fit(s.table(), s.out), "\x1b[K\n")+"\x1b[K\n\x1b[J")
}

// fit cuts the lines to the size of the terminal: a line that wraps would push
// the table off its place.
func fit(lines []string, w any) []string {
	f, ok := w.(*os.File)
	if !ok {
		return lines
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row < 2 {
		return lines
	}
	lines = lines[:min(len(lines), int(size.Row)-1)]
	for i, l := range lines {
		lines[i] = l[:min(len(l), int(size.Col))] // plain ASCII: a byte is a column
	}
	return lines
}

// news prints new events as lines of their own; the table has them anyway.
func (s *screen) news() {
	if s.terminal {
		return
	}
	s.tracker.mu.Lock()
	defer s.tracker.mu.Unlock()
	for ; s.told < len(s.tracker.events); s.told++ {
		_, _ = fmt.Fprintln(s.out, eventLine(s.tracker.events[s.told]))
	}
}

func eventLine(e event) string {
	return fmt.Sprintf("%6.1f s  * %-14s %s", e.at.Seconds(), e.what, e.detail)
}

// line is the state on one line.
func (s *screen) line() string {
	last := s.tracker.samples[len(s.tracker.samples)-1]
	tasks, done := taskCounts(s.tracker.jobs)
	ended, jobs := jobCounts(s.tracker.jobs)
	text := fmt.Sprintf("%6.1f s  budget %s  reserved %8s  held %8s  measured %8s  leader %-2s  jobs %d/%d  tasks %d/%d",
		last.at.Seconds(), cli.Watts(last.budget), cli.Opt(last.reserved, cli.Watts), cli.Opt(last.held, cli.Watts),
		cli.Opt(last.measured, cli.Watts), s.leader(), ended, jobs, done, tasks)
	if s.engine != nil {
		_, short := s.engine()
		text += "  " + short
	}
	return text
}

// leader is the leader's name while it answers. The tracker is locked.
func (s *screen) leader() string {
	if s.tracker.leader == "" || time.Since(s.tracker.heard) > answerFreshness {
		return leaderUnknown
	}
	return s.tracker.leader
}

// table is the whole screen. The tracker is locked.
func (s *screen) table() []string {
	b := s.tracker
	last := b.samples[len(b.samples)-1]
	lines := []string{
		fmt.Sprintf("Headroom demo  %.1f s of %.0f s   %d nodes slowed by %s, trees of %s",
			b.sinceZero().Seconds(), s.run.Seconds(), len(s.nodes), b.slowed, b.tree),
		fmt.Sprintf("budget %s | reserved %s | held %s | measured %s", cli.Watts(last.budget),
			cli.Opt(last.reserved, cli.Watts), cli.Opt(last.held, cli.Watts), cli.Opt(last.measured, cli.Watts)),
		"", fmt.Sprintf(rowFormat, "NODE", "STATE", "CAP", "HELD", "MEASURED", "0......of rated.....", "TASKS"),
	}
	shown := min(len(s.nodes), nodesShown)
	for i, name := range s.nodes[:shown] {
		lines = append(lines, s.nodeLine(name, last.nodes[i]))
	}
	if more := len(s.nodes) - shown; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	if s.engine != nil {
		more, _ := s.engine()
		lines = append(append(lines, ""), more...)
	}
	ended, jobs := jobCounts(b.jobs)
	tasks, done := taskCounts(b.jobs)
	lines = append(lines, "", fmt.Sprintf("leader %s epoch %v   jobs %d of %d done, tasks %d of %d", s.leader(), b.epoch, ended, jobs, done, tasks))
	for _, j := range newest(b.jobs) {
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
	rowFormat = "%-8s  %-7s  %8s  %8s  %8s  [%s]  %5v"
)

func (s *screen) nodeLine(name string, measured *units.Power) string {
	b := s.tracker
	state, capped := leaderUnknown, leaderUnknown
	if n := b.nodes[name]; n != nil {
		state, capped = n.GetState(), cli.Opt(n.TargetUw, func(uw int64) string { return cli.Watts(units.Power(uw)) })
	}
	held := leaderUnknown
	if p, ok := b.holding[name]; ok {
		held = cli.Watts(p)
	}
	fill := 0
	if measured != nil {
		fill = min(barWidth, int(barWidth*measured.Watts()/s.rated.Watts()+0.5))
	}
	tasks := uint32(0)
	for _, j := range b.jobs {
		tasks += j.GetProgress().GetRunningOn()[name]
	}
	return fmt.Sprintf(rowFormat, name, state, capped, held, cli.Opt(measured, cli.Watts),
		strings.Repeat("#", fill)+strings.Repeat(" ", barWidth-fill), tasks)
}

// jobsShown bounds the list of jobs on the screen.
const jobsShown = 4

// newest are the jobs that have not ended, and the last of those that have.
func newest(jobs []*headroomv1.Job) []*headroomv1.Job {
	shown := slices.DeleteFunc(slices.Clone(jobs), func(j *headroomv1.Job) bool { return !live(j) })
	if len(shown) > jobsShown {
		shown = shown[:jobsShown]
	}
	for i := len(jobs) - 1; i >= 0 && len(shown) < jobsShown; i-- {
		if !live(jobs[i]) {
			shown = slices.Insert(shown, 0, jobs[i])
		}
	}
	return shown
}

func jobCounts(jobs []*headroomv1.Job) (done, all int) {
	for _, j := range jobs {
		if j.GetState() == headroomv1.JobState_JOB_STATE_DONE {
			done++
		}
	}
	return done, len(jobs)
}

func taskCounts(jobs []*headroomv1.Job) (tasks, done uint32) {
	for _, j := range jobs {
		tasks, done = tasks+j.GetProgress().GetTasks(), done+j.GetProgress().GetDone()
	}
	return tasks, done
}
