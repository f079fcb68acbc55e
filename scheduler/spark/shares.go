package spark

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"headroom/scheduler/sparkapp"
)

// lowerAfter is how long a lower number of executors must stand before it is passed on: one
// that goes and comes again costs its start, and what it had computed.
const lowerAfter = 10 * time.Second

// Share is how many cores a job may hold.
type Share struct {
	Job   string
	Cores int
}

// aim is how many executors a run is to have.
type aim struct {
	// executors is the number sent to its hook; 0 leaves it to Spark.
	executors int
	// lower is a smaller number that is to follow, since when it has stood; 0 for none.
	lower int
	since time.Time
}

// to takes over a number at a time: a higher one holds at once.
func (a *aim) to(now time.Time, n int) {
	switch {
	case a.executors == 0 || n >= a.executors:
		*a = aim{executors: n}
	case a.lower == 0:
		a.lower, a.since = n, now
	case now.Sub(a.since) >= lowerAfter:
		*a = aim{executors: n}
	default:
		a.lower = n
	}
}

// Share states how many cores each job may hold, in the order in which they are served. Jobs
// that are not named are left to Spark. The error names those that have no run here; the
// others' shares are carried out.
func (e *Engine) Share(shares []Share) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shares = shares
	named := map[string]bool{}
	var absent []string
	for _, s := range shares {
		named[s.Job] = true
		if e.runs[s.Job] == nil {
			absent = append(absent, s.Job)
		}
	}
	for job, x := range e.runs {
		if !named[job] {
			x.aim = aim{}
		}
	}
	e.divide(time.Now())
	if len(absent) > 0 {
		return fmt.Errorf("%s: %w: %w", sparkapp.Clip(strings.Join(absent, ", ")), errNotRunning, errShare)
	}
	return nil
}

// divide makes executors of the shares. It is called for every share and every report: how
// many cores an executor has may be known only once there is one. The caller holds mu.
func (e *Engine) divide(now time.Time) {
	var known []sparkapp.Share
	for _, s := range e.shares {
		if x := e.runs[s.Job]; x != nil {
			if unit := e.unit(x); unit > 0 {
				known = append(known, sparkapp.Share{Job: s.Job, Cores: s.Cores, Unit: unit})
			}
		}
	}
	for job, n := range sparkapp.Executors(known) {
		x := e.runs[job]
		if most := e.cfg.most(x.run); most > 0 {
			n = min(n, most)
		}
		before := x.aim.executors
		if x.aim.to(now, n); x.aim.executors != before {
			e.logger.Info("Spark executors changed", slog.String("job", job), slog.Int("executors", x.aim.executors), slog.Int("before", before))
		}
	}
}

// unit returns how many cores an executor of the run has; 0 while unknown.
func (e *Engine) unit(x *execution) int {
	if n := e.cfg.unit(x.run); n > 0 {
		return n
	}
	if p := x.progress; p.Executors > 0 && p.Cores > 0 {
		return int(math.Ceil(float64(p.Cores) / float64(p.Executors)))
	}
	return 0
}
