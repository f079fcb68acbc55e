package scaling

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	// lineMost bounds a line of an event log: Spark's own properties are in one.
	lineMost = 16 << 20
	// eventsMost bounds the tasks and stages of a log: the largest jobs have some hundred thousand tasks.
	eventsMost = 10_000_000
	// unitsMost bounds the executors.
	unitsMost = 1_000_000
)

// sparkEvent is what is read of a line of an event log.
type sparkEvent struct {
	Event     string
	Timestamp int64
	Executor  string          `json:"Executor ID"`
	StageID   int             `json:"Stage ID"`
	Attempt   int             `json:"Stage Attempt ID"`
	Reason    json.RawMessage `json:"Task End Reason"`
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

// stageKey is an attempt of a stage.
type stageKey struct{ id, attempt int }

// sparkLog is what is gathered while an event log is read.
type sparkLog struct {
	launched, ended int64
	alive, most     int
	executors       map[string]bool
	// first is when the first stage began, last when the last ended, tasks how many tasks the first has.
	first, last int64
	tasks       int
	stages      int64 // ms of all stages together
	// busy is the time of tasks by executor in each attempt of a stage, ms.
	busy   map[stageKey]map[string]int64
	events int
}

// readSparkLog reads the event log of one application, as Spark writes it without compression: a JSON object a line. Events that
// it does not need it passes over.
func readSparkLog(r io.Reader) (run, error) {
	l := &sparkLog{executors: map[string]bool{}, busy: map[stageKey]map[string]int64{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, lineMost)
	for number := 1; lines.Scan(); number++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var e sparkEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return run{}, fmt.Errorf("line %d: not an event of Spark: %w", number, err)
		}
		if err := l.take(&e); err != nil {
			return run{}, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if err := lines.Err(); err != nil {
		return run{}, fmt.Errorf("event log: %w", err)
	}
	return l.run()
}

var (
	errOrder  = errors.New("end before its start")
	errEvents = fmt.Errorf("more than %d stages and tasks", eventsMost)
	errUnits  = fmt.Errorf("more than %d executors", unitsMost)
)

// take takes one event.
func (l *sparkLog) take(e *sparkEvent) error {
	switch e.Event {
	case "SparkListenerApplicationStart":
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
	case "SparkListenerStageCompleted":
		return l.stage(e)
	case "SparkListenerTaskEnd":
		return l.task(e)
	}
	return nil
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
	return nil
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
	k := stageKey{e.StageID, e.Attempt}
	if l.busy[k] == nil {
		l.busy[k] = map[string]int64{}
	}
	l.busy[k][e.Task.Executor] += max(0, e.Metrics.RunTime)
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
	var all, slowest int64
	seen := map[string]bool{}
	for _, by := range l.busy {
		longest := int64(0)
		for executor, ms := range by {
			seen[executor] = true
			all += ms
			longest = max(longest, ms)
		}
		slowest += longest
	}
	r := run{
		Tasks: l.tasks, Units: max(l.most, 1), Launch: seconds(l.first - l.launched), Stages: seconds(l.stages),
		Parallel: seconds(all), Slowest: seconds(slowest),
	}
	if l.most == 0 {
		r.Units = max(1, len(seen))
	}
	// The driver works alone between stages.
	r.Serial = max(0, seconds(max(l.last, l.ended)-l.first)-r.Stages)
	r.Rest = r.Launch + max(0, r.Stages-r.Slowest)
	if !r.finite() {
		return run{}, errors.New("stages or tasks have a duration of 0, or of more than 30 years")
	}
	return r, nil
}
