package command

import (
	"reflect"
	"strings"

	"headroom/agent"
	"headroom/internal/config"
	"headroom/units"
)

// configKey is one key of powerd.yaml, as documents and editors show it.
type configKey struct {
	// Path is the key with those it stands under: "power.fail_safe".
	Path string
	// Type is what the value is: "power", "text", "yes or no" ...
	Type string
	// Example is the value in ExampleConfig, "" for a section.
	Example string
	// Text is the key's comment in ExampleConfig.
	Text string
	// Section says that other keys stand under it.
	Section bool
}

// configKeys are the keys in the order of the configuration's own structure,
// with what ExampleConfig says about them: what is documented there once is
// shown by the manual page and the schema.
func configKeys() []configKey {
	notes := exampleNotes(agent.ExampleConfig)
	var keys []configKey
	walkConfig(reflect.TypeFor[agent.Config](), "", func(path string, t reflect.Type, section bool) {
		n := notes[path]
		keys = append(keys, configKey{Path: path, Type: typeWord(t), Example: n.value, Text: n.text, Section: section})
	})
	return keys
}

// walkConfig visits every key of a configuration structure, sections first.
func walkConfig(t reflect.Type, under string, visit func(path string, t reflect.Type, section bool)) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "" || name == "-" {
			continue
		}
		section := f.Type.Kind() == reflect.Struct
		visit(under+name, f.Type, section)
		if section {
			walkConfig(f.Type, under+name+".", visit)
		}
	}
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
	default:
		return "text"
	}
}

// note is what ExampleConfig says about a key.
type note struct{ value, text string }

// exampleNotes reads the example line by line: "key: value   # comment", with
// sections indented by two spaces. A comment on lines of its own stands for the
// key after it, unless that has one.
func exampleNotes(example string) map[string]note {
	notes := map[string]note{}
	section, above := "", ""
	for line := range strings.SplitSeq(example, "\n") {
		body, comment := cutComment(line)
		key, value, isKey := strings.Cut(strings.TrimSpace(body), ":")
		if !isKey {
			above = strings.TrimSpace(above + " " + comment)
			if strings.TrimSpace(line) == "" {
				above = ""
			}
			continue
		}
		path := key
		if strings.HasPrefix(line, " ") {
			path = section + key
		} else {
			section = key + "."
		}
		if comment == "" {
			comment = above
		}
		notes[path], above = note{value: strings.TrimSpace(value), text: comment}, ""
	}
	return notes
}

// cutComment cuts a line at the "#" that starts its comment; none of the
// example's values has one.
func cutComment(line string) (body, comment string) {
	body, comment, _ = strings.Cut(line, "#")
	return body, strings.TrimSpace(comment)
}

// schema is the part of JSON Schema (2020-12) that the configuration needs.
type schema struct {
	Schema      string             `json:"$schema,omitempty"`
	Title       string             `json:"title,omitempty"`
	Type        string             `json:"type"`
	Description string             `json:"description,omitempty"`
	Pattern     string             `json:"pattern,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Additional  *bool              `json:"additionalProperties,omitempty"`
}

// Patterns of quantities: a number with its unit, as the units package reads them.
const (
	powerPattern  = `^[0-9]+(\.[0-9]+)? ?(uW|mW|W|kW|MW)$`
	energyPattern = `^[0-9]+(\.[0-9]+)? ?(uJ|mJ|J|kJ|MJ)$`
	freqPattern   = `^[0-9]+(\.[0-9]+)? ?(kHz|MHz|GHz)$`
	timePattern   = `^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`
)

// configSchema describes powerd.yaml for editors. Unknown keys are errors there too.
func configSchema() *schema {
	top := &schema{Schema: "https://json-schema.org/draft/2020-12/schema", Title: "powerd.yaml"}
	fillObject(top, reflect.TypeFor[agent.Config](), "", exampleNotes(agent.ExampleConfig))
	return top
}

func fillObject(s *schema, t reflect.Type, under string, notes map[string]note) {
	s.Type, s.Properties, s.Additional = "object", map[string]*schema{}, new(bool)
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "" || name == "-" {
			continue
		}
		p := &schema{Description: notes[under+name].text}
		fillValue(p, f.Type)
		if f.Type.Kind() == reflect.Struct {
			fillObject(p, f.Type, under+name+".", notes)
		}
		s.Properties[name] = p
	}
}

func fillValue(s *schema, t reflect.Type) {
	s.Type = "string"
	switch typeWord(t) {
	case "power":
		s.Pattern = powerPattern
	case "energy":
		s.Pattern = energyPattern
	case "frequency":
		s.Pattern = freqPattern
	case "time":
		s.Pattern = timePattern
	case "true or false":
		s.Type = "boolean"
	case "number":
		s.Type = "number"
	case "list":
		s.Type, s.Items = "array", &schema{}
		fillValue(s.Items, t.Elem())
	}
}
