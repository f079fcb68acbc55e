package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"headroom/internal/cli"
)

// plain says what is wrong in words of the file, not of Go.
func plain(err yaml.Error) string {
	if unknown, ok := errors.AsType[*yaml.UnknownFieldError](err); ok {
		return fmt.Sprintf("unknown key %q", unknown.Token.Value)
	}
	if mismatch, ok := errors.AsType[*yaml.TypeError](err); ok {
		return fmt.Sprintf("%q is not %s", mismatch.Token.Value, kindName(mismatch.DstType))
	}
	if overflow, ok := errors.AsType[*yaml.OverflowError](err); ok {
		return fmt.Sprintf("%s does not fit into %s", overflow.SrcNum, kindName(overflow.DstType))
	}
	if wrong, ok := errors.AsType[*yaml.UnexpectedNodeTypeError](err); ok {
		return fmt.Sprintf("found %s where %s belongs", wrong.Actual.YAMLName(), wrong.Expected.YAMLName())
	}
	return err.GetMessage()
}

func kindName(t reflect.Type) string {
	if t == nil {
		return "of the right type"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number of at least 0"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a text"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "a section with keys"
	default:
		return "of the right type"
	}
}

// hintFor proposes the key that was meant, where the mistake is an unknown key.
func hintFor(err yaml.Error, body ast.Node, into any) string {
	unknown, ok := errors.AsType[*yaml.UnknownFieldError](err)
	if !ok {
		return "correct the line"
	}
	keys := keysBeside(body, unknown.Token.Position.Offset, reflect.TypeOf(into))
	if near := cli.Nearest(unknown.Token.Value, keys); near != "" {
		return "did you mean " + near + "?"
	}
	if len(keys) == 0 {
		return "remove the key"
	}
	return "remove the key; known here: " + strings.Join(keys, ", ")
}

// keysBeside are the keys that the section around the token at offset may have.
func keysBeside(body ast.Node, offset int, t reflect.Type) []string {
	var keys []string
	walk(body, t, func(node ast.Node, t reflect.Type) bool {
		if t.Kind() != reflect.Struct {
			return true
		}
		for _, kv := range pairs(node) {
			if token := kv.Key.GetToken(); token != nil && token.Position.Offset == offset {
				keys = fieldKeys(t)
			}
		}
		return true
	})
	return keys
}

// refused is the first value that its own type does not take. The library
// returns such an error without its position, so the place is found again.
func refused(body ast.Node, t reflect.Type) ast.Node {
	var bad ast.Node
	walk(body, t, func(node ast.Node, t reflect.Type) bool {
		if bad != nil {
			return false
		}
		u, ok := reflect.TypeAssert[yaml.BytesUnmarshaler](reflect.New(t))
		if !ok {
			return true
		}
		if u.UnmarshalYAML([]byte(node.String())) != nil {
			bad = node
		}
		return false
	})
	return bad
}

// maxDepth bounds the walk; a configuration is a few levels deep.
const maxDepth = 64

// walk visits node and the nodes below it with the Go type that each decodes
// into. visit returns false to stay out of what is below.
func walk(node ast.Node, t reflect.Type, visit func(ast.Node, reflect.Type) bool) {
	walkTo(node, t, visit, maxDepth)
}

func walkTo(node ast.Node, t reflect.Type, visit func(ast.Node, reflect.Type) bool, depth int) {
	if node == nil || t == nil || depth == 0 {
		return
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if !visit(node, t) {
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		for _, kv := range pairs(node) {
			if f, ok := fieldFor(t, kv.Key.GetToken().Value); ok {
				walkTo(kv.Value, f, visit, depth-1)
			}
		}
	case reflect.Map:
		for _, kv := range pairs(node) {
			walkTo(kv.Value, t.Elem(), visit, depth-1)
		}
	case reflect.Slice, reflect.Array:
		if list, ok := node.(*ast.SequenceNode); ok {
			for _, v := range list.Values {
				walkTo(v, t.Elem(), visit, depth-1)
			}
		}
	default: // the others hold nothing
	}
}

// pairs are the keys and values of a section.
func pairs(node ast.Node) []*ast.MappingValueNode {
	switch n := node.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	default:
		return nil
	}
}

// fieldKeys are the YAML keys of a struct, sorted.
func fieldKeys(t reflect.Type) []string {
	var keys []string
	for f := range t.Fields() {
		name, inline := fieldName(f)
		switch {
		case inline:
			keys = append(keys, fieldKeys(structOf(f.Type))...)
		case name != "":
			keys = append(keys, name)
		}
	}
	slices.Sort(keys)
	return keys
}

// fieldFor is the type of the field that key decodes into.
func fieldFor(t reflect.Type, key string) (reflect.Type, bool) {
	for f := range t.Fields() {
		name, inline := fieldName(f)
		if inline {
			if found, ok := fieldFor(structOf(f.Type), key); ok {
				return found, true
			}
		}
		if name != "" && name == key {
			return f.Type, true
		}
	}
	return nil, false
}

func structOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return reflect.TypeFor[struct{}]()
	}
	return t
}

// fieldName is a field's key as goccy/go-yaml reads it: the tag, or the field's
// name in lower case.
func fieldName(f reflect.StructField) (name string, inline bool) {
	if !f.IsExported() {
		return "", false
	}
	tag, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	switch {
	case tag == "-":
		return "", false
	case strings.Contains(options, "inline"):
		return "", true
	case tag == "":
		return strings.ToLower(f.Name), false
	default:
		return tag, false
	}
}
