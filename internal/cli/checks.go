package cli

import (
	"fmt"
	"io"
	"strings"
)

// States of a check, spelled the same in every program and format.
const (
	CheckOK   = "ok"
	CheckWarn = "warn"
	CheckFail = "FAIL"
)

// Check is the result of one check, a line of `check` or `config check`.
type Check struct {
	Name  string `json:"check"`
	State string `json:"state"` // CheckOK, CheckWarn or CheckFail
	Text  string `json:"text"`
	Hint  string `json:"hint"`
}

// Checks are the results of all checks, in the order in which they ran.
type Checks []Check

// checksJSON is Checks in -o json.
type checksJSON struct {
	List[Check]

	Failed   int `json:"failed"`
	Warnings int `json:"warnings"`
}

// Count returns the number of failures and of warnings.
func (c Checks) Count() (failed, warnings int) {
	for _, check := range c {
		switch check.State {
		case CheckFail:
			failed++
		case CheckWarn:
			warnings++
		}
	}
	return failed, warnings
}

// Print writes one line for each check, its hint below it, and the summary; or the
// JSON document of out. What the results mean for the exit code is Verdict's or
// ConfigVerdict's.
func (c Checks) Print(w io.Writer, out *Output) error {
	failed, warnings := c.Count()
	if out.IsJSON() {
		return out.JSON(w, checksJSON{NewList("Check", c), failed, warnings})
	}
	return c.printText(w, out)
}

// Verdict returns the error of a check of a machine or a cluster: exit code 1 with
// failures, 8 with warnings only, nil otherwise.
func (c Checks) Verdict() error {
	failed, warnings := c.Count()
	switch {
	case failed > 0:
		return &Error{Code: "check-failed", Exit: ExitFailed, Message: c.Summary(), Hint: "each FAIL line is followed by its hint"}
	case warnings > 0:
		return &Error{Code: "check-warned", Exit: ExitDegraded, Message: c.Summary(), Hint: "each warn line is followed by its hint"}
	}
	return nil
}

// ConfigVerdict returns the error of a check of a configuration file: exit code 2
// with failures. Warnings do not stop the program, so they are no error.
func (c Checks) ConfigVerdict() error {
	if failed, _ := c.Count(); failed > 0 {
		return &Error{Code: "config", Exit: ExitUsage, Message: c.Summary(), Hint: "each FAIL line is followed by its hint"}
	}
	return nil
}

func (c Checks) printText(w io.Writer, out *Output) error {
	var b strings.Builder
	width := 0
	for _, check := range c {
		width = max(width, len(check.Name))
	}
	for _, check := range c {
		fmt.Fprintf(&b, "%s  %-*s  %s\n", out.paint(w, Clean(check.State), 4), width, Clean(check.Name), Clean(check.Text))
		if check.Hint != "" {
			fmt.Fprintf(&b, "      hint: %s\n", Clean(check.Hint))
		}
	}
	fmt.Fprintln(&b, c.Summary())
	_, err := io.WriteString(Raw(w), b.String()) // all of it is clean
	return err
}

// Summary returns "1 failed, 2 warnings", or "all checks ok".
func (c Checks) Summary() string {
	failed, warnings := c.Count()
	var parts []string
	if failed > 0 {
		parts = append(parts, fmt.Sprintf("%d failed", failed))
	}
	if warnings > 0 {
		parts = append(parts, Count(warnings, "warning"))
	}
	if len(parts) == 0 {
		return "all checks ok"
	}
	return strings.Join(parts, ", ")
}
