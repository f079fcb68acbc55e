// Claims: the longest description that a member may have fits into memberlist's 512
// bytes, and every packet of members that all have it into PacketMost, the longest
// brake included; what is counted of the traffic is what was sent.
package gossip

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"headroom/gossip/brake"

	"headroom/internal/testkit"
)

// longest is a member whose description could not be longer.
func longest(seed uint64) Config {
	return Config{Name: randomText(seed, maxName), Role: RoleCoordinator, RPC: randomText(seed+100, maxRPC-len(":65535")) + ":65535"}
}

// randomText is printable, and hardly any shorter when it is compressed.
func randomText(seed uint64, length int) string {
	rng := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, length)
	for i := range b {
		b[i] = '0' + byte(rng.IntN(10))
		if rng.IntN(3) > 0 {
			b[i] = 'A' + byte(rng.IntN(26)) + 32*byte(rng.IntN(2))
		}
	}
	return string(b)
}

func TestLongestDescriptionFits(t *testing.T) {
	t.Parallel()
	c := longest(1)
	m := meta{role: c.Role, name: c.Name, rpc: c.RPC, started: ^uint64(0)}
	if err := m.check(); err != nil {
		t.Fatal(err)
	}
	want := 2 + binary.MaxVarintLen64 + 1 + maxName + 1 + maxRPC
	if got := len(m.encode()); got != want || got > memberlist.MetaMaxSize {
		t.Errorf("the longest description has %d bytes, want %d and at most %d", got, want, memberlist.MetaMaxSize)
	}
	m.name += "n"
	if m.check() == nil {
		t.Error("a longer name is taken")
	}
}

func TestPacketsOfTheLongestFit(t *testing.T) {
	t.Parallel()
	testkit.Unraced(t)
	const members = 6
	private, keys := brakePair(t)
	counted := &Traffic{}
	all := startLongest(t, members, keys, counted)
	fits := func(what string, least int64) {
		t.Helper()
		if n := counted.LargestPacket(); n < least/2 || n > packetMost {
			t.Errorf("%s: the largest packet has %d bytes; half of what it carries has %d, a packet at most %d", what, n, least/2, packetMost)
		}
	}
	within(t, time.Minute, "a probe", func() bool { return counted.Packets() > members })
	fits("descriptions", maxName+maxRPC)
	longestBrake, err := private.Sign(brake.Message{
		Generation: 1, At: time.Unix(1e9, 0), Actor: randomText(7, brake.MaxActor), Reason: randomText(8, brake.MaxReason),
	})
	if n := len(longestBrake.Bytes()); err != nil || n != brake.MaxSize {
		t.Fatalf("the longest brake has %d bytes, want %d (%v)", n, brake.MaxSize, err)
	}
	all[0].SetBrake(longestBrake)
	within(t, time.Minute, "everybody knows the brake", func() bool { return know(1, all...) })
	within(t, time.Minute, "everybody has answered", func() bool { return all[0].Told().Heard == members-1 })
	fits("a brake", maxName+brake.MaxSize)
	if p, b, s := counted.Packets(), counted.PacketBytes(), counted.StreamBytes(); b < counted.LargestPacket() || b > p*packetMost || s < (members-1)*(maxName+maxRPC)/2 {
		t.Errorf("%d packets of %d bytes, and %d bytes over TCP, which carried %d descriptions", p, b, s, members-1)
	}
	var nobody *Traffic
	nobody.packet(1) // a member that nobody counts for
	nobody.stream(1)
}

// startLongest starts members with the longest descriptions, and waits until each sees all.
func startLongest(t *testing.T, members int, keys brake.Keys, counted *Traffic) (all []*Gossip) {
	t.Helper()
	key := newKey(t)
	for i := range members {
		cfg := longest(uint64(i))
		cfg.Key, cfg.BrakeKeys, cfg.Traffic = key, keys, counted
		if i > 0 {
			cfg.Join = []string{all[0].Addr()}
		}
		all = append(all, member(t, cfg))
	}
	for _, g := range all {
		within(t, 2*pushPullInterval, "everybody sees everybody", func() bool { return len(g.Members()) == members })
	}
	return all
}

// packetMost is the most bytes that memberlist puts into one packet, before it is
// encrypted: it stays whole on any path, IPv6 and tunnels included.
const packetMost = 1400
