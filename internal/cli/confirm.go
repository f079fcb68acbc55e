package cli

import (
	"bufio"
	"strings"

	"github.com/spf13/cobra"
)

// Confirm asks on a terminal whether to do what it describes, and refuses without one.
// The caller has looked for --yes.
func Confirm(cmd *cobra.Command, what string) error {
	if !IsTerminal(cmd.InOrStdin()) {
		return &Error{Code: "unconfirmed", Exit: ExitUsage, Message: "confirmation required: " + what, Hint: "use --yes for non-interactive use"}
	}
	if Answer(cmd, what+"? [y/N] ") == "y" {
		return nil
	}
	return NotConfirmed("answer y, or use --yes")
}

// NotConfirmed returns the error of a change that was declined on a terminal.
func NotConfirmed(hint string) error {
	return &Error{Code: "unconfirmed", Exit: ExitFailed, Message: "not confirmed; nothing was changed", Hint: hint}
}

// Answer prompts on the terminal and returns the line in lower case; "" without one.
func Answer(cmd *cobra.Command, prompt string) string {
	Notef(cmd.ErrOrStderr(), "%s", prompt)
	line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if err != nil {
		return ""
	}
	return strings.ToLower(strings.TrimSpace(line))
}
