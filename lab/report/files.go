package report

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"headroom/internal/cli"
)

// Files are tables and plots, by file name.
type Files map[string]func(io.Writer) error

// Keep writes all of them into the folder of --out; nothing if none is named.
func (f Files) Keep(out string) error {
	if out == "" {
		return nil
	}
	if err := f.Write(out); err != nil {
		return cli.Failed("use another folder with --out", "--out: %w", err)
	}
	return nil
}

// Write writes all of them into a folder, which it makes.
func (f Files) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if err := writeFile(filepath.Join(dir, name), f[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// writeFile replaces a file whole, or leaves it as it was and fails.
func writeFile(path string, make func(io.Writer) error) error {
	var b bytes.Buffer
	if err := make(&b); err != nil {
		return err
	}
	return renameio.WriteFile(path, b.Bytes(), 0o644, renameio.WithTempDir(filepath.Dir(path)))
}

// Markdown writes rows as a table of a page of docs, the first of them its head.
func Markdown(w io.Writer, rows [][]string) error {
	var b strings.Builder
	for i, row := range rows {
		b.WriteString("|")
		for _, cell := range row {
			b.WriteString(" " + strings.ReplaceAll(cell, "|", "/") + " |")
		}
		b.WriteString("\n")
		if i == 0 {
			b.WriteString("|" + strings.Repeat(" --- |", len(row)) + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
