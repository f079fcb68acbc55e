package scale

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

const (
	// lineMost bounds a line that is read; longer ones are passed over where they are of no interest, as plans of queries are.
	lineMost = 16 << 20
	// stagesMost bounds the stages of a log.
	stagesMost = 1_000_000
	// eventsMost bounds the tasks and stages of a log: the largest jobs have some hundred thousand tasks.
	eventsMost = 10_000_000
	// unitsMost bounds the executors.
	unitsMost = 1_000_000
)

// sparkEvent is what is read of a line of an event log.
type sparkEvent struct {
	Event     string
	Timestamp int64
	Executor  string                  `json:"Executor ID"`
	StageID   int                     `json:"Stage ID"`
	Attempt   int                     `json:"Stage Attempt ID"`
	Reason    json.RawMessage         `json:"Task End Reason"`
	JobID     int                     `json:"Job ID"`
	Result    struct{ Result string } `json:"Job Result"`
	Task      struct {
		Executor string `json:"Executor ID"`
		Launch   int64  `json:"Launch Time"`
		Finish   int64  `json:"Finish Time"`
	} `json:"Task Info"`
	Stage struct {
		ID        int    `json:"Stage ID"`
		Attempt   int    `json:"Stage Attempt ID"`
		Tasks     int    `json:"Number of Tasks"`
		Submitted int64  `json:"Submission Time"`
		Completed int64  `json:"Completion Time"`
		Failure   string `json:"Failure Reason"`
	} `json:"Stage Info"`
	Metrics struct {
		RunTime int64 `json:"Executor Run Time"`
	} `json:"Task Metrics"`
}

// sparkStage is what is gathered of a stage, over its attempts.
type sparkStage struct {
	// tasks is how many tasks an attempt had at most, done how many have succeeded.
	tasks, done int
	// open are the attempts that have begun and not ended.
	open int
	// whole is true once an attempt has succeeded.
	whole bool
	// busy is the time of tasks by executor, ms, until the last attempt ends.
	busy map[string]int64
}

// sparkLog is what is gathered while an event log is read.
type sparkLog struct {
	launched, ended int64
	alive, most     int
	executors       map[string]bool
	// seen are the executors that tasks ran on, for logs that do not tell when they came.
	seen map[string]bool
	// first is when the first stage began, last when the last ended, tasks how many tasks the first has.
	first, last int64
	tasks       int
	// ms of all stages together, of all tasks, and of the executor that worked longest in each stage.
	stages, all, slowest int64
	byID                 map[int]*sparkStage
	events, lines        int
}

func newSparkLog() *sparkLog {
	return &sparkLog{executors: map[string]bool{}, seen: map[string]bool{}, byID: map[int]*sparkStage{}}
}

// read reads an event log, or a part of one, as Spark writes it: a JSON object a line.
func (l *sparkLog) read(r io.Reader) error {
	from := bufio.NewReaderSize(r, 64<<10)
	for number := 1; ; number++ {
		line, end := nextLine(from)
		if end != nil && !errors.Is(end, io.EOF) {
			return fmt.Errorf("line %d: %w", number, end)
		}
		if len(line) > 0 {
			var e sparkEvent
			if err := json.Unmarshal(line, &e); err != nil {
				if end != nil {
					return fmt.Errorf("line %d: the log ends in the middle of an event: %w", number, err)
				}
				return fmt.Errorf("line %d: not an event of Spark: %w", number, err)
			}
			if err := l.take(&e); err != nil {
				return fmt.Errorf("line %d: %w", number, err)
			}
		}
		if end != nil {
			l.lines += number
			return nil
		}
	}
}

// nextLine returns the next line that may be of interest, without spaces around it; nothing for others. The error is io.EOF
// at the end, also with a last line that no newline ends.
func nextLine(r *bufio.Reader) ([]byte, error) {
	part, err := r.ReadSlice('\n')
	skip := !interesting(part)
	var line []byte
	for {
		if !skip {
			line = append(line, part...)
		}
		switch {
		case !errors.Is(err, bufio.ErrBufferFull):
			return bytes.TrimSpace(line), err
		case len(line) > lineMost:
			return nil, fmt.Errorf("an event of more than %d bytes", lineMost)
		}
		part, err = r.ReadSlice('\n')
	}
}

// interesting reports whether a line that begins so is to be read: all that do not name another event are.
func interesting(line []byte) bool {
	rest, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte(`{"Event"`))
	if !ok {
		return true
	}
	rest = bytes.TrimLeft(rest, ": ")
	name, _, ok := bytes.Cut(bytes.TrimPrefix(rest, []byte(`"`)), []byte(`"`))
	if !ok {
		return true
	}
	switch string(name) {
	case "SparkListenerApplicationStart", "SparkListenerApplicationEnd", "SparkListenerExecutorAdded", "SparkListenerExecutorRemoved",
		"SparkListenerStageSubmitted", "SparkListenerStageCompleted", "SparkListenerTaskEnd", "SparkListenerJobEnd":
		return true
	}
	return false
}

var (
	errOrder  = errors.New("end before its start")
	errEvents = fmt.Errorf("more than %d stages and tasks", eventsMost)
	errStages = fmt.Errorf("more than %d stages", stagesMost)
	errUnits  = fmt.Errorf("more than %d executors", unitsMost)
)

// take takes one event.
func (l *sparkLog) take(e *sparkEvent) error {
	switch e.Event {
	case "SparkListenerApplicationStart":
		if l.launched != 0 {
			return errors.New("another application begins: use one log per run")
		}
		l.launched = e.Timestamp
	case "SparkListenerApplicationEnd":
		l.ended = e.Timestamp
	case "SparkListenerExecutorAdded":
		if !l.executors[e.Executor] {
			l.executors[e.Executor] = true
			l.alive++
		}
		if l.most = max(l.most, l.alive); l.most > unitsMost {
			return errUnits
		}
	case "SparkListenerExecutorRemoved":
		if l.executors[e.Executor] {
			delete(l.executors, e.Executor)
			l.alive--
		}
	case "SparkListenerJobEnd":
		if e.Result.Result == "JobFailed" {
			return fmt.Errorf("job %d failed, so the run did not do all of its work", e.JobID)
		}
	case "SparkListenerStageSubmitted":
		s, err := l.of(e.Stage.ID)
		if err != nil {
			return err
		}
		s.open++
	case "SparkListenerStageCompleted":
		return l.stage(e)
	case "SparkListenerTaskEnd":
		return l.task(e)
	}
	return nil
}

// of is a stage, by its number.
func (l *sparkLog) of(id int) (*sparkStage, error) {
	s := l.byID[id]
	if s == nil {
		if len(l.byID) >= stagesMost {
			return nil, errStages
		}
		s = &sparkStage{}
		l.byID[id] = s
	}
	return s, nil
}

// stage takes the end of a stage. Attempts that failed took their time too.
func (l *sparkLog) stage(e *sparkEvent) error {
	s := &e.Stage
	if s.Submitted == 0 {
		return nil // it was skipped, or never began
	}
	if s.Completed < s.Submitted {
		return fmt.Errorf("stage %d: %w", s.ID, errOrder)
	}
	if l.events++; l.events > eventsMost {
		return errEvents
	}
	if l.first == 0 || s.Submitted < l.first {
		l.first, l.tasks = s.Submitted, s.Tasks
	}
	l.last = max(l.last, s.Completed)
	l.stages += s.Completed - s.Submitted
	of, err := l.of(s.ID)
	if err != nil {
		return err
	}
	of.open, of.whole, of.tasks = max(0, of.open-1), of.whole || s.Failure == "", max(of.tasks, s.Tasks)
	l.slowest += of.longest()
	of.busy = nil
	return nil
}

// longest is the time of the executor that worked longest, ms.
func (s *sparkStage) longest() (ms int64) {
	for _, by := range s.busy {
		ms = max(ms, by)
	}
	return ms
}

// task takes the end of a task that succeeded; what others did is part of the overhead.
func (l *sparkLog) task(e *sparkEvent) error {
	var reason struct{ Reason string }
	if len(e.Reason) > 0 && json.Unmarshal(e.Reason, &reason) == nil && reason.Reason != "Success" {
		return nil
	}
	if e.Task.Finish < e.Task.Launch {
		return fmt.Errorf("a task of stage %d: %w", e.StageID, errOrder)
	}
	if l.events++; l.events > eventsMost {
		return errEvents
	}
	s, err := l.of(e.StageID)
	if err != nil {
		return err
	}
	if s.busy == nil {
		s.busy = map[string]int64{}
	}
	if l.seen[e.Task.Executor] = true; len(l.seen) > unitsMost {
		return errUnits
	}
	ms := max(0, e.Metrics.RunTime)
	s.done, l.all = s.done+1, l.all+ms
	s.busy[e.Task.Executor] += ms
	return nil
}

// whole returns an error when events are missing: a part of a run would pass for a faster one.
func (l *sparkLog) whole() error {
	if l.ended == 0 {
		return fmt.Errorf("no SparkListenerApplicationEnd in %d lines: the application is still running, its driver was killed, or the end of the log is missing", l.lines)
	}
	for _, id := range slices.Sorted(maps.Keys(l.byID)) {
		switch s := l.byID[id]; {
		case s.open > 0 || !s.whole && s.done > 0:
			return fmt.Errorf("stage %d has not completed: the run was stopped, or events are missing", id)
		case s.whole && s.done < s.tasks:
			return fmt.Errorf("stage %d has %d tasks, and %d of them ended in this log: events are missing", id, s.tasks, s.done)
		}
	}
	return nil
}

// run is the log as a run.
func (l *sparkLog) run() (run, error) {
	switch {
	case l.launched == 0:
		return run{}, errors.New("no SparkListenerApplicationStart: not an event log, or not its first part")
	case l.first == 0:
		return run{}, errors.New("no stage has ended")
	case l.first < l.launched:
		return run{}, fmt.Errorf("the first stage begins before the application: %w", errOrder)
	case l.tasks < 1:
		return run{}, errors.New("the first stage has no tasks")
	}
	if err := l.whole(); err != nil {
		return run{}, err
	}
	slowest := l.slowest
	for _, s := range l.byID { // tasks that ended after their stage
		slowest += s.longest()
	}
	r := run{Tasks: l.tasks, Units: max(l.most, 1), times: times{
		Launch: seconds(l.first - l.launched), Stages: seconds(l.stages), Parallel: seconds(l.all), Slowest: seconds(slowest),
	}}
	if l.most == 0 {
		r.Units = max(1, len(l.seen))
	}
	// The driver works alone between stages.
	r.Serial = max(0, seconds(max(l.last, l.ended)-l.first)-r.Stages)
	r.Rest = r.Launch + max(0, r.Stages-r.Slowest)
	if !r.finite() {
		return run{}, errors.New("stages or tasks have a duration of 0, or of more than 30 years")
	}
	return r, nil
}
