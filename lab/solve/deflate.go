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
	"strings"
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
	Discipline string `json:"discipline"`
	Sprints    string `json:"sprints"`
	Budget     *struct {
		Capacity float64 `json:"capacity_j"`
		Refill   float64 `json:"refill_w"`
	} `json:"sprint_budget"`
	Busy    float64         `json:"busy_w"`
	Classes []deflatedClass `json:"classes"`
}

type deflatedClass struct {
	Name        string             `json:"name"`
	Rate        float64            `json:"rate_per_s"`
	Job         *deflatedJob       `json:"job"`
	Profile     json.RawMessage    `json:"profile"`
	ErrorMax    float64            `json:"error_max"`
	Weight      float64            `json:"weight"`
	Thetas      []float64          `json:"thetas"`
	MeanMax     *float64           `json:"mean_max_s"`
	Percentiles map[string]float64 `json:"percentiles_max_s"`
	Sprint      *struct {
		Up       float64   `json:"speed_up"`
		Extra    float64   `json:"extra_w"`
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

// frontierMost bounds the points of the frontier in the answer.
const frontierMost = 30

func deflate(_ context.Context, in *deflating) (object, error) {
	p, warnings, err := in.problem()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	a, err := deflation.Choose(p)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "deflation: "))
	}
	out := object{
		"feasible": a.Chosen != nil, "chosen": nil, "nearest": nil, "beyond": nil, "overload": nil, "settings": a.Settings, "calls": a.Calls, "complete": a.Complete,
	}
	if a.Chosen != nil {
		out["chosen"] = in.point(a.Chosen, nil)
	}
	if a.Nearest != nil {
		out["nearest"] = in.point(&a.Nearest.Point, a.Nearest.Missed)
	}
	if a.Beyond != nil {
		out["beyond"] = in.point(&a.Beyond.Point, a.Beyond.Missed)
	}
	if o := a.Overload; o != nil {
		out["overload"] = object{"load": o.Plain, "least_load": o.Least}
	}
	frontier, binding := []object{}, []object{}
	for i := range a.Frontier {
		frontier = append(frontier, in.point(&a.Frontier[i], nil))
	}
	for _, b := range a.Binding {
		binding = append(binding, object{
			"class": in.Classes[b.Class].Name, "knob": map[bool]string{true: "sprint_after_s", false: "theta"}[b.Timeout],
			"from": finite(b.From), "to": finite(b.To), "missed": in.missed(b.Missed), "load": b.Load,
		})
	}
	out["frontier"], out["binding"], out["solve_s"] = frontier, binding, time.Since(began).Seconds()
	if len(warnings) > 0 {
		out["warnings"] = warnings
	}
	return out, nil
}

// point is a setting of the classes, with the bounds that it misses.
func (in *deflating) point(p *deflation.Point, missed []deflation.Violation) object {
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
	out := object{"classes": classes, "error": p.Error, "latency_s": finite(p.Latency), "power_w": p.Power.Watts(), "load": p.Load}
	if len(missed) > 0 {
		out["missed"] = in.missed(missed)
	}
	return out
}

func (in *deflating) missed(all []deflation.Violation) []object {
	out := []object{}
	for _, v := range all {
		out = append(out, object{"class": in.Classes[v.Class].Name, "what": v.What, "value": v.Value, "bound": v.Bound})
	}
	return out
}

// problem is the file as package deflation takes it.
func (in *deflating) problem() (p deflation.Problem, warnings []string, err error) {
	p = deflation.Problem{Discipline: queueing.Discipline(in.Discipline), Sprints: deflation.Policy(in.Sprints), FrontierMost: frontierMost, Busy: units.FromWatts(in.Busy)}
	watts := []number{{"busy_w", &in.Busy, 0, wattsMost}}
	if b := in.Budget; b != nil {
		watts = append(watts, number{"sprint_budget.refill_w", &b.Refill, 0, wattsMost}, number{"sprint_budget.capacity_j", &b.Capacity, 0, wattsMost})
		p.Budget = &deflation.Bucket{Capacity: units.FromJoules(b.Capacity), Refill: units.FromWatts(b.Refill)}
	}
	for i := range in.Classes {
		if s := in.Classes[i].Sprint; s != nil {
			watts = append(watts, number{fmt.Sprintf("classes[%d].sprint.extra_w", i), &s.Extra, 0, wattsMost})
		}
	}
	if err := within(watts...); err != nil {
		return p, nil, err
	}
	for i := range in.Classes {
		if in.Classes[i].Name == "" {
			in.Classes[i].Name = strconv.Itoa(i)
		}
		c, warned, err := in.Classes[i].class()
		if err != nil {
			return p, nil, fmt.Errorf("classes[%d].%s", i, strings.TrimPrefix(err.Error(), "deflation: "))
		}
		for _, w := range warned {
			warnings = append(warnings, "class "+c.Name+": "+w)
		}
		p.Classes = append(p.Classes, c)
	}
	return p, warnings, nil
}

func (c *deflatedClass) class() (out deflation.Class, warnings []string, err error) {
	out = deflation.Class{Name: c.Name, Rate: c.Rate, ErrorMax: c.ErrorMax, Weight: c.Weight, Ratios: c.Thetas, MeanMax: or(c.MeanMax, 0)}
	if c.MeanMax != nil && !(out.MeanMax > 0) {
		return out, nil, fmt.Errorf("mean_max_s is %v: must be above 0, or left out", out.MeanMax)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Percentiles)) {
		p, err := strconv.ParseFloat(name, 64)
		if err != nil {
			return out, nil, fmt.Errorf("percentiles_max_s: invalid percentile %q; use a fraction such as \"0.95\"", name)
		}
		out.Percentiles = append(out.Percentiles, deflation.Percentile{P: p, Max: c.Percentiles[name]})
	}
	if s := c.Sprint; s != nil {
		out.SprintUp, out.SprintExtra, out.SprintShare, out.Timeouts = s.Up, units.FromWatts(s.Extra), s.Share, s.Timeouts
	}
	if c.Job == nil {
		return out, nil, errors.New("job is missing: needs measurements or a task model")
	}
	if out.Jobs, err = c.Job.jobs(); err != nil {
		return out, nil, fmt.Errorf("job.%s", strings.TrimPrefix(err.Error(), "deflation: "))
	}
	out.Profile, warnings, err = c.profile()
	return out, warnings, err
}

// profile is a table of losses, or a profile as `scheduler profile --out` has written it.
func (c *deflatedClass) profile() (*quality.Profile, []string, error) {
	raw := bytes.TrimSpace(c.Profile)
	switch {
	case len(raw) == 0 || bytes.Equal(raw, []byte("null")):
		return nil, nil, nil
	case raw[0] == '{':
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
	if j.Measured != nil {
		measures := make([]deflation.Measure, len(j.Measured))
		for i, m := range j.Measured {
			measures[i] = deflation.Measure{Drop: m.Drop, Mean: m.Mean, CV: m.CV}
		}
		return deflation.Measured(measures)
	}
	switch {
	case j.Slots < 1:
		return deflation.Jobs{}, fmt.Errorf("slots is %d: must be at least 1", j.Slots)
	case j.Maps < 1 || j.Maps > queueing.MaxPhases:
		return deflation.Jobs{}, fmt.Errorf("maps is %d: must be from 1 to %d", j.Maps, queueing.MaxPhases)
	case j.Reduces < 0 || j.Reduces > queueing.MaxPhases:
		return deflation.Jobs{}, fmt.Errorf("reduces is %d: must be from 0 to %d", j.Reduces, queueing.MaxPhases)
	case j.Stages != "" && j.Stages != "input" && j.Stages != "all":
		return deflation.Jobs{}, fmt.Errorf("stages %q: must be input or all", j.Stages)
	case j.Model == "wave":
		return j.waves()
	case j.Model != "" && j.Model != "task":
		return deflation.Jobs{}, fmt.Errorf("model %q: must be task or wave", j.Model)
	}
	m := queueing.TaskModel{
		Slots: j.Slots, Maps: queueing.Exactly(j.Maps), Reduces: queueing.Exactly(j.Reduces),
		MapMean: j.Map, ReduceMean: j.Reduce, Setup: j.Setup, Shuffle: j.Shuffle,
	}
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

func (j *deflatedJob) waves() (deflation.Jobs, error) {
	m := queueing.WaveModel{Slots: j.Slots, Maps: queueing.Exactly(j.Maps), Reduces: queueing.Exactly(j.Reduces)}
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

// ratios returns the drop ratios of n tasks on so many slots that make a difference: for each
// number of tasks that can be left the least ratio which leaves it. Where waves count alone,
// those that drop a whole wave. There are 16 at most; of more, those that drop a wave and
// some between them. Dropping everything is not among them.
func ratios(tasks, slots int, waves bool) []float64 {
	var all, whole []int // tasks left
	for left := tasks; left >= 1; left-- {
		if left == tasks || left%max(slots, 1) == 0 {
			whole = append(whole, left)
		}
		all = append(all, left)
	}
	left := all
	switch {
	case waves:
		left = thinned(whole, ratiosMost)
	case len(all) > ratiosMost:
		left = thinned(whole, ratiosMost)
		left = append(left, thinned(all, ratiosMost-len(left))...)
		slices.Sort(left)
		left = slices.Compact(left)
		slices.Reverse(left)
	}
	out := make([]float64, len(left))
	for i, n := range left {
		out[i] = float64(tasks-n) / float64(tasks)
	}
	return out
}

// thinned returns at most so many of all, evenly spread, the first one among them.
func thinned(all []int, most int) []int {
	if len(all) <= most {
		return slices.Clone(all)
	}
	var out []int
	for i := range most {
		out = append(out, all[i*len(all)/most])
	}
	return out
}
