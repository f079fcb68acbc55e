package buffers

import (
	"crypto/sha256"
	"encoding/binary"
)

// Seed returns what the dropped tasks of a job are chosen by, the same in each of its runs and
// for whoever deflates it first. It has 53 bits, so that it stays whole in JSON.
func Seed(id string) uint64 {
	sum := sha256.Sum256([]byte(id))
	return binary.BigEndian.Uint64(sum[:8]) & (1<<53 - 1)
}
