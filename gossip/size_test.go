// Claims: the longest description that a member may have fits into memberlist's 512
// bytes, and every packet of members that all have it into PacketMost; what is
// counted of the traffic is what was sent.
package gossip

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// longest is a member whose description could not be longer, and hardly any shorter
// when it is compressed.
func longest(seed uint64) Config {
	rng := rand.New(rand.NewPCG(seed, 1))
	text := func(length int) string {
		b := make([]byte, length)
		for i := range b {
			b[i] = '0' + byte(rng.IntN(10))
			if rng.IntN(3) > 0 {
				b[i] = 'A' + byte(rng.IntN(26)) + 32*byte(rng.IntN(2))
			}
		}
		return string(b)
	}
	return Config{Name: text(maxName), Role: RoleCoordinator, RPC: text(maxRPC-len(":65535")) + ":65535"}
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

func TestPacketsOfLongestDescriptionsFit(t *testing.T) {
	t.Parallel()
	const members = 6
	key, counted := newKey(t), &Traffic{}
	var all []*Gossip
	for i := range members {
		cfg := longest(uint64(i))
		cfg.Key, cfg.Traffic = key, counted
		if i > 0 {
			cfg.Join = []string{all[0].Addr()}
		}
		all = append(all, member(t, cfg))
	}
	for _, g := range all {
		within(t, 2*pushPullInterval, "everybody sees everybody", func() bool { return len(g.Members()) == members })
	}
	within(t, time.Minute, "a probe", func() bool { return counted.Packets() > members })
	if n := counted.LargestPacket(); n < (maxName+maxRPC)/2 || n > PacketMost {
		t.Errorf("the largest packet has %d bytes; half of a description has %d, a packet at most %d", n, (maxName+maxRPC)/2, PacketMost)
	}
	if p, b, s := counted.Packets(), counted.PacketBytes(), counted.StreamBytes(); b < counted.LargestPacket() || b > p*PacketMost || s < (members-1)*(maxName+maxRPC)/2 {
		t.Errorf("%d packets of %d bytes, and %d bytes over TCP, which carried %d descriptions", p, b, s, members-1)
	}
	var nobody *Traffic
	nobody.packet(1) // a member that nobody counts for
	nobody.stream(1)
}
