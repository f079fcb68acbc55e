package capping_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"headroom/lab/emulator/plant"
	"headroom/units"
)

// Stories: what the law does from one quarter of a second to the next, as text.
// `go test -run Stories -rewrite` writes the outcome after a change that is meant.
func TestStories(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		var b *bench
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "node":
				b = newBench(t, plant.DefaultSpec(), power(t, d, "cap"))
				b.util = ratio(t, d, "load")
			case "cap":
				b.cap = power(t, d, "to")
				b.step()
			case "load":
				b.util = ratio(t, d, "to")
			case "run":
			default:
				t.Fatalf("unknown command %q", d.Cmd)
			}
			return b.tell(turns(t, d))
		})
	})
}

// tell runs n turns of the loop and prints one line for each.
func (b *bench) tell(n int) string {
	var out strings.Builder
	for range n {
		var sum units.Energy
		b.run(period, func(_ time.Duration, wall units.Power) { sum += wall.For(instant) })
		limited := ""
		if b.state.Limited {
			limited = "  limited"
		}
		fmt.Fprintf(&out, "%6.2fs  cap %v  limit %8v  wall %8v%s\n", b.now.Seconds(), b.cap, b.state.Limit, sum.Over(period), limited)
	}
	return out.String()
}

func power(t *testing.T, d *datadriven.TestData, key string) units.Power {
	t.Helper()
	var text string
	d.ScanArgs(t, key, &text)
	p, err := units.ParsePower(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ratio(t *testing.T, d *datadriven.TestData, key string) float64 {
	t.Helper()
	var percent int
	d.ScanArgs(t, key, &percent)
	return float64(percent) / 100
}

func turns(t *testing.T, d *datadriven.TestData) int {
	t.Helper()
	n := 0
	if d.HasArg("turns") {
		d.ScanArgs(t, "turns", &n)
	}
	return n
}
