package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/internal/pause"
	"headroom/jobs/buffers"
	"headroom/jobs/deflation"
	"headroom/jobs/dispatch"
	"headroom/jobs/quality"
	"headroom/jobs/queueing"
	"headroom/units"
)

// PointGiven is the source of an operating point that was configured, not found.
const PointGiven = "scheduler.yaml"

const (
	// chooseEvery is the interval of the search for better operating points.
	chooseEvery = time.Minute
	// samplesLeast is the number of ended runs of a class that the duration of its jobs is estimated from.
	samplesLeast = 5
	// samplesMost bounds the runs that are kept per class. Newer runs replace older ones of the same drop ratio; runs
	// of other drop ratios stay, as they show the effect of dropping.
	samplesMost = 200
	// arrivalsMost bounds the arrivals: 200 give a rate within 7 %, which at a load of 80 % is a third of the waiting
	// time; 2,000 give it within 2 %.
	arrivalsMost = 2000
	// percentile is the percentile that Latency.P95 bounds.
	percentile = 0.95
)

// Sprint is the section "sprint" of scheduler.yaml: the effect of a sprint, as the deflator assumes it.
type Sprint struct {
	// SpeedUp is how many times as fast a sprint makes a job, at least 1; 0 is unknown.
	SpeedUp float64 `yaml:"speed_up"`
	// Extra is the power of a sprint above that of the same job without one.
	Extra units.Power `yaml:"extra"`
	// Budget and Refill are those of the sprint budget; 0 J grants every sprint.
	Budget units.Energy `yaml:"budget"`
	Refill units.Power  `yaml:"refill"`
}

// check returns the error in the section, or what is missing for timers that are to be found.
func (s Sprint) check(classes []Class) *cli.Error {
	if s.SpeedUp != 0 && (math.IsNaN(s.SpeedUp) || s.SpeedUp < 1 || s.SpeedUp > 100) {
		return config.Bad("speed_up is how many times as fast a sprint makes a job, for example 2.5", "sprint.speed_up is %v; it must be from 1 to 100", s.SpeedUp)
	}
	for _, k := range classes {
		if k.SprintAfter == auto && s.SpeedUp == 0 {
			return config.Bad("for example sprint: {speed_up: 2.5, extra: 90W}", "sprint_after auto of class %s without sprint.speed_up", k.Name)
		}
	}
	return nil
}

// sample is one completed run. Times are seconds since its dispatch.
type sample struct {
	// seconds is when it ended; timed is whether it had a sprint timer.
	seconds float64
	timed   bool
	// fast are its sprints.
	fast []span
	// told is whether its course is known: run are its numbers, maps and over when its first map task started and the
	// last one ended, reduce when its reduce task started.
	told               bool
	run                deflation.Finished
	maps, over, reduce float64
}

// span is a period of time.
type span struct{ from, to float64 }

// sprinted returns how much of the time up to a moment was sprinted.
func (s *sample) sprinted(moment float64) (sum float64) {
	for _, f := range s.fast {
		sum += max(0, min(f.to, moment)-f.from)
	}
	return sum
}

// plain returns the moment without sprints.
func (s *sample) plain(moment, speedUp float64) float64 {
	return moment + (speedUp-1)*s.sprinted(moment)
}

// finished returns the run in the form of package deflation.
func (s *sample) finished(speedUp float64) deflation.Finished {
	maps, over, reduce, end := s.plain(s.maps, speedUp), s.plain(s.over, speedUp), s.plain(s.reduce, speedUp), s.plain(s.seconds, speedUp)
	f := s.run
	f.Setup, f.Maps, f.Shuffle, f.Reduce = maps, over-maps, reduce-over, end-reduce
	return f
}

// history is the measurements of the jobs of one class.
type history struct {
	arrivals []time.Time
	samples  []sample
	// plain are the durations in seconds of runs without a sprint timer. They are kept separately, because there are no
	// more of them once a timer is found.
	plain []float64
}

// arrived records the submission of a job.
func (h *history) arrived(at time.Time) { h.arrivals = newest(append(h.arrivals, at), arrivalsMost) }

// ended records a completed run.
func (h *history) ended(s sample) {
	if !s.timed {
		h.plain = newest(append(h.plain, s.seconds), samplesMost)
	}
	h.samples = deflation.Remember(h.samples, s, samplesMost, func(s *sample) float64 { return s.run.Theta })
}

func newest[T any](all []T, most int) []T { return all[max(0, len(all)-most):] }

// rate returns the arrivals per second up to now, and false if it is unknown.
func (h *history) rate(now time.Time) (perSecond float64, known bool) {
	if len(h.arrivals) < 2 {
		return 0, false
	}
	first := slices.MinFunc(h.arrivals, time.Time.Compare)
	span := now.Sub(first).Seconds()
	return float64(len(h.arrivals)-1) / span, span > 0
}

// time returns the mean duration of a run and its coefficient of variation, with sprints removed.
func (h *history) time(speedUp float64) (mean, cv float64) {
	var sum, square float64
	for i := range h.samples {
		x := max(h.samples[i].plain(h.samples[i].seconds, speedUp), 1e-3)
		sum, square = sum+x, square+x*x
	}
	n := float64(len(h.samples))
	mean = sum / n
	return mean, math.Sqrt(max(0, square/n-mean*mean)) / mean
}

// finished returns the runs whose course is known, with sprints removed.
func (h *history) finished(speedUp float64) (all []deflation.Finished) {
	for i := range h.samples {
		if h.samples[i].told {
			all = append(all, h.samples[i].finished(speedUp))
		}
	}
	return all
}

// speedUp returns how many times as fast sprints make the jobs, from runs with and without a timer. With too few of
// them it returns the configured value.
func (h *history) speedUp(told float64) float64 {
	var timed []deflation.TimerRun
	for i := range h.samples {
		if s := &h.samples[i]; s.timed {
			fast := s.sprinted(s.seconds)
			timed = append(timed, deflation.TimerRun{Plain: s.seconds - fast, Sprinted: fast})
		}
	}
	if up, known := deflation.LearnSpeed(h.plain, timed); known {
		return up
	}
	return max(1, told)
}

// found is the result of a search for operating points: the points of the classes, and the source of each in words.
type found struct {
	points []buffers.Class
	why    []string
}

// wanted reports whether the point of any class is to be found.
func (c *Config) wanted() bool {
	d := buffers.Discipline(c.Discipline)
	return slices.ContainsFunc(c.Classes, func(k Class) bool {
		return d.Deflates() && k.Theta == auto || d.Sprints() && k.SprintAfter == auto
	})
}

// look searches better points than the last ones, which stay if the model has none. histories are in the order of the
// classes of c.
func (c *Config) look(now time.Time, last []buffers.Class, histories []history, known func(name string) (quality.Profile, error)) found {
	out := found{points: slices.Clone(last), why: make([]string, len(c.Classes))}
	for i, k := range c.Classes {
		if out.why[i] = PointGiven; k.Theta == auto || k.SprintAfter == auto {
			out.why[i] = "no job of this class yet"
		}
	}
	problem, index, why := c.problem(now, histories, known)
	if why == "" && len(index) == 0 {
		return out
	}
	var answer *deflation.Answer
	if why == "" {
		var err error
		if answer, err = deflation.Choose(problem); err != nil {
			why = err.Error()
		} else if answer.Chosen == nil {
			why = c.infeasible(answer, index)
		}
	}
	for n, i := range index {
		k := c.Classes[i]
		if k.Theta != auto && k.SprintAfter != auto {
			continue
		}
		if why != "" {
			out.why[i] = "last point kept: " + why
			continue
		}
		set := answer.Chosen.Classes[n]
		if k.Theta == auto {
			out.points[i].Theta = set.Theta
		}
		if k.SprintAfter == auto {
			out.points[i].Sprint = !math.IsInf(set.After, 1)
			out.points[i].SprintAfter = 0
			if out.points[i].Sprint {
				out.points[i].SprintAfter = time.Duration(set.After * float64(time.Second)).Round(time.Millisecond)
			}
		}
		out.why[i] = c.foundWords(set, answer, n, index)
	}
	return out
}

// problem returns the problem for the deflator and the class of each of its classes. These go from lowest to highest,
// without classes that have no jobs. why states what is still unknown.
func (c *Config) problem(now time.Time, histories []history, known func(name string) (quality.Profile, error)) (p deflation.Problem, index []int, why string) {
	p = deflation.Problem{Discipline: queueing.NonPreemptive}
	if c.Sprint.Budget > 0 {
		p.Budget = &deflation.Bucket{Capacity: c.Sprint.Budget, Refill: c.Sprint.Refill}
	}
	for i := len(c.Classes) - 1; i >= 0; i-- {
		rate, arrives := histories[i].rate(now)
		if !arrives {
			continue
		}
		index = append(index, i)
		if n := len(histories[i].samples); n < samplesLeast {
			why = fmt.Sprintf("%d of %d required jobs of class %s have ended", n, samplesLeast, c.Classes[i].Name)
			continue
		}
		k, err := c.modelled(c.Classes[i], &histories[i], known)
		if err != nil {
			why = err.Error()
			continue
		}
		k.Rate = rate
		p.Classes = append(p.Classes, k)
	}
	return p, index, why
}

// modelled returns a class in the form of the deflator. What is not to be found is part of the measured time. The
// effect of dropping follows from the wave model, learned from the same runs.
func (c *Config) modelled(k Class, h *history, known func(name string) (quality.Profile, error)) (out deflation.Class, err error) {
	d := buffers.Discipline(c.Discipline)
	drops, sprints := k.Theta == auto && d.Deflates(), k.SprintAfter == auto && d.Sprints()
	out = deflation.Class{Name: k.Name}
	up := 1.0
	if sprints {
		if up = max(1, c.Sprint.SpeedUp); !drops { // drops change the duration more than sprints
			up = h.speedUp(c.Sprint.SpeedUp)
		}
	}
	if drops {
		profile, err := known(k.Profile)
		if err != nil {
			return out, fmt.Errorf("profile %s of class %s: %w", k.Profile, k.Name, err)
		}
		out.Profile = &profile
		out.ErrorMax, _ = config.ParsePart(k.MaxError)
		runs := h.finished(up)
		if len(runs) < samplesLeast {
			return out, fmt.Errorf("%d of %d required jobs of class %s reported the duration of their map tasks", len(runs), samplesLeast, k.Name)
		}
		model, _ := deflation.Learn(runs)
		out.Jobs = model.Jobs(deflation.DropWithin(&profile, out.ErrorMax))
	} else {
		mean, cv := h.time(up)
		if out.Jobs, err = deflation.Measured([]deflation.Measure{{Mean: mean, CV: cv}}); err != nil {
			return out, err
		}
	}
	if sprints {
		out.SprintUp, out.SprintExtra = up, c.Sprint.Extra
	}
	if bound, err := config.ParseDuration(k.Latency.Mean); err == nil && k.Latency.Mean != "" {
		out.MeanMax = bound.Seconds()
	}
	if bound, err := config.ParseDuration(k.Latency.P95); err == nil && k.Latency.P95 != "" {
		out.Percentiles = []deflation.Percentile{{P: percentile, Max: bound.Seconds()}}
	}
	return out, nil
}

// infeasible explains why no setting meets the bounds, and which ones the nearest setting misses.
func (c *Config) infeasible(a *deflation.Answer, index []int) string {
	switch {
	case a.Nearest != nil:
		return "no setting meets the bounds; the nearest misses " + c.missedWords(a.Nearest.Missed, index)
	case a.Overload != nil:
		return fmt.Sprintf("overload: load %.2f, or %.2f with the maximum of drops and sprints", a.Overload.Plain, a.Overload.Least)
	}
	return "no setting meets the bounds"
}

// missedWords returns the missed bounds, with numbers.
func (c *Config) missedWords(missed []deflation.Violation, index []int) string {
	parts := make([]string, len(missed))
	for i, v := range missed {
		unit := func(x float64) string { return fmt.Sprintf("%.4g s", x) }
		if v.What == "error" {
			unit = units.Percent
		}
		parts[i] = fmt.Sprintf("%s of class %s (%s, bound %s)", v.What, c.Classes[index[v.Class]].Name, unit(v.Value), unit(v.Bound))
	}
	return strings.Join(parts, ", ")
}

// foundWords returns what a point promises, and what prevents a lower drop ratio.
func (c *Config) foundWords(set deflation.Setting, a *deflation.Answer, n int, index []int) string {
	text := fmt.Sprintf("found: error %s, mean %.4g s", units.Percent(set.Error), set.Mean)
	if i := slices.IndexFunc(set.Percentiles, func(p queueing.Percentile) bool { return p.P == percentile }); i >= 0 {
		text += fmt.Sprintf(", p95 %.4g s", set.Percentiles[i].At)
	}
	for _, b := range a.Binding {
		if b.Class == n && len(b.Missed) > 0 {
			return text + "; the previous step would miss " + c.missedWords(b.Missed, index)
		}
	}
	return text
}

// choose searches operating points once a minute until ctx ends.
func (s *Server) choose(ctx context.Context) error {
	for pause.For(ctx, chooseEvery) {
		reply := make(chan measured, 1)
		m, err := ask(ctx, s.inbox, measuredEvent{reply}, reply)
		if err != nil {
			return nil //nolint:nilerr // only the end of ctx can prevent it
		}
		if s.inbox.post(ctx, pointEvent{s.cfg.look(time.Now(), m.points, m.histories, s.profiles.Profile)}) != nil {
			return nil
		}
	}
	return nil
}

// measured is a copy of the measurements, with the points in force.
type measured struct {
	points    []buffers.Class
	histories []history
}

type measuredEvent struct{ reply chan<- measured }

func (e measuredEvent) apply(l *loop, _ time.Time) {
	m := measured{points: slices.Clone(l.queue.Classes)}
	for _, h := range l.histories {
		m.histories = append(m.histories, history{slices.Clone(h.arrivals), slices.Clone(h.samples), slices.Clone(h.plain)})
	}
	e.reply <- m
}

// pointEvent is the result of a search for operating points.
type pointEvent struct{ found }

func (e pointEvent) apply(l *loop, _ time.Time) {
	for i, k := range e.points {
		if k == l.queue.Classes[i] && e.why[i] == l.points[i] {
			continue
		}
		l.logger.Info("operating point changed", slog.String("class", k.Name), slog.Float64("theta", k.Theta), slog.Bool("sprint", k.Sprint),
			slog.Float64("sprint_after_s", k.SprintAfter.Seconds()), slog.String("why", e.why[i]))
	}
	if err := l.queue.Point(e.points); err != nil {
		l.logger.Warn("operating points rejected", slog.Any("error", err))
		return
	}
	l.points = e.why
}

// measureEnd records a completed run.
func (l *loop) measureEnd(now time.Time, r *record, a dispatch.EndJob) {
	i := slices.IndexFunc(l.cfg.Classes, func(k Class) bool { return k.Name == r.file.Class })
	if i < 0 || a.State != dispatch.Done || a.Tasks == 0 {
		return
	}
	l.histories[i].ended(r.sample(now, a))
}

// sample returns the sample of a completed run.
func (r *record) sample(now time.Time, a dispatch.EndJob) sample {
	began := now.Add(-a.Runtime)
	after := func(t time.Time) float64 { return min(max(0, t.Sub(began).Seconds()), a.Runtime.Seconds()) }
	s := sample{seconds: a.Runtime.Seconds(), timed: r.run.Sprint}
	for _, f := range r.sprints(now) {
		s.fast = append(s.fast, span{after(f[0]), after(f[1])})
	}
	c := a.Course
	if c.Maps.IsZero() || c.MapsOver.IsZero() {
		return s
	}
	s.told, s.maps, s.over, s.reduce = true, after(c.Maps), after(c.MapsOver), s.seconds
	s.run = deflation.Finished{Theta: r.run.Theta, Tasks: c.Tasks, Kept: c.Kept, Slots: c.Slots}
	if !c.Reduce.IsZero() {
		s.run.Reduces, s.reduce = 1, after(c.Reduce)
	}
	return s
}

// sprints returns the run's sprints up to now.
func (r *record) sprints(now time.Time) [][2]time.Time {
	if r.sprint == nil {
		return r.fast
	}
	return append(slices.Clone(r.fast), [2]time.Time{time.UnixMicro(r.sprint.GetSinceUs()), now})
}
