package manual

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
)

// CheckCommands tells which commands have no example that shows them, or no short
// text without a period.
func CheckCommands(root *cobra.Command) error {
	var errs []error
	for line := range strings.SplitSeq(root.Example, "\n") {
		if !slices.ContainsFunc(paths(root), func(path string) bool { return strings.HasPrefix(line, "  "+path) }) {
			errs = append(errs, fmt.Errorf("%s: the example %q does not show it", root.CommandPath(), line))
		}
	}
	if root.Short == "" || strings.HasSuffix(root.Short, ".") {
		errs = append(errs, fmt.Errorf("%s: short text %q", root.CommandPath(), root.Short))
	}
	for _, sub := range root.Commands() {
		errs = append(errs, CheckCommands(sub))
	}
	return errors.Join(errs...)
}

// paths are the ways to type a command: by its name and by its aliases.
func paths(c *cobra.Command) []string {
	all := []string{c.CommandPath()}
	for _, alias := range c.Aliases {
		all = append(all, strings.TrimSuffix(c.CommandPath(), c.Name())+alias)
	}
	return all
}

// Check tells which keys the example does not show and explain, and what of the
// example the schema would not take.
func (f File) Check() error {
	var errs []error
	for _, k := range f.keys() {
		if !k.Section && (k.Text == "" || k.Example == "") {
			errs = append(errs, fmt.Errorf("%s: the example has no value or no comment for %s", f.Name, k.Path))
		}
	}
	var example any
	if err := yaml.Unmarshal([]byte(f.Example), &example); err != nil {
		return errors.Join(append(errs, fmt.Errorf("%s: the example: %w", f.Name, err))...)
	}
	return errors.Join(append(errs, f.Schema().misfits(f.Name, example))...)
}

// misfits tells what of v, at path, does not fit the schema.
func (s *Schema) misfits(path string, v any) error {
	if s == nil {
		return fmt.Errorf("%s is not in the schema", path)
	}
	for _, one := range s.AnyOf {
		if one.Type == typeOf(v) {
			return one.misfits(path, v)
		}
	}
	var errs []error
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			if s.Properties == nil {
				break // the operator's own names
			}
			errs = append(errs, s.Properties[key].misfits(path+"."+key, inner))
		}
	case []any:
		for _, inner := range v {
			errs = append(errs, s.Items.misfits(path+"[]", inner))
		}
	}
	if want := typeOf(v); want != s.Type {
		return errors.Join(append(errs, fmt.Errorf("%s: %v is %s where the schema says %s", path, v, want, s.Type))...)
	}
	if text, ok := v.(string); ok && !regexp.MustCompile(s.Pattern).MatchString(text) {
		errs = append(errs, fmt.Errorf("%s: %q does not fit %q", path, text, s.Pattern))
	}
	return errors.Join(errs...)
}

// typeOf is JSON Schema's word for the type of a decoded value.
func typeOf(v any) string {
	switch v.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case string:
		return "string"
	case bool:
		return "boolean"
	case nil:
		return "null"
	default:
		return "number"
	}
}
