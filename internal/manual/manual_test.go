// Claims: a page says what the command tree, the configuration's structure and its
// example say, keys of a list's entries too; a key without a comment, a value that
// its schema refuses and a command without an example are found; no text becomes a
// request to the formatter; a page that a folder has otherwise is stale.
package manual

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/config"
	"headroom/internal/testkit"
	"headroom/units"
)

type sample struct {
	Name    string          `yaml:"name"`
	Servers []sampleServer  `yaml:"servers"`
	Power   samplePower     `yaml:"power"`
	Lease   config.Duration `yaml:"lease"`
	On      bool            `yaml:"on"`
	Secret  string          `yaml:"-"`
}

type sampleServer struct {
	ID  string `yaml:"id"`
	RPC string `yaml:"rpc"`
}

type samplePower struct {
	Floor units.Power `yaml:"floor"`
}

const sampleText = `# A sample.

name: a            # what it is called

# Who is there.
servers:
  - id: c1         # its name
    rpc: host:7400 # its address
  - id: c2         # another
    rpc: host:7500
power:
  # The least of all,
  # in watts.
  floor: 70W
lease: 12s         # 3s to 2m
on: true           # whether at all
`

func sampleFile(text string) File {
	return File{
		Name: "sample.yaml", Program: "tool", Version: "1.2.3", Example: text, SeeAlso: []string{"tool(8)"},
		Default: sample{Lease: config.Duration(10 * time.Second)},
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	want := []Key{
		{Path: "name", Type: "text", Example: "a", Text: "what it is called"},
		{Path: "servers", Type: "list", Text: "Who is there.", Section: true},
		{Path: "servers.id", Type: "text", Example: "c1", Text: "its name"},
		{Path: "servers.rpc", Type: "text", Example: "host:7400", Text: "its address"},
		{Path: "power", Type: "section", Section: true},
		{Path: "power.floor", Type: "power", Example: "70W", Text: "The least of all, in watts."},
		{Path: "lease", Type: "time", Example: "12s", Text: "3s to 2m", Default: "10s"},
		{Path: "on", Type: "true or false", Example: "true", Text: "whether at all", Default: "false"},
	}
	if got := sampleFile(sampleText).keys(); !slices.Equal(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	page := sampleFile(sampleText).Page()
	for _, part := range []string{".B servers.rpc (text)\nIts address. For example host:7400.", "3s to 2m. Default 10s. For example 12s.", ".TH SAMPLE.YAML 5 \"\" \"Headroom 1.2.3\""} {
		if !strings.Contains(page, part) {
			t.Errorf("the page does not say %q:\n%s", part, page)
		}
	}
}

func TestCheckFindsGaps(t *testing.T) {
	t.Parallel()
	if err := sampleFile(sampleText).Check(); err != nil {
		t.Errorf("a complete example: %v", err)
	}
	for from, to := range map[string]string{
		"a            # what": "a\n#",
		"70W":                 "70",
		"floor: 70W":          "flor: 70W",
		"on: true":            `on: "yes"`,
		"rpc: host:7400":      "rcp: host:7400",
		"lease: 12s":          "lease: soon",
	} {
		if err := sampleFile(strings.ReplaceAll(sampleText, from, to)).Check(); err == nil {
			t.Errorf("%q in place of %q is taken", to, from)
		}
	}
}

// No quantity without its unit passes the schema, and no key that is not known.
func TestSchema(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(sampleFile(sampleText).Schema())
	if err != nil || !bytes.Contains(data, []byte(`"additionalProperties":false`)) || !bytes.Contains(data, []byte(`"items":{"type":"object"`)) {
		t.Fatalf("%s, %v", data, err)
	}
	for _, bad := range []string{"250", "250 watts", "W", "-1W"} {
		if regexp.MustCompile(powerPattern).MatchString(bad) {
			t.Errorf("the schema takes %q for a power", bad)
		}
	}
}

func tool() *cobra.Command {
	root := &cobra.Command{Use: "tool", Short: "Do things", Long: "tool does things.", Example: "  tool set x"}
	root.PersistentFlags().String("addr", "127.0.0.1:1", "whom to ask")
	set := &cobra.Command{Use: "set WHAT", Short: "Set it", Example: "  tool set x", RunE: func(*cobra.Command, []string) error { return nil }}
	set.Flags().Duration("for", 0, "how long")
	root.AddCommand(set, Command("tool", nil))
	return root
}

func TestProgram(t *testing.T) {
	t.Parallel()
	page := Program{Root: tool(), Version: "1.2.3", Purpose: "do things", Exit: map[int]string{3: "Nobody there.", 10: ""}, SeeAlso: []string{"sample.yaml(5)"}}.Page()
	for _, part := range []string{
		"tool set WHAT [flags]", ".SH OPTIONS OF ALL COMMANDS\n.TP\n.B \\-\\-addr STRING\nWhom to ask (default 127.0.0.1:1).", ".B \\-\\-for DURATION\nHow long.",
		".B 3\nNobody there.", "sample.yaml(5)",
	} {
		if !strings.Contains(page, part) {
			t.Errorf("the page does not say %q:\n%s", part, page)
		}
	}
	for _, part := range []string{"docs DIR", ".B 10\n"} {
		if strings.Contains(page, part) {
			t.Errorf("the page says %q", part)
		}
	}
	root := tool()
	if err := CheckCommands(root); err != nil {
		t.Error(err)
	}
	root.Commands()[1].Example = "  tool list"
	if err := CheckCommands(root); err == nil {
		t.Error("an example of another command is taken")
	}
}

// What man shows of an example can be copied into a file: YAML needs its indentation.
func TestExampleRendered(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("man"); err != nil {
		testkit.NotRun(t, "man is not installed")
	}
	path := filepath.Join(t.TempDir(), "sample.yaml.5")
	testkit.WriteFile(t, path, sampleFile(sampleText).Page())
	c := exec.CommandContext(t.Context(), "man", "-l", path)
	c.Env = append(os.Environ(), "MANPAGER=cat", "MANWIDTH=200", "LC_ALL=C.UTF-8", "GROFF_NO_SGR=1")
	out, err := c.Output()
	if err != nil {
		testkit.NotRun(t, "man does not render here: "+err.Error())
	}
	_, text, _ := strings.Cut(string(out), "EXAMPLES\n")
	text, _, _ = strings.Cut(text, "DESCRIPTION\n")
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	margin := len(lines[0]) - len(strings.TrimLeft(lines[0], " "))
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], strings.Repeat(" ", margin))
	}
	if got, want := strings.Join(lines, "\n"), strings.TrimRight(sampleText, "\n"); got != want {
		t.Errorf("man shows\n%s\nwant\n%s", got, want)
	}
}

func TestConcepts(t *testing.T) {
	t.Parallel()
	page, err := Concepts{Glossary: "# Words\n\n| word | meaning |\n| --- | --- |\n| cap | what one node may draw |\n"}.Page()
	if err != nil || !strings.Contains(page, ".B cap\nWhat one node may draw.") || strings.Contains(page, "meaning") {
		t.Errorf("%v\n%s", err, page)
	}
	if _, err := (Concepts{Glossary: "no table"}).Page(); err == nil {
		t.Error("a glossary without words is taken")
	}
}

func TestStale(t *testing.T) {
	t.Parallel()
	dir, pages := t.TempDir(), Pages{"man/a.8": "a", "b.md": "b"}
	if got := pages.Stale(dir); !slices.Equal(got, []string{"b.md", "man/a.8"}) {
		t.Errorf("an empty folder: %v are stale", got)
	}
	if err := pages.Write(dir); err != nil || pages.Stale(dir) != nil {
		t.Fatalf("%v; %v are stale", err, pages.Stale(dir))
	}
	if err := os.WriteFile(filepath.Join(dir, "b.md"), []byte("c"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := pages.Stale(dir); !slices.Equal(got, []string{"b.md"}) {
		t.Errorf("%v are stale", got)
	}
}

// A manual page has no line that the formatter would take for a request by accident.
func TestRoff(t *testing.T) {
	t.Parallel()
	request := regexp.MustCompile(`^\.(\\"|TH|SH|SS|PP|TP|B|nf|fi|RS|RE)\b|^\.\\" `)
	odd := strings.ReplaceAll(sampleText, "what it is called", ".hidden 'x'")
	for line := range strings.SplitSeq(sampleFile(odd).Page(), "\n") {
		if (strings.HasPrefix(line, ".") && !request.MatchString(line)) || strings.HasPrefix(line, "'") {
			t.Errorf("%q is a request to the formatter", line)
		}
	}
	var p page
	p.line(".hidden -o 'x' \\d")
	if got, want := p.String(), `\&.hidden \-o \(aqx\(aq \ed`+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
