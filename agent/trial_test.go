// Claims: whoever has the gossip's key and nothing else keeps no node from the
// coordinators that it is configured with, nor from those that have answered it, and
// delays the others for a bounded time.
package agent

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"headroom/gossip"
)

func TestGossipDisplacesNobody(t *testing.T) {
	t.Parallel()
	configured := []string{"10.9.0.1:7400", "10.9.0.2:7400"}
	const added, late = "10.9.0.3:7400", "10.9.0.4:7400"
	var x trials
	if settled, trial := x.choose(configured, []string{added}, 0); len(settled) != 2 || !slices.Equal(trial, []string{added}) {
		t.Fatalf("settled %v, on trial %v", settled, trial)
	}
	x.prove(added)
	flood := []string{added, late} // after 500 others in any order
	for i := range 500 {
		flood = append(flood, fmt.Sprintf("10.0.%d.%d:7400", i/250, i%250)) // they sort before the true ones
	}
	tried, found := map[string]bool{}, time.Duration(-1)
	for now := time.Second; now < 5*time.Minute; now += time.Second {
		settled, trial := x.choose(configured, flood, now)
		for _, a := range append(configured, added) {
			if !slices.Contains(settled, a) {
				t.Fatalf("at %v %s was displaced: %v", now, a, settled)
			}
		}
		if len(settled)+len(trial) > 3+trialsMost {
			t.Fatalf("at %v %d streams", now, len(settled)+len(trial))
		}
		for _, a := range trial {
			tried[a] = true
		}
		if slices.Contains(trial, late) && found < 0 {
			found = now
		}
	}
	if len(tried) != 501 || found < 0 || found > 3*time.Minute {
		t.Errorf("tried %d of 501 addresses, the true one after %v", len(tried), found)
	}
	if _, trial := x.choose(configured, nil, time.Hour); len(trial) != 0 || len(x.proven) != 0 {
		t.Errorf("what nobody names any more stays: %v, %v", trial, x.proven)
	}
}

// One machine names a few addresses, however many members it is.
func TestGossipOfOneSource(t *testing.T) {
	t.Parallel()
	var members []gossip.Member
	for i := range 100 {
		members = append(members, gossip.Member{Addr: fmt.Sprintf("10.0.0.9:%d", 1000+i), RPC: fmt.Sprintf("10.0.1.%d:7400", i)})
	}
	members = append(members, gossip.Member{Addr: "10.0.0.5:7402", RPC: "10.0.0.5:7400"})
	if got := gossiped(members); len(got) != perSource+1 || got[perSource] != "10.0.0.5:7400" {
		t.Errorf("%d addresses: %v", len(got), got)
	}
}
