package cli

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// Values of --color.
const (
	colorAuto   = "auto"
	colorAlways = "always"
	colorNever  = "never"
)

func colors() []string { return []string{colorAuto, colorAlways, colorNever} }

// colorFlag adds --color.
func (o *Output) colorFlag(cmd *cobra.Command) {
	o.color = colorAuto
	cmd.PersistentFlags().Var(&Choice{Value: &o.color, Of: colors()}, "color", "color of state words: "+strings.Join(colors(), "|")+"; auto is on a terminal, unless NO_COLOR is set")
	_ = cmd.RegisterFlagCompletionFunc("color", cobra.FixedCompletions(colors(), cobra.ShellCompDirectiveNoFileComp)) // fails for a flag that is not there
}

// colored reports whether state words on w are colored.
func (o *Output) colored(w io.Writer) bool {
	switch o.color {
	case colorAlways:
		return true
	case colorAuto:
		return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && IsTerminal(w)
	}
	return false
}

// SGR sequences: green, yellow, red, and back to normal. The word itself always
// says the state, so color is never the only carrier.
const (
	sgrGood  = "\x1b[32m"
	sgrWarn  = "\x1b[33m"
	sgrBad   = "\x1b[31m"
	sgrReset = "\x1b[0m"
)

// stateColor returns the color of a state word, or "" for other text.
func stateColor(word string) string {
	switch word {
	case "ok", "running", "leader", "confirmed", "done":
		return sgrGood
	case "warn", "warning", "limited", "draining", "drained", "stopping", "unknown", "observing", "fail-safe":
		return sgrWarn
	case "FAIL", "lost", "DRIFT", "failed", "critical":
		return sgrBad
	}
	return ""
}

// paint returns word, padded with spaces to width, in its color where w takes color.
func (o *Output) paint(w io.Writer, word string, width int) string {
	padding := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(word)))
	if color := stateColor(word); color != "" && o.colored(w) {
		return color + word + sgrReset + padding
	}
	return word + padding
}
