package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"headroom/gossip"
	"headroom/internal/pause"
)

// gossipCost is what gossip costs one member of so many, at rest.
type gossipCost struct {
	members int
	// perSecond are bytes and packets a second and member, TCP included in the bytes.
	perSecond, packets float64
	// largest packet in bytes, from the start on.
	largest int64
}

// measureGossip lets n members gossip on loopback in this process, and counts once
// everybody knows everybody.
func measureGossip(ctx context.Context, n int, span time.Duration) (gossipCost, error) {
	key := make([]byte, gossip.KeySize)
	_, _ = rand.Read(key)
	counted := &gossip.Traffic{}
	var all []*gossip.Gossip
	defer func() {
		var closing sync.WaitGroup
		for _, g := range all {
			closing.Go(func() { _ = g.Close() })
		}
		closing.Wait()
	}()
	for i := range n {
		c := gossip.Config{Name: fmt.Sprintf("n%05d", i), Role: gossip.RoleNode, Bind: "127.0.0.1:0", Key: key, Traffic: counted}
		if i < 3 {
			c.Role, c.RPC = gossip.RoleCoordinator, "127.0.0.1:7401"
		}
		if i > 0 {
			c.Join = []string{all[0].Addr()}
		}
		g, err := gossip.Start(c)
		if err != nil {
			return gossipCost{}, err
		}
		all = append(all, g)
	}
	err := await(ctx, 90*time.Second, "every member known to every other", func() bool {
		for _, g := range all {
			if len(g.Members()) < n {
				return false
			}
		}
		return true
	})
	if err == nil && !pause.For(ctx, 2*warmUpSpan) { // the news of the last ones dies down
		err = ctx.Err()
	}
	if err != nil {
		return gossipCost{}, err
	}
	sent, bytes, began := counted.Packets(), counted.PacketBytes()+counted.StreamBytes(), time.Now()
	if !pause.For(ctx, span) {
		return gossipCost{}, ctx.Err()
	}
	each := time.Since(began).Seconds() * float64(n)
	return gossipCost{
		members: n, perSecond: float64(counted.PacketBytes()+counted.StreamBytes()-bytes) / each,
		packets: float64(counted.Packets()-sent) / each, largest: counted.LargestPacket(),
	}, nil
}
