package command

import (
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// watchMin is the shortest interval of a watch: a screen that changes faster
// tells nobody more, and energy counters are not for high rates.
const watchMin = 250 * time.Millisecond

// watching are the flags of commands that can repeat themselves.
type watching struct {
	on       bool
	interval time.Duration
}

func (w *watching) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&w.on, "watch", "w", w.on, "go on, and print again at each interval")
	w.pace(cmd, "with --watch: how often, at least 250ms")
}

// pace adds --interval alone, for commands that always repeat.
func (w *watching) pace(cmd *cobra.Command, usage string) {
	cmd.Flags().DurationVar(&w.interval, "interval", time.Second, usage)
}

// run prints once, or again and again until interrupted.
func (w *watching) run(cmd *cobra.Command, once func() error) error {
	if !w.on {
		return once()
	}
	if w.interval < watchMin {
		return cli.Usage("--interval is %v; it must be at least %v", w.interval, watchMin)
	}
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for {
		if cli.IsTerminal(cmd.OutOrStdout()) {
			if _, err := io.WriteString(cmd.OutOrStdout(), clearScreen); err != nil {
				return err
			}
		}
		if err := once(); err != nil {
			return err
		}
		select {
		case <-cmd.Context().Done():
			return cmd.Context().Err()
		case <-tick.C:
		}
	}
}

// clearScreen brings the cursor home and clears what is below it.
const clearScreen = "\x1b[H\x1b[2J"

// printer prints one answer: JSON (one line of it in a watch) or text.
type printer struct {
	out   cli.Output
	watch watching
}

func (p *printer) print(cmd *cobra.Command, v any, text func(io.Writer) error) error {
	switch {
	case p.out.IsJSON() && p.watch.on:
		return p.out.JSONLine(cmd.OutOrStdout(), v)
	case p.out.IsJSON():
		return p.out.JSON(cmd.OutOrStdout(), v)
	}
	return text(cmd.OutOrStdout())
}

// createOut makes the file that --out names anew.
func createOut(path string, mode os.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return nil, &cli.Error{Code: "usage", Exit: cli.ExitUsage, Err: err, Message: "--out: " + err.Error(), Hint: "name a file that this user may write"}
	}
	return f, nil
}

// listJSON is the envelope of every list.
type listJSON[T any] struct {
	Kind  string `json:"kind"`
	API   string `json:"api"`
	AsOf  string `json:"as_of"`
	Items []T    `json:"items"`
}

func list[T any](kind string, items []T) listJSON[T] {
	return listJSON[T]{Kind: kind, API: "v1", AsOf: utcNow(), Items: append([]T{}, items...)}
}

func utcNow() string { return time.Now().UTC().Format(time.RFC3339Nano) }
