package yarn

import (
	"fmt"
	"strings"
	"time"
)

// linesMax bounds the lines of one answer, far below the bound of its size.
const linesMax = 2000

// linePrefix begins each line.
const linePrefix = "Headroom: "

// appLine is what the ResourceManager's page of an application shows of Headroom.
type appLine struct {
	Application string `json:"application"`
	Line        string `json:"line"`
}

// lines returns the lines of the running jobs, of the newest ones if there are too many.
func (b *book) lines() []appLine {
	all := []appLine{}
	for _, j := range b.sorted() {
		if j.committed && !j.over && j.app.state == "RUNNING" {
			all = append(all, appLine{j.app.id, b.line(j)})
		}
	}
	return all[max(0, len(all)-linesMax):]
}

// line states since when caps slow a job, what it may hold and what was dropped.
func (b *book) line(j *job) string {
	parts := []string{"not capped"}
	if since := b.cappedSince(j); !since.IsZero() {
		parts[0] = "capped since " + since.UTC().Format("15:04:05 UTC")
	}
	if share, ok := b.shares[j.app.id]; ok {
		parts = append(parts, fmt.Sprintf("share %d of %d containers", share, b.containers))
	}
	switch {
	case j.spark != nil && j.spark.theta > 0:
		parts = append(parts, fmt.Sprintf("%.3g %% of its tasks dropped", 100*j.spark.theta))
	case len(j.dropped) > 0:
		parts = append(parts, fmt.Sprintf("%d of %d map tasks dropped", len(j.dropped), j.tasks))
	}
	return linePrefix + strings.Join(parts, ", ")
}

// withoutLine returns YARN's own diagnostics: our line is not the reason of anything.
func withoutLine(diagnostics string) string {
	if strings.HasPrefix(diagnostics, linePrefix) && !strings.Contains(diagnostics, "\n") {
		return ""
	}
	return diagnostics
}

// cappedSince returns since when a node that the job uses has been below its full speed; zero for none.
func (b *book) cappedSince(j *job) (since time.Time) {
	for address, n := range j.on {
		if s := b.speedOf(address); n > 0 && s.now < 1 && (since.IsZero() || s.since.Before(since)) {
			since = s.since
		}
	}
	return since
}
