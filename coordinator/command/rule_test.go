// Claims: every command that changes something has a rule; what raises, removes,
// restores or transfers asks, with numbers; --yes alone confirms no budget that a
// domain never had.
package command

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// changes are the paths of the commands below cmd that send a change: they take a request id.
func changes(cmd *cobra.Command) (paths []string) {
	for _, sub := range cmd.Commands() {
		paths = append(paths, changes(sub)...)
	}
	if cmd.Flags().Lookup("request-id") != nil {
		paths = append(paths, commandPath(cmd))
	}
	return paths
}

func TestEveryChangeHasARule(t *testing.T) {
	t.Parallel()
	root, all := New(), rules()
	found := changes(root)
	for _, p := range found {
		if _, ok := all[p]; !ok {
			t.Errorf("coordinator %s changes something and has no rule: add it to rules()", p)
		}
	}
	for p, r := range all {
		if !slices.Contains(found, p) {
			t.Errorf("the rule of %q belongs to no command", p)
			continue
		}
		cmd, _, err := root.Find(strings.Fields(p))
		if err != nil || !strings.Contains(cmd.Long, r.why) {
			t.Errorf("help of %s does not say %q", p, r.why)
		}
		if asks := cmd.Flags().Lookup("yes") != nil; r.asks != never && !asks {
			t.Errorf("%s asks and has no --yes", p)
		}
		if r.asks == never && (r.kind == raises || r.kind == removes || r.kind == restores || r.kind == transfers) {
			t.Errorf("%s %s and never asks", p, r.kind)
		}
		if cmd.Flags().Lookup("dry-run") == nil && p != "brake set" {
			t.Errorf("%s has no --dry-run", p)
		}
	}
}
