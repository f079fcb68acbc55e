package papers

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/spf13/pflag"

	"headroom/internal/cli"
	"headroom/lab/traces"
)

// Traces are the published traces on which a study runs where --traces names their folder.
type Traces struct{ dir string }

// Flag adds --traces.
func (t *Traces) Flag(f *pflag.FlagSet) {
	f.StringVar(&t.dir, "traces", "", "folder of published traces")
}

// Check refuses a folder that has none of the traces.
func (t *Traces) Check(paper string) error {
	if t.dir == "" {
		return nil
	}
	if err := traces.CheckDir(t.dir); err != nil {
		e := cli.Usage("--traces: %v", err)
		e.Hint = "use a folder with one of the files listed by powerlab paper " + paper + " --help"
		return e
	}
	return nil
}

// Tasks reads the first jobs of a trace of tasks into memory, at most so many, or all for 0. Where the trace is not there, why is the reason.
func (t *Traces) Tasks(name string, most int) (jobs []traces.Job, why string, err error) {
	why, err = t.Read(name, func(f *traces.File) error {
		for j, err := range traces.Tasks(f, f.Name()) {
			if err != nil {
				return err
			}
			jobs = append(jobs, traces.Job{Arrival: j.Arrival, Mean: j.Mean, Times: slices.Clone(j.Times)})
			if len(jobs) == most {
				break
			}
		}
		return nil
	})
	return jobs, why, err
}

// Read opens a trace, lets read go through it, and closes it. Where the trace is not there, why is the reason.
func (t *Traces) Read(name string, read func(f *traces.File) error) (why string, err error) {
	if t.dir == "" {
		return "needs the trace: name its folder with --traces", nil
	}
	f, err := traces.Open(t.dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return t.dir + " does not have it", nil
	}
	if err == nil {
		err = errors.Join(read(f), f.Close())
	}
	if bad, ok := errors.AsType[*traces.Error](err); ok {
		e := cli.Usage("--traces: %v", bad)
		e.Hint = "download the trace again, or remove the file to skip its targets"
		return "", e
	}
	if err != nil {
		return "", cli.Failed("use another folder with --traces", "--traces: %w", err)
	}
	return "", nil
}
