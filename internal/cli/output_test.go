// Claims: yaml and csv are the JSON document in another form, csv in base units with
// unknown values empty; columns, sorting and folding work on what is shown; flags of
// output that do not go together stop a command before it runs.
package cli_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

type lease struct {
	Epoch uint64  `json:"epoch"`
	EndS  float64 `json:"end_s"`
}

type node struct {
	Name   string   `json:"name"`
	PowerW *float64 `json:"power_w"`
	Lease  *lease   `json:"lease"`
	Reason string   `json:"reason"`
	Jobs   []string `json:"jobs"`
}

// lists runs a program with a list, an empty list and a command that changes something.
func lists(t *testing.T, args string) (code int, stdout, stderr string, ran bool) {
	t.Helper()
	var out cli.Output
	power := 132.6
	items := []node{
		{Name: "n02", Lease: &lease{1 << 60, 4.2}, Reason: "yes, 1.5", Jobs: []string{"a", "b"}},
		{Name: "n01", PowerW: &power, Reason: "true", Jobs: []string{}},
	}
	show := func(cmd *cobra.Command, items []node) error {
		ran = true
		frame := cli.NewList("NodeList", items)
		frame.AsOf = "2026-11-26T14:00:00Z"
		return out.Print(cmd, &cli.Watch{}, frame, func(w io.Writer) error {
			var rows [][]string
			for _, n := range items {
				rows = append(rows, []string{n.Name, "ok", cli.Opt(n.PowerW, func(float64) string { return "132.6 W" }), "10s"})
			}
			return out.Table(w, []string{"NODE", "STATE", "POWER", "LAST CONTACT"}, rows)
		})
	}
	root := &cobra.Command{Use: "tool", Short: "a tool"}
	out.Flags(root)
	set := &cobra.Command{Use: "set", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return show(cmd, nil) }}
	set.Flags().Bool("dry-run", false, "change nothing")
	set.Flags().Duration("for", 0, "how long")
	root.AddCommand(set,
		&cobra.Command{Use: "list", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return show(cmd, items) }},
		&cobra.Command{Use: "none", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return show(cmd, nil) }})
	var o, e bytes.Buffer
	code = cli.Run(t.Context(), root, strings.Fields(args), &o, &e)
	return code, o.String(), e.String(), ran
}

func TestFormats(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"list": "NODE  STATE  POWER    LAST CONTACT\nn02   ok     -        10s\nn01   ok     132.6 W  10s\n",
		"list --sort-by power --columns node,last-contact": "NODE  LAST CONTACT\nn01   10s\nn02   10s\n",
		"list --no-headers --columns power,node":           "-        n02\n132.6 W  n01\n",
		"list -o name":                                     "n02\nn01\n",
		"list --color always --columns node,state":         "NODE  STATE\nn02   \x1b[32mok\x1b[0m\nn01   \x1b[32mok\x1b[0m\n",
		"list -o csv": "name,power_w,lease.epoch,lease.end_s,reason,jobs\n" +
			"n02,,1152921504606846976,4.2,\"yes, 1.5\",\"[\"\"a\"\",\"\"b\"\"]\"\nn01,132.6,,,true,[]\n",
		"list -o csv --columns name,power_w --sort-by name": "name,power_w\nn01,132.6\nn02,\n",
		"list -o csv --no-headers --columns name":           "n02\nn01\n",
		"list -o yaml": "kind: NodeList\napi: v1\nas_of: \"2026-11-26T14:00:00Z\"\nitems:\n" +
			"- name: n02\n  power_w: null\n  lease:\n    epoch: 1152921504606846976\n    end_s: 4.2\n  reason: yes, 1.5\n  jobs:\n  - a\n  - b\n" +
			"- name: n01\n  power_w: 132.6\n  lease: null\n  reason: \"true\"\n  jobs: []\n",
		"--version": "tool " + cli.Version + "\n",
	} {
		code, stdout, stderr, _ := lists(t, args)
		if d := cmp.Diff(want, stdout); d != "" || code != 0 || stderr != "" {
			t.Errorf("%s: exit %d, stderr %q (-want +got):\n%s", args, code, stderr, d)
		}
	}
}

func TestEmptyList(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"none", "none -o csv", "none -o name"} {
		code, stdout, stderr, _ := lists(t, args)
		if code != 0 || stdout != "" || stderr != "no nodes\n" {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
}

func TestOutputMistakes(t *testing.T) {
	t.Parallel()
	for args, c := range map[string]struct {
		want string
		ran  bool
	}{
		"list --columns node,powr":    {"error: --columns: no column \"powr\"\nhint: did you mean power?\n", true},
		"list -o csv --sort-by power": {"error: --sort-by: no column \"power\"\nhint: did you mean power_w?\n", true},
		"list --columns node -o yaml": {"error: --columns needs -o table, wide or csv, not yaml\nhint: -o csv takes the names of JSON fields\n", false},
		"list --columns node -o json": {"{\"error\":{\"code\":\"usage\",\"exit\":2,\"message\":\"--columns needs -o table, wide or csv, not json\",\"hint\":\"-o csv takes the names of JSON fields\",\"request_id\":\"\"}}\n", false},
		"set --columns node":          {"error: --columns is for lists; tool set changes something\nhint: tool set --help shows the usage\n", false},
		"set --for 10":                {"error: tool set: --for: \"10\" needs a unit: 10s\nhint: did you mean 10s?\n", false},
		"list --color bright":         {"error: unknown value \"bright\"\nhint: one of auto, always, never\n", false},
		"set --10kW":                  {"error: tool set: unknown flag --10kW\nhint: a value stands without --: 10kW\n", false},
	} {
		code, stdout, stderr, ran := lists(t, args)
		if code != cli.ExitUsage || stdout != "" || stderr != c.want || ran != c.ran {
			t.Errorf("%s: exit %d, ran %t, stdout %q, stderr:\n%swant\n%s", args, code, ran, stdout, stderr, c.want)
		}
	}
}

func TestFold(t *testing.T) {
	t.Parallel()
	table := cli.Table{
		Head: []string{"NODE", "STATE", "CAP", "POWER", "LEASE"},
		Rows: [][]string{
			{"n01", "ok", "190.0 W", "150.0 W", "4.1s"},
			{"n02", "ok", "190.0 W", "151.0 W", "4.3s"},
			{"n03", "ok", "160.0 W", "150.0 W", "4.0s"},
			{"n04", "ok", "190.0 W", "-", "4.0s"},
		},
		Fold: []string{"STATE", "CAP"},
	}
	for format, want := range map[string]string{
		"table": "NODE       STATE  CAP      POWER    LEASE\nn[01-02]   ok     190.0 W  150.5 W  4.2s\n" +
			"n03        ok     160.0 W  150.0 W  4.0s\nn04        ok     190.0 W  -        4.0s\n",
		"name": "n01\nn02\nn03\nn04\n",
	} {
		var b bytes.Buffer
		out := cli.Output{Format: format}
		if err := out.TableOf(&b, table); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(b.String()), " "); got != strings.Join(strings.Fields(want), " ") {
			t.Errorf("%s:\n%s", format, b.String())
		}
	}
}
