package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"headroom/agent"
	"headroom/internal/cli"
)

// page writes a manual page in the man macros.
type page struct{ b strings.Builder }

func newPage(name string, section int, title string) *page {
	p := &page{}
	fmt.Fprintf(&p.b, ".\\\" Generated from the program; change it there.\n.TH %s %d \"\" \"Headroom %s\" \"%s\"\n",
		strings.ToUpper(roff(name)), section, agent.Version, title)
	return p
}

// roff is text in which no character means anything to the formatter.
func roff(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", "\\(ga", "^", `\(ha`, "~", `\(ti`).Replace(s)
}

// line writes one line of text; a leading dot would be a request.
func (p *page) line(s string) {
	s = roff(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	p.b.WriteString(s + "\n")
}

func (p *page) section(title string) { fmt.Fprintf(&p.b, ".SH %s\n", roff(title)) }

func (p *page) subsection(title string) { fmt.Fprintf(&p.b, ".SS %s\n", roff(title)) }

// paragraphs writes text whose empty lines part paragraphs.
func (p *page) paragraphs(text string) {
	for i, par := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			p.b.WriteString(".PP\n")
		}
		for line := range strings.SplitSeq(par, "\n") {
			p.line(line)
		}
	}
}

// example writes lines as they are typed.
func (p *page) example(text string) {
	p.b.WriteString(".PP\n.nf\n.RS 4\n")
	for line := range strings.SplitSeq(text, "\n") {
		p.line(strings.TrimPrefix(line, "  "))
	}
	p.b.WriteString(".RE\n.fi\n")
}

// item writes a term and what it means.
func (p *page) item(term, text string) {
	p.b.WriteString(".TP\n.B ")
	p.line(term)
	p.line(text)
}

func (p *page) String() string { return p.b.String() }

// manProgram is powerd(8), from the command tree.
func manProgram(root *cobra.Command) string {
	p := newPage("powerd", 8, "System Administration")
	p.section("NAME")
	p.line("powerd - hold a node at its power cap")
	p.section("SYNOPSIS")
	p.b.WriteString(".nf\n")
	eachCommand(root, func(c *cobra.Command) { p.line(strings.TrimSuffix(c.UseLine(), " [flags]") + " [flags]") })
	p.b.WriteString(".fi\n")
	p.section("EXAMPLES")
	p.example(root.Example)
	p.section("DESCRIPTION")
	p.paragraphs(root.Long)
	p.section("COMMANDS")
	eachCommand(root, func(c *cobra.Command) { manCommand(p, c) })
	manOutput(p)
	manExitCodes(p)
	manFiles(p)
	p.section("SEE ALSO")
	p.line("powerd.yaml(5)")
	return p.String()
}

// eachCommand visits the commands that do something, in the order of the help text.
func eachCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	for _, c := range cmd.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		if c.HasSubCommands() {
			eachCommand(c, visit)
			continue
		}
		visit(c)
	}
}

func manCommand(p *page, c *cobra.Command) {
	p.subsection(c.CommandPath())
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	p.paragraphs(text)
	p.example(c.Example)
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
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
	case "", "false", "0s", "0":
		return text + "."
	}
	return text + " (default " + f.DefValue + ")."
}

func manOutput(p *page) {
	p.section("OUTPUT")
	p.paragraphs("Tables are plain text; with -o json the answer is one JSON object, and one a line in a watch. JSON carries base units " +
		"with the unit in the key (cap_w, energy_j, freq_hz, remaining_s), and null for what is unknown; a table shows -. " +
		"Fields are only ever added. Requested, written, effective and measured are kept apart: what was asked for, what was " +
		"sent to the hardware, what reads back, what is drawn.\n\nAn error is two lines on stderr, the cause and a hint; with -o json it is one JSON object there.")
}

func manExitCodes(p *page) {
	p.section("EXIT STATUS")
	for _, c := range []struct {
		code int
		text string
	}{
		{cli.ExitOK, "Done, healthy, or nothing to change."},
		{cli.ExitFailed, "Failed, or a check found failures."},
		{cli.ExitUsage, "The command line or the configuration is wrong; nothing was done."},
		{cli.ExitUnreachable, "No powerd or no coordinator answered; nothing was done."},
		{cli.ExitDenied, "Not allowed."},
		{cli.ExitConflict, "Conflict: another powerd runs, or the name belongs to another machine."},
		{cli.ExitRefused, "Refused by a safety rule, with the numbers."},
		{cli.ExitUnknown, "The outcome is unknown: repeat with the same --request-id."},
		{cli.ExitDegraded, "Done, but not everything was confirmed, or a check found warnings."},
		{cli.ExitInterrupted, "Interrupted."},
	} {
		p.item(fmt.Sprint(c.code), c.text)
	}
	p.line("powerd measure passes the exit code of the measured command on; powerd check --nagios ends with 0, 1, 2 or 3.")
}

func manFiles(p *page) {
	p.section("FILES")
	dir := agent.Defaults().StateDir + "/"
	for _, f := range [][2]string{
		{defaultConfig, "Configuration, see powerd.yaml(5)."},
		{dir + agent.JournalFile, "What each control held before powerd first wrote it."},
		{dir + agent.MemoryFile, "The highest stamp, the fail-safe cap and the brake that the node has stored."},
		{dir + agent.HeldFile, "What the node may hold now, for other programs of the host."},
		{agent.SocketPath(agent.Defaults().StateDir), "Where the running powerd answers the commands above."},
	} {
		p.item(f[0], f[1])
	}
}

// manConfig is powerd.yaml(5), from the configuration's own structure and example.
func manConfig() string {
	p := newPage("powerd.yaml", 5, "File Formats")
	p.section("NAME")
	p.line("powerd.yaml - configuration of powerd")
	p.section("EXAMPLES")
	p.example(strings.TrimRight(agent.ExampleConfig, "\n"))
	p.section("DESCRIPTION")
	p.paragraphs("One YAML file. A quantity needs its unit (190W, 1.2kW, 2400MHz, 250ms); a key that is not known, or given twice, is an " +
		"error that names its place. A key that is left out has the default shown by powerd config show. powerd config check runs " +
		"what the start runs.")
	p.section("KEYS")
	for _, k := range configKeys() {
		if k.Section {
			p.subsection(k.Path)
			if k.Text != "" {
				p.line(sentence(k.Text))
			}
			continue
		}
		text := sentence(k.Text)
		if k.Example != "" && k.Example != `""` && k.Example != "[]" {
			text += " For example " + k.Example + "."
		}
		p.item(k.Path+" ("+k.Type+")", text)
	}
	p.section("SEE ALSO")
	p.line("powerd(8)")
	return p.String()
}

// sentence makes a comment one: it begins with a capital and ends with a period.
func sentence(s string) string {
	if s == "" {
		return s
	}
	s = strings.ToUpper(s[:1]) + s[1:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}
