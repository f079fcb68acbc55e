// Claim: a command line that is printed does what the one that was given does.
package cli_test

import (
	"testing"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"arguments":            {[]string{"700W", "rack/r1"}, "tool set 700W rack/r1"},
		"flags of all kinds":   {[]string{"700W", "--force", "--wait=5s", "--names", "a,b", "--addr", "c1:7400"}, "tool set 700W --addr c1:7400 --force --names a --names b --wait 5s"},
		"a flag that is off":   {[]string{"700W", "--force=false"}, "tool set 700W --force=false"},
		"words with blanks":    {[]string{"0 18 * * *", "--reason", "it's late"}, `tool set '0 18 * * *' --reason 'it'\''s late'`},
		"an empty word":        {[]string{"700W", "--reason", ""}, "tool set 700W --reason ''"},
		"what is left out":     {[]string{"700W", "--dry-run", "--force"}, "tool set 700W --force"},
		"flags that are unset": {[]string{"700W"}, "tool set 700W"},
	} {
		got := ""
		root, set := &cobra.Command{Use: "tool"}, &cobra.Command{Use: "set", RunE: func(cmd *cobra.Command, _ []string) error {
			got = cli.CommandLine(cmd, "dry-run")
			return nil
		}}
		root.PersistentFlags().String("addr", "", "")
		set.Flags().Bool("force", false, "")
		set.Flags().Bool("dry-run", false, "")
		set.Flags().Duration("wait", 0, "")
		set.Flags().String("reason", "", "")
		set.Flags().StringSlice("names", nil, "")
		root.AddCommand(set)
		root.SetArgs(append([]string{"set"}, c.args...))
		if err := root.Execute(); err != nil || got != c.want {
			t.Errorf("%s: %s, want %s (%v)", name, got, c.want, err)
		}
	}
}
