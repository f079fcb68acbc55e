package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/internal/manual"
)

// libexec is where packages may put the programs that are not meant for PATH.
const libexec = "/usr/lib/headroom"

// completionWait bounds how long a shell waits for completions of a program.
const completionWait = 2 * time.Second

// locator finds the programs.
type locator struct {
	self  func() (string, error) // path of this program
	fixed string                 // folder to look in next
	path  string                 // as PATH
}

// find returns the path of a program: beside this one, in the fixed folder, on PATH.
func (l locator) find(program string) (string, error) {
	var dirs []string
	if self, err := l.self(); err == nil {
		if real, err := filepath.EvalSymlinks(self); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
		dirs = append(dirs, filepath.Dir(self))
	}
	dirs = append(dirs, l.fixed)
	for _, dir := range append(dirs, filepath.SplitList(l.path)...) {
		if !filepath.IsAbs(dir) {
			continue // a relative PATH must not choose the program
		}
		name := filepath.Join(dir, program)
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return name, nil
		}
	}
	all := programs()
	i := slices.IndexFunc(all, func(n noun) bool { return n.name == program })
	return "", &cli.Error{
		Code: "not-installed", Exit: cli.ExitFailed, Message: program + " is not installed: not beside headroom, not in " + l.fixed + ", not on PATH",
		Hint: "install the package " + all[i].program,
	}
}

func newRoot(l locator) *cobra.Command {
	root := &cobra.Command{
		Use:   "headroom",
		Short: "Manage a power-capped cluster",
		Long: "Manage a power-capped cluster. headroom runs the program that has the command: headroom budget set runs\n" +
			"coordinator budget set, headroom job list runs scheduler job list.\n\n" +
			"A noun that several programs have runs the coordinator's: lease, node, sprint, status and check are about the\n" +
			"cluster. job runs the scheduler's, but for explain, which only coordinator has. run is scheduler job run. For another\n" +
			"program's command, and for config, debug, version and a program's own run, name the program: headroom powerd status.\n\n" +
			"The programs are looked for beside headroom, in " + libexec + ", and on PATH.",
		Example: "  headroom status\n  headroom budget set 2800W --reason \"feeder B maintenance\"\n  headroom job list\n  headroom run --deadline 10m -- spark-submit --master yarn words.py\n  headroom powerd status",
	}
	root.AddGroup(&cobra.Group{ID: "programs", Title: "Programs:"})
	for _, p := range programs() {
		root.AddGroup(&cobra.Group{ID: p.name, Title: "Commands of " + p.name + ":"})
		root.AddCommand(passOn(l, p.name, p.short, "programs", func(args []string) (string, []string) { return p.name, args }))
	}
	for _, n := range nouns() {
		root.AddCommand(passOn(l, n.name, n.short, n.program, func(args []string) (string, []string) {
			program := n.program
			if n.name == "job" && len(args) > 0 && slices.Contains(jobVerbs(), args[0]) {
				program = "coordinator"
			}
			return program, append([]string{n.name}, args...)
		}))
	}
	root.AddCommand(passOn(l, "run", "Run a Spark or MapReduce command with a deadline and a quality", "scheduler", func(args []string) (string, []string) {
		return "scheduler", append([]string{"job", "run"}, args...)
	}))
	root.AddCommand(cli.VersionCommand("headroom"), manual.Command("headroom", func(string) (manual.Pages, error) { return pages(), nil }))
	return root
}

// passOn is a command that replaces this process with a program.
func passOn(l locator, name, short, group string, target func(args []string) (program string, rest []string)) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, GroupID: group, Example: "  headroom " + name + " --help",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			program, rest := target(args)
			path, err := l.find(program)
			if err != nil {
				return err
			}
			err = syscall.Exec(path, append([]string{path}, rest...), os.Environ())
			return cli.Failed("check that the file is a program for this machine", "run %s: %w", path, err)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			program, rest := target(args)
			return completions(cmd.Context(), l, program, append(rest, typed))
		},
	}
}

// completions asks the program for its own.
func completions(ctx context.Context, l locator, program string, args []string) ([]string, cobra.ShellCompDirective) {
	path, err := l.find(program)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(ctx, completionWait)
	defer cancel()
	text, err := exec.CommandContext(ctx, path, append([]string{cobra.ShellCompRequestCmd}, args...)...).Output()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	lines := strings.Split(string(bytes.TrimSpace(text)), "\n")
	directive := cobra.ShellCompDirectiveNoFileComp
	if last := lines[len(lines)-1]; strings.HasPrefix(last, ":") {
		var n int
		if _, err := fmt.Sscanf(last, ":%d", &n); err == nil {
			directive = cobra.ShellCompDirective(n)
		}
		lines = lines[:len(lines)-1]
	}
	return lines, directive
}

//go:generate go run headroom/cmd/headroom docs ../../docs

// pages are the manual pages that follow from the program.
func pages() manual.Pages {
	return manual.Pages{"man/headroom.8": manual.Program{
		Root: newRoot(locator{self: os.Executable, fixed: libexec}), Version: cli.Version, Purpose: "run any command of Headroom's programs",
		ExitNote:    "Exit codes and output are those of the program that was run; 1 where it is not installed.",
		Environment: []manual.Item{{Term: "PATH", Text: "Where programs are looked for that are neither beside headroom nor in " + libexec + "."}},
		Files:       []manual.Item{{Term: libexec, Text: "Folder of programs that are not on PATH."}},
		SeeAlso:     []string{"coordinator(8)", "scheduler(8)", "powerd(8)", "headroom(7)"},
	}.Page()}
}
