package report

import (
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

// Keep writes tables for pages of docs into the folder of --out, by file name, each whole or not at all; nothing if none is named.
func Keep(out string, tables map[string][][]string) error {
	if out == "" {
		return nil
	}
	err := os.MkdirAll(out, 0o755)
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		err = cmp.Or(err, renameio.WriteFile(filepath.Join(out, name), []byte(markdown(tables[name])), 0o644, renameio.WithTempDir(out)))
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
