// Package jhist reads the history files (.jhist) that MapReduce's application masters write, in
// both of Hadoop's forms: Avro-Json and Avro-Binary.
//
// Guarantees: a file is read within bounds, and errors have their place. Unknown events are skipped.
package jhist

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"headroom/internal/each"
)

// History is what a job's application master has written about it: its .jhist file.
type History struct {
	// Submitted is when the job was submitted, Ended when it ended; zero where the file does not say.
	Submitted, Ended time.Time
	// Counters are the job's, by group and name, such as
	// org.apache.hadoop.mapreduce.TaskCounter and MAP_INPUT_RECORDS.
	Counters Counters
	// Attempts are the task attempts that ended, in the order of their ends.
	Attempts []Attempt
	// started remembers when attempts began while the file is read.
	started map[string]int64
}

// Counters are counters by group and name.
type Counters map[string]map[string]int64

// Get is a counter, and whether there is one.
func (c Counters) Get(group, name string) (int64, bool) {
	v, ok := c[group][name]
	return v, ok
}

// UnmarshalJSON reads counters as a history file has them.
func (c *Counters) UnmarshalJSON(text []byte) error {
	var from struct {
		Groups []struct {
			Name   string `json:"name"`
			Counts []struct {
				Name  string `json:"name"`
				Value int64  `json:"value"`
			} `json:"counts"`
		} `json:"groups"`
	}
	if err := json.Unmarshal(text, &from); err != nil {
		return err
	}
	*c = Counters{}
	for _, g := range from.Groups {
		(*c)[g.Name] = map[string]int64{}
		for _, n := range g.Counts {
			(*c)[g.Name][n.Name] = n.Value
		}
	}
	return nil
}

// Attempt is one attempt of one task.
type Attempt struct {
	// ID is attempt_1700000000000_0001_m_000000_0, Kind MAP or REDUCE (or one of the
	// job's own tasks, JOB_SETUP and JOB_CLEANUP).
	ID, Kind string
	// Node is where it ran; empty where it never did.
	Node string
	// Status is SUCCEEDED, FAILED or KILLED.
	Status string
	// Started and Finished are as the application master has them.
	Started, Finished time.Time
	// Counters are the attempt's own; nil where it did not end well.
	Counters Counters
}

// Of are the attempts of a kind that ended with a status.
func (h *History) Of(kind, status string) []Attempt {
	return each.Where(h.Attempts, func(a Attempt) bool { return a.Kind == kind && a.Status == status })
}

// event is what is read of the events of a history file.
type event struct {
	Attempt     string   `json:"attemptId"`
	Kind        string   `json:"taskType"`
	Status      string   `json:"taskStatus"`
	BadStatus   string   `json:"status"`
	Node        string   `json:"hostname"`
	StartMs     int64    `json:"startTime"`
	FinishMs    int64    `json:"finishTime"`
	Counters    Counters `json:"counters"`
	JobCounters Counters `json:"totalCounters"`
	SubmitMs    int64    `json:"submitTime"`
}

// lineMost bounds a line of a history file: the largest is the configuration of a job, which has some kilobytes.
const lineMost = 16 << 20

// attemptsMost bounds the attempts of a history: the largest jobs have some hundred thousand tasks.
const attemptsMost = 1_000_000

// Read reads a .jhist file in either form: a line that names the form, a schema, then an event per line (Avro-Json)
// or one after the other (Avro-Binary, which is Hadoop's default). What it does not know it passes over.
func Read(r io.Reader) (*History, error) {
	from := bufio.NewReader(r)
	head, err := from.ReadSlice('\n')
	form := strings.TrimSpace(string(head))
	h := &History{started: map[string]int64{}}
	switch form {
	case "Avro-Json":
		err = h.readLines(from)
	case "Avro-Binary":
		err = h.readBinary(from)
	default:
		err = errors.Join(fmt.Errorf("jhist: history starts with %.20q, not Avro-Json or Avro-Binary", form), err)
	}
	h.started = nil
	return h, err
}

func (h *History) readLines(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, lineMost)
	for number := 2; lines.Scan(); number++ {
		if line := bytes.TrimSpace(lines.Bytes()); len(line) > 0 {
			if err := h.add(line); err != nil {
				return fmt.Errorf("line %d: %w", number, err)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("jhist: read history: %w", err)
	}
	return nil
}

// readBinary reads the schema's line, then records of it. An event has the fields that it has in the other form.
func (h *History) readBinary(r *bufio.Reader) error {
	var text []byte
	for more := true; more; {
		part, err := r.ReadSlice('\n')
		if text = append(text, part...); len(text) > lineMost {
			return fmt.Errorf("line 2: %w: larger than %d bytes", errSchema, lineMost)
		}
		if more = errors.Is(err, bufio.ErrBufferFull); err != nil && !more {
			return fmt.Errorf("line 2: %w: %w", errSchema, err)
		}
	}
	schema, err := parseSchema(text)
	if err != nil {
		return fmt.Errorf("line 2: %w", err)
	}
	records := &avroReader{r: r}
	for number := 1; ; number++ {
		at := records.at
		v, err := records.record(schema)
		if errors.Is(err, io.EOF) {
			return nil
		}
		switch {
		case err == nil && records.at == at:
			err = fmt.Errorf("%w: events without bytes", errSchema) // they would never end
		case err == nil:
			err = h.addRecord(v)
		}
		if err != nil {
			return fmt.Errorf("event %d, byte %d after the schema: %w", number, at, err)
		}
	}
}

// addRecord takes a decoded event.
func (h *History) addRecord(v any) error {
	record, _ := v.(map[string]any)
	text, err := json.Marshal(record["event"])
	if err != nil {
		return fmt.Errorf("jhist: history: %w", err)
	}
	return h.addEvent(text, fmt.Sprint(record["type"]))
}

// add takes one line.
func (h *History) add(line []byte) error {
	var outer struct {
		Type  json.RawMessage            `json:"type"`
		Event map[string]json.RawMessage `json:"event"`
	}
	if err := json.Unmarshal(line, &outer); err != nil {
		return fmt.Errorf("jhist: history: %w", err)
	}
	for _, inner := range outer.Event { // it has one
		if err := h.addEvent(inner, string(outer.Type)); err != nil {
			return err
		}
	}
	return nil
}

func (h *History) addEvent(text []byte, kind string) error {
	var e event
	if err := json.Unmarshal(text, &e); err != nil {
		return fmt.Errorf("jhist: history: event %s: %w", kind, err)
	}
	h.take(e)
	if len(h.Attempts) > attemptsMost || len(h.started) > attemptsMost {
		return fmt.Errorf("jhist: history: more than %d attempts", attemptsMost)
	}
	return nil
}

func (h *History) take(e event) {
	switch {
	case e.JobCounters != nil:
		h.Counters = e.JobCounters
		if e.FinishMs > 0 {
			h.Ended = time.UnixMilli(e.FinishMs)
		}
	case e.SubmitMs > 0:
		h.Submitted = time.UnixMilli(e.SubmitMs)
	case e.Attempt == "":
	case e.FinishMs == 0:
		h.started[e.Attempt] = e.StartMs
	default:
		a := Attempt{
			ID: e.Attempt, Kind: e.Kind, Node: e.Node, Status: e.Status, Finished: time.UnixMilli(e.FinishMs), Counters: e.Counters,
		}
		if a.Status == "" {
			a.Status, a.Counters = e.BadStatus, nil
		}
		a.Started = a.Finished
		if ms, ok := h.started[e.Attempt]; ok {
			a.Started = time.UnixMilli(ms)
		}
		h.Attempts = append(h.Attempts, a)
	}
}
