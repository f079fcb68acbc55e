// Claims: an error is two lines or one JSON object, with the documented exit code;
// a mistake in the command line is exit 2 with a proposal and runs nothing; help
// goes to stdout with exit 0; a signal cancels the command and gives 130.
package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/units"
)

// tool is a small command tree of the usual shape; ran collects what was run.
func tool(fail error, ran *[]string) *cobra.Command {
	root := &cobra.Command{Use: "tool", Short: "a tool"}
	budget := &cobra.Command{Use: "budget", Short: "budgets"}
	var out cli.Output
	var limit units.Power
	set := &cobra.Command{
		Use: "set POWER", Short: "set it", Example: "  tool budget set 2kW", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			*ran = append(*ran, "set "+args[0]+" "+limit.String()+" "+out.Format)
			return fail
		},
	}
	out.Flags(set)
	set.Flags().Var(&limit, "cap", "cap of a node")
	set.Flags().String("reason", "", "why")
	budget.AddCommand(set, &cobra.Command{Use: "show", Short: "show it", RunE: func(*cobra.Command, []string) error { return nil }})
	root.AddCommand(budget)
	return root
}

func run(t *testing.T, fail error, args ...string) (code int, stdout, stderr string, ran []string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = cli.Run(t.Context(), tool(fail, &ran), args, &out, &errs)
	return code, out.String(), errs.String(), ran
}

func TestRun(t *testing.T) {
	t.Parallel()
	typed := &cli.Error{Code: "infeasible", Exit: cli.ExitRefused, Message: "too low", Hint: "use --force", RequestID: "01K"}
	for name, c := range map[string]struct {
		fail   error
		args   string
		code   int
		stderr string
		ran    bool
	}{
		"good":             {nil, "budget set 2kW", 0, "", true},
		"typed":            {typed, "budget set 1W", 6, "error: too low\nhint: use --force\n", true},
		"wrapped":          {fmt.Errorf("rack: %w", typed), "budget set 1W", 6, "error: rack: too low\nhint: use --force\n", true},
		"plain":            {errors.New("disk full"), "budget set 1W", 1, "error: disk full\n", true},
		"joined":           {errors.Join(errors.New("a"), errors.New("b")), "budget set 1W", 1, "error: a; b\n", true},
		"nothing":          {nil, "", 2, "error: tool needs a command: budget\nhint: tool --help\n", false},
		"noun alone":       {nil, "budget", 2, "error: tool budget needs a command: set, show\nhint: tool budget --help\n", false},
		"wrong verb":       {nil, "budget sett 2kW", 2, "error: unknown command \"sett\" for \"tool budget\"\nhint: did you mean set?\n", false},
		"strange verb":     {nil, "budget frobnicate", 2, "error: unknown command \"frobnicate\" for \"tool budget\"\nhint: tool budget --help lists the commands\n", false},
		"wrong noun":       {nil, "buget set 1W", 2, "error: unknown command \"buget\" for \"tool\"\nhint: did you mean budget?\n", false},
		"wrong flag":       {nil, "budget set 1W --reson x", 2, "error: tool budget set: unknown flag --reson\nhint: did you mean --reason?\n", false},
		"short flag":       {nil, "budget set 1W -z", 2, "error: tool budget set: unknown shorthand flag: 'z' in -z\nhint: tool budget set --help lists the flags\n", false},
		"no unit":          {nil, "budget set 1W --cap 85", 2, "error: tool budget set: --cap: \"85\": position 3: a power needs a unit\nhint: did you mean 85W?\n", false},
		"wrong format":     {nil, "budget set 1W -o jsn", 2, "error: unknown output format \"jsn\"\nhint: did you mean json?\n", false},
		"missing argument": {nil, "budget set", 2, "error: tool budget set: accepts 1 arg(s), received 0\nhint: tool budget set --help shows the usage\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr, ran := run(t, c.fail, strings.Fields(c.args)...)
			if code != c.code || stderr != c.stderr || stdout != "" || (len(ran) > 0) != c.ran {
				t.Errorf("exit %d, ran %v\nstdout %s\nstderr %s\nwant %d\n%s", code, ran, stdout, stderr, c.code, c.stderr)
			}
		})
	}
}

func TestRunHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--help"}, {"budget", "set", "-h"}, {"help", "budget"}} {
		code, stdout, stderr, ran := run(t, nil, args...)
		if code != 0 || stdout == "" || stderr != "" || len(ran) > 0 {
			t.Errorf("%v: exit %d, stdout %d bytes, stderr %q, ran %v", args, code, len(stdout), stderr, ran)
		}
	}
}

func TestRunJSONError(t *testing.T) {
	t.Parallel()
	fail := &cli.Error{Code: "infeasible", Exit: cli.ExitRefused, Message: "a < b", Hint: "h", RequestID: "01K"}
	_, _, stderr, _ := run(t, fail, "budget", "set", "1W", "-o", "json")
	want := `{"error":{"code":"infeasible","exit":6,"message":"a < b","hint":"h","request_id":"01K"}}` + "\n"
	if stderr != want {
		t.Errorf("got  %swant %s", stderr, want)
	}
	code, _, stderr, _ := run(t, nil, "budget", "set", "--nope", "--output=json")
	var v map[string]map[string]any
	if err := json.Unmarshal([]byte(stderr), &v); err != nil || code != 2 || v["error"]["code"] != "usage" {
		t.Errorf("exit %d, %v: %s", code, err, stderr)
	}
}

// Signals go to the whole process, so this test does not run beside others.
func TestRunSignals(t *testing.T) { //nolint:paralleltest // see above
	for name, c := range map[string]struct {
		sig  syscall.Signal
		ret  func(context.Context) error
		code int
		says string
	}{
		"interrupted":     {syscall.SIGINT, context.Context.Err, 130, ""},
		"terminated":      {syscall.SIGTERM, context.Context.Err, 130, ""},
		"service stopped": {syscall.SIGTERM, func(context.Context) error { return nil }, 0, ""},
		"watch ended":     {syscall.SIGINT, func(context.Context) error { return nil }, 130, ""},
		"failed meanwhile": {
			syscall.SIGTERM,
			func(context.Context) error { return errors.New("cannot restore zone 0") }, 130, "error: cannot restore zone 0\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := &cobra.Command{Use: "tool", RunE: func(cmd *cobra.Command, _ []string) error {
				if err := syscall.Kill(os.Getpid(), c.sig); err != nil {
					return err
				}
				<-cmd.Context().Done()
				return c.ret(cmd.Context())
			}}
			var out, errs bytes.Buffer
			if code := cli.Run(t.Context(), root, nil, &out, &errs); code != c.code || errs.String() != c.says {
				t.Errorf("exit %d, stderr %q; want %d, %q", code, errs.String(), c.code, c.says)
			}
		})
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	rows := [][]string{{"n[01-12]", "190.0 W", "153.2 W", ""}, {"n16", "190.0 W", "-", "(lost)"}, {"\x1b[2J", "", "1.0 W"}}
	for name, c := range map[string]struct {
		out  cli.Output
		want string
	}{
		"table": {cli.Output{}, "NODE      CAP      POWER\nn[01-12]  190.0 W  153.2 W\nn16       190.0 W  -        (lost)\n?[2J      -        1.0 W\n"},
		"bare":  {cli.Output{NoHeaders: true}, "n[01-12]  190.0 W  153.2 W\nn16       190.0 W  -        (lost)\n?[2J      -        1.0 W\n"},
		"name":  {cli.Output{Format: "name"}, "n[01-12]\nn16\n?[2J\n"},
	} {
		var b bytes.Buffer
		if err := c.out.Table(&b, []string{"NODE", "CAP", "POWER"}, rows); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, b.String()); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// A command that does not exist is an error with --help too; one that exists shows its help.
func TestHelpOfAnUnknownCommand(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]int{"lits --help": 2, "noun nonsense --help": 2, "noun --help": 0, "noun verb --help": 0, "noun verb": 0, "--help": 0} {
		noun := &cobra.Command{Use: "noun", Short: "a noun"}
		noun.AddCommand(&cobra.Command{Use: "verb", Short: "a verb", RunE: func(*cobra.Command, []string) error { return nil }})
		root := &cobra.Command{Use: "tool", Short: "a tool"}
		root.AddCommand(noun)
		var o, e bytes.Buffer
		code := cli.Run(t.Context(), root, strings.Fields(args), &o, &e)
		if code != want || (code != 0) != strings.Contains(e.String(), "unknown command") || code != 0 && o.Len() > 0 {
			t.Errorf("%q: exit code %d, want %d: %s%s", args, code, want, &o, &e)
		}
	}
}

func TestMissingPort(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"10.0.0.11:7400": "", "[fd00::1]:7400": "", "c1": "did you mean c1:7400?", "10.0.0.11": "did you mean 10.0.0.11:7400?", "fd00::1": "did you mean [fd00::1]:7400?",
	} {
		err := cli.HasPort("--addr", addr, "7400")
		e, ok := errors.AsType[*cli.Error](err)
		if ok != (want != "") || ok && (e.Hint != want || !strings.Contains(e.Message, "the port is missing") || e.Exit != cli.ExitUsage) {
			t.Errorf("%s: %v", addr, err)
		}
	}
}
