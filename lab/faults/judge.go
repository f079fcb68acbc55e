package faults

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// What the promises allow beside the budget.
const (
	sampleEvery = 100 * time.Millisecond
	// tolerance is how far a mean over 1 s may exceed a cap, as a ratio: a limit of the
	// hardware bounds a mean over a window of its own.
	tolerance = 0.03
	// settles is how long a machine may take to follow its cap: the limit's window,
	// and the mean that reaches back.
	settles = 3 * time.Second
	// leaseEnds is when a lease has ended on a node whose clock is 1 % slow.
	leaseEnds = time.Duration(leaseS * 1.01 * float64(time.Second))
	// restarts is how long the next powerd may take to write the fail-safe cap.
	restarts = 5 * time.Second
	// lasting is how long a draw must be too high before it counts, so that a sample
	// of a host without time for it does not.
	lasting = 1500 * time.Millisecond
	// freshest is how old a machine's own view may be.
	freshest = 500 * time.Millisecond
	// violationsMost bounds what is kept of one kind.
	violationsMost = 5
)

// judge holds what the machines draw against the budget and the leases.
type judge struct {
	history *history
	view    func(node string) (watts float64, ok bool)
	nodes   []string

	mu sync.Mutex
	// silent is since when no grant can reach a node, by fault.
	silent map[string]map[int]time.Time
	// unheld is until when a node may have no powerd to lower it; far away while stopped.
	unheld map[string]time.Time
	high   map[string]time.Time // since when something is too high
	told   map[string]int
	checks map[string]int
	wrong  []string
	mostW  float64
}

func newJudge(h *history, nodes []string, view func(string) (float64, bool)) *judge {
	j := &judge{
		history: h, view: view, nodes: nodes, silent: map[string]map[int]time.Time{}, unheld: map[string]time.Time{},
		high: map[string]time.Time{}, told: map[string]int{}, checks: map[string]int{},
	}
	for _, n := range nodes {
		j.silent[n] = map[int]time.Time{}
	}
	return j
}

// cutOff notes that from now on no grant can reach these nodes; back that one can.
func (j *judge) cutOff(fault int, nodes []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, n := range nodes {
		j.silent[n][fault] = time.Now()
	}
}

func (j *judge) back(fault int, nodes []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, n := range nodes {
		delete(j.silent[n], fault)
	}
}

// alone notes that nothing holds a node lower for so long.
func (j *judge) alone(node string, d time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unheld[node] = time.Now().Add(d)
}

// count notes n checks of a kind.
func (j *judge) count(kind string, n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.checks[kind] += n
}

// violated notes a violation.
func (j *judge) violated(kind, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.note(kind, format, args...)
}

func (j *judge) note(kind, format string, args ...any) {
	if j.told[kind]++; j.told[kind] <= violationsMost {
		j.wrong = append(j.wrong, kind+": "+fmt.Sprintf(format, args...))
	}
}

// sample reads what every machine draws, and judges it.
func (j *judge) sample() {
	draws := map[string]float64{}
	for _, n := range j.nodes {
		if w, ok := j.view(n); ok {
			draws[n] = w
		}
	}
	j.look(time.Now(), draws)
}

// look judges one sample. A node without a fresh view is not judged, and then neither
// is the sum.
func (j *judge) look(now time.Time, draws map[string]float64) {
	// A cut binds a node that cannot receive it once its lease has ended.
	budget := j.history.most(now.Add(-leaseEnds - settles))
	j.mu.Lock()
	defer j.mu.Unlock()
	sum, least := 0.0, 0.0
	for _, n := range j.nodes {
		sum += draws[n]
		if now.Before(j.unheld[n]) {
			least += draws[n]
			continue
		}
		least += failSafeW
		j.lapsed(now, n, draws)
	}
	if len(draws) < len(j.nodes) {
		return
	}
	j.mostW = max(j.mostW, sum)
	j.checks["watts"]++
	// A node that no powerd lowers keeps its charge, which is at least what it draws: the
	// others get the rest of the budget, or are at their fail-safe caps.
	budget = max(budget, least)
	if j.lasts(now, "watts", sum > budget*(1+tolerance)) {
		j.note("watts", "power of the nodes is %.1f W, above the budget of %.1f W", sum, budget)
	}
}

// lapsed checks a node that no grant can have reached for longer than a lease.
func (j *judge) lapsed(now time.Time, node string, draws map[string]float64) {
	watts, known := draws[node]
	if !known || len(j.silent[node]) == 0 {
		delete(j.high, "lapsed "+node)
		return
	}
	since := slices.MinFunc(slices.Collect(maps.Values(j.silent[node])), time.Time.Compare)
	if now.Sub(since) < leaseEnds+settles {
		return
	}
	j.checks["lapsed"]++
	if j.lasts(now, "lapsed "+node, watts > failSafeW*(1+tolerance)) {
		j.note("lapsed", "power of %s is %.1f W, %.1f s after the last possible grant; its fail-safe cap is %g W and its lease %g s", node, watts, now.Sub(since).Seconds(), failSafeW, leaseS)
	}
}

// lasts reports, once, that something has been so for long enough to count.
func (j *judge) lasts(now time.Time, what string, so bool) bool {
	since, before := j.high[what]
	switch {
	case !so:
		delete(j.high, what)
	case !before:
		j.high[what] = now
	case now.Sub(since) >= lasting:
		j.high[what] = now
		return true
	}
	return false
}

// report is a copy of what was found.
func (j *judge) report() (checks map[string]int, wrong []string, mostW float64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.checks), append([]string{}, j.wrong...), j.mostW
}

// view is what a machine draws by its own physics, a mean over 1 s.
func (c *cluster) view(node string) (float64, bool) {
	data, err := os.ReadFile(c.path("nodes", node, "run", "plant.json"))
	if err != nil {
		return 0, false
	}
	var v struct {
		AtUs    int64   `json:"at_us"`
		Wall1sW float64 `json:"wall_1s_w"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return 0, false
	}
	return v.Wall1sW, time.Since(time.UnixMicro(v.AtUs)) < freshest
}
