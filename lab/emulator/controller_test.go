package emulator

import (
	"context"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/ipmi"
	"headroom/units"
)

// A limit that is set over IPMI reaches the plant, which follows it within seconds
// of its own time; without the limit the plant is free again.
func TestLimitOverIPMIActs(t *testing.T) {
	t.Parallel()
	node := testkit.Need(NewNode(t.TempDir(), DefaultSpec()))(t)
	defer func() { _ = node.Close() }()
	b := testkit.Need(startController(node.Dir(), node))(t)
	defer b.close()
	password := testkit.Need(os.ReadFile(b.passwordFile))(t)
	meter := ipmi.Start(ipmi.Config{
		Mode: ipmi.ModeLAN, Address: b.Addr(), User: boardUser, Password: strings.TrimSpace(string(password)), Timeout: 30 * time.Second,
	}, nil)
	defer meter.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	settle := func(want units.Power) {
		t.Helper()
		b.act()
		for range 2000 {
			testkit.Check(t, node.Step(10*time.Millisecond, 1))
		}
		if got := node.Wall().Watts(); math.Abs(got-want.Watts()) > 4 {
			t.Errorf("%.1f W at the wall, want %v", got, want)
		}
	}
	settle(node.Plant().Spec().Rated())
	if _, err := meter.SetLimit(ctx, 130*units.Watt); err != nil {
		t.Fatal(err)
	}
	settle(130 * units.Watt)
	if _, err := meter.ClearLimit(ctx); err != nil {
		t.Fatal(err)
	}
	settle(node.Plant().Spec().Rated())
}
