package cli

import (
	"io"
	"time"

	"github.com/spf13/cobra"
)

// WatchLeast is the shortest interval of a watch. Energy counters update too slowly
// for higher rates, and a screen cannot be read faster.
const WatchLeast = 250 * time.Millisecond

// Watch holds the flags of commands that can repeat their output.
type Watch struct {
	On       bool
	Interval time.Duration
}

// Flags adds --watch and --interval.
func (w *Watch) Flags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&w.On, "watch", "w", w.On, "print again at each interval")
	w.Pace(cmd, "interval of --watch, at least 250ms")
}

// Pace adds --interval alone, for commands that always repeat their output.
func (w *Watch) Pace(cmd *cobra.Command, usage string) {
	cmd.Flags().DurationVar(&w.Interval, "interval", time.Second, usage)
}

// Run prints once, or again and again until interrupted.
func (w *Watch) Run(cmd *cobra.Command, once func() error) error {
	if !w.On {
		return once()
	}
	if w.Interval < WatchLeast {
		return Usage("--interval is %v; it must be at least %v", w.Interval, WatchLeast)
	}
	tick := time.NewTicker(w.Interval)
	defer tick.Stop()
	for {
		if IsTerminal(cmd.OutOrStdout()) {
			if _, err := io.WriteString(Raw(cmd.OutOrStdout()), clearScreen); err != nil {
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

// Print writes an answer in the form that was asked for: from its document v, see
// Output.JSON, or the text. A watch repeats the document, see Output.next.
func (o *Output) Print(cmd *cobra.Command, w *Watch, v any, text func(io.Writer) error) error {
	switch {
	case o.IsJSON() && w.On:
		return o.next(cmd.OutOrStdout(), v)
	case o.IsJSON():
		return o.JSON(cmd.OutOrStdout(), v)
	}
	return text(cmd.OutOrStdout())
}

// List is the frame of a program's JSON answers.
type List[T any] struct {
	Kind string `json:"kind"`
	API  string `json:"api"`
	AsOf string `json:"as_of"`
	// Revision and DryRun of what changes something.
	Revision uint64 `json:"revision,omitempty"`
	DryRun   bool   `json:"dry_run,omitempty"`
	Items    []T    `json:"items"`
}

// NewList frames items, as of now.
func NewList[T any](kind string, items []T) List[T] {
	return List[T]{Kind: kind, API: "v1", AsOf: Now(), Items: append([]T{}, items...)}
}

// Now is the time of an answer, as JSON shows it.
func Now() string { return time.Now().UTC().Format(time.RFC3339Nano) }
