// Claims: whoever has the gossip's key and nothing else keeps no node from the
// coordinators that it is configured with, nor from those that have answered it, and
// delays the others for a bounded time; streams that were lost together do not come
// back together.
package streams

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
	if got := Gossiped(members); len(got) != perSource+1 || got[perSource] != "10.0.0.5:7400" {
		t.Errorf("%d addresses: %v", len(got), got)
	}
}

// Lesson 18: nodes that lost one coordinator together do not come back together, nor
// ever faster than the bound, nor slower than a lease allows.
func TestBackoffIsBoundedAndByChance(t *testing.T) {
	t.Parallel()
	var pauses [2][]time.Duration
	for i := range pauses {
		var b backoff
		for range 40 {
			pauses[i] = append(pauses[i], b.next(0))
		}
	}
	for _, p := range slices.Concat(pauses[0], pauses[1]) {
		if p < backoffMin/2 || p > backoffMax {
			t.Errorf("pause %v is not within %v and %v", p, backoffMin/2, backoffMax)
		}
	}
	if slices.Equal(pauses[0], pauses[1]) {
		t.Errorf("two nodes pause alike: %v", pauses[0])
	}
	if slices.Max(pauses[0][:2]) > 2*backoffMin || slices.Min(pauses[0][6:]) < backoffMax/2 {
		t.Errorf("the pause does not grow: %v", pauses[0])
	}
	var b backoff
	for range 10 {
		b.next(0)
	}
	if p := b.next(time.Minute); p > backoffMin {
		t.Errorf("pause %v after a stream that lived for a minute", p)
	}
	if 3*backoffMax > 10*time.Second {
		t.Error("a new leader must be found well inside a lease of 10 s")
	}
}
