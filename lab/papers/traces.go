package papers

import (
	"errors"
	"io/fs"
	"slices"

	"headroom/internal/cli"
	"headroom/lab/traces"
)

// Traces are the published traces of the folder of --traces.
type Traces struct{ Dir string }

// checkTraces refuses a folder that has none of the traces, and a study that runs on none.
func (s Study) checkTraces(o *Options) error {
	if o.Traces.Dir == "" {
		return nil
	}
	if !s.Traces {
		return cli.Usage("--traces: powerlab paper %s runs on no traces", s.Paper)
	}
	if err := traces.CheckDir(o.Traces.Dir); err != nil {
		e := cli.Usage("--traces: %v", err)
		e.Hint = "use a folder with one of the files listed by powerlab paper " + s.Paper + " --help"
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
	if t.Dir == "" {
		return "needs the trace: name its folder with --traces", nil
	}
	f, err := traces.Open(t.Dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return t.Dir + " does not have it", nil
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
