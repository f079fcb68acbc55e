package consensus

import (
	"slices"
	"testing"
	"time"
)

// BenchmarkPropose is one committed entry on three servers with real logs on
// one machine, one proposer.
func BenchmarkPropose(b *testing.B) {
	groups := realGroups(b)
	lead := awaitLead(b, groups)
	entry := make([]byte, 256)
	for b.Loop() {
		if _, err := lead.Propose(b.Context(), entry); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFailover cuts the leader off without a word and measures until
// another has committed an entry of its own.
func BenchmarkFailover(b *testing.B) {
	var took []time.Duration
	for range b.N {
		groups := realGroups(b)
		lead := awaitLead(b, groups)
		rest := slices.DeleteFunc(slices.Clone(groups), func(g *Group) bool { return g == lead })
		lead.trans.cut()
		start := time.Now()
		until(b, "a new leader commits", func() bool {
			for _, g := range rest {
				if _, err := g.Propose(b.Context(), []byte("x")); err == nil {
					return true
				}
			}
			return false
		})
		took = append(took, time.Since(start))
		for _, g := range groups {
			_ = g.Close()
		}
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds(), "s/p50")
	b.ReportMetric(took[len(took)*9/10].Seconds(), "s/p90")
	b.ReportMetric(took[len(took)-1].Seconds(), "s/max")
}

func realGroups(b *testing.B) []*Group {
	b.Helper()
	var out []*Group
	for _, cfg := range diskConfig(b, 3) {
		out = append(out, mustOpen(b, cfg, &tape{}))
	}
	return out
}

func awaitLead(b *testing.B, groups []*Group) *Group {
	b.Helper()
	var lead *Group
	until(b, "somebody leads", func() bool { lead = leading(groups...); return lead != nil })
	return lead
}
