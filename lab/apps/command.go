package apps

import (
	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// passesMax bounds --passes: a typing error must not occupy a slot for days.
const passesMax = 10_000

// NewCommand is "app": the map and reduce programs as subcommands.
// They read the files of their arguments and print to the command's output.
func NewCommand() *cobra.Command {
	app := &cobra.Command{
		Use:   "app",
		Short: "Map and reduce programs for jobs over text",
		Long: `Map and reduce programs for jobs over text, as run by the demo's jobs. Each one reads files and
prints "word<TAB>count" lines. The result of mergetop over the results of topn is exact as long as each
of its words is among the first ones of every file.`,
		Example: "  powerlab app wordcount book.txt\n  powerlab app merge map-00000 map-00001",
		Args:    cobra.NoArgs,
	}
	app.AddCommand(
		newProgram("wordcount", "Count the words of text files", true, false),
		newProgram("topn", "Print the most frequent words of text files, most frequent first", true, true),
		newProgram("merge", "Add up the results of wordcount", false, false),
		newProgram("mergetop", "Add up the results of topn or wordcount and print the most frequent words", false, true),
	)
	return app
}

// newProgram is a program over text or over the results of others. It prints every word, or the top ones.
func newProgram(name, short string, text, top bool) *cobra.Command {
	passes, n, slow, read, example := 1, 0, "", counts.countLines, "  powerlab app "+name
	if text {
		read = counts.countWords
	}
	if top {
		example += " -n 20"
	}
	cmd := &cobra.Command{
		Use: name + " FILE...", Short: short, Example: example + " a.txt b.txt", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			switch {
			case passes < 1 || passes > passesMax:
				return cli.Usage("--passes %d: must be from 1 to %d", passes, passesMax)
			case top && n < 1:
				return cli.Usage("-n %d: must be at least 1", n)
			}
			pause, err := slowly(slow)
			if err != nil {
				return err
			}
			var c counts
			for range passes { // each really counts again
				if c, err = countFiles(files, read); err != nil {
					return err
				}
				pause()
			}
			if top {
				return write(cmd.OutOrStdout(), c.top(n))
			}
			return write(cmd.OutOrStdout(), c.sorted())
		},
	}
	if text {
		cmd.Flags().IntVar(&passes, "passes", 1, "number of passes over the text, for a longer task")
		cmd.Flags().StringVar(&slow, "slow", "", "folder that counts task attempts; multiplies the duration of each attempt by a random factor (Pareto, at most 10)")
	}
	if top {
		cmd.Flags().IntVarP(&n, "number", "n", 20, "how many words")
	}
	return cmd
}
