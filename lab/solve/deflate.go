package solve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"headroom/internal/cli"
	"headroom/internal/jsonfile"
	"headroom/jobs/deflation"
	"headroom/jobs/quality"
	"headroom/jobs/queueing"
	"headroom/units"
)

// deflating requests what each class drops and when it sprints. What is absent is not bounded, or not there.
type deflating struct {
	Discipline queueing.Discipline `json:"discipline"`
	Sprints    deflation.Policy    `json:"sprints"`
	Budget     *struct {
		Capacity float64 `json:"capacity_j" in:"0 1e9"`
		Refill   float64 `json:"refill_w" in:"0 1e9"`
	} `json:"sprint_budget"`
	Busy    float64         `json:"busy_w" in:"0 1e9"`
	Classes []deflatedClass `json:"classes"`
}

type deflatedClass struct {
	Name        string             `json:"name"`
	Rate        float64            `json:"rate_per_s"`
	Job         *deflatedJob       `json:"job" need:"needs measurements or a task model"`
	Profile     json.RawMessage    `json:"profile"`
	ErrorMax    float64            `json:"error_max"`
	Weight      float64            `json:"weight"`
	Thetas      []float64          `json:"thetas"`
	MeanMax     *float64           `json:"mean_max_s" in:"1e-9 1e9"`
	Percentiles map[string]float64 `json:"percentiles_max_s"`
	Sprint      struct {
		Up       float64   `json:"speed_up"`
		Extra    float64   `json:"extra_w" in:"0 1e9"`
		Share    float64   `json:"share"`
		Timeouts []float64 `json:"timeouts_s"`
	} `json:"sprint"`
}

// deflatedJob is either measured or a model of tasks or waves.
type deflatedJob struct {
	Measured []struct {
		Drop float64 `json:"drop"`
		Mean float64 `json:"mean_s"`
		CV   float64 `json:"cv"`
	} `json:"measured"`
	Model   string  `json:"model"`
	Stages  string  `json:"stages"`
	Slots   int     `json:"slots"`
	Maps    int     `json:"maps"`
	Reduces int     `json:"reduces"`
	Map     float64 `json:"map_s"`
	Reduce  float64 `json:"reduce_s"`
	Setup   float64 `json:"setup_s"`
	Shuffle float64 `json:"shuffle_s"`
	CV      float64 `json:"cv"`
}

const frontierMost = 30

func deflate(_ context.Context, in *deflating) (object, error) {
	p := deflation.Problem{Discipline: in.Discipline, Sprints: in.Sprints, FrontierMost: frontierMost, Busy: units.FromWatts(in.Busy)}
	if b := in.Budget; b != nil {
		p.Budget = &deflation.Bucket{Capacity: units.FromJoules(b.Capacity), Refill: units.FromWatts(b.Refill)}
	}
	var warnings []string
	for i := range in.Classes {
		if in.Classes[i].Name == "" {
			in.Classes[i].Name = strconv.Itoa(i)
		}
		c, warned, err := in.Classes[i].class()
		if err != nil {
			return nil, fmt.Errorf("classes[%d].%w", i, bare(err, "deflation: "))
		}
		for _, w := range warned {
			warnings = append(warnings, "class "+c.Name+": "+w)
		}
		p.Classes = append(p.Classes, c)
	}
	began := time.Now()
	a, err := deflation.Choose(p)
	if err != nil {
		return nil, bare(err, "deflation: ")
	}
	out := in.answer(a)
	out["solve_s"] = time.Since(began).Seconds()
	if len(warnings) > 0 {
		out["warnings"] = warnings
	}
	return out, nil
}

func (in *deflating) answer(a *deflation.Answer) object {
	out := object{
		"feasible": a.Chosen != nil, "chosen": nil, "nearest": nil, "beyond": nil, "overload": nil, "settings": a.Settings, "calls": a.Calls, "complete": a.Complete,
	}
	if a.Chosen != nil {
		out["chosen"] = in.point(a.Chosen)
	}
	for name, miss := range map[string]*deflation.Miss{"nearest": a.Nearest, "beyond": a.Beyond} {
		if miss != nil {
			point := in.point(&miss.Point)
			if len(miss.Missed) > 0 {
				point["missed"] = in.missed(miss.Missed)
			}
			out[name] = point
		}
	}
	if o := a.Overload; o != nil {
		out["overload"] = object{"load": o.Plain, "least_load": o.Least}
	}
	frontier, binding := []object{}, []object{}
	for i := range a.Frontier {
		frontier = append(frontier, in.point(&a.Frontier[i]))
	}
	for _, b := range a.Binding {
		knob := "theta"
		if b.Timeout {
			knob = "sprint_after_s"
		}
		binding = append(binding, object{
			"class": in.Classes[b.Class].Name, "knob": knob, "from": finite(b.From), "to": finite(b.To), "missed": in.missed(b.Missed), "load": b.Load,
		})
	}
	out["frontier"], out["binding"] = frontier, binding
	return out
}

func (in *deflating) point(p *deflation.Point) object {
	classes := []object{}
	for i, s := range p.Classes {
		at, p95 := object{}, 0.0
		for _, x := range s.Percentiles {
			if x.P == 0.95 {
				p95 = x.At
			}
			at[strconv.FormatFloat(x.P, 'g', -1, 64)] = finite(x.At)
		}
		classes = append(classes, object{
			"name": in.Classes[i].Name, "theta": s.Theta, "sprint_after_s": finite(s.After), "error": s.Error, "mean_s": s.Mean, "p95_s": p95,
			"percentiles_s": at, "service_s": s.Service, "sprinting": s.Sprinting, "granted": cli.Known(s.Granted, !math.IsInf(s.After, 1)),
		})
	}
	return object{"classes": classes, "error": p.Error, "latency_s": finite(p.Latency), "power_w": p.Power.Watts(), "load": p.Load}
}

func (in *deflating) missed(all []deflation.Violation) []object {
	out := []object{}
	for _, v := range all {
		out = append(out, object{"class": in.Classes[v.Class].Name, "what": v.What, "value": v.Value, "bound": v.Bound})
	}
	return out
}

func (c *deflatedClass) class() (out deflation.Class, warnings []string, err error) {
	out = deflation.Class{
		Name: c.Name, Rate: c.Rate, ErrorMax: c.ErrorMax, Weight: c.Weight, Ratios: c.Thetas,
		SprintUp: c.Sprint.Up, SprintExtra: units.FromWatts(c.Sprint.Extra), SprintShare: c.Sprint.Share, Timeouts: c.Sprint.Timeouts,
	}
	if c.MeanMax != nil {
		out.MeanMax = *c.MeanMax
	}
	for _, name := range slices.Sorted(maps.Keys(c.Percentiles)) {
		p, err := strconv.ParseFloat(name, 64)
		if err != nil {
			return out, nil, fmt.Errorf("percentiles_max_s: invalid percentile %q; use a fraction such as \"0.95\"", name)
		}
		out.Percentiles = append(out.Percentiles, deflation.Percentile{P: p, Max: c.Percentiles[name]})
	}
	if out.Jobs, err = c.Job.jobs(); err != nil {
		return out, nil, fmt.Errorf("job.%w", bare(err, "deflation: "))
	}
	out.Profile, warnings, err = c.profile()
	return out, warnings, err
}

// profile is a table of losses, or a profile as `scheduler profile --out` has written it.
func (c *deflatedClass) profile() (*quality.Profile, []string, error) {
	raw := bytes.TrimSpace(c.Profile)
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil, nil, nil
	}
	if raw[0] == '{' {
		p, warnings, err := quality.Parse(raw)
		if err != nil {
			return nil, nil, fmt.Errorf("profile: %w", err)
		}
		return &p, warnings, nil
	}
	var rows []struct {
		Drop  *float64 `json:"drop"`
		Error *float64 `json:"error"`
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&rows); err != nil {
		return nil, nil, fmt.Errorf("profile: %s", jsonfile.Explain(err))
	}
	table := make([]deflation.Loss, len(rows))
	for i, r := range rows {
		if r.Drop == nil || r.Error == nil {
			return nil, nil, fmt.Errorf("profile[%d]: drop or error is missing", i)
		}
		table[i] = deflation.Loss{Drop: *r.Drop, Error: *r.Error}
	}
	return deflation.ProfileOf(c.Name, table)
}

func (j *deflatedJob) jobs() (deflation.Jobs, error) {
	maps, reduces := queueing.Exactly(j.Maps), queueing.Exactly(j.Reduces)
	switch {
	case j.Measured != nil:
		measures := make([]deflation.Measure, len(j.Measured))
		for i, m := range j.Measured {
			measures[i] = deflation.Measure(m)
		}
		return deflation.Measured(measures)
	case j.Slots < 1:
		return deflation.Jobs{}, fmt.Errorf("slots is %d: must be at least 1", j.Slots)
	case j.Maps < 1 || j.Maps > queueing.MaxPhases || j.Reduces < 0 || j.Reduces > queueing.MaxPhases:
		return deflation.Jobs{}, fmt.Errorf("maps is %d and reduces is %d: must be from 1 and 0 to %d", j.Maps, j.Reduces, queueing.MaxPhases)
	case j.Stages != "" && j.Stages != "input" && j.Stages != "all":
		return deflation.Jobs{}, fmt.Errorf("stages %q: must be input or all", j.Stages)
	case j.Model == "wave":
		return j.waves(queueing.WaveModel{Slots: j.Slots, Maps: maps, Reduces: reduces})
	case j.Model != "" && j.Model != "task":
		return deflation.Jobs{}, fmt.Errorf("model %q: must be task or wave", j.Model)
	}
	m := queueing.TaskModel{Slots: j.Slots, Maps: maps, Reduces: reduces, MapMean: j.Map, ReduceMean: j.Reduce, Setup: j.Setup, Shuffle: j.Shuffle}
	return deflation.Jobs{Ratios: ratios(j.Maps, j.Slots, false), Time: func(theta float64) (queueing.PH, error) {
		m.MapDrop, m.ReduceDrop = j.drops(theta)
		return queueing.TaskLevel(m)
	}}, nil
}

// drops returns the part of the map and of the reduce tasks that a drop ratio leaves out.
func (j *deflatedJob) drops(theta float64) (maps, reduces float64) {
	if j.Stages == "all" {
		return theta, theta
	}
	return theta, 0
}

func (j *deflatedJob) waves(m queueing.WaveModel) (deflation.Jobs, error) {
	var problems []error
	length := func(name string, mean float64) (ph queueing.PH) {
		if mean != 0 {
			var err error
			if ph, err = queueing.Fit(mean, j.CV*j.CV); err != nil {
				problems = append(problems, fmt.Errorf("%s with cv: %w", name, err))
			}
		}
		return ph
	}
	m.MapWaves = []queueing.PH{length("map_s", j.Map)}
	if j.Reduces > 0 {
		m.ReduceWaves = []queueing.PH{length("reduce_s", j.Reduce)}
	}
	m.Setup, m.Shuffle = length("setup_s", j.Setup), length("shuffle_s", j.Shuffle)
	return deflation.Jobs{Ratios: ratios(j.Maps, j.Slots, true), Time: func(theta float64) (queueing.PH, error) {
		m.MapDrop, m.ReduceDrop = j.drops(theta)
		return queueing.WaveLevel(m)
	}}, errors.Join(problems...)
}

// ratiosMost bounds the drop ratios that are tried of one class, as in package deflation.
const ratiosMost = 16

// ratios returns the least drop ratio for each number of tasks that can be left on so many slots, at most 16; of more those
// that drop a whole wave and some between them. Where waves count alone, only those. Dropping everything is not among them.
func ratios(tasks, slots int, waves bool) (out []float64) {
	var all, whole []int // tasks left
	for left := tasks; left >= 1; left-- {
		if left == tasks || left%slots == 0 {
			whole = append(whole, left)
		}
		all = append(all, left)
	}
	if waves || len(all) > ratiosMost {
		whole = thinned(whole, ratiosMost)
		if !waves {
			whole = append(whole, thinned(all, ratiosMost-len(whole))...)
		}
		all = whole
	}
	slices.Sort(all)
	for _, n := range slices.Backward(slices.Compact(all)) {
		out = append(out, float64(tasks-n)/float64(tasks))
	}
	return out
}

// thinned returns at most so many of all, evenly spread, the first one among them.
func thinned(all []int, most int) (out []int) {
	for i := range min(most, len(all)) {
		out = append(out, all[i*len(all)/min(most, len(all))])
	}
	return out
}
