// Package containers divides an engine's containers among its jobs, and decides when a job that tolerates approximate
// results may stop early. The model is CAB (Nabavinejad et al., "QoR-Aware Power Capping for Approximate Big Data
// Processing"): a power cap slows every job. Jobs that can still finish in time with fewer tasks give containers to
// those whose quality must not fall.
//
// The one idea: a job's end is a convex function of its containers,
//
//	d(c) = elapsed + left * ((held-overhead) / (c-overhead))^beta
//
// so that assigning container after container, each to where it shortens most, is not a heuristic but the optimum.
// Each job has its uncapped finish time D: being late counts, as a fraction of D; being early does not.
//
// Guarantees:
//   - containers are whole and add up to the total, except for those that would only slow down jobs with a known
//     scaling curve;
//   - no job gets fewer than its minimum;
//   - the order of jobs does not matter;
//   - a job with an unknown end gets its equal share;
//   - no early stop before D or below the quality floor.
//
// If even the minimums do not fit, nothing is divided and the error states who gets none.
package containers

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Reasons for dividing nothing.
var (
	// ErrPolicy: there is no policy of that name.
	ErrPolicy = errors.New("containers: unknown policy")
	// ErrJob: a job's numbers are invalid.
	ErrJob = errors.New("containers: bad job")
)

// TooFewError reports that there are fewer containers than the jobs need at least.
type TooFewError struct {
	// Containers is how many there are, Needed what all jobs need at least.
	Containers, Needed int
	// Without are the jobs that go without: those that came last.
	Without []string
}

// Error states who goes without, and why.
func (e *TooFewError) Error() string {
	return fmt.Sprintf("containers: %d containers, but the jobs need at least %d; %s would get none until others finish",
		e.Containers, e.Needed, strings.Join(e.Without, ", "))
}

// Job is what the allocator knows of one job.
type Job struct {
	// Name tells jobs apart.
	Name string
	// Held is how many containers Finish counts on; 0: an equal share.
	Held int
	// Overhead is how many containers the job takes beside its tasks (YARN: 1).
	Overhead int
	// Least is the fewest containers that it may get; below Overhead+1 it counts as that.
	Least int
	// Beta is the exponent of its speed over its containers, above 0 to 1; 0: 1.
	Beta float64
	// Most is how many it could use, overhead included; 0: as many as there are.
	Most int
	// Curve is its speed-up over its containers for tasks, instead of Beta; nil for none. It is given no containers
	// beyond the peak, and by Stretch none that make it no faster; where nobody else can use them, some are left over.
	Curve *Curve

	// Known reports that Finish and Uncapped are known.
	Known bool
	// Elapsed is how long it has run.
	Elapsed time.Duration
	// Finish is when it will end on the least tasks that its quality floor permits,
	// with Held containers, and Uncapped when it would have ended without a cap; both
	// since its start.
	Finish, Uncapped time.Duration
	// More is how many tasks it has beyond the floor, PerTask what each of them adds
	// to Finish.
	More    int
	PerTask time.Duration
	// Met reports that it has completed the least tasks.
	Met bool
}

// Settings are the numbers that the policies share. The zero value is the default.
type Settings struct {
	// Epsilon is by how much less than D a job's end is aimed at, as a share of D
	// (paper, Fig. 3, which gives no number); 0: 0.05. Negative: none.
	Epsilon float64
}

func (s Settings) epsilon() float64 {
	if s.Epsilon == 0 {
		return defaultEpsilon
	}
	return max(0, s.Epsilon)
}

const defaultEpsilon = 0.05

// Share is what one job gets.
type Share struct {
	Name string
	// Exact is the policy's own number, before rounding.
	Exact float64
	// Containers is the whole number, overhead included.
	Containers int
	// Extra is how many tasks beyond the floor the policy aims at.
	Extra int
}

// Plan is one division.
type Plan struct {
	// Shares are in the order of the jobs.
	Shares []Share
	// Stretch is the sum over the jobs of what they are expected to be late, as a share
	// of their uncapped finish times, on the tasks of their floors; jobs whose ends are unknown not counted.
	Stretch float64
}

// Allocate divides total containers among jobs. It fails with ErrPolicy, ErrJob or a
// *TooFewError.
func Allocate(policy Policy, total int, jobs []Job, settings Settings) (Plan, error) {
	d := divider{total: total, settings: settings}
	if err := d.take(jobs); err != nil || len(jobs) == 0 {
		return Plan{}, err
	}
	switch policy {
	case Stretch:
		d.stretch()
	case Paper:
		d.paper()
	case Released:
		d.released()
	case Equal:
		d.equal()
	case Fair:
		d.fair()
	default:
		return Plan{}, fmt.Errorf("%w %q: want one of %s", ErrPolicy, string(policy), names())
	}
	return d.plan(jobs), nil
}

// StretchOf returns the Plan.Stretch of any division of total containers: given says how
// many each job has, in the order of jobs.
func StretchOf(total int, jobs []Job, given []int) float64 {
	sum := 0.0
	for i := range jobs {
		e := entry{Job: jobs[i], judged: true}
		if e.complete(max(1, total/len(jobs))); e.Known {
			sum += e.late(float64(max(given[i], e.Overhead+1)), 0, 0)
		}
	}
	return sum
}

// entry is one job being served.
type entry struct {
	Job
	at    int // its place in the caller's order
	exact float64
	got   int
	extra int
	// judged is true where the curve itself counts, and not its envelope.
	judged bool
}

// slower returns by what factor the job is slower with c containers than with those it
// holds; containers beyond its most do nothing.
func (e *entry) slower(c float64) float64 {
	held := float64(e.Held)
	if e.Most > 0 {
		c, held = math.Min(c, float64(e.Most)), math.Min(held, float64(e.Most))
	}
	if e.Curve != nil {
		at := e.Curve.Envelope
		if e.judged {
			at = func(n float64) float64 { return e.Curve.Speedup(int(n)) }
		}
		return at(held-float64(e.Overhead)) / at(c-float64(e.Overhead))
	}
	return math.Pow((held-float64(e.Overhead))/(c-float64(e.Overhead)), e.Beta)
}

// end returns when the job ends with c containers and extra tasks beyond its floor, in
// seconds since its start.
func (e *entry) end(c float64, extra int) float64 {
	left := (e.Finish - e.Elapsed).Seconds() + float64(extra)*e.PerTask.Seconds()
	return e.Elapsed.Seconds() + math.Max(0, left)*e.slower(c)
}

// late returns by how much that is beyond what is aimed at, (1-epsilon) D, as a share of D.
func (e *entry) late(c float64, extra int, epsilon float64) float64 {
	uncapped := e.Uncapped.Seconds()
	return math.Max(0, e.end(c, extra)/uncapped-(1-epsilon))
}

// ratio returns d/D with the containers that the job holds.
func (e *entry) ratio(extra int) float64 {
	if !e.Known {
		return 1
	}
	return e.end(float64(e.Held), extra) / e.Uncapped.Seconds()
}

// ceiling returns the most containers that the job may be given: those of its curve's peak, or its least.
func (e *entry) ceiling() int {
	if p := e.Curve.Peak(); p > 0 {
		return max(e.Least, e.Overhead+p)
	}
	return math.MaxInt
}

// divider is one division being made.
type divider struct {
	total    int
	settings Settings
	entries  []*entry // by name
}

// take checks the jobs and brings them into an order that does not depend on the
// caller's.
func (d *divider) take(jobs []Job) error {
	seen := map[string]bool{}
	for i := range jobs {
		e := &entry{Job: jobs[i], at: i}
		if err := e.check(); err != nil {
			return err
		}
		if seen[e.Name] {
			return fmt.Errorf("%w: %q appears twice", ErrJob, e.Name)
		}
		seen[e.Name] = true
		e.complete(max(1, d.total/len(jobs)))
		d.entries = append(d.entries, e)
	}
	slices.SortFunc(d.entries, func(a, b *entry) int { return strings.Compare(a.Name, b.Name) })
	return d.fits()
}

// complete fills in what was left open; equal is an equal share.
func (e *entry) complete(equal int) {
	e.Least = max(e.Least, e.Overhead+1)
	if e.Held == 0 {
		e.Held = equal
	}
	e.Held = max(e.Held, e.Overhead+1)
	if p := e.Curve.Peak(); p > 0 && (e.Most == 0 || e.Most > e.Overhead+p) {
		e.Most = e.Overhead + p
	}
	if e.Most > 0 {
		e.Most = max(e.Most, e.Least)
	}
	if e.Beta == 0 {
		e.Beta = 1
	}
}

// check refuses numbers that are invalid.
func (e *entry) check() error {
	switch {
	case e.Name == "":
		return fmt.Errorf("%w: a job without a name", ErrJob)
	case e.Held < 0 || e.Overhead < 0 || e.Least < 0 || e.Most < 0 || e.More < 0 || e.PerTask < 0 || e.Elapsed < 0:
		return fmt.Errorf("%w: %q: negative number", ErrJob, e.Name)
	case !(e.Beta >= 0 && e.Beta <= 1):
		return fmt.Errorf("%w: %q: exponent %v is not from 0 to 1", ErrJob, e.Name, e.Beta)
	case e.Known && (e.Finish <= 0 || e.Uncapped <= 0):
		return fmt.Errorf("%w: %q: finish %v and uncapped finish %v must be above 0", ErrJob, e.Name, e.Finish, e.Uncapped)
	}
	return nil
}

// fits tells who goes without where the least of all is more than there is: those
// that have run for the shortest time.
func (d *divider) fits() error {
	needed := 0
	for _, e := range d.entries {
		needed += e.Least
	}
	if needed <= d.total {
		return nil
	}
	err := &TooFewError{Containers: d.total, Needed: needed}
	byAge := slices.Clone(d.entries)
	slices.SortStableFunc(byAge, func(a, b *entry) int { return int(max(-1, min(1, b.Elapsed-a.Elapsed))) })
	left := d.total
	for _, e := range byAge {
		if left -= e.Least; left < 0 {
			err.Without = append(err.Without, e.Name)
			left += e.Least
		}
	}
	return err
}

// plan returns the result in the caller's order.
func (d *divider) plan(jobs []Job) Plan {
	p, given := Plan{Shares: make([]Share, len(jobs))}, make([]int, len(jobs))
	for _, e := range d.entries {
		e.got = min(e.got, e.ceiling())
		p.Shares[e.at] = Share{Name: e.Name, Exact: e.exact, Containers: e.got, Extra: e.extra}
		given[e.at] = e.got
	}
	p.Stretch = StretchOf(d.total, jobs, given)
	return p
}

// round makes whole numbers of the exact ones: largest remainder, nobody below its
// least, the sum exact.
func (d *divider) round() {
	type rest struct {
		e    *entry
		part float64
	}
	left := d.total
	var rests []rest
	for _, e := range d.entries {
		whole := math.Floor(e.exact + roundGuard)
		e.got = max(e.Least, int(whole))
		left -= e.got
		rests = append(rests, rest{e, e.exact - float64(e.got)})
	}
	// The largest remainder first; who was lifted to its least has a negative one.
	slices.SortStableFunc(rests, func(a, b rest) int {
		switch {
		case a.part > b.part+roundGuard:
			return -1
		case b.part > a.part+roundGuard:
			return 1
		}
		return 0
	})
	for i := 0; left > 0; i, left = i+1, left-1 {
		rests[i%len(rests)].e.got++
	}
	for ; left < 0; left++ { // what lifting took, from who is furthest above its own
		var most *entry
		for _, e := range d.entries {
			if e.got > e.Least && (most == nil || float64(e.got)-e.exact > float64(most.got)-most.exact+roundGuard) {
				most = e
			}
		}
		most.got--
	}
}

// roundGuard keeps 6.9999999999 from being rounded down.
const roundGuard = 1e-9
