package command

import (
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// sinceFlag is --since of a list of revisions: a revision, a duration or a time.
type sinceFlag struct {
	cli.Since
	revision uint64
	text     string
}

// flag adds --since to cmd; what is listed by it, for example "events".
func (s *sinceFlag) flag(cmd *cobra.Command, what string) {
	cmd.Flags().Var(s, "since", "only "+what+` after this revision, duration ("2h") or time ("2026-11-26 14:00" local, or RFC 3339)`)
}

// Type is the word for the value in help texts.
func (s *sinceFlag) Type() string { return "revision|duration|time" }

// String is the value as it was given.
func (s *sinceFlag) String() string { return s.text }

// Set parses the value: a number is a revision.
func (s *sinceFlag) Set(text string) error {
	if revision, err := strconv.ParseUint(text, 10, 64); err == nil {
		*s = sinceFlag{text: text, revision: revision}
		return nil
	}
	var since cli.Since
	if err := since.Set(text); err != nil {
		return err //nolint:wrapcheck // a usage error for the operator
	}
	*s = sinceFlag{text: text, Since: since}
	return nil
}

// committed is an entry of the log.
type committed interface {
	GetRevision() uint64
	GetAtUs() int64
}

// after returns the entries after --since.
func after[T committed](s *sinceFlag, entries []T) []T {
	from := s.Time(time.Now())
	return slices.DeleteFunc(slices.Clone(entries), func(e T) bool {
		return e.GetRevision() <= s.revision || !from.IsZero() && !time.UnixMicro(e.GetAtUs()).After(from)
	})
}
