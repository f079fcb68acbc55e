package manual

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"headroom/internal/cli"
)

// Program is a program with commands, for its page in section 8.
type Program struct {
	// Root is its command tree.
	Root *cobra.Command
	// Version of the program.
	Version string
	// Purpose stands behind its name, without a capital and a period.
	Purpose string
	// Output says how answers look; empty: no such section.
	Output string
	// Exit are exit codes that mean more here than in general, by code.
	Exit map[int]string
	// ExitNote follows the exit codes; may be empty.
	ExitNote string
	// Environment are the variables that it reads.
	Environment []Item
	// Files are the files that it reads and writes.
	Files []Item
	// SeeAlso are other pages, as powerd(8).
	SeeAlso []string
}

// Page is the manual page of the program.
func (m Program) Page() string {
	p := newPage(m.Root.Name(), 8, m.Version, "System Administration")
	p.section("NAME")
	p.line(m.Root.Name() + " - " + m.Purpose)
	p.section("SYNOPSIS")
	p.b.WriteString(".nf\n")
	EachCommand(m.Root, func(c *cobra.Command) { p.line(strings.TrimSuffix(c.UseLine(), " [flags]") + " [flags]") })
	p.b.WriteString(".fi\n")
	p.section("EXAMPLES")
	p.example(m.Root.Example)
	p.section("DESCRIPTION")
	p.paragraphs(m.Root.Long)
	if m.Root.HasAvailablePersistentFlags() {
		p.section("OPTIONS OF ALL COMMANDS")
		p.flags(m.Root.PersistentFlags(), nil)
	}
	p.section("COMMANDS")
	EachCommand(m.Root, func(c *cobra.Command) { p.command(c) })
	if m.Output != "" {
		p.section("OUTPUT")
		p.paragraphs(m.Output)
	}
	p.exitCodes(m.Exit, m.ExitNote)
	if len(m.Environment) > 0 {
		p.section("ENVIRONMENT")
		p.items(m.Environment)
	}
	p.section("FILES")
	p.items(append(slices.Clone(m.Files), Item{Term: "/usr/share/doc/headroom/runbooks/", Text: "What to do about each alarm, one file for each."}))
	p.seeAlso(m.SeeAlso)
	return p.String()
}

// EachCommand visits the commands that do something, in the order of the help text.
func EachCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	for _, c := range cmd.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		if c.HasSubCommands() {
			EachCommand(c, visit)
			continue
		}
		visit(c)
	}
}

func (p *page) command(c *cobra.Command) {
	p.subsection(c.CommandPath())
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	if also := paths(c)[1:]; len(also) > 0 {
		text += "\n\nAlso typed as " + strings.Join(also, " and ") + "."
	}
	p.paragraphs(text)
	p.example(c.Example)
	p.flags(c.LocalFlags(), c.InheritedFlags())
}

// flags writes each flag of all but those of without, which stand elsewhere.
func (p *page) flags(all, without *pflag.FlagSet) {
	all.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || without != nil && without.Lookup(f.Name) != nil {
			return
		}
		p.item(flagTerm(f), flagText(f))
	})
}

func flagTerm(f *pflag.Flag) string {
	term := "--" + f.Name
	if f.Shorthand != "" {
		term = "-" + f.Shorthand + ", " + term
	}
	if f.Value.Type() != "bool" {
		term += " " + strings.ToUpper(f.Value.Type())
	}
	return term
}

func flagText(f *pflag.Flag) string {
	text := strings.ToUpper(f.Usage[:1]) + f.Usage[1:]
	switch f.DefValue {
	case "", "false", "0s", "0", "[]":
		return text + "."
	}
	return text + " (default " + f.DefValue + ")."
}

func (p *page) exitCodes(own map[int]string, note string) {
	p.section("EXIT STATUS")
	for _, c := range []struct {
		code int
		text string
	}{
		{cli.ExitOK, "Done, healthy, or nothing to change."},
		{cli.ExitFailed, "Failed, or a check found failures."},
		{cli.ExitUsage, "The command line or the configuration is wrong; nothing was done."},
		{cli.ExitUnreachable, "No server answered, or there is no leader; nothing was done."},
		{cli.ExitDenied, "Not allowed."},
		{cli.ExitConflict, "Conflict: the revision moved, or the name exists differently."},
		{cli.ExitRefused, "Refused by a safety rule, with the numbers."},
		{cli.ExitUnknown, "The outcome is unknown: repeat with the same --request-id."},
		{cli.ExitDegraded, "Done, but not everything was confirmed, or a check found warnings."},
		{cli.ExitChanges, "A plan would change something; only where asked for."},
		{cli.ExitInterrupted, "Interrupted."},
	} {
		text := c.text
		if t, ok := own[c.code]; ok {
			text = t
		}
		if text != "" {
			p.item(fmt.Sprint(c.code), text)
		}
	}
	if note != "" {
		p.line(note)
	}
}
