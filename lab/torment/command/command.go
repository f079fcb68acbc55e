// Package command is `powerlab torment`: it gives the outside judge of package torment
// the namespaces that it needs, prints its report, and turns it into an exit code. It
// judges nothing, and the judge does not import it: what is shared with the project,
// flags and output, ends here.
package command

import (
	"context"
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
	"headroom/lab/torment"
)

// inner marks the process that runs inside the namespaces; its value is the folder.
const inner = "HEADROOM_TORMENT_DIR"

const (
	spanLeast = 10 * time.Second
	spanMost  = 24 * time.Hour
)

// settings are the flags of the command.
type settings struct {
	torment.Options
	out cli.Output
}

// New is `powerlab torment`.
func New() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "torment",
		Short: "Run real servers and nodes under random faults and judge them from outside",
		Long: "Torment starts three coordinators and three emulated nodes with powerd, each in a network namespace of its\n" +
			"own, and breaks them at random: kill -9, SIGSTOP, cut links, a lost quorum, the whole site dark. Two\n" +
			"operators change the budget meanwhile and a third reads it.\n\n" +
			"The judge shares no code with what it judges. It checks what the machines draw by their own physics\n" +
			"against the budget and against their leases, that changes and reads of the budget are linearizable, and\n" +
			"that each acknowledged change stands in the audit log exactly once.\n\n" +
			"The seed draws the faults and their targets; how processes interleave is not reproducible.\n\n" +
			"It needs network namespaces and nftables: root, or a kernel that lets users make namespaces. Exit code 0:\n" +
			"no violation. 1: a violation. 8: this machine does not permit it, and not_run says why.",
		Example: "  powerlab torment --for 10m --seed 7\n" +
			"  powerlab torment --for 1m --bin /tmp/other-build -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	f := cmd.Flags()
	f.DurationVar(&s.For, "for", time.Minute, "how long faults come")
	f.Uint64Var(&s.Seed, "seed", 1, "seed that the faults are drawn from")
	f.StringVar(&s.Bin, "bin", "", "folder of the programs (default: beside powerlab)")
	f.StringVar(&s.Dir, "dir", "", "keep configuration, state and logs in this new folder (default: a temporary one, removed)")
	s.out.Flags(cmd)
	return cmd
}

func (s *settings) run(cmd *cobra.Command) error {
	if s.For < spanLeast || s.For > spanMost {
		return cli.Usage("--for %v: it must be between %v and %v", s.For, spanLeast, spanMost)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("torment: %w", err)
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
	r, err := torment.Run(cmd.Context(), s.Options)
	if errors.Is(err, torment.ErrNotPermitted) {
		return s.refused(cmd, err.Error())
	}
	if err != nil {
		return err //nolint:wrapcheck // it says what failed
	}
	if err := s.print(cmd, r); err != nil {
		return err
	}
	if len(r.Violations) > 0 {
		return cli.Failed("repeat it with --dir DIR to keep the logs", "%d violations with seed %d: %s", len(r.Violations), r.Seed, r.Violations[0])
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
	again := exec.CommandContext(context.WithoutCancel(cmd.Context()), "unshare", append(append(wrap, "--", self), os.Args[1:]...)...) //nolint:gosec // this program itself
	again.Env = append(os.Environ(), inner+"="+dir)
	again.Stdout, again.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	again.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := again.Start(); err != nil {
		return fmt.Errorf("torment: unshare: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- again.Wait() }()
	select {
	case err = <-ended:
	case <-cmd.Context().Done():
		_ = again.Process.Kill()
		<-ended                    //nolint:errcheck // it was killed
		return cmd.Context().Err() //nolint:wrapcheck // the frame turns it into an exit code
	}
	if code := again.ProcessState.ExitCode(); err != nil && code > 0 {
		return &cli.Error{Code: "torment", Exit: code, Message: "the run ended as reported above"}
	}
	if err != nil {
		return fmt.Errorf("torment: %w", err)
	}
	return nil
}

// folder makes the folder of all files.
func (s *settings) folder() (string, error) {
	if s.Dir == "" {
		return os.MkdirTemp("", "headroom-torment-") //nolint:wrapcheck // it names the folder
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
	if err := s.print(cmd, torment.NewReport(s.Options, why)); err != nil {
		return err
	}
	return &cli.Error{Code: "not_permitted", Exit: cli.ExitDegraded, Message: why}
}

func (s *settings) print(cmd *cobra.Command, r *torment.Report) error {
	w := cmd.OutOrStdout()
	if s.out.IsJSON() {
		return s.out.JSON(w, r)
	}
	var rows [][]string
	add := func(kind string, counts map[string]int) {
		for _, name := range sorted(counts) {
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

// sorted are the names of what was counted.
func sorted(counts map[string]int) []string { return slices.Sorted(maps.Keys(counts)) }
