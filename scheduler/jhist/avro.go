package jhist

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Bounds of a binary history, which is a foreign file.
const (
	// recordMost bounds what one event takes, bytes: the largest has a job's counters three times. A value counts as
	// valueCost more, since there are values without bytes.
	recordMost, valueCost = lineMost, 16
	// depthMost bounds how deep types contain each other; Hadoop's schema has eight levels.
	depthMost = 64
)

var (
	errSchema = errors.New("not an Avro schema")
	errRecord = errors.New("not a record of the schema")
)

// avroType is one type of an Avro schema.
type avroType struct {
	kind     string      // record, enum, array, map, fixed, union or a primitive type
	names    []string    // of a record's fields, or an enum's symbols
	branches []*avroType // the types of a record's fields, or of a union's branches; one for the items of an array or map
	size     int         // of fixed
}

// parseSchema reads a schema.
func parseSchema(text []byte) (*avroType, error) {
	var schema any
	if err := json.Unmarshal(text, &schema); err != nil {
		return nil, fmt.Errorf("%w: %w", errSchema, err)
	}
	return avroNames{}.compile(schema, "", 0)
}

// avroNames are the types that have names. A type may contain itself.
type avroNames map[string]*avroType

func (n avroNames) compile(schema any, namespace string, depth int) (*avroType, error) {
	if depth > depthMost {
		return nil, fmt.Errorf("%w: too deep", errSchema)
	}
	switch s := schema.(type) {
	case string:
		switch s {
		case "null", "boolean", "int", "long", "float", "double", "bytes", "string":
			return &avroType{kind: s}, nil
		}
		for _, name := range []string{namespace + "." + s, s} {
			if t := n[name]; t != nil {
				return t, nil
			}
		}
		return nil, fmt.Errorf("%w: unknown type %.40q", errSchema, s)
	case []any:
		t := &avroType{kind: "union"}
		return t, n.branches(t, s, namespace, depth)
	case map[string]any:
		return n.complex(s, namespace, depth)
	}
	return nil, errSchema
}

// complex compiles a type that is written as an object.
func (n avroNames) complex(s map[string]any, namespace string, depth int) (*avroType, error) {
	kind, ok := s["type"].(string)
	if !ok {
		return n.compile(s["type"], namespace, depth+1)
	}
	t := &avroType{kind: kind}
	if own, ok := s["namespace"].(string); ok {
		namespace = own
	}
	if name, ok := s["name"].(string); ok {
		n[namespace+"."+name] = t
	}
	switch kind {
	case "record":
		fields, _ := s["fields"].([]any)
		var types []any
		for _, f := range fields {
			field, _ := f.(map[string]any)
			name, _ := field["name"].(string)
			t.names, types = append(t.names, name), append(types, field["type"])
		}
		return t, n.branches(t, types, namespace, depth)
	case "enum":
		symbols, _ := s["symbols"].([]any)
		for _, x := range symbols {
			name, _ := x.(string)
			t.names = append(t.names, name)
		}
		return t, nil
	case "array", "map":
		return t, n.branches(t, []any{s[map[string]string{"array": "items", "map": "values"}[kind]]}, namespace, depth)
	case "fixed":
		size, _ := s["size"].(float64)
		if t.size = int(size); t.size < 0 || t.size > recordMost {
			return nil, fmt.Errorf("%w: fixed of %v bytes", errSchema, size)
		}
		return t, nil
	}
	return n.compile(kind, namespace, depth+1) // a primitive type with properties
}

func (n avroNames) branches(t *avroType, schemas []any, namespace string, depth int) error {
	for _, s := range schemas {
		b, err := n.compile(s, namespace, depth+1)
		if err != nil {
			return err
		}
		t.branches = append(t.branches, b)
	}
	return nil
}

// avroReader reads records in Avro's binary encoding.
type avroReader struct {
	r *bufio.Reader
	// at is how many bytes were read, and left what the record may still take.
	at   int64
	left int
}

// record reads the next value of a type; io.EOF where none begins.
func (a *avroReader) record(t *avroType) (any, error) {
	if _, err := a.r.Peek(1); err != nil {
		return nil, err
	}
	a.left = recordMost
	v, err := a.value(t, 0)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return v, err
}

// take charges n bytes to the record.
func (a *avroReader) take(n int) error {
	if n < 0 || n > a.left {
		return fmt.Errorf("%w: larger than %d bytes", errRecord, recordMost)
	}
	a.left -= n
	return nil
}

// ReadByte reads one byte of a number.
func (a *avroReader) ReadByte() (byte, error) {
	b, err := a.r.ReadByte()
	if err == nil {
		a.at++
	}
	return b, err
}

// long reads a number, which is in zigzag form.
func (a *avroReader) long() (int64, error) { return binary.ReadVarint(a) }

// bytes reads n bytes.
func (a *avroReader) bytes(n int64) ([]byte, error) {
	if n > recordMost {
		n = -1
	}
	if err := a.take(int(n)); err != nil {
		return nil, err
	}
	b := make([]byte, n)
	got, err := io.ReadFull(a.r, b)
	a.at += int64(got)
	return b, err
}

// value reads one value, as encoding/json would have it.
func (a *avroReader) value(t *avroType, depth int) (any, error) {
	if depth > depthMost {
		return nil, fmt.Errorf("%w: too deep", errRecord)
	}
	if err := a.take(valueCost); err != nil {
		return nil, err
	}
	switch t.kind {
	case "null":
		return nil, nil
	case "boolean":
		b, err := a.bytes(1)
		return err == nil && b[0] != 0, err
	case "int", "long":
		return a.long()
	case "float", "double":
		_, err := a.bytes(map[string]int64{"float": 4, "double": 8}[t.kind])
		return nil, err // none is needed
	case "bytes", "string":
		return a.text()
	case "fixed":
		b, err := a.bytes(int64(t.size))
		return string(b), err
	case "enum", "union":
		return a.choice(t, depth)
	case "record":
		fields := map[string]any{}
		for i, b := range t.branches {
			v, err := a.value(b, depth+1)
			if err != nil {
				return nil, err
			}
			fields[t.names[i]] = v
		}
		return fields, nil
	}
	return a.blocks(t, depth)
}

// choice reads an enum or a union: both begin with a number.
func (a *avroReader) choice(t *avroType, depth int) (any, error) {
	n, err := a.long()
	if err != nil {
		return nil, err
	}
	if n < 0 || int(n) >= max(len(t.names), len(t.branches)) {
		return nil, fmt.Errorf("%w: %s has no choice %d", errRecord, t.kind, n)
	}
	if t.kind == "enum" {
		return t.names[n], nil
	}
	return a.value(t.branches[n], depth+1)
}

// blocks reads an array or a map: blocks of items, each after their number, the last with none.
func (a *avroReader) blocks(t *avroType, depth int) (any, error) {
	items, keyed := []any{}, map[string]any{}
	for {
		n, err := a.long()
		if err == nil && n < 0 { // the block's length in bytes follows
			n = -n
			_, err = a.long()
		}
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			break
		}
		for ; n > 0; n-- {
			key := ""
			if t.kind == "map" {
				if key, err = a.text(); err != nil {
					return nil, err
				}
			}
			v, err := a.value(t.branches[0], depth+1)
			if err != nil {
				return nil, err
			}
			if t.kind == "map" {
				keyed[key] = v
			} else {
				items = append(items, v)
			}
		}
	}
	if t.kind == "map" {
		return keyed, nil
	}
	return items, nil
}

// text reads a string, or bytes.
func (a *avroReader) text() (string, error) {
	n, err := a.long()
	if err != nil {
		return "", err
	}
	b, err := a.bytes(n)
	return string(b), err
}
