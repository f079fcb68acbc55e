package admit

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/jobs/admission"
	"headroom/internal/jsonfile"
	"headroom/units"
)

// Bounds of a file.
const (
	// jobsMost is how many jobs a file may have: a simulation of them takes seconds.
	jobsMost = 50_000
	// changesMost bounds the changes of the capacity.
	changesMost = 10_000
	// secondsMost is about 30 years: sums of it stay exact to a microsecond.
	secondsMost = 1e9
	// secondsLeast is the shortest time that is told from none.
	secondsLeast = 1e-6
)

// file is the input.
type file struct {
	Policy   string       `json:"policy"`
	Capacity *int         `json:"capacity"`
	Changes  []fileChange `json:"capacity_changes"`
	Power    *filePower   `json:"power"`
	Jobs     []fileJob    `json:"jobs"`
}

type fileChange struct {
	At       *float64 `json:"at_s"`
	Capacity *int     `json:"capacity"`
	Budget   *float64 `json:"budget_w"`
}

type filePower struct {
	Idle float64 `json:"idle_w"`
	Full float64 `json:"full_w"`
}

type fileJob struct {
	User     string   `json:"user"`
	Arrival  *float64 `json:"arrival_s"`
	Tasks    *int     `json:"tasks"`
	Work     *float64 `json:"work_s"`
	Deadline *float64 `json:"deadline_s"`
}

// answer is the output. What does not exist is null.
type answer struct {
	Policy    string      `json:"policy"`
	Jobs      []answerJob `json:"jobs"`
	SDR       *float64    `json:"sdr"`
	PTR       *float64    `json:"ptr"`
	Wasted    *float64    `json:"wasted"`
	Fractions []float64   `json:"cpu_frac"`
}

type answerJob struct {
	Decision   string   `json:"decision"`
	Slots      float64  `json:"slots"`
	Start      *float64 `json:"start_s"`
	Finish     *float64 `json:"finish_s"`
	Met        bool     `json:"met"`
	Confidence float64  `json:"confidence"`
	Nearest    *float64 `json:"nearest_deadline_s"`
	Reason     string   `json:"reason"`
}

// NewCommand is `powerlab admit`.
func NewCommand() *cobra.Command {
	var name string
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "admit",
		Short: "Simulate admission control of jobs with deadlines",
		Long: `Simulates which jobs are admitted and which meet their deadlines. The input file:

  {"policy": "adaptive", "capacity": 100, "jobs": [
    {"arrival_s": 0, "tasks": 40, "work_s": 1000, "deadline_s": 50}, ...]}

Jobs are in order of arrival. work_s is the total time of a job's tasks; only the policy oracle knows it in
advance. deadline_s counts from arrival_s. A job may have a user. capacity is in slots, and may change:

  "capacity_changes": [{"at_s": 600, "capacity": 50}, ...], or, with "power": {"idle_w": 1000, "full_w": 3000},
  "capacity_changes": [{"at_s": 600, "budget_w": 2000}, ...]

Policies:
  adaptive  learn the needs of jobs by size class and user; check commitments again when capacity changes
            (default)
  pythia    the paper's: use the largest fraction of tasks that an ended job needed, for all jobs
  oracle    know the work of each job in advance
  nodrop    share slots fairly, stop no job
  reactive  share slots fairly, stop each job at its deadline

Output:
  decision  admitted (started at once), queued (started later) or refused (never ran)
  slots     mean number of slots that the job held
  sdr       fraction of jobs that met their deadlines
  ptr       their fraction of all work
  wasted    fraction of slot time used by jobs that missed their deadlines
  cpu_frac  the learned value after the end of each job`,
		Example: "  powerlab admit --input jobs.json\n  powerlab admit --input - -o json < jobs.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := study(cmd.InOrStdin(), name)
			if err != nil {
				return err
			}
			return a.print(cmd.OutOrStdout(), &out)
		},
	}
	cmd.Flags().StringVar(&name, "input", "", "file with policy, capacity and jobs; - for stdin")
	out.Flags(cmd)
	return cmd
}

// study reads the file and simulates.
func study(stdin io.Reader, name string) (*answer, error) {
	var in file
	if err := jsonfile.Read(stdin, "--input", name, &in); err != nil {
		return nil, err
	}
	policy, err := admission.ParsePolicy(in.Policy)
	if err != nil {
		return nil, jsonfile.Bad(name, "unknown policy %q: must be one of %v", in.Policy, admission.Policies())
	}
	l, err := in.load(name)
	if err != nil {
		return nil, err
	}
	door, err := admission.New(policy, l.Capacity)
	if err != nil {
		return nil, jsonfile.Bad(name, "%v", err)
	}
	o, err := Simulate(door, l)
	if err != nil {
		return nil, jsonfile.Bad(name, "%v", err)
	}
	return o.answer(policy, l.Jobs), nil
}

// load checks the file.
func (f *file) load(name string) (Load, error) {
	var l Load
	switch {
	case f.Capacity == nil:
		return l, jsonfile.Bad(name, "capacity is missing")
	case *f.Capacity < 1 || *f.Capacity > admission.CapacityMost:
		return l, jsonfile.Bad(name, "capacity is %d: must be from 1 to %d", *f.Capacity, admission.CapacityMost)
	case len(f.Jobs) > jobsMost:
		return l, jsonfile.Bad(name, "%d jobs; at most %d", len(f.Jobs), jobsMost)
	case len(f.Changes) > changesMost:
		return l, jsonfile.Bad(name, "%d capacity_changes; at most %d", len(f.Changes), changesMost)
	}
	l.Capacity = *f.Capacity
	for i := range f.Changes {
		c, err := f.change(name, i)
		if err != nil {
			return l, err
		}
		if i > 0 && c.At < l.Changes[i-1].At {
			return l, jsonfile.Bad(name, "capacity_changes[%d]: at_s is %v, before %v of the entry ahead of it", i, c.At, l.Changes[i-1].At)
		}
		l.Changes = append(l.Changes, c)
	}
	for i := range f.Jobs {
		j, err := f.Jobs[i].job(name, i)
		if err != nil {
			return l, err
		}
		if i > 0 && j.Arrival < l.Jobs[i-1].Arrival {
			return l, jsonfile.Bad(name, "jobs[%d]: arrival_s is %v, before %v of the job ahead of it; sort the jobs by arrival", i, j.Arrival, l.Jobs[i-1].Arrival)
		}
		l.Jobs = append(l.Jobs, j)
	}
	return l, nil
}

// change is entry number i of the changes.
func (f *file) change(name string, i int) (Change, error) {
	c := &f.Changes[i]
	switch {
	case !given(c.At, 0):
		return Change{}, bad(name, "capacity_changes", i, "at_s", c.At, 0)
	case (c.Capacity == nil) == (c.Budget == nil):
		return Change{}, jsonfile.Bad(name, "capacity_changes[%d]: give one of capacity and budget_w", i)
	case c.Capacity != nil && (*c.Capacity < 0 || *c.Capacity > admission.CapacityMost):
		return Change{}, jsonfile.Bad(name, "capacity_changes[%d]: capacity is %d: must be from 0 to %d", i, *c.Capacity, admission.CapacityMost)
	case c.Capacity != nil:
		return Change{*c.At, *c.Capacity}, nil
	case f.Power == nil || !(f.Power.Idle >= 0 && f.Power.Full > f.Power.Idle && f.Power.Full <= secondsMost):
		return Change{}, jsonfile.Bad(name, "capacity_changes[%d]: budget_w needs power, with 0 <= idle_w < full_w <= %g", i, secondsMost)
	case !given(c.Budget, 0):
		return Change{}, bad(name, "capacity_changes", i, "budget_w", c.Budget, 0)
	}
	p := admission.Power{Idle: watts(f.Power.Idle), Full: watts(f.Power.Full)}
	return Change{*c.At, p.Slots(*f.Capacity, watts(*c.Budget))}, nil
}

func watts(w float64) units.Power { return units.Power(math.Round(w * float64(units.Watt))) }

// job is entry number i of the jobs.
func (j *fileJob) job(name string, i int) (Job, error) {
	switch {
	case !given(j.Arrival, 0):
		return Job{}, bad(name, "jobs", i, "arrival_s", j.Arrival, 0)
	case j.Tasks == nil:
		return Job{}, jsonfile.Bad(name, "jobs[%d]: tasks is missing", i)
	case *j.Tasks < 1 || *j.Tasks > admission.TasksMost:
		return Job{}, jsonfile.Bad(name, "jobs[%d]: tasks is %d: must be from 1 to %d", i, *j.Tasks, admission.TasksMost)
	case !given(j.Work, secondsLeast):
		return Job{}, bad(name, "jobs", i, "work_s", j.Work, secondsLeast)
	case !given(j.Deadline, secondsLeast):
		return Job{}, bad(name, "jobs", i, "deadline_s", j.Deadline, secondsLeast)
	}
	return Job{User: j.User, Tasks: *j.Tasks, Arrival: *j.Arrival, Work: *j.Work, Deadline: *j.Deadline}, nil
}

// given reports whether a number is there and inside its bounds.
func given(x *float64, least float64) bool { return x != nil && *x >= least && *x <= secondsMost }

// bad is the error of a number that is not.
func bad(name, list string, i int, field string, x *float64, least float64) error {
	if x == nil {
		return jsonfile.Bad(name, "%s[%d]: %s is missing", list, i, field)
	}
	return jsonfile.Bad(name, "%s[%d]: %s is %v: must be from %g to %g", list, i, field, *x, least, secondsMost)
}

// answer is the outcome as it is printed.
func (o *Outcome) answer(policy admission.Policy, jobs []Job) *answer {
	f := o.Measure(jobs)
	a := &answer{
		Policy: policy.String(), Jobs: make([]answerJob, len(jobs)), SDR: f.SDR, PTR: f.PTR, Wasted: f.Wasted,
		Fractions: o.fractions,
	}
	for i := range o.Jobs {
		e := &o.Jobs[i]
		out := answerJob{Decision: e.verdict.String(), Met: e.Met, Confidence: e.last.Confidence, Reason: e.last.Reason()}
		if e.last.Nearest > 0 {
			s := e.last.Nearest.Seconds()
			out.Nearest = &s
		}
		if e.ran {
			out.Start, out.Finish, out.Slots = &e.start, &e.finish, e.slots()
		}
		a.Jobs[i] = out
	}
	return a
}

// slots is what the job held in the mean; exact where it never changed.
func (e *Ended) slots() float64 {
	if !e.resized || e.finish <= e.start {
		return e.first
	}
	return e.Got / (e.finish - e.start)
}

// print is the answer as JSON or as a table, the measures first.
func (a *answer) print(w io.Writer, out *cli.Output) error {
	if out.IsJSON() {
		return out.JSON(w, a)
	}
	if out.Format == "table" || out.IsWide() {
		if _, err := fmt.Fprintf(w, "policy %s: %s of the jobs met their deadlines, %s of the work; %s wasted\n\n", a.Policy, percent(a.SDR), percent(a.PTR), percent(a.Wasted)); err != nil {
			return err
		}
	}
	rows := make([][]string, 0, len(a.Jobs))
	for i, j := range a.Jobs {
		rows = append(rows, []string{
			name(i), j.Decision, strconv.FormatFloat(j.Slots, 'g', 5, 64), number(j.Start), number(j.Finish), strconv.FormatBool(j.Met), j.Reason,
		})
	}
	return out.Table(w, []string{"JOB", "DECISION", "SLOTS", "START", "FINISH", "MET", "REASON"}, rows)
}

func percent(x *float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100**x)
}

func number(x *float64) string {
	if x == nil {
		return "-"
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", *x), ".0") + "s"
}

// name is how job number i is called.
func name(i int) string { return strconv.Itoa(i) }
