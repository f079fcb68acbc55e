// Claims: what is generated is fresh; every command has an example and says what
// it does; every key of the configuration is documented where it is shown.
package command

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"headroom/agent"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
)

func TestGeneratedDocsAreFresh(t *testing.T) {
	t.Parallel()
	for name, want := range generatedDocs() {
		got, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
		if err != nil || string(got) != want {
			t.Errorf("docs/%s is stale (%v): go generate ./agent/command", name, err)
		}
	}
}

func TestEveryCommandHasAnExample(t *testing.T) {
	t.Parallel()
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for line := range strings.SplitSeq(c.Example, "\n") {
			if !strings.HasPrefix(line, "  "+c.CommandPath()) {
				t.Errorf("%s: the example %q does not show it", c.CommandPath(), line)
			}
		}
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: short text %q", c.CommandPath(), c.Short)
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(New())
}

// Every command that answers can answer in JSON, but for the two that write a file
// of another form and the screen.
func TestEveryAnswerHasJSON(t *testing.T) {
	t.Parallel()
	without := []string{"powerd run", "powerd top", "powerd debug bundle", "powerd config schema", "powerd config example"}
	eachCommand(New(), func(c *cobra.Command) {
		has := c.LocalFlags().Lookup("output") != nil || c.InheritedFlags().Lookup("output") != nil
		if has == slices.Contains(without, c.CommandPath()) {
			t.Errorf("%s: -o json is there: %v", c.CommandPath(), has)
		}
	})
}

func TestEveryKeyIsDocumented(t *testing.T) {
	t.Parallel()
	for _, k := range configKeys() {
		if !k.Section && (k.Text == "" || k.Example == "") {
			t.Errorf("ExampleConfig has no value or no comment for %s", k.Path)
		}
	}
}

// The schema knows every key of the example, and no quantity without its unit passes.
func TestSchema(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(configSchema())
	if err != nil || !bytes.Contains(data, []byte(`"additionalProperties":false`)) {
		t.Fatalf("%s, %v", data, err)
	}
	var example map[string]any
	if err := yaml.Unmarshal([]byte(agent.ExampleConfig), &example); err != nil {
		t.Fatal(err)
	}
	var fits func(path string, s *schema, v any)
	fits = func(path string, s *schema, v any) {
		if s == nil {
			t.Errorf("%s is not in the schema", path)
			return
		}
		switch v := v.(type) {
		case map[string]any:
			for key, inner := range v {
				fits(path+"."+key, s.Properties[key], inner)
			}
		case string:
			if s.Type != "string" || !regexp.MustCompile(s.Pattern).MatchString(v) {
				t.Errorf("%s: %q does not fit %s %q", path, v, s.Type, s.Pattern)
			}
		case bool:
			if s.Type != "boolean" {
				t.Errorf("%s: %v does not fit %s", path, v, s.Type)
			}
		case []any:
			if s.Type != "array" {
				t.Errorf("%s: %v does not fit %s", path, v, s.Type)
			}
		}
	}
	fits("", configSchema(), example)
	for _, bad := range []string{"250", "250 watts", "W", "-1W"} {
		if regexp.MustCompile(powerPattern).MatchString(bad) {
			t.Errorf("the schema takes %q for a power", bad)
		}
	}
}

// A manual page has no line that the formatter would take for a request by accident.
func TestRoff(t *testing.T) {
	t.Parallel()
	request := regexp.MustCompile(`^\.(\\"|TH|SH|SS|PP|TP|B|nf|fi|RS|RE)\b|^\.\\" `)
	for name, text := range generatedDocs() {
		if !strings.HasPrefix(name, "man/") {
			continue
		}
		for line := range strings.SplitSeq(text, "\n") {
			if (strings.HasPrefix(line, ".") && !request.MatchString(line)) || strings.HasPrefix(line, "'") {
				t.Errorf("%s: %q is a request to the formatter", name, line)
			}
		}
	}
	var p page
	p.line(".hidden -o 'x' \\d")
	if got, want := p.String(), `\&.hidden \-o \(aqx\(aq \ed`+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
