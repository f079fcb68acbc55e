package yarn

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// This file edits the fair scheduler's allocation file as text: only the elements maxResources of the named queues
// change. Decoding and rewriting the file would lose comments, order and elements of newer Hadoop versions.

// own is the content of the file before the engine wrote there.
type own struct {
	// Element is the operator's maxResources, "" for none.
	Element string `json:"element"`
	// Tag is the queue's tag if the queue was written without content, <queue name="q1"/>.
	Tag string `json:"tag,omitempty"`
	// Written are the elements of the engine that the file may contain now.
	Written []string `json:"written"`
}

// place is where the file has a queue and its maximum, as offsets.
type place struct {
	// The queue's element, its opening tag's end and its closing tag's start.
	from, opened, closing, to int
	// empty is whether it is written as <queue .../>.
	empty bool
	// The element maxResources; both 0 for none.
	maxFrom, maxTo int
}

// element returns the queue's maxResources as written, "" for none.
func (p place) element(doc []byte) string { return string(doc[p.maxFrom:p.maxTo]) }

const (
	tagMax = "maxResources"
	// depthMax bounds nested elements; queues are a few levels deep.
	depthMax = 64
)

func elementFor(value string) string { return "<" + tagMax + ">" + value + "</" + tagMax + ">" }

// places returns all queues of the file by their full names.
func places(doc []byte) (map[string]*place, error) {
	r := &xmlReader{decoder: xml.NewDecoder(bytes.NewReader(doc)), doc: doc, found: map[string]*place{}}
	for {
		from := int(r.decoder.InputOffset())
		token, err := r.decoder.Token()
		to := int(r.decoder.InputOffset())
		switch {
		case errors.Is(err, io.EOF) && r.rooted:
			return r.found, nil
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("no element <allocations>: %w", errAllocation)
		case err != nil:
			return nil, fmt.Errorf("%w: %w", errAllocation, err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			err = r.open(token, from, to)
		case xml.EndElement:
			r.close(from, to)
		}
		if err != nil {
			return nil, err
		}
	}
}

type xmlReader struct {
	decoder *xml.Decoder
	doc     []byte
	found   map[string]*place
	stack   []level
	rooted  bool
}

// level is an open element.
type level struct {
	from int
	// queue is the full name of a queue, "" for the file's root.
	queue string
	place *place
	// holds is whether it may directly contain queues.
	holds bool
	// max is whether it is the maxResources of the enclosing queue.
	max bool
}

func (r *xmlReader) open(e xml.StartElement, from, to int) error {
	line, _ := r.decoder.InputPos()
	l := level{from: from}
	parent := level{holds: true}
	if len(r.stack) > 0 {
		parent = r.stack[len(r.stack)-1]
	}
	switch {
	case len(r.stack) >= depthMax:
		return fmt.Errorf("line %d: elements nested deeper than %d: %w", line, depthMax, errAllocation)
	case len(r.stack) == 0:
		if r.rooted || e.Name.Local != "allocations" {
			return fmt.Errorf("line %d: <%s> instead of <allocations>: %w", line, clip(e.Name.Local), errAllocation)
		}
		r.rooted, l.holds = true, true
	case parent.holds && (e.Name.Local == "queue" || e.Name.Local == "pool"):
		l.queue, l.holds = queueName(parent.queue, e), true
		if r.found[l.queue] != nil {
			return fmt.Errorf("line %d: duplicate queue %q: %w", line, clip(l.queue), errAllocation)
		}
		l.place = &place{from: from, opened: to, closing: to, to: to, empty: bytes.HasSuffix(r.doc[from:to], []byte("/>"))}
		r.found[l.queue] = l.place
	case parent.place != nil && e.Name.Local == tagMax:
		if parent.place.maxTo > 0 {
			return fmt.Errorf("line %d: duplicate %s of queue %q: %w", line, tagMax, clip(parent.queue), errAllocation)
		}
		l.max = true
	}
	r.stack = append(r.stack, l)
	return nil
}

// queueName returns the full name of a queue inside parent.
func queueName(parent string, e xml.StartElement) string {
	name := ""
	for _, a := range e.Attr {
		if a.Name.Local == "name" {
			name = strings.TrimSpace(a.Value)
		}
	}
	switch {
	case parent != "":
		return parent + "." + name
	case name == "root":
		return name
	default:
		return "root." + name
	}
}

func (r *xmlReader) close(from, to int) {
	l := r.stack[len(r.stack)-1]
	r.stack = r.stack[:len(r.stack)-1]
	if l.place != nil {
		l.place.closing, l.place.to = from, to
	}
	if l.max {
		p := r.stack[len(r.stack)-1].place
		p.maxFrom, p.maxTo = l.from, to
	}
}

// edit replaces doc[from:to].
type edit struct {
	from, to int
	text     string
}

// merged is an allocation file with the engine's values.
type merged struct {
	doc []byte
	// during must be stored before doc is written; after suffices afterwards.
	during, after map[string]own
}

// merge sets the wanted values in the file, and restores the operator's own for the rest. before is the stored record
// of earlier writes. A value that is not one of the engine's is the operator's own: it was there first, or the operator
// has edited the file since.
func merge(doc []byte, want map[string]string, before map[string]own) (merged, error) {
	found, err := places(doc)
	if err != nil {
		return merged{}, err
	}
	m := merged{during: map[string]own{}, after: map[string]own{}}
	var edits []edit
	for _, queue := range queuesOf(want, before) {
		p := found[queue]
		value, wanted := want[queue]
		if p == nil {
			if wanted {
				return merged{}, fmt.Errorf("no queue %s: %w", queue, errQueue)
			}
			continue // the operator has removed it: there is nothing to restore
		}
		now := p.element(doc)
		o, known := before[queue]
		ours := known && slices.Contains(o.Written, now)
		if !ours {
			o = own{Element: now}
			if p.empty {
				o.Tag = string(doc[p.from:p.to])
			}
		}
		if wanted {
			o.Written = []string{now, elementFor(value)}
			if !ours || o.Written[0] == o.Written[1] {
				o.Written = o.Written[1:]
			}
			m.during[queue], m.after[queue] = o, o
			if now != elementFor(value) {
				edits = append(edits, p.put(doc, elementFor(value)))
			}
			continue
		}
		if ours {
			m.during[queue] = o
			edits = append(edits, p.putBack(o))
		}
	}
	m.doc = apply(doc, edits)
	return m, m.verify(want)
}

func queuesOf(want map[string]string, before map[string]own) []string {
	names := slices.Concat(slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(before)))
	slices.Sort(names)
	return slices.Compact(names)
}

// put returns the edit that makes element the queue's maximum.
func (p place) put(doc []byte, element string) edit {
	switch {
	case p.maxTo > 0:
		return edit{p.maxFrom, p.maxTo, element}
	case p.empty:
		tag := strings.TrimSuffix(string(doc[p.from:p.to]), "/>")
		name := strings.TrimPrefix(strings.Fields(tag)[0], "<")
		return edit{p.from, p.to, strings.TrimRight(tag, " \t\r\n") + ">" + element + "</" + name + ">"}
	default:
		return edit{p.opened, p.opened, element}
	}
}

// putBack returns the edit that restores the operator's value.
func (p place) putBack(o own) edit {
	alone := p.maxFrom == p.opened && p.maxTo == p.closing
	if o.Tag != "" && alone {
		return edit{p.from, p.to, o.Tag}
	}
	return edit{p.maxFrom, p.maxTo, o.Element}
}

// apply applies the edits, the last one first. They never overlap: each is in the tags of one queue.
func apply(doc []byte, edits []edit) []byte {
	slices.SortFunc(edits, func(a, b edit) int { return b.from - a.from })
	out := slices.Clone(doc)
	for _, e := range edits {
		out = slices.Concat(out[:e.from], []byte(e.text), out[e.to:])
	}
	return out
}

// verify reads the new file back: it must be valid and contain the wanted values.
func (m merged) verify(want map[string]string) error {
	found, err := places(m.doc)
	if err != nil {
		return err
	}
	for queue, value := range want {
		if p := found[queue]; p == nil || p.element(m.doc) != elementFor(value) {
			return fmt.Errorf("could not set the maximum of queue %s: %w", queue, errAllocation)
		}
	}
	return nil
}
