package netns

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"headroom/lease"
)

const (
	// sampleEvery is the checker's sampling interval.
	sampleEvery = 100 * time.Millisecond
	// samplesLeast is how many looks a scenario needs to have proved anything.
	samplesLeast = 20
	// rounding is what sums of microwatts may differ by when they are added as watts.
	rounding = 0.001
	// tolerance is how far the draw, a mean over 1 s, may be above the budget, as a
	// ratio: a limit bounds a mean over a window of its own.
	tolerance = 0.03
	// drawSettles is how long the draw may take to follow caps that were lowered: the
	// limit's window, and the mean that reaches back.
	drawSettles = 3 * time.Second
	// plantStale is how old a machine's own view may be: it is renewed every 100 ms
	// where the host has the time.
	plantStale = 500 * time.Millisecond
)

// held is what the node may hold by its held.json.
type held struct {
	State  string      `json:"state"`
	CapW   float64     `json:"cap_w"`
	Stamp  lease.Stamp `json:"stamp"`
	Limits []struct {
		Zone       string `json:"zone"`
		Constraint string `json:"constraint"`
		WrittenUw  int64  `json:"written_uw"`
	} `json:"limits"`
}

// errMoving means that files changed while they were read.
var errMoving = errors.New("the nodes' files changed while they were read")

// held is the cap that a node holds, from its own files: it is the same whether its
// powerd lives or not. It fails when the limits in the machine's tree exceed it.
func (c *cluster) held(name string) (h held, err error) {
	path := c.path("nodes", name, "state", "held.json")
	for range 5 {
		before, err := os.ReadFile(path)
		if err != nil {
			return h, err
		}
		if err := json.Unmarshal(before, &h); err != nil {
			return h, err
		}
		over := c.above(name, h)
		after, err := os.ReadFile(path)
		if err == nil && string(before) == string(after) {
			return h, over
		}
	}
	return h, errMoving
}

// errAbove means that a machine's limits are higher than its powerd reports.
var errAbove = errors.New("the machine holds more than held.json says")

// above is an error when a limit of the tree is above h's, or not enforced.
func (c *cluster) above(name string, h held) error {
	tree := c.path("nodes", name, "root", "sys", "class", "powercap")
	for _, l := range h.Limits {
		zone, err := find(filepath.Join(tree, "intel-rapl:*"), "name", l.Zone)
		if err != nil {
			return err
		}
		if on, err := line(filepath.Join(zone, "enabled")); err != nil {
			return err
		} else if on != "1" {
			return fmt.Errorf("%w: %s of %s: enabled is %q", errAbove, l.Zone, name, on)
		}
		constraint, err := find(filepath.Join(zone, "constraint_*_name"), "", l.Constraint)
		if err != nil {
			return err
		}
		text, err := line(strings.TrimSuffix(constraint, "_name") + "_power_limit_uw")
		if err != nil {
			return err
		}
		limit, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return errMoving // the plant is just writing it
		}
		if limit > l.WrittenUw {
			return fmt.Errorf("%w: %s %s of %s: %d uW, not %d uW", errAbove, l.Zone, l.Constraint, name, limit, l.WrittenUw)
		}
	}
	return nil
}

// find is the path that matches the pattern whose file holds the text.
func find(pattern, file, text string) (string, error) {
	all, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	for _, path := range all {
		if got, err := line(filepath.Join(path, file)); err == nil && got == text {
			return path, nil
		}
	}
	return "", fmt.Errorf("no %s with %q", pattern, text)
}

// line is the first line of a file.
func line(path string) (string, error) {
	data, err := os.ReadFile(path)
	first, _, _ := strings.Cut(string(data), "\n")
	return first, err
}

// drawn is what a machine draws at the wall by its own physics, watts as a mean over 1 s.
func (c *cluster) drawn(name string) (float64, error) {
	data, err := os.ReadFile(c.path("nodes", name, "run", "plant.json"))
	if err != nil {
		return 0, err
	}
	var v struct {
		AtUs    int64   `json:"at_us"`
		Wall1sW float64 `json:"wall_1s_w"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return 0, err
	}
	if age := time.Since(time.UnixMicro(v.AtUs)); age > plantStale {
		return 0, fmt.Errorf("plant.json of %s is %v old", name, age)
	}
	return v.Wall1sW, nil
}

// sample is what the nodes together held at one moment, and what they drew about then.
type sample struct {
	held   float64
	drawn  float64 // unknown unless known
	known  bool
	stamps map[string]lease.Stamp
	fallen []string // at their fail-safe caps
}

// checker compares the sums of the nodes' caps and of their power with the budget.
type checker struct {
	c *cluster

	mu      sync.Mutex
	budget  float64
	before  float64   // the budget before
	since   time.Time // when it was replaced
	newest  map[string]lease.Stamp
	samples int
	most    sample
	fallen  map[string]bool // nodes that were seen at their fail-safe caps
	resting bool
	wrong   []string
}

// newChecker looks from now on until the end of the test, and then reports.
func newChecker(c *cluster) *checker {
	w := &checker{c: c, budget: c.shape.budget, newest: map[string]lease.Stamp{}, fallen: map[string]bool{}}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				w.judge()
			}
		}
	}()
	c.t.Cleanup(func() {
		close(stop)
		<-done
		w.tell(c.t)
	})
	return w
}

// allow sets the watts that the nodes may hold and draw together.
func (w *checker) allow(watts float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if watts != w.budget {
		w.before, w.since, w.budget = w.budget, time.Now(), watts
	}
}

func (w *checker) allowed() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.budget
}

// rest pauses the checker while machines boot; wake resumes it.
func (w *checker) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resting = true
}

func (w *checker) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resting = false
}

// look is one sample. The caps are those of one moment: all of them are read twice,
// and are what they were in between when both readings agree.
func (w *checker) look() (s sample, err error) {
	for range 10 {
		var one, two map[string]held
		if one, err = w.caps(); err != nil {
			continue
		}
		if two, err = w.caps(); err != nil {
			continue
		}
		if err = errMoving; !maps.EqualFunc(one, two, func(a, b held) bool { return a.CapW == b.CapW && a.Stamp == b.Stamp }) {
			continue
		}
		s = sample{stamps: map[string]lease.Stamp{}, known: true}
		for name, h := range one {
			s.held += h.CapW
			s.stamps[name] = h.Stamp
			if h.State != "held" {
				s.fallen = append(s.fallen, name)
			}
			p, err := w.c.drawn(name)
			s.drawn += p
			s.known = s.known && err == nil
		}
		return s, nil
	}
	return s, err
}

func (w *checker) caps() (map[string]held, error) {
	all := map[string]held{}
	for _, name := range w.c.nodes {
		h, err := w.c.held(name)
		if err != nil {
			return nil, err
		}
		all[name] = h
	}
	return all, nil
}

// judge takes a sample and notes what is wrong with it. The budget is read first: a
// raise that comes meanwhile is never held against the nodes, and a cut is allowed
// only after they follow it.
func (w *checker) judge() {
	budget := w.allowed()
	s, err := w.look()
	w.mu.Lock()
	defer w.mu.Unlock()
	budget = max(budget, w.budget)
	switch {
	case w.resting:
		return
	case errors.Is(err, errAbove):
		w.note("%v", err)
		return
	case err != nil:
		return // no sample: what held at one moment is unknown
	}
	w.samples++
	if s.held > budget+rounding {
		w.note("the nodes hold caps of together %.3f W, the budget is %g W", s.held, budget)
	}
	if time.Since(w.since) < drawSettles {
		budget = max(budget, w.before)
	}
	if s.known && s.drawn > budget*(1+tolerance) {
		w.note("the nodes draw %.1f W, the budget is %g W", s.drawn, budget)
	}
	for name, stamp := range s.stamps {
		if stamp.Compare(w.newest[name]) < 0 {
			w.note("%s obeys a lease of %v after one of %v", name, stamp, w.newest[name])
		}
		w.newest[name] = stamp
	}
	for _, name := range s.fallen {
		w.fallen[name] = true
	}
	w.most.held = max(w.most.held, s.held)
	if s.known {
		w.most.drawn, w.most.known = max(w.most.drawn, s.drawn), true
	}
}

// noFall checks that no node has lost its lease so far.
func (w *checker) noFall() {
	w.c.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.fallen) > 0 {
		w.c.t.Errorf("fell to their fail-safe caps: %v", slices.Sorted(maps.Keys(w.fallen)))
	}
}

// note keeps what is wrong; the first of it is enough to find out why.
func (w *checker) note(format string, args ...any) {
	if len(w.wrong) < 10 {
		w.wrong = append(w.wrong, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// tell reports what was seen.
func (w *checker) tell(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range w.wrong {
		t.Error(text)
	}
	if !t.Skipped() && (w.samples < samplesLeast || !w.most.known) {
		t.Errorf("only %d samples; the draw is known: %v", w.samples, w.most.known)
	}
	t.Logf("%d samples: at most %.1f W held and %.1f W drawn, budget %g W at the end", w.samples, w.most.held, w.most.drawn, w.budget)
}
