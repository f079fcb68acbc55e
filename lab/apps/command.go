package apps

import (
	"fmt"

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
prints "word<TAB>count" lines.`,
		Example: "  powerlab app wordcount book.txt\n  powerlab app merge map-00000 map-00001",
		Args:    cobra.NoArgs,
	}
	app.AddCommand(wordcount(), topn(), merge(), mergetop())
	return app
}

func wordcount() *cobra.Command {
	var passes int
	var slow string
	cmd := &cobra.Command{
		Use:     "wordcount FILE...",
		Short:   "Count the words of text files",
		Example: "  powerlab app wordcount book.txt\n  powerlab app wordcount --passes=4 a.txt b.txt",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			pause := func() {}
			if slow != "" {
				times, err := slowness(slow)
				if err != nil {
					return err
				}
				pause = slowly(times)
			}
			c, err := countTimes(passes, files, pause)
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), c.sorted())
		},
	}
	passesFlag(cmd, &passes)
	cmd.Flags().StringVar(&slow, "slow", "", "folder that counts task attempts; multiplies the duration of each attempt by a random factor (Pareto, at most 10)")
	return cmd
}

func topn() *cobra.Command {
	var passes, n int
	cmd := &cobra.Command{
		Use:   "topn FILE...",
		Short: "Print the most frequent words of text files",
		Long: `Prints the most frequent words of text files, most frequent first. The result of mergetop over such
files is exact as long as each of its words is among the first n of every file.`,
		Example: "  powerlab app topn -n 100 book.txt",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			if n < 1 {
				return cli.Usage("-n %d: must be at least 1", n)
			}
			c, err := countTimes(passes, files, func() {})
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), c.top(n))
		},
	}
	topFlag(cmd, &n)
	passesFlag(cmd, &passes)
	return cmd
}

func merge() *cobra.Command {
	return &cobra.Command{
		Use:     "merge FILE...",
		Short:   "Add up the results of wordcount",
		Example: "  powerlab app merge map-00000 map-00001",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			c, err := countFiles(files, counts.countLines)
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), c.sorted())
		},
	}
}

func mergetop() *cobra.Command {
	var n int
	cmd := &cobra.Command{
		Use:     "mergetop FILE...",
		Short:   "Add up the results of topn or wordcount and print the most frequent words",
		Example: "  powerlab app mergetop -n 20 map-00000 map-00001",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			if n < 1 {
				return cli.Usage("-n %d: must be at least 1", n)
			}
			c, err := countFiles(files, counts.countLines)
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), c.top(n))
		},
	}
	topFlag(cmd, &n)
	return cmd
}

// countTimes counts the words of files, passes times from the beginning. All
// passes must agree: a file that changes under the task is an error. pause is called after each.
func countTimes(passes int, files []string, pause func()) (counts, error) {
	if passes < 1 || passes > passesMax {
		return nil, cli.Usage("--passes %d: must be from 1 to %d", passes, passesMax)
	}
	var last counts
	for pass := range passes {
		c, err := countFiles(files, counts.countWords)
		if err != nil {
			return nil, err
		}
		if pass > 0 && c.total() != last.total() {
			return nil, fmt.Errorf("the input changed during the count: %d words, then %d", last.total(), c.total())
		}
		last = c
		pause()
	}
	return last, nil
}

// total is the number of words counted.
func (c counts) total() (sum uint64) {
	for _, n := range c {
		sum += *n
	}
	return sum
}

func passesFlag(cmd *cobra.Command, passes *int) {
	cmd.Flags().IntVar(passes, "passes", 1, "number of passes over the text, for a longer task")
}

func topFlag(cmd *cobra.Command, n *int) {
	cmd.Flags().IntVarP(n, "number", "n", 20, "how many words")
}
