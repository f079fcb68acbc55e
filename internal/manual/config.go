package manual

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"headroom/internal/config"
	"headroom/units"
)

// File is a program's configuration file, for its page in section 5 and its schema.
type File struct {
	// Name is powerd.yaml or the like; Program reads it.
	Name, Program string
	// Version of the program.
	Version string
	// Example is a file with every key, each with a comment: what "config example" prints.
	Example string
	// Default is the configuration structure with the values of keys that a file leaves out.
	Default any
	// Notes are paragraphs behind the general ones; may be empty.
	Notes string
	// SeeAlso are other pages, as powerd(8).
	SeeAlso []string
}

// Key is one key of a configuration file, as documents and editors show it.
type Key struct {
	// Path is the key with those it stands under: "power.fail_safe". A key of a list's
	// entries stands under the list: "servers.rpc".
	Path string
	// Type is what the value is: "power", "text", "true or false" ...
	Type string
	// Example is the value in the example, "" for a section.
	Example string
	// Text is the key's comment in the example.
	Text string
	// Default is what holds when the key is left out; "" when that is nothing.
	Default string
	// Section says that other keys stand under it.
	Section bool
}

// keys are the keys in the order of the configuration's own structure, with what
// the example says about them.
func (f File) keys() []Key {
	notes := exampleNotes(f.Example)
	var keys []Key
	walk(reflect.ValueOf(f.Default), "", func(path string, v reflect.Value, section bool) {
		n := notes[path]
		keys = append(keys, Key{Path: path, Type: typeWord(v.Type()), Example: n.value, Text: n.text, Default: defaultOf(v), Section: section})
	})
	return keys
}

// walk visits every key of a configuration structure, sections first. The entries
// of a list are visited once, without values.
func walk(of reflect.Value, under string, visit func(path string, v reflect.Value, section bool)) {
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Type().Field(i).Tag.Get("yaml"), ",")
		if name == "" || name == "-" {
			continue
		}
		v := of.Field(i)
		inner, section := entriesOf(v)
		visit(under+name, v, section)
		if section {
			walk(inner, under+name+".", visit)
		}
	}
}

// entriesOf is the structure below a value: its own, or that of a list's entries.
func entriesOf(v reflect.Value) (inner reflect.Value, section bool) {
	switch {
	case v.Kind() == reflect.Struct:
		return v, true
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		return reflect.Zero(v.Type().Elem()), true
	}
	return v, false
}

// defaultOf is a default as a file may say it, "" for none.
func defaultOf(v reflect.Value) string {
	switch {
	case v.Kind() == reflect.Bool:
		return fmt.Sprint(v.Bool())
	case v.Kind() == reflect.Slice || v.Kind() == reflect.Map || v.Kind() == reflect.Struct || v.IsZero():
		return ""
	}
	return fmt.Sprint(v.Interface())
}

// typeWord is a type in an operator's words.
func typeWord(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[units.Power]():
		return "power"
	case t == reflect.TypeFor[units.Energy]():
		return "energy"
	case t == reflect.TypeFor[units.Freq]():
		return "frequency"
	case t == reflect.TypeFor[config.Duration]():
		return "time"
	case t == reflect.TypeFor[config.Fraction]():
		return "fraction"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Uint16, reflect.Uint64, reflect.Float64:
		return "number"
	case reflect.Slice:
		return "list"
	case reflect.Struct:
		return "section"
	case reflect.Map:
		return "map"
	case reflect.Pointer: // a key that may be left out with a meaning of its own
		return typeWord(t.Elem())
	default:
		return "text"
	}
}

// note is what the example says about a key.
type note struct{ value, text string }

var keyForm = regexp.MustCompile(`^( *(?:- )?)([a-z][a-z0-9_]*):(.*)$`)

// exampleNotes reads the example line by line: "key: value   # comment", with
// sections indented by two spaces and the entries of lists by "- ". A comment on
// lines of its own stands for the key after it, unless that has one. Of a key that
// is there twice, in two entries of a list, the first counts.
func exampleNotes(example string) map[string]note {
	notes := map[string]note{}
	var stack []string // the keys that a line stands under, and how far each is indented
	var indents []int
	above := ""
	for line := range strings.SplitSeq(example, "\n") {
		body, comment := cutComment(line)
		m := keyForm.FindStringSubmatch(body)
		if m == nil {
			above = strings.TrimSpace(above + " " + comment)
			if strings.TrimSpace(line) == "" {
				above = ""
			}
			continue
		}
		for len(indents) > 0 && indents[len(indents)-1] >= len(m[1]) {
			stack, indents = stack[:len(stack)-1], indents[:len(indents)-1]
		}
		stack, indents = append(stack, m[2]), append(indents, len(m[1]))
		if comment == "" {
			comment = above
		}
		path := strings.Join(stack, ".")
		if _, twice := notes[path]; !twice {
			notes[path] = note{value: strings.TrimSpace(m[3]), text: comment}
		}
		above = ""
	}
	return notes
}

// cutComment cuts a line at the "#" that starts its comment; none of the
// examples' values has one.
func cutComment(line string) (body, comment string) {
	body, comment, _ = strings.Cut(line, "#")
	return body, strings.TrimSpace(comment)
}

// Page is the manual page of the file.
func (f File) Page() string {
	p := newPage(f.Name, 5, f.Version, "File Formats")
	p.section("NAME")
	p.line(f.Name + " - configuration of " + f.Program)
	p.section("EXAMPLES")
	p.example(strings.TrimRight(f.Example, "\n"))
	p.section("DESCRIPTION")
	p.paragraphs("One YAML file. A quantity needs its unit (190W, 1.2kW, 2400MHz, 250ms); a key that is not known, or given twice, is an " +
		"error that names its place. A key that is left out has the default shown here and by " + f.Program + " config show. " + f.Program +
		" config check runs what the start runs; " + f.Program + " config schema prints a JSON Schema for editors.\n\n" + f.Notes)
	p.section("KEYS")
	for _, k := range f.keys() {
		if k.Section {
			p.subsection(k.Path)
			if k.Text != "" {
				p.line(sentence(k.Text))
			}
			continue
		}
		p.item(k.Path+" ("+k.Type+")", k.sentences())
	}
	p.seeAlso(f.SeeAlso)
	return p.String()
}

// sentences are what there is to say about a key.
func (k Key) sentences() string {
	text := sentence(k.Text)
	if k.Default != "" {
		text += " Default " + k.Default + "."
	}
	if k.Example != "" && k.Example != `""` && k.Example != "[]" && k.Example != k.Default {
		text += " For example " + k.Example + "."
	}
	return text
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
