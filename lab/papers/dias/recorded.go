package dias

import (
	"bytes"
	_ "embed" // the recorded runs
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"headroom/jobs/deflation"
)

// Measured times of real jobs on Spark by drop ratio: data/spark.json is our own record,
// made of single jobs on an idle Spark, by the command that commit e0402198 still has. Figs. 4 and 5 are
// judged on it: the model is fitted to one part of the runs and judged on the others.

//go:embed data/spark.json
var recordedJSON []byte

// record is a file of real runs.
type record struct {
	// Made describes how and where the runs were made, in words.
	Made string `json:"made"`
	// Spark is its version, Slots the tasks that run at a time, Partitions the map tasks of
	// a job with nothing dropped, Reduces those of its second stage.
	Spark      string `json:"spark"`
	Slots      int    `json:"slots"`
	Partitions int    `json:"partitions"`
	Reduces    int    `json:"reduces"`
	// Bytes is the size of each class's input.
	Bytes map[string]int64 `json:"input_bytes"`
	Runs  []recordedRun    `json:"runs"`
}

// recordedRun is one job of its own on an idle Spark.
type recordedRun struct {
	Class string `json:"class"`
	// Use is calibrate for runs that the model may be fitted to, judge for the others.
	Use     string `json:"use"`
	Percent int    `json:"drop_percent"`
	Seed    uint64 `json:"drop_seed"`
	Kept    int    `json:"map_tasks"`
	// Job is from the start of the driver to its end; Setup to the first map task's begin,
	// Maps from there to the last one's end, Shuffle to the first reduce task's begin,
	// Reduce to the last one's end: seconds. The driver's own end is the rest of Job.
	Job     float64 `json:"job_s"`
	Setup   float64 `json:"setup_s"`
	Maps    float64 `json:"maps_s"`
	Shuffle float64 `json:"shuffle_s"`
	Reduce  float64 `json:"reduce_s"`
	// Tasks are the map tasks' times.
	Tasks []float64 `json:"task_s"`
	// Load is the machine's load average when the run began.
	Load float64 `json:"load"`
}

// The uses of a run.
const (
	calibrate = "calibrate"
	judged    = "judge"
)

var errRecord = errors.New("dias: the record of real runs is incomplete")

// recorded is the record that the repository keeps.
func recorded() (*record, error) { return readRecord(bytes.NewReader(recordedJSON)) }

func readRecord(r io.Reader) (*record, error) {
	var out record
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&out); err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	for i := range out.Runs {
		x := &out.Runs[i]
		parts := x.Setup + x.Maps + x.Shuffle + x.Reduce
		if x.Kept < 1 || x.Kept > out.Partitions || len(x.Tasks) != x.Kept || !(x.Setup > 0 && x.Maps > 0 && parts <= x.Job) || x.Use != calibrate && x.Use != judged {
			return nil, fmt.Errorf("%w: runs[%d] of class %s at %d %%", errRecord, i, x.Class, x.Percent)
		}
	}
	return &out, nil
}

// of are the runs of a class for one use.
func (r *record) of(class, use string) (out []recordedRun) {
	for _, x := range r.Runs {
		if x.Class == class && x.Use == use {
			out = append(out, x)
		}
	}
	return out
}

// at are the times of the jobs of a class that are judged, at a drop ratio in percent.
func (r *record) at(class string, percent int) (times []float64) {
	for _, x := range r.of(class, judged) {
		if x.Percent == percent {
			times = append(times, x.Job)
		}
	}
	return times
}

// finished is the run as package deflation learns from it.
func (x *recordedRun) finished(r *record) deflation.Finished {
	return deflation.Finished{
		Theta: float64(x.Percent) / 100, Tasks: r.Partitions, Kept: x.Kept, Slots: r.Slots, Reduces: r.Reduces,
		Setup: x.Setup, Maps: x.Maps, Shuffle: x.Job - x.Setup - x.Maps - x.Reduce, Reduce: x.Reduce,
	}
}

// noise is the coefficient of variation of jobs that should take the same time: of one
// class at one drop ratio, over all that are judged.
func (r *record) noise() float64 {
	sum, n := 0.0, 0.0
	for _, class := range classNames() {
		for _, percent := range recordedRatios() {
			times := r.at(class, percent)
			if len(times) < 2 {
				continue
			}
			m := mean(times)
			for _, t := range times {
				sum += (t/m - 1) * (t/m - 1)
			}
			n += float64(len(times) - 1)
		}
	}
	return math.Sqrt(sum / n)
}

func classNames() []string { return []string{"high", "low"} }

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// recordedRatios are the drop ratios of the record, in percent: those of Figs. 4 and 5.
func recordedRatios() []int {
	var out []int
	for _, r := range ratios() {
		out = append(out, int(r))
	}
	slices.Sort(out)
	return out
}
