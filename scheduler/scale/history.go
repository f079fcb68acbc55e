package scale

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"headroom/scheduler/jhist"
)

// readHistory reads the history file (.jhist) of one MapReduce job.
func readHistory(r io.Reader) (run, error) {
	h, err := jhist.Read(r)
	if err != nil {
		return run{}, err
	}
	return ofHistory(h)
}

// ofHistory is a job's history as a run. Maps are the parallel part. From the last map's end on, reducers are the serial part.
func ofHistory(h *jhist.History) (run, error) {
	maps, reduces := h.Of("MAP", "SUCCEEDED"), h.Of("REDUCE", "SUCCEEDED")
	switch {
	case len(maps) == 0:
		return run{}, errors.New("no map has succeeded")
	case h.Submitted.IsZero() || h.Ended.IsZero():
		return run{}, errors.New("the job's submission or its end is missing: the job must have succeeded")
	}
	r := run{Tasks: len(maps), Units: atOnce(maps)}
	begin, end, longest := maps[0].Started, maps[0].Finished, 0.0
	for _, a := range maps {
		d := a.Finished.Sub(a.Started).Seconds()
		if d < 0 {
			return run{}, fmt.Errorf("%s: %w", a.ID, errOrder)
		}
		r.Parallel += d
		longest = max(longest, d)
		if a.Started.Before(begin) {
			begin = a.Started
		}
		if a.Finished.After(end) {
			end = a.Finished
		}
	}
	for _, a := range reduces {
		from := a.Started
		if from.Before(end) {
			from = end
		}
		r.Serial = max(r.Serial, a.Finished.Sub(from).Seconds())
	}
	r.Slowest = max(longest, r.Parallel/float64(r.Units))
	r.Launch = begin.Sub(h.Submitted).Seconds()
	r.Stages = end.Sub(begin).Seconds() + r.Serial
	r.Rest = max(0, h.Ended.Sub(h.Submitted).Seconds()-r.Slowest-r.Serial)
	if !r.finite() {
		return run{}, errors.New("maps have a duration of 0, or started before the job was submitted")
	}
	return r, nil
}

// atOnce is how many attempts ran at the same time at most.
func atOnce(attempts []jhist.Attempt) int {
	type change struct {
		at time.Time
		by int
	}
	var changes []change
	for _, a := range attempts {
		changes = append(changes, change{a.Started, 1}, change{a.Finished, -1})
	}
	slices.SortFunc(changes, func(a, b change) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.by - b.by
	})
	now, most := 0, 1
	for _, c := range changes {
		now += c.by
		most = max(most, now)
	}
	return most
}
