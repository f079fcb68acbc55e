// Package command is `powerlab faults`. It gives the outside checker of package faults the
// namespaces that it needs, prints its report, and turns the report into an exit code. The
// checker does not import it: everything shared with the project, such as flags and output,
// stays in this package.
package command

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/lab/faults"
)

// inner marks the process that runs inside the namespaces; its value is the folder.
const inner = "HEADROOM_FAULTS_DIR"

// settings are the flags of the command.
type settings struct {
	faults.Options
	out cli.Output
}

// New is `powerlab faults`.
func New() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:     "faults",
		Aliases: []string{"torment"},
		Short:   "Run real servers and nodes under random faults and check them from outside",
		Long: `Runs three coordinators and three emulated nodes with powerd, each in its own network namespace,
and injects random faults: kill -9, SIGSTOP, cut links, a lost quorum, or every process killed at
once. Meanwhile two operators change the budget and a third reads it.

The checker shares no code with the programs it checks. It verifies that
  - measured power stays within the budget and within the leases,
  - changes and reads of the budget are linearizable,
  - each acknowledged change is in the audit log exactly once.

The seed determines the faults and their targets. How processes interleave is not reproducible.

It needs nftables and network namespaces: root, or a kernel that allows unprivileged namespaces.
Exit codes: 0 no violation, 1 a violation, 8 not permitted on this machine (see not_run).`,
		Example: "  powerlab faults --for 10m --seed 7\n" +
			"  powerlab faults --for 1m --bin /tmp/other-build -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	f := cmd.Flags()
	f.DurationVar(&s.For, "for", time.Minute, "duration of fault injection")
	f.Uint64Var(&s.Seed, "seed", 1, "seed of the faults")
	f.StringVar(&s.Bin, "bin", "", "folder of the programs (default: next to powerlab)")
	f.StringVar(&s.Dir, "dir", "", "new folder that keeps configuration, state and logs (default: a temporary folder that is removed)")
	s.out.Flags(cmd)
	return cmd
}

func (s *settings) run(cmd *cobra.Command) error {
	if s.For < 10*time.Second || s.For > 24*time.Hour {
		return cli.Usage("--for %v: must be from 10s to 24h", s.For)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("faults: %w", err)
	}
	if s.Bin == "" {
		s.Bin = filepath.Dir(self)
	}
	if s.Bin, err = filepath.Abs(s.Bin); err != nil {
		return cli.Usage("--bin: %v", err)
	}
	for _, p := range []string{"coordinator", "powerd", "powerlab"} {
		if _, err := os.Stat(filepath.Join(s.Bin, p)); err != nil {
			return cli.Usage("--bin %s: %v", s.Bin, err)
		}
	}
	if dir := os.Getenv(inner); dir != "" {
		return s.inside(cmd, dir)
	}
	return s.outside(cmd, self)
}

// inside is the run itself.
func (s *settings) inside(cmd *cobra.Command, dir string) error {
	s.Dir, s.Progress = dir, cmd.ErrOrStderr()
	r, err := faults.Run(cmd.Context(), s.Options)
	if errors.Is(err, faults.ErrNotPermitted) {
		return s.refused(cmd, err.Error())
	}
	if err != nil {
		return err //nolint:wrapcheck // it says what failed
	}
	if err := s.print(cmd, r); err != nil {
		return err
	}
	if len(r.Violations) > 0 {
		return cli.Failed("repeat with --dir DIR to keep the logs", "%s with seed %d: %s", cli.Count(len(r.Violations), "violation"), r.Seed, r.Violations[0])
	}
	return nil
}

// outside runs this program again in namespaces that end with it.
func (s *settings) outside(cmd *cobra.Command, self string) error {
	wrap := []string{"--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if os.Geteuid() != 0 {
		wrap = append(wrap, "--map-root-user")
	}
	if out, err := exec.CommandContext(cmd.Context(), "unshare", append(wrap, "true")...).CombinedOutput(); err != nil {
		return s.refused(cmd, strings.TrimSpace(fmt.Sprintf("unshare: %v: %s", err, out)))
	}
	dir, err := s.folder()
	if err != nil {
		return err
	}
	if s.Dir == "" {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	runtime.LockOSThread() // the child's death is tied to this thread's
	defer runtime.UnlockOSThread()
	again := exec.CommandContext(cmd.Context(), "unshare", append(append(wrap, "--", self), os.Args[1:]...)...) //nolint:gosec // this program itself
	again.Env = append(os.Environ(), inner+"="+dir)
	again.Stdout, again.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	again.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = again.Run()
	if code := again.ProcessState.ExitCode(); err != nil && code > 0 {
		return &cli.Error{Code: "faults", Exit: code, Message: "run failed; see the report above"}
	}
	return cmp.Or(cmd.Context().Err(), err) //nolint:wrapcheck // the frame turns it into an exit code
}

// folder makes the folder of all files.
func (s *settings) folder() (string, error) {
	if s.Dir == "" {
		return os.MkdirTemp("", "headroom-faults-") //nolint:wrapcheck // it names the folder
	}
	dir, err := filepath.Abs(s.Dir)
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		return "", cli.Usage("--dir: %v", err)
	}
	return dir, nil
}

// refused reports a run that this machine does not permit.
func (s *settings) refused(cmd *cobra.Command, why string) error {
	if err := s.print(cmd, faults.NewReport(s.Options, why)); err != nil {
		return err
	}
	return &cli.Error{Code: "not_permitted", Exit: cli.ExitDegraded, Message: why}
}

func (s *settings) print(cmd *cobra.Command, r *faults.Report) error {
	w := cmd.OutOrStdout()
	if s.out.IsJSON() {
		return s.out.JSON(w, r)
	}
	var rows [][]string
	add := func(kind string, counts map[string]int) {
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			rows = append(rows, []string{kind, name, fmt.Sprint(counts[name])})
		}
	}
	add("fault", r.Faults)
	add("check", r.Checks)
	for _, v := range r.Violations {
		rows = append(rows, []string{"violation", v, ""})
	}
	for _, v := range r.NotRun {
		rows = append(rows, []string{"not run", v, ""})
	}
	return s.out.Table(w, []string{"KIND", "WHAT", "COUNT"}, rows)
}
