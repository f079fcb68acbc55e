package manual

import (
	"reflect"
	"strings"
)

// Schema is the part of JSON Schema (2020-12) that a configuration needs.
type Schema struct {
	Schema      string             `json:"$schema,omitempty"`
	Title       string             `json:"title,omitempty"`
	Type        string             `json:"type,omitempty"`
	AnyOf       []*Schema          `json:"anyOf,omitempty"`
	Description string             `json:"description,omitempty"`
	Pattern     string             `json:"pattern,omitempty"`
	Items       *Schema            `json:"items,omitempty"`
	Properties  map[string]*Schema `json:"properties,omitempty"`
	Additional  *bool              `json:"additionalProperties,omitempty"`
}

// shortForm is a section that a text may stand for; Short says which, in words.
type shortForm interface{ Short() string }

// Patterns of quantities: a number with its unit, as the units package reads them.
const (
	powerPattern  = `^[0-9]+(\.[0-9]+)? ?(uW|mW|W|kW|MW)$`
	energyPattern = `^[0-9]+(\.[0-9]+)? ?(uJ|mJ|J|kJ|MJ)$`
	freqPattern   = `^[0-9]+(\.[0-9]+)? ?(kHz|MHz|GHz)$`
	partPattern   = `^[0-9]+(\.[0-9]+)?%?$`
	timePattern   = `^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`
)

// Schema describes the file for editors. Unknown keys are errors there too.
func (f File) Schema() *Schema {
	top := &Schema{Schema: "https://json-schema.org/draft/2020-12/schema", Title: f.Name}
	fillObject(top, reflect.TypeOf(f.Default), "", exampleNotes(f.Example))
	return top
}

func fillObject(s *Schema, t reflect.Type, under string, notes map[string]note) {
	s.Type, s.Properties, s.Additional = "object", map[string]*Schema{}, new(bool)
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "" || name == "-" {
			continue
		}
		p := &Schema{Description: notes[under+name].text}
		fillValue(p, f.Type, under+name+".", notes)
		s.Properties[name] = p
	}
}

func fillValue(s *Schema, t reflect.Type, under string, notes map[string]note) {
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
	case "fraction":
		s.Pattern = partPattern
	case "map":
		s.Type = "object" // of names that the operator chooses
	case "true or false":
		s.Type = "boolean"
	case "number":
		s.Type = "number"
	case "list":
		s.Type, s.Items = "array", &Schema{}
		fillValue(s.Items, t.Elem(), under, notes)
	case "section":
		if t.Implements(reflect.TypeFor[shortForm]()) {
			long := &Schema{}
			fillObject(long, t, under, notes)
			s.Type, s.AnyOf = "", []*Schema{{Type: "string"}, long}
			return
		}
		fillObject(s, t, under, notes)
	}
}
