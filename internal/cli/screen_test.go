// Claim: nothing that a program prints moves a cursor, turns text around or hides some of it,
// whoever wrote the text and whichever command prints it; the program's own colors do not suffer.
package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"
	"pgregory.net/rapid"
)

// nasty is text that a terminal would obey.
const nasty = "a\x1b[2J\x1b]0;t\x07b\u202ecod\u2066\u200b\u2028\x9b31m\x7f\r\xff\U000e0001c"

func printedBy(t *testing.T, run func(cmd *cobra.Command, out *Output) error, args ...string) (stdout, stderr string) {
	t.Helper()
	out := &Output{}
	cmd := &cobra.Command{Use: "show", Example: "show"}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return run(cmd, out) }
	root := &cobra.Command{Use: "tool"}
	out.Flags(root)
	root.AddCommand(cmd)
	var a, b bytes.Buffer
	Run(t.Context(), root, append([]string{"show"}, args...), &a, &b)
	return a.String(), b.String()
}

func mustBeClean(t *testing.T, what, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && r != '\t' && !unicode.IsGraphic(r) {
			t.Errorf("%s prints %q: %q", what, r, text)
			return
		}
	}
}

// Whatever form a command prints in: what it got from others is clean at the end.
func TestEveryOutputIsClean(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(*cobra.Command, *Output) error{
		"free text": func(cmd *cobra.Command, _ *Output) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "outcome %s\n", nasty)
			return err
		},
		"a table": func(cmd *cobra.Command, out *Output) error {
			return out.Table(cmd.OutOrStdout(), []string{"NAME", "STATE"}, [][]string{{nasty, "ok"}})
		},
		"a document": func(cmd *cobra.Command, out *Output) error {
			return out.JSON(cmd.OutOrStdout(), map[string]string{"name": nasty})
		},
		"a check": func(cmd *cobra.Command, out *Output) error {
			return Checks{{Name: nasty, State: "ok", Text: nasty, Hint: nasty}}.printText(cmd.OutOrStdout(), out)
		},
		"a note":   func(cmd *cobra.Command, _ *Output) error { Notef(cmd.ErrOrStderr(), "%s\n", nasty); return nil },
		"an error": func(*cobra.Command, *Output) error { return &Error{Code: "x", Message: nasty, Hint: nasty} },
	} {
		for _, format := range formats() {
			stdout, stderr := printedBy(t, run, "-o", format)
			mustBeClean(t, name+" as "+format, stdout+stderr)
			if format == "json" && name == "a document" {
				var back map[string]string
				if err := json.Unmarshal([]byte(stdout), &back); err != nil || back["name"] != strings.ToValidUTF8(nasty, "\ufffd") {
					t.Errorf("the document lost something: %q, %v", back, err)
				}
			}
		}
	}
	stdout, _ := printedBy(t, func(cmd *cobra.Command, out *Output) error {
		return out.Table(cmd.OutOrStdout(), []string{"NAME", "STATE"}, [][]string{{"n01", "lost"}})
	}, "--color", "always")
	if !strings.Contains(stdout, sgrBad+"lost"+sgrReset) {
		t.Errorf("no color in %q", stdout)
	}
}

// Pieces of any size come out as the whole would, and no character is torn.
func TestScreenWritesPieces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("aé€😀\n\t\x1b\u202e"))).Draw(r, "text")
		var b bytes.Buffer
		s := &screen{w: &b}
		for rest := []byte(text); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(r, "piece")
			if got, err := s.Write(rest[:n]); got != n || err != nil {
				r.Fatal(got, err)
			}
			rest = rest[n:]
		}
		if want := strings.NewReplacer("\x1b", "?", "\u202e", "?").Replace(text); b.String() != want {
			r.Fatalf("%q became %q, want %q", text, b.String(), want)
		}
	})
	broken := &screen{w: failing{}}
	if _, err := broken.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a broken output: %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
