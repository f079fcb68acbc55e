// Claims: a file is read strictly; what is wrong is reported with its line and column, as a usage error; no bytes make
// it panic.
package jsonfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/cli"
	"headroom/internal/jsonfile"
)

type doc struct {
	N    int       `json:"n"`
	List []float64 `json:"list"`
}

func TestRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"n": 1, "list": [1.5]}`:   "",
		"{\n \"n\": \"x\"}":         "stdin:2:9: n cannot be a string",
		"{\"n\": 1,\n  \"m\": 2}":   "stdin:2:3: unknown field \"m\"",
		"{\"n\": 1}\n{\"n\": 2}":    "stdin:2:1: a second document",
		`{"n": 1`:                   "stdin:1:7: it ends too early",
		"":                          "it ends too early",
		`{"n": }`:                   "stdin:1:7: invalid character",
		strings.Repeat(" ", 17<<20): "larger than",
	} {
		var d doc
		err := jsonfile.Read(strings.NewReader(text), "--input", "-", &d)
		if want == "" {
			if err != nil || d.N != 1 || len(d.List) != 1 {
				t.Errorf("%v, %+v", err, d)
			}
			continue
		}
		e, ok := errors.AsType[*cli.Error](err)
		if !ok || e.Exit != cli.ExitUsage || !strings.Contains(e.Message, want) {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.json"), []byte(`{"n": 3}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var d doc
	if err := jsonfile.Read(nil, "--input", filepath.Join(dir, "x.json"), &d); err != nil || d.N != 3 {
		t.Errorf("%v, %+v", err, d)
	}
	for file, want := range map[string]string{"": "--input is required", filepath.Join(dir, "none.json"): "--input: open"} {
		if err := jsonfile.Read(nil, "--input", file, &d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", file, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(`{"n": 1, "list": [1, 2]}`)
	f.Add("{\n\"m\": 1}")
	f.Fuzz(func(t *testing.T, text string) {
		var d doc
		if err := jsonfile.Read(strings.NewReader(text), "--input", "-", &d); err != nil {
			if e, ok := errors.AsType[*cli.Error](err); !ok || e.Exit != cli.ExitUsage || e.Hint == "" {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}
