package agent

import (
	"log/slog"
	"path/filepath"
	"testing"

	"headroom/agent/config"
	"headroom/agent/statedir"
	"headroom/internal/testkit/emulated"
	"headroom/units"
)

// BenchmarkTurn is one move of the inner loop: counters, limits, decision,
// read-back. Four of them are made a second.
func BenchmarkTurn(b *testing.B) {
	dir := b.TempDir()
	emulated.Start(b, emulated.Options{Dir: dir})
	cfg := config.Defaults()
	cfg.Node, cfg.Domain, cfg.Enforce = "n01", "rack/r1", true
	cfg.Root, cfg.StateDir = filepath.Join(dir, "root"), filepath.Join(dir, "state")
	cfg.Power = config.Power{
		Rated: 245 * units.Watt, Floor: 70 * units.Watt, Max: 240 * units.Watt, FailSafe: 95 * units.Watt,
		Other: 22 * units.Watt, SupplyEfficiency: 0.92,
	}
	n, err := start(cfg, slog.New(slog.DiscardHandler), statedir.OS{Dir: cfg.StateDir})
	if err != nil {
		b.Fatal(err)
	}
	n.records.Start()
	defer func() {
		n.records.Stop()
		_ = n.close()
	}()
	b.ReportAllocs()
	for b.Loop() {
		n.machine.LookedAt -= period // as if a period had gone by
		n.turn(instant())
		select {
		case e := <-n.records.Writer.Done():
			n.stored(e)
		default:
		}
	}
}
