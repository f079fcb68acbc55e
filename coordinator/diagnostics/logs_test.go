// Claims: the log lines that are kept are the newest, and bounded in number and length.
package diagnostics

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestLogLinesAreBounded(t *testing.T) {
	t.Parallel()
	r := &LogRing{}
	var out strings.Builder
	log := r.Keep(slog.New(slog.NewTextHandler(&out, nil)))
	log.Debug("below the level of the log")
	for i := range logLines + 7 {
		log.Info("a line", slog.String("which", fmt.Sprintf("line-%d.", i)), slog.String("much", strings.Repeat("x", 2*logLine)))
	}
	lines := strings.SplitAfter(strings.TrimSuffix(r.Text(), "\n"), "\n")
	if len(lines) != logLines || !strings.Contains(lines[0], "line-7.") || !strings.Contains(lines[len(lines)-1], fmt.Sprintf("line-%d.", logLines+6)) {
		t.Errorf("%d lines, from %.60q to %.60q", len(lines), lines[0], lines[len(lines)-1])
	}
	if len(lines[0]) > logLine+1 || !strings.Contains(out.String(), "line-0.") || strings.Contains(r.Text(), "below the level") {
		t.Errorf("a line of %d bytes", len(lines[0]))
	}
}
