// Package cli is the command-line behaviour that Headroom's programs share: running a
// command, errors and exit codes, output formats, tables and values.
//
// The one idea: all programs behave the same. The answer goes to stdout, everything
// else to stderr. An error is two lines, cause and hint, or one JSON object with
// -o json. A usage error has exit code 2 and suggests a correction.
//
// Commands follow these conventions: `tool noun verb`, long flags, an Example on
// every command, and an *Error for every failure that an operator can meet. The
// package makes no decisions and keeps no state.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Run executes one command line and returns the exit code for os.Exit. args are
// those after the program's name. SIGINT and SIGTERM cancel the context that
// the command got; a second one ends the process at once.
//
// The exit code is 130 after a signal, but 0 when the command returned nil after
// SIGTERM, which is how a service stops.
func Run(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	ctx, caught, stop := watchSignals(ctx)
	defer stop()
	started, unknown := prepare(root, stdout, stderr)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = *unknown
	}
	sig := caught()
	if err == nil {
		if sig == os.Interrupt {
			return ExitInterrupted
		}
		return ExitOK
	}
	e := asError(err)
	if _, typed := errors.AsType[*Error](err); !typed && !*started {
		e = usageOf(cmd, err)
	}
	if e.Hint == "" && e.Exit == ExitUsage {
		e.Hint = helpOf(cmd) // two lines, always: the cause and a way out
	}
	if sig != nil {
		return interrupted(stderr, e, err, wantsJSON(args))
	}
	printError(stderr, e, wantsJSON(args))
	return e.Exit
}

// interrupted prints the error of a command that a signal ended, but not the
// cancellation itself.
func interrupted(stderr io.Writer, e *Error, err error, asJSON bool) int {
	if !errors.Is(err, context.Canceled) {
		e.Exit = ExitInterrupted
		printError(stderr, e, asJSON)
	}
	return ExitInterrupted
}

// watchSignals cancels the context on the first SIGINT or SIGTERM; the second one
// has its default effect. caught returns the signal, or nil.
func watchSignals(parent context.Context) (ctx context.Context, caught func() os.Signal, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case s := <-signals:
			cancel(signalError{s})
			signal.Stop(signals)
		case <-ctx.Done():
		}
	}()
	caught = func() os.Signal {
		if s, ok := errors.AsType[signalError](context.Cause(ctx)); ok {
			return s.Signal
		}
		return nil
	}
	stop = func() {
		signal.Stop(signals)
		cancel(context.Canceled)
		<-done
	}
	return ctx, caught, stop
}

// signalError is the cause of a context that a signal cancelled.
type signalError struct{ os.Signal }

// Error names the signal.
func (e signalError) Error() string { return "caught " + e.String() }

// prepare sets up what every command of the tree shares. The returned flag is set
// once a command's own code runs; an error before that is a usage error. unknown is the
// error of a command that was asked for its help and does not exist.
func prepare(root *cobra.Command, stdout, stderr io.Writer) (started *bool, unknown *error) {
	root.SetOut(&screen{w: stdout})
	root.SetErr(&screen{w: stderr})
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = Version
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	help, groups := root.HelpFunc(), map[*cobra.Command]bool{}
	unknown = new(error)
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if words := cmd.Flags().Args(); groups[cmd] && len(words) > 0 { // tool noun nonsense --help
			*unknown = missingVerb(cmd, words)
			return
		}
		help(cmd, args)
	})
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	started = new(bool)
	prepareTree(root, started, groups)
	return started, unknown
}

func prepareTree(cmd *cobra.Command, started *bool, groups map[*cobra.Command]bool) {
	cmd.DisableFlagsInUseLine = true
	completeWords(cmd)
	switch {
	case cmd.RunE != nil:
		run := cmd.RunE
		cmd.RunE = func(c *cobra.Command, args []string) error {
			if err := checkOutput(c); err != nil {
				return err
			}
			*started = true
			return run(c, args)
		}
	case cmd.Run == nil:
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = missingVerb
		groups[cmd] = true
	}
	for _, sub := range cmd.Commands() {
		prepareTree(sub, started, groups)
	}
}

// completeWords lets the shell complete flags that take one of a few words.
func completeWords(cmd *cobra.Command) {
	for name, words := range map[string][]string{
		"log-level":   {"debug", "info", "warn", "error"},
		"role":        {"node", "observer", "operator", "admin"},
		"lost-charge": {"keep", "fail-safe"},
	} {
		if cmd.LocalFlags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // a command may have its own
		}
	}
}

// missingVerb is the body of a command that only holds others.
func missingVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		e := Usage("%s needs a command: %s", cmd.CommandPath(), strings.Join(verbs(cmd), ", "))
		e.Hint = cmd.CommandPath() + " --help"
		return e
	}
	e := Usage("unknown command %q for %q", args[0], cmd.CommandPath())
	e.Hint = didYouMean(nearest(args[0], verbs(cmd)), cmd.CommandPath()+" --help lists the commands")
	return e
}

// verbs returns the names of the visible commands below cmd.
func verbs(cmd *cobra.Command) []string {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "completion" {
			names = append(names, sub.Name())
		}
	}
	return names
}

// usageOf returns the usage error for what cobra found before any command ran.
func usageOf(cmd *cobra.Command, err error) *Error {
	e := Usage("%s: %w", cmd.CommandPath(), err)
	e.Hint = helpOf(cmd)
	return e
}

func helpOf(cmd *cobra.Command) string { return cmd.CommandPath() + " --help shows the usage" }

// wantsJSON reports whether the raw arguments have -o json: a usage error must be
// printed in that form although parsing did not finish.
func wantsJSON(args []string) bool {
	for i, arg := range args {
		switch arg {
		case "--":
			return false
		case "-o=json", "-ojson", "--output=json":
			return true
		case "-o", "--output":
			if i+1 < len(args) && args[i+1] == "json" {
				return true
			}
		}
	}
	return false
}

// Notef writes a note to w, the command's stderr. Write errors are ignored.
func Notef(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format+"\n", args...)
}
