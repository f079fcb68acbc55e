package manual

import (
	"fmt"
	"strings"
)

// page writes a manual page in the man macros.
type page struct{ b strings.Builder }

func newPage(name string, section int, version, title string) *page {
	p := &page{}
	fmt.Fprintf(&p.b, ".\\\" Generated from the program; change it there.\n.TH %s %d \"\" \"Headroom %s\" \"%s\"\n",
		strings.ToUpper(roff(name)), section, version, title)
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

// example writes lines as they are typed. The indentation that all lines share is
// removed; the rest is kept, because YAML needs it.
func (p *page) example(text string) {
	p.b.WriteString(".PP\n.nf\n.RS 4\n")
	for line := range strings.SplitSeq(dedent(text), "\n") {
		p.line(line)
	}
	p.b.WriteString(".RE\n.fi\n")
}

// dedent removes the two spaces that cobra's examples start every line with.
func dedent(text string) string {
	const indent = "  "
	lines := strings.Split(text, "\n")
	for _, line := range lines {
		if line != "" && !strings.HasPrefix(line, indent) {
			return text
		}
	}
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], indent)
	}
	return strings.Join(lines, "\n")
}

// item writes a term and what it means.
func (p *page) item(term, text string) {
	p.b.WriteString(".TP\n.B ")
	p.line(term)
	p.line(text)
}

func (p *page) items(all []Item) {
	for _, i := range all {
		p.item(i.Term, i.Text)
	}
}

// seeAlso ends a page with the names of others.
func (p *page) seeAlso(others []string) {
	p.section("SEE ALSO")
	p.line(strings.Join(others, ", "))
}

func (p *page) String() string { return p.b.String() }
