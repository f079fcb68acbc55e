package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"headroom/internal/each"
)

// JSON writes v, whose JSON is documented, in the format that was asked for: one
// indented JSON document, the same document in YAML, or its items as CSV.
func (o *Output) JSON(w io.Writer, v any) error {
	switch o.Format {
	case "yaml":
		return writeYAML(w, v)
	case "csv":
		return o.writeCSV(w, v)
	}
	enc := json.NewEncoder(jsonOut{w})
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// next writes v as one of the documents of a watch: one line of JSON, one YAML
// document of a stream, or further rows of CSV.
func (o *Output) next(w io.Writer, v any) error {
	switch o.Format {
	case "yaml":
		if _, err := io.WriteString(w, "---\n"); err != nil {
			return err
		}
		return writeYAML(w, v)
	case "csv":
		return o.writeCSV(w, v)
	}
	enc := json.NewEncoder(jsonOut{w})
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// writeYAML writes the JSON of v as YAML, with its fields in their order.
func writeYAML(w io.Writer, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tree, err := ordered(raw)
	if err != nil {
		return err
	}
	text, err := yaml.MarshalWithOptions(tree, yaml.IndentSequence(false))
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// ordered is a JSON value for YAML; objects keep the order of their fields.
func ordered(raw json.RawMessage) (any, error) {
	switch raw[0] {
	case '{':
		fields, err := fieldsOf(raw)
		if err != nil {
			return nil, err
		}
		out := yaml.MapSlice{}
		for _, f := range fields {
			v, err := ordered(f.value)
			if err != nil {
				return nil, err
			}
			out = append(out, yaml.MapItem{Key: f.name, Value: v})
		}
		return out, nil
	case '[':
		var all []json.RawMessage
		if err := json.Unmarshal(raw, &all); err != nil {
			return nil, err
		}
		out := []any{}
		for _, one := range all {
			v, err := ordered(one)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	}
	return scalar(raw)
}

// scalar is a JSON string, number, truth value or null. Whole numbers stay whole.
func scalar(raw json.RawMessage) (any, error) {
	var u uint64
	if err := json.Unmarshal(raw, &u); err == nil && string(raw) != "null" {
		return u, nil
	}
	var v any
	err := json.Unmarshal(raw, &v)
	return v, err
}

// field is one field of a JSON object.
type field struct {
	name  string
	value json.RawMessage
}

// fieldsOf returns the fields of a JSON object in their order.
func fieldsOf(raw json.RawMessage) ([]field, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	var out []field
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		f := field{name: fmt.Sprint(name)}
		if err := dec.Decode(&f.value); err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// record is one row of CSV: its cells by the names of its columns.
type record struct {
	names []string
	cells map[string]string
}

// flatten adds a JSON value under name: fields of objects get a dot, null is an
// empty cell, a list stays JSON.
func (r *record) flatten(name string, raw json.RawMessage) error {
	text := string(raw)
	switch raw[0] {
	case '{':
		fields, err := fieldsOf(raw)
		if err != nil {
			return err
		}
		for _, f := range fields {
			full := f.name
			if name != "" {
				full = name + "." + f.name
			}
			if err := r.flatten(full, f.value); err != nil {
				return err
			}
		}
		return nil
	case '"':
		if err := json.Unmarshal(raw, &text); err != nil {
			return err
		}
	case 'n':
		text = ""
	}
	if _, known := r.cells[name]; !known {
		r.names = append(r.names, name)
	}
	r.cells[name] = Clean(text)
	return nil
}

// writeCSV writes the items of a document, one a row. The header has the names of
// their JSON fields, values are in base units, and what is unknown is empty.
func (o *Output) writeCSV(w io.Writer, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	items, err := itemsOf(raw)
	if err != nil {
		return err
	}
	var records []record
	for _, item := range items {
		r := record{cells: map[string]string{}}
		if err := r.flatten("", item); err != nil {
			return err
		}
		records = append(records, r)
	}
	if len(records) == 0 {
		o.note(noItems(raw))
		return nil
	}
	head := columnsOf(records)
	if err := o.sortRecords(head, records); err != nil {
		return err
	}
	if head, err = o.chosen(head); err != nil {
		return err
	}
	return o.writeRecords(w, head, records)
}

func (o *Output) writeRecords(w io.Writer, head []string, records []record) error {
	c := csv.NewWriter(w)
	if !o.NoHeaders && !o.headed {
		o.headed = true
		if err := c.Write(head); err != nil {
			return err
		}
	}
	for _, r := range records {
		row := each.List(head, func(name string) string { return r.cells[name] })
		if err := c.Write(row); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// chosen returns the columns that --columns names, or all.
func (o *Output) chosen(head []string) ([]string, error) {
	for _, name := range o.columns {
		if !slices.Contains(head, name) {
			return nil, noColumn("--columns", name, head)
		}
	}
	if len(o.columns) > 0 {
		return o.columns, nil
	}
	return head, nil
}

func (o *Output) sortRecords(head []string, records []record) error {
	if o.sortBy == "" {
		return nil
	}
	if !slices.Contains(head, o.sortBy) {
		return noColumn("--sort-by", o.sortBy, head)
	}
	slices.SortStableFunc(records, func(a, b record) int { return compareCells(a.cells[o.sortBy], b.cells[o.sortBy]) })
	return nil
}

// itemsOf returns the rows of a document: its items, or its only list of objects,
// or the document itself.
func itemsOf(raw json.RawMessage) ([]json.RawMessage, error) {
	if raw[0] == '[' {
		var all []json.RawMessage
		return all, json.Unmarshal(raw, &all)
	}
	if raw[0] != '{' {
		return []json.RawMessage{[]byte(`{"value":` + string(raw) + `}`)}, nil
	}
	fields, err := fieldsOf(raw)
	if err != nil {
		return nil, err
	}
	var lists []json.RawMessage
	for _, f := range fields {
		if f.name == "items" {
			return itemsOf(f.value)
		}
		if bytes.HasPrefix(f.value, []byte("[{")) {
			lists = append(lists, f.value)
		}
	}
	if len(lists) == 1 {
		return itemsOf(lists[0])
	}
	return []json.RawMessage{raw}, nil
}

// columnsOf returns the names of all records in the order of their first
// appearance, without those that are only ever the null of an object.
func columnsOf(records []record) []string {
	var head []string
	seen, filled := map[string]bool{}, map[string]bool{}
	for _, r := range records {
		for _, name := range r.names {
			if !seen[name] {
				seen[name] = true
				head = append(head, name)
			}
			filled[name] = filled[name] || r.cells[name] != ""
		}
	}
	return slices.DeleteFunc(head, func(name string) bool {
		return !filled[name] && slices.ContainsFunc(head, func(other string) bool { return strings.HasPrefix(other, name+".") })
	})
}

// noItems is the note of an empty document: "no jobs" of a JobList.
func noItems(raw json.RawMessage) string {
	var frame struct {
		Kind string `json:"kind"`
	}
	_ = json.Unmarshal(raw, &frame) // a document without a kind has the general note
	kind := strings.ToLower(strings.TrimSuffix(frame.Kind, "List"))
	if kind == "" {
		return "no rows"
	}
	return "no " + plural(kind)
}
