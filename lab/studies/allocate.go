// Package studies contains small powerlab commands that apply one decision each: they feed a pure
// package from a file and print its decision. The package makes no decisions itself, and reads only
// a file and stdin.
package studies

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/jobs/containers"
	"headroom/lab/jsonfile"
)

// Bounds of a file of `powerlab allocate`.
const (
	maxContainers = 10_000_000
	// maxSeconds is about a century: more does not fit a time.Duration.
	maxSeconds = 3e9
)

// allocation is the file of `powerlab allocate`.
type allocation struct {
	Policy     string          `json:"policy"`
	Containers int             `json:"containers"`
	Jobs       []allocationJob `json:"jobs"`
}

// allocationJob is one job of the file. What is absent is unknown.
type allocationJob struct {
	Name       string   `json:"name"`
	Finish     *float64 `json:"finish_s"`
	Uncapped   *float64 `json:"uncapped_finish_s"`
	Containers int      `json:"containers"`
	Elapsed    float64  `json:"elapsed_s"`
	Least      int      `json:"least"`
}

// allocated is the answer.
type allocated struct {
	Jobs []allocatedJob `json:"jobs"`
}

type allocatedJob struct {
	Name       string  `json:"name"`
	Share      float64 `json:"share"`
	Containers int     `json:"containers"`
}

// NewAllocateCommand is `powerlab allocate`.
func NewAllocateCommand() *cobra.Command {
	return fileCommand(&cobra.Command{
		Use:   "allocate",
		Short: "Divide containers among jobs by a policy",
		Long: `Divides containers among jobs as the coordinators' job loop does. The input file:

  {"policy": "paper", "containers": 28, "jobs": [
    {"name": "a", "finish_s": 150, "uncapped_finish_s": 100}, ...]}

Fields of a job:
  finish_s           expected end
  uncapped_finish_s  expected end without a cap; a job with neither value gets an equal share
  containers         number it holds now, which finish_s assumes (default: an equal share)
  elapsed_s          time since its start (default 0)
  least              fewest containers it may get (default 1)
Remaining time is assumed to be inversely proportional to containers.

Policies:
` + policyHelp() + `
share is the policy's own value, before rounding. The sum of containers is always the total.`,
		Example: "  powerlab allocate --input jobs.json\n  powerlab allocate --input - -o json < jobs.json",
	}, "policy, containers and jobs", allocate)
}

func policyHelp() string {
	var text strings.Builder
	for _, p := range containers.Policies() {
		fmt.Fprintf(&text, "  %-9s %s\n", p, p.Sentence())
	}
	return text.String()
}

// allocate reads the file and divides.
func allocate(stdin io.Reader, file string) (*allocated, error) {
	var in allocation
	if err := jsonfile.Read(stdin, "--input", file, &in); err != nil {
		return nil, err
	}
	policy, err := containers.ParsePolicy(in.Policy)
	if err != nil {
		return nil, jsonfile.Bad(file, "unknown policy %q: must be one of %v", in.Policy, containers.Policies())
	}
	if in.Containers < 1 || in.Containers > maxContainers {
		return nil, jsonfile.Bad(file, "containers is %d: must be from 1 to %d", in.Containers, maxContainers)
	}
	jobs := make([]containers.Job, len(in.Jobs))
	for i, j := range in.Jobs {
		if jobs[i], err = j.job(file, i); err != nil {
			return nil, err
		}
	}
	plan, err := containers.Allocate(policy, in.Containers, jobs, containers.Settings{})
	if few, ok := errors.AsType[*containers.TooFewError](err); ok {
		e := jsonfile.Bad(file, "%v", few)
		e.Hint = "give more containers, or leave out the jobs that get none"
		return nil, e
	}
	if err != nil {
		return nil, jsonfile.Bad(file, "%v", err)
	}
	answer := &allocated{Jobs: []allocatedJob{}}
	for _, s := range plan.Shares {
		answer.Jobs = append(answer.Jobs, allocatedJob{Name: s.Name, Share: s.Exact, Containers: s.Containers})
	}
	return answer, nil
}

// job is entry number i of the file as the allocator takes it.
func (j *allocationJob) job(file string, i int) (containers.Job, error) {
	place := fmt.Sprintf("jobs[%d] (%q): ", i, j.Name)
	switch {
	case j.Name == "":
		return containers.Job{}, jsonfile.Bad(file, "jobs[%d]: name is missing", i)
	case (j.Finish == nil) != (j.Uncapped == nil):
		return containers.Job{}, jsonfile.Bad(file, "%sfinish_s and uncapped_finish_s go together: give both, or neither where they are unknown", place)
	case j.Finish != nil && !(*j.Finish > 0 && *j.Finish <= maxSeconds):
		return containers.Job{}, jsonfile.Bad(file, "%sfinish_s is %v: must be above 0", place, *j.Finish)
	case j.Uncapped != nil && !(*j.Uncapped > 0 && *j.Uncapped <= maxSeconds):
		return containers.Job{}, jsonfile.Bad(file, "%suncapped_finish_s is %v: must be above 0", place, *j.Uncapped)
	case !(j.Elapsed >= 0 && j.Elapsed <= maxSeconds):
		return containers.Job{}, jsonfile.Bad(file, "%selapsed_s is %v: must be 0 or more", place, j.Elapsed)
	case j.Containers < 0 || j.Containers > maxContainers || j.Least < 0 || j.Least > maxContainers:
		return containers.Job{}, jsonfile.Bad(file, "%scontainers %d and least %d must be from 0 to %d", place, j.Containers, j.Least, maxContainers)
	}
	job := containers.Job{Name: j.Name, Held: j.Containers, Least: j.Least, Elapsed: seconds(j.Elapsed)}
	if j.Finish != nil {
		job.Known, job.Finish, job.Uncapped = true, seconds(*j.Finish), max(1, seconds(*j.Uncapped))
		job.Finish = max(1, job.Finish)
	}
	return job, nil
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

// print is the answer as JSON or as a table.
func (a *allocated) print(w io.Writer, out *cli.Output) error {
	if out.IsJSON() {
		return out.JSON(w, a)
	}
	rows := make([][]string, 0, len(a.Jobs))
	for _, j := range a.Jobs {
		rows = append(rows, []string{j.Name, fmt.Sprintf("%.3f", j.Share), strconv.Itoa(j.Containers)})
	}
	return out.Table(w, []string{"NAME", "SHARE", "CONTAINERS"}, rows)
}

// fileCommand makes cmd the command of a study that answers a file, which holds what is named.
func fileCommand[A interface {
	print(w io.Writer, out *cli.Output) error
}](cmd *cobra.Command, holds string, study func(stdin io.Reader, file string) (A, error),
) *cobra.Command {
	var file string
	var out cli.Output
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		answer, err := study(cmd.InOrStdin(), file)
		if err != nil {
			return err
		}
		return answer.print(cmd.OutOrStdout(), &out)
	}
	cmd.Flags().StringVar(&file, "input", "", "file with "+holds+"; - for stdin")
	out.Flags(cmd)
	return cmd
}
