// Claims: what is generated is fresh; every command has an example and says what it
// does; every key of the configuration is documented where it is shown; the shell is
// offered the names that the server knows, where a name belongs.
package command

import (
	"path/filepath"
	"slices"
	"testing"

	"headroom/internal/manual"
)

func TestGeneratedDocsAreFresh(t *testing.T) {
	t.Parallel()
	docs := filepath.Join("..", "..", "docs")
	pages, err := generatedDocs(docs)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range pages.Stale(docs) {
		t.Errorf("docs/%s is stale: go generate ./coordinator/command", name)
	}
}

func TestEveryCommandHasAnExample(t *testing.T) {
	t.Parallel()
	if err := manual.CheckCommands(New()); err != nil {
		t.Error(err)
	}
}

func TestEveryKeyIsDocumented(t *testing.T) {
	t.Parallel()
	if err := configFile().Check(); err != nil {
		t.Error(err)
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for use, want := range map[string][]string{
		"list":                               {"", ""},
		"set POWER [DOMAIN]":                 {"POWER", "DOMAIN", ""},
		"show NODE...":                       {"NODE", "NODE", "NODE"},
		"list [NODE...]":                     {"NODE", "NODE"},
		"restore FILE --budget DOMAIN=POWER": {"FILE", ""},
		"recover --budget DOMAIN=POWER":      {""},
		"cancel ID":                          {"ID", ""},
	} {
		words := arguments(use)
		got := make([]string, len(want))
		for i := range want {
			got[i] = wordAt(words, i)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", use, got, want)
		}
	}
}
