package report

import (
	"bytes"
	"cmp"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"headroom/internal/cli"
)

// Keep writes the targets as a table and as a plot, and more tables by file name, into the folder of --out, each whole
// or not at all; nothing if none is named.
func (r *Report) Keep(out string, tables map[string][][]string) error {
	if out == "" {
		return nil
	}
	var plot bytes.Buffer
	if err := r.draw(&plot); err != nil {
		return err
	}
	files := map[string][]byte{"targets.svg": plot.Bytes(), "targets.md": []byte(markdown(r.table()))}
	for name, rows := range tables {
		files[name] = []byte(markdown(rows))
	}
	err := os.MkdirAll(out, 0o755)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		err = cmp.Or(err, renameio.WriteFile(filepath.Join(out, name), files[name], 0o644, renameio.WithTempDir(out)))
	}
	if err != nil {
		return cli.Failed("use another folder with --out", "--out: %w", err)
	}
	return nil
}

// Markdown writes rows as a table of a page of docs, the first of them its head.
func Markdown(w io.Writer, rows [][]string) error {
	_, err := io.WriteString(w, markdown(rows))
	return err
}

func markdown(rows [][]string) string {
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
	return b.String()
}
