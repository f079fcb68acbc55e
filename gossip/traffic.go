package gossip

import (
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// Traffic counts what members send. Several members may count into one; its
// methods may be called from any goroutine, and on nil.
type Traffic struct {
	packets, bytes, largest, streamed atomic.Int64
}

// Packets sent over UDP.
func (t *Traffic) Packets() int64 { return t.packets.Load() }

// PacketBytes are their bytes, encrypted as they are, without IP's and UDP's own.
func (t *Traffic) PacketBytes() int64 { return t.bytes.Load() }

// LargestPacket is the size of the largest, in bytes.
func (t *Traffic) LargestPacket() int64 { return t.largest.Load() }

// StreamBytes are the bytes of both directions of the TCP connections that the
// members opened, so that each is counted once.
func (t *Traffic) StreamBytes() int64 { return t.streamed.Load() }

func (t *Traffic) packet(size int) {
	if t == nil {
		return
	}
	t.packets.Add(1)
	t.bytes.Add(int64(size))
	for old := t.largest.Load(); int64(size) > old && !t.largest.CompareAndSwap(old, int64(size)); {
		old = t.largest.Load()
	}
}

func (t *Traffic) stream(bytes int) {
	if t != nil {
		t.streamed.Add(int64(bytes))
	}
}

// WriteTo sends one packet.
func (w *wire) WriteTo(b []byte, addr string) (time.Time, error) {
	w.count.packet(len(b))
	return w.NetTransport.WriteTo(b, addr)
}

// WriteToAddress sends one packet to a member.
func (w *wire) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	w.count.packet(len(b))
	return w.NetTransport.WriteToAddress(b, addr)
}
