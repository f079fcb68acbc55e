package manual

import (
	"fmt"
	"strings"
)

// Concepts is headroom(7): what the words mean that all programs use.
type Concepts struct {
	// Version of the programs.
	Version string
	// Sections are headings with their paragraphs.
	Sections []Item
	// Glossary is docs/glossary.md: its table "| word | meaning |" is the list of words.
	Glossary string
	// SeeAlso are other pages.
	SeeAlso []string
}

// Page is the manual page. It fails when the glossary has no table.
func (c Concepts) Page() (string, error) {
	words := tableOf(c.Glossary)
	if len(words) == 0 {
		return "", fmt.Errorf("the glossary has no table of words")
	}
	p := newPage("headroom", 7, c.Version, "Concepts")
	p.section("NAME")
	p.line("headroom - keep a cluster inside its power budget: concepts and words")
	for _, s := range c.Sections {
		p.section(s.Term)
		p.paragraphs(s.Text)
	}
	p.section("WORDS")
	p.items(words)
	p.seeAlso(c.SeeAlso)
	return p.String(), nil
}

// tableOf are the rows of a Markdown table with two columns, without its head.
func tableOf(text string) []Item {
	var items []Item
	for line := range strings.SplitSeq(text, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) != 2 || strings.HasPrefix(strings.TrimSpace(cells[0]), "---") {
			continue
		}
		items = append(items, Item{Term: strings.TrimSpace(cells[0]), Text: sentence(strings.TrimSpace(cells[1]))})
	}
	if len(items) == 0 {
		return nil
	}
	return items[1:]
}
