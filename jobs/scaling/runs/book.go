package runs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"headroom/jobs/containers"
)

const (
	// namesMost bounds the names that are remembered, runsMost the runs of one: the newest.
	namesMost, runsMost = 1000, 32
	// nameMost bounds the length of a name, bytes.
	nameMost = 256
	// containersMost, tasksMost and busyMost are beyond what any run has.
	containersMost, tasksMost, busyMost = 1e6, 1e9, 1e12
	// contradictions is how many runs in a row must lie contradictionLeast off a curve for it to be forgotten.
	contradictions     = 3
	contradictionLeast = 0.25
	// exploreEvery is how many runs within the peak come before one may go beyond it, up to exploreBy times as many
	// containers.
	exploreEvery = 8
	exploreBy    = 1.5
	// exploreGain is what an exploring run is taken to gain by that: little, so that it gets them only where nobody waits.
	exploreGain = 1.02
	// probeAfter is how many runs on about the same number of containers come before one is held at probePart of it.
	probeAfter = 2
	probePart  = 0.5
)

var errRun = errors.New("runs: bad run")

// Run is what one run of a job has shown of its map part.
type Run struct {
	// Containers are those for tasks that it held, weighted by container time: what a task of it has seen in the mean.
	Containers float64 `json:"containers"`
	// Tasks are those that ended, Busy the container time that they took, s.
	Tasks int     `json:"tasks"`
	Busy  float64 `json:"busy_s"`
	// Power is the mean part of their full power that its nodes were let draw; 0 while unknown.
	Power float64 `json:"power,omitempty"`
}

func (r *Run) check() error {
	switch {
	case !(r.Containers >= 1 && r.Containers <= containersMost):
		return fmt.Errorf("%w: containers is %v; it must be from 1 to %v", errRun, r.Containers, containersMost)
	case r.Tasks < 1 || r.Tasks > tasksMost:
		return fmt.Errorf("%w: tasks is %d; it must be from 1 to %v", errRun, r.Tasks, tasksMost)
	case !(r.Busy > 0 && r.Busy <= busyMost):
		return fmt.Errorf("%w: busy_s is %v; it must be above 0 and at most %v", errRun, r.Busy, busyMost)
	case !(r.Power >= 0 && r.Power <= 1):
		return fmt.Errorf("%w: power is %v; it must be from 0 to 1", errRun, r.Power)
	}
	return nil
}

// each returns the container time of a task.
func (r *Run) each() float64 { return r.Busy / float64(r.Tasks) }

// Advice is what follows for the next run of a name.
type Advice struct {
	// Points are those of a containers.Curve.
	Points []containers.CurvePoint
	// Runs are those that it was learned from, Type is the type of scaling, I to IV, and Error the mean error of the runs'
	// times by the curve, as a part of them; the latter two are empty where no curve is known.
	Runs  int
	Type  string
	Error float64
	// Exploring is true where the run is let off the curve to learn from it.
	Exploring bool
}

// Book remembers the runs of jobs by the jobs' names. The zero value is ready. It is not safe for concurrent use.
type Book struct {
	names map[string]*entry
	noted int
}

// entry is one name.
type entry struct {
	Name string `json:"name"`
	Runs []Run  `json:"runs"`
	// Within counts the runs since the last that held more containers than the peak.
	Within int `json:"within,omitempty"`
	// Curve is nil while none is known well enough.
	Curve *curve `json:"curve,omitempty"`

	newest int // when it was noted last
	fresh  int // runs since the last fit
}

// Names returns how many names are remembered, and of how many a curve is known.
func (b *Book) Names() (all, curves int) {
	for _, e := range b.names {
		all++
		if e.Curve != nil {
			curves++
		}
	}
	return all, curves
}

// Note remembers a run. The curve follows with Learn.
func (b *Book) Note(name string, r Run) error {
	if err := r.check(); err != nil {
		return err
	}
	if name == "" || len(name) > nameMost {
		return fmt.Errorf("%w: its name has %d bytes; must be from 1 to %d", errRun, len(name), nameMost)
	}
	if b.names == nil {
		b.names = map[string]*entry{}
	}
	e := &entry{Name: name}
	if old := b.names[name]; old != nil {
		*e = *old
		e.Runs = slices.Clone(old.Runs)
	} else {
		b.forget()
	}
	b.names[name] = e
	b.noted++
	e.newest = b.noted
	e.Runs = append(e.Runs, r)
	e.crowd()
	e.fresh++
	e.contradict()
	if e.Curve != nil {
		if e.Within++; e.Curve.Peak > 0 && r.Containers > evidence*float64(e.Curve.Peak) {
			e.Within = 0
		}
	}
	return nil
}

// forget makes room for a name. Names of which a curve is known go last: many applications have a name of their own for each run.
func (b *Book) forget() {
	for len(b.names) >= namesMost {
		oldest := slices.MinFunc(slices.Collect(maps.Values(b.names)), func(a, b *entry) int {
			if known := b.Curve != nil; known != (a.Curve != nil) {
				return map[bool]int{true: -1, false: 1}[known]
			}
			return cmp.Compare(a.newest, b.newest)
		})
		delete(b.names, oldest.Name)
	}
}

// crowd makes room for runs: of those on about as many containers as most others the oldest goes, so that runs that differ stay.
func (e *entry) crowd() {
	for len(e.Runs) > runsMost {
		counts := map[int]int{}
		for i := range e.Runs {
			counts[e.Runs[i].bin()]++
		}
		most := slices.Max(slices.Collect(maps.Values(counts)))
		at := slices.IndexFunc(e.Runs, func(r Run) bool { return counts[r.bin()] == most })
		e.Runs = slices.Delete(e.Runs, at, at+1)
	}
}

// bin returns the same for runs on about as many containers.
func (r *Run) bin() int { return int(math.Round(math.Log(r.Containers) / math.Log(pointStep))) }

// contradict forgets what the newest runs contradict.
func (e *entry) contradict() {
	if e.Curve == nil || len(e.Runs) < contradictions {
		return
	}
	newest := e.Runs[len(e.Runs)-contradictions:]
	for i := range newest {
		off := math.Log(newest[i].each() / e.Curve.expects(&newest[i]))
		if math.Abs(off) < math.Log1p(contradictionLeast) {
			return
		}
	}
	e.Runs, e.Curve, e.Within = slices.Clone(newest), nil, 0
}

// Due reports whether enough runs are new for Learn to be worth its time.
func (b *Book) Due(name string) bool {
	e := b.names[name]
	return e != nil && e.fresh > 0 && len(e.Runs) >= runsLeast && (e.Curve == nil && (len(e.Runs) == runsLeast || e.fresh > 1) || e.fresh >= max(3, min(len(e.Runs)/2, exploreEvery)))
}

// Learn fits the curve of a name to its runs. It takes tenths of a second.
func (b *Book) Learn(name string) {
	old := b.names[name]
	if old == nil {
		return
	}
	e := *old
	if c := fit(e.Runs); c != nil {
		e.Curve = c // else the one before stands until runs contradict it
	}
	e.fresh = 0
	b.names[name] = &e
}

// Advise returns what the next run of a name is to be held to; nil while nothing is known.
func (b *Book) Advise(name string, explore bool) *Advice {
	e := b.names[name]
	switch {
	case e == nil:
		return nil
	case e.Curve == nil:
		return e.probe(explore)
	}
	c := e.Curve
	a := &Advice{Points: slices.Clone(c.Points), Runs: c.Runs, Type: c.Type, Error: c.Error}
	if explore && c.Peak > 0 && e.Within >= exploreEvery {
		a.Points = slices.DeleteFunc(a.Points, func(p containers.CurvePoint) bool { return p.Containers > c.Peak })
		a.beyond(max(c.Peak+1, int(exploreBy*float64(c.Peak))), a.Points[len(a.Points)-1].Speedup*exploreGain)
	}
	return a
}

// beyond lets the job have so many containers, and no more.
func (a *Advice) beyond(most int, speedup float64) {
	a.Points = append(a.Points, containers.CurvePoint{Containers: most, Speedup: speedup}, containers.CurvePoint{Containers: most + 1, Speedup: speedup / exploreGain})
	a.Exploring = true
}

// probe has a run on fewer containers where all so far were on about as many; nil where that is not needed.
func (e *entry) probe(explore bool) *Advice {
	least, most := e.span()
	apart, part := most >= spread*least, math.Round(probePart*least)
	switch {
	case !explore || len(e.Runs) < probeAfter || part < 1 || part >= least:
		return nil
	case apart && (len(e.Runs) < runsLeast || distinct(e.Runs) >= distinctLeast):
		return nil
	}
	a := &Advice{Points: []containers.CurvePoint{{Containers: 1, Speedup: 1}}, Runs: len(e.Runs)}
	if part > 1 {
		a.beyond(int(part), part)
		return a
	}
	a.Points, a.Exploring = append(a.Points, containers.CurvePoint{Containers: 2, Speedup: 1 / exploreGain}), true
	return a
}

// span returns the fewest and the most containers of the runs.
func (e *entry) span() (least, most float64) {
	least = math.Inf(1)
	for _, r := range e.Runs {
		least, most = min(least, r.Containers), max(most, r.Containers)
	}
	return least, most
}

// bookFile is a book as it is written.
type bookFile struct {
	Names []*entry `json:"names"`
}

// MarshalJSON writes the names, the least recent first.
func (b *Book) MarshalJSON() ([]byte, error) {
	all := slices.SortedFunc(maps.Values(b.names), func(a, b *entry) int { return cmp.Compare(a.newest, b.newest) })
	return json.Marshal(bookFile{append([]*entry{}, all...)})
}

// UnmarshalJSON reads what MarshalJSON wrote; an error says what is invalid, and the book stays as it was.
func (b *Book) UnmarshalJSON(data []byte) error {
	var in bookFile
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return fmt.Errorf("runs: %w", err)
	}
	if len(in.Names) > namesMost {
		return fmt.Errorf("%w: %d names; the maximum is %d", errRun, len(in.Names), namesMost)
	}
	out := Book{names: map[string]*entry{}}
	for i, e := range in.Names {
		if e == nil || e.Name == "" || len(e.Name) > nameMost || out.names[e.Name] != nil || len(e.Runs) > runsMost || e.Within < 0 {
			return fmt.Errorf("%w: names[%d] is empty, too long or a duplicate, or has more than %d runs", errRun, i, runsMost)
		}
		for k := range e.Runs {
			if err := e.Runs[k].check(); err != nil {
				return fmt.Errorf("names[%d].runs[%d]: %w", i, k, err)
			}
		}
		if err := e.Curve.check(); err != nil {
			return fmt.Errorf("names[%d].curve: %w", i, err)
		}
		out.noted++
		e.newest = out.noted
		out.names[e.Name] = e
	}
	*b = out
	return nil
}

// Clone returns a copy that changes alone.
func (b *Book) Clone() *Book {
	return &Book{names: maps.Clone(b.names), noted: b.noted} // an entry is replaced when it changes
}
