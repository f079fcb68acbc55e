package dias

import (
	"bytes"
	"context"
	_ "embed" // the recorded runs
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"testing"

	"headroom/internal/testkit"
	"headroom/jobs/buffers"
	"headroom/lab/report"
	"headroom/lab/report/reporttest"
)

// The targets of a real run are held against mistakes too: data/real.csv is our own record
// of `powerlab paper dias --engine spark --quick --out FOLDER`, its runs.csv, and a mistake
// changes the recorded figures as it would change those of a run.

//go:embed data/real.csv
var realCSV []byte

// recordedReal is the record of the graph part.
func recordedReal() (realRounds, error) { return readRuns(bytes.NewReader(realCSV)) }

// realMutant is a mistake in one run with all policies.
type realMutant struct {
	name  string
	spoil func(r realResults)
	// expected are the targets that it must make worse, without the letter of the program.
	expected []string
}

// copied gives each job of one policy what a job of another has, times a factor.
func copied(to, from buffers.Discipline, factor float64, field func(*realEnded) *float64) func(realResults) {
	return func(r realResults) {
		a, b := r.of(to), r.of(from)
		for i := range a.jobs {
			*field(&a.jobs[i]) = factor * *field(&b.jobs[i])
		}
	}
}

// each changes each job of a policy.
func each(d buffers.Discipline, change func(*realEnded)) func(realResults) {
	return func(r realResults) {
		for i := range r.of(d).jobs {
			change(&r.of(d).jobs[i])
		}
	}
}

// both are two changes.
func both(a, b func(realResults)) func(realResults) {
	return func(r realResults) { a(r); b(r) }
}

// realMutants are the mistakes of a real run.
func realMutants() []realMutant {
	responseOf := func(e *realEnded) *float64 { return &e.response }
	execOf := func(e *realEnded) *float64 { return &e.exec }
	again := func(e *realEnded) { e.runs = 2 }
	still := func(e *realEnded) { e.sprints, e.spent = 0, 0 }
	return []realMutant{
		{"np kills", each(buffers.NP, again), []string{"1"}},
		{"p never kills", func(r realResults) { each(buffers.P, func(e *realEnded) { e.runs = 1 })(r); r.of(buffers.P).killed = 0 }, []string{"1"}},
		{"high jobs never wait under np", copied(buffers.NP, buffers.P, 0.9, responseOf), []string{"2"}},
		{"drops make low jobs wait longer", copied(buffers.DA, buffers.NP, 1.2, responseOf), []string{"3"}},
		{"the dropper drops nothing", both(copied(buffers.DA, buffers.NP, 1, execOf), both(each(buffers.DA, exact), each(buffers.DIAS, exact))), []string{"4", "12"}},
		{"no sprint: the timer never fires", each(buffers.NPS, still), []string{"5", "10", "11"}},
		{"sprints make nothing faster", copied(buffers.NPS, buffers.NP, 1, execOf), []string{"5"}},
		{"da sprints", each(buffers.DA, func(e *realEnded) { e.sprints = 1 }), []string{"10"}},
		{"sprints draw nothing more", each(buffers.NPS, func(e *realEnded) { e.spent = 0 }), []string{"11"}},
		{"low jobs wait under dias as under p", copied(buffers.DIAS, buffers.P, 1, responseOf), []string{"6"}},
		{"sprints waste joules", copied(buffers.DIAS, buffers.P, 1.3, func(e *realEnded) *float64 {
			if e.joules == nil {
				e.joules = new(float64)
			}
			return e.joules
		}), []string{"7"}},
		{"results are not scaled", both(each(buffers.DA, unscaled), each(buffers.DIAS, unscaled)), []string{"12"}},
		{"results without drops are wrong", each(buffers.NP, func(e *realEnded) { e.wrong = new(1.) }), []string{"12"}},
	}
}

func exact(e *realEnded) { e.wrong = new(0.) }

func unscaled(e *realEnded) {
	if e.theta > 0 {
		e.wrong = new(60.)
	}
}

// Every target of the record that can get worse does so under a mistake.
func TestRecordedMutants(t *testing.T) {
	t.Parallel()
	var all []reporttest.Mutant
	for _, m := range realMutants() {
		var expected []string
		for _, n := range m.expected {
			expected = append(expected, graphIDs+n)
		}
		all = append(all, reporttest.Mutant{Name: m.name, Expected: expected, Targets: func(context.Context) ([]report.Target, error) {
			spoilt, err := recordedReal()
			for _, x := range spoilt {
				m.spoil(x)
			}
			return spoilt.targets(graphIDs, graphProgram, graphPower), err
		}})
	}
	reporttest.Mutants(t, testkit.Need(recordedReal())(t).targets(graphIDs, graphProgram, graphPower), all)
}

// readRuns reads the runs of one program as writeRuns writes them. A run that does not have
// all policies, as one that was cut short, is left out.
func readRuns(from io.Reader) (realRounds, error) {
	rows, err := csv.NewReader(from).ReadAll()
	if err != nil || len(rows) == 0 || !slices.Equal(rows[0], runsHead()) {
		return nil, fmt.Errorf("%w: runs.csv: %w", errRecord, err)
	}
	by := map[int]realResults{}
	for i, row := range rows[1:] {
		round, e, err := readJob(row)
		if err != nil {
			return nil, fmt.Errorf("%w: runs.csv, line %d: %w", errRecord, i+2, err)
		}
		d := buffers.Discipline(row[0])
		if by[round].of(d) == nil {
			x := realResult{program: row[9], round: round, policy: d}
			if x.killed, err = strconv.ParseFloat(row[14], 64); err == nil {
				x.total, err = strconv.ParseFloat(row[15], 64)
			}
			if err != nil {
				return nil, fmt.Errorf("%w: runs.csv, line %d: %w", errRecord, i+2, err)
			}
			by[round] = append(by[round], x)
		}
		to := by[round].of(d)
		to.jobs = append(to.jobs, e)
	}
	var out realRounds
	for round := 1; by[round] != nil; round++ {
		if len(by[round]) == len(realPolicies()) {
			out = append(out, by[round])
		}
	}
	return out, nil
}

// readJob reads one line of runs.csv.
func readJob(row []string) (round int, e realEnded, err error) {
	if e.class = slices.Index(classNames(), row[2]); e.class < 0 {
		return 0, e, fmt.Errorf("class %q", row[2])
	}
	number := func(at int) (x float64) {
		var bad error
		if x, bad = strconv.ParseFloat(row[at], 64); bad != nil && err == nil {
			err = bad
		}
		return x
	}
	maybe := func(at int) *float64 {
		if row[at] == "" {
			return nil
		}
		return new(number(at))
	}
	e.response, e.exec, e.runs, e.theta = number(3), number(4), int(number(5)), number(6)
	e.joules, e.sprints, e.spent, e.wrong = maybe(8), int(number(11)), number(12), maybe(13)
	return int(number(10)), e, err
}
