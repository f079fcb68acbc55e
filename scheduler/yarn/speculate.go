package yarn

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/each"
	"headroom/jobs/speculation"
	"headroom/scheduler/hookserver"
	"headroom/units"
)

// speculateMost bounds the map tasks in a hook's request: more would not fit.
const speculateMost = 8000

// slowest is the minimum speed of a capped node, as a fraction of its full speed.
const slowest = 0.05

// speed is the speed of a node under its cap, as a fraction of its full speed, and its speed before the cap changed.
type speed struct {
	now, before float64
	changed     time.Time
	// since is when it fell below 1.
	since time.Time
}

// at returns the speed at a time.
func (s speed) at(when time.Time) float64 {
	if when.Before(s.changed) {
		return s.before
	}
	return s.now
}

// cap applies a node's cap.
func (b *book) cap(now time.Time, d *headroomv1.CapDirective) {
	if d.GetNode() == "" || d.GetMaxUw() <= 0 {
		return
	}
	next := min(1, max(slowest, float64(d.GetCapUw())/float64(d.GetMaxUw())))
	was, known := b.speeds[d.GetNode()]
	if !known {
		was.now = next
	}
	if !known || was.now != next {
		since := was.since
		if !known || was.now == 1 {
			since = now
		}
		b.speeds[d.GetNode()] = speed{now: next, before: was.now, changed: now, since: since}
	}
}

// speedOf returns the known speed of the node at a NodeManager's address.
func (b *book) speedOf(address string) speed {
	if s, known := b.speeds[b.cfg.node(address)]; known {
		return s
	}
	return speed{now: 1, before: 1}
}

// meanSpeed returns the mean speed of a container on any node.
func (b *book) meanSpeed() float64 {
	if len(b.speeds) == 0 {
		return 1
	}
	sum := 0.0
	for _, s := range b.speeds {
		sum += s.now
	}
	return sum / float64(len(b.speeds))
}

// toldTask is a map task as reported by its application master.
type toldTask struct {
	Task      *int    `json:"task"`
	Bytes     uint64  `json:"bytes"`
	TookMs    int64   `json:"took_ms"`
	Copies    int     `json:"copies"`
	Progress  float64 `json:"progress"`
	ElapsedMs int64   `json:"elapsed_ms"`
	SinceMs   int64   `json:"since_ms"`
	Node      string  `json:"node"`
}

// speculateAsk is the body of POST /v1/jobs/JOB/speculate.
type speculateAsk struct {
	Policy  string     `json:"policy"`
	Slots   *int       `json:"slots"`
	Waiting []toldTask `json:"waiting"`
	Running []toldTask `json:"running"`
	Done    []toldTask `json:"done"`
}

type speculateAction struct {
	Kind string `json:"kind"`
	Task int    `json:"task"`
}

type speculateAnswer struct {
	Actions []speculateAction `json:"actions"`
}

func (h *hooks) speculate(w http.ResponseWriter, r *http.Request) {
	var ask speculateAsk
	if !request(w, r, &ask) {
		return
	}
	actions, err := h.engine.hookSpeculate(time.Now(), appOf(r.PathValue("job")), ask)
	if err != nil {
		hookserver.Refuse(w, status(err), err)
		return
	}
	hookserver.Answer(w, speculateAnswer{actions})
}

// hookSpeculate returns what the next containers of a job should run.
func (e *Engine) hookSpeculate(now time.Time, id string, ask speculateAsk) ([]speculateAction, error) {
	policy, err := ask.check()
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	j, err := e.book.running(id)
	if err != nil {
		return nil, err
	}
	return e.book.speculate(now, j, policy, ask)
}

// check returns the policy of a valid request.
func (a *speculateAsk) check() (speculation.Policy, error) {
	policy, err := speculation.ParsePolicy(a.Policy)
	switch {
	case err != nil || policy == speculation.Oracle:
		return "", fmt.Errorf("policy %q; want one of gs, ras, grass, ours, strawman, late, mantri, none: %w", clip(a.Policy), errRequest)
	case a.Slots == nil || *a.Slots < 0 || *a.Slots > speculateMost:
		return "", fmt.Errorf("slots is required, from 0 to %d: %w", speculateMost, errRequest)
	case len(a.Waiting)+len(a.Running)+len(a.Done) > speculateMost:
		return "", fmt.Errorf("%d tasks; the maximum is %d: %w", len(a.Waiting)+len(a.Running)+len(a.Done), speculateMost, errRequest)
	}
	for _, list := range [][]toldTask{a.Waiting, a.Running, a.Done} {
		for _, t := range list {
			if err := t.check(); err != nil {
				return "", err
			}
		}
	}
	return policy, nil
}

func (t *toldTask) check() error {
	const most = int64(speculation.TimeMost / time.Millisecond)
	switch {
	case t.Task == nil || *t.Task < 0 || *t.Task >= tasksMax:
		return fmt.Errorf("a task needs its number, from 0 to %d: %w", tasksMax-1, errRequest)
	case min(t.TookMs, t.ElapsedMs, t.SinceMs) < 0 || max(t.TookMs, t.ElapsedMs, t.SinceMs) > most:
		return fmt.Errorf("task %d: its times must be from 0 to %d ms: %w", *t.Task, most, errRequest)
	case t.Copies < 0 || t.Copies > speculation.CopiesMost || !(t.Progress >= 0 && t.Progress <= 1):
		return fmt.Errorf("task %d: %d copies at progress %v; at most %d, and 0 to 1: %w", *t.Task, t.Copies, t.Progress, speculation.CopiesMost, errRequest)
	}
	return nil
}

// size returns the length of a task's input, and 1 if unknown: then all are alike.
func (t *toldTask) size() float64 { return float64(max(1, t.Bytes)) }

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// speculate decides about the next containers of a job, by its policy.
func (b *book) speculate(now time.Time, j *job, policy speculation.Policy, ask speculateAsk) ([]speculateAction, error) {
	actions := []speculateAction{}
	v := speculation.View{Slots: *ask.Slots, Greedy: j.greedy}
	var past speculation.Durations
	for _, t := range ask.Done {
		if t.TookMs > 0 {
			if err := past.Add(milliseconds(t.TookMs), t.size()); err != nil {
				return nil, fmt.Errorf("%w: %w", err, errRequest)
			}
		}
	}
	v.Tasks = b.views(now, ask, &past)
	if _, known := past.New(1); !known || len(v.Tasks) == 0 {
		j.speculation = string(policy) + ": no map task has ended yet, so task times are unknown"
		return actions, nil
	}
	v.Durations = past.Ratios()
	if policy == speculation.Ours {
		mean := b.meanSpeed()
		v.Speeds = slices.Repeat([]float64{mean}, v.Slots)
	}
	v.Bound = j.promise(now, v.Tasks)
	d, err := speculation.Decide(policy, v, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, errRequest)
	}
	j.greedy = d.Greedy
	for _, a := range d.Actions {
		if a.Kind != speculation.Wait {
			actions = append(actions, speculateAction{string(a.Kind), a.Task})
		}
	}
	if *ask.Slots > 0 {
		j.speculation = said(policy, v.Bound, actions)
	}
	return actions, nil
}

// views returns the reported tasks in the form of the policies.
func (b *book) views(now time.Time, ask speculateAsk, past *speculation.Durations) []speculation.Task {
	all := each.Of(ask.Done, func(t toldTask) speculation.Task { return speculation.Task{ID: *t.Task, State: speculation.Done} })
	for _, t := range ask.Waiting {
		left, _ := past.New(t.size())
		all = append(all, speculation.Task{ID: *t.Task, New: left})
	}
	for _, t := range ask.Running {
		x := speculation.Task{ID: *t.Task, State: speculation.Running, Copies: max(1, t.Copies), Remaining: -1}
		x.New, _ = past.New(t.size())
		if left, known := speculation.Remaining(milliseconds(t.ElapsedMs), t.Progress, milliseconds(t.SinceMs)); known {
			x.Remaining = left
			if t.ElapsedMs > 0 {
				x.Rate = t.Progress / milliseconds(t.ElapsedMs).Seconds()
			}
		}
		s := b.speedOf(t.Node)
		x.Speed, x.Measured = s.now, s.at(now.Add(-milliseconds(t.SinceMs)))
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b speculation.Task) int { return a.ID - b.ID })
	return all
}

// promise returns the goal of the job's policy: as many tasks as possible by its deadline, if it may end with fewer
// than all; otherwise the floor's tasks, as soon as possible.
func (j *job) promise(now time.Time, tasks []speculation.Task) speculation.Bound {
	left := j.terms.deadline - now.Sub(j.app.started)
	if j.terms.deadline > 0 && j.floor.Fraction < 1 && j.terms.error == 0 && left > 0 {
		return speculation.Bound{ByDeadline: true, Left: min(left, speculation.TimeMost)}
	}
	// Dropped tasks are not reported: a larger fraction of the others is needed.
	of := max(j.tasks, len(tasks))
	need := min(units.Ratio(j.floor.Fraction).Least(of), len(tasks))
	return speculation.Bound{Error: 1 - float64(need)/float64(len(tasks)), Ceil: true}
}

// said returns the last decision in words.
func said(policy speculation.Policy, bound speculation.Bound, actions []speculateAction) string {
	goal := fmt.Sprintf("%s of its map tasks, as soon as possible", units.Percent(1-bound.Error))
	if bound.ByDeadline {
		goal = fmt.Sprintf("as many map tasks as possible within %v, until its deadline", bound.Left.Round(time.Second))
	}
	next := each.Of(actions, func(a speculateAction) string { return fmt.Sprintf("%s of map task %d", a.Kind, a.Task) })
	if len(next) == 0 {
		next = []string{"nothing; waiting for the running tasks is better"}
	}
	return clip(fmt.Sprintf("%s, for %s; next: %s", policy, goal, strings.Join(next, ", ")))
}

// reached reports whether a job that may end now has what it promised: the floor's tasks are done, and no more were
// requested, or its deadline has passed.
func (j *job) reached(now time.Time) bool {
	if j.floor.Fraction >= 1 || j.tasks == 0 || j.done() < units.Ratio(j.floor.Fraction).Least(j.tasks) {
		return false
	}
	return j.terms.error > 0 || j.terms.deadline > 0 && now.Sub(j.app.started) >= j.terms.deadline
}
