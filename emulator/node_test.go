package emulator

import (
	"testing"
	"time"
)

func BenchmarkNodeStep(b *testing.B) {
	n, err := NewNode(b.TempDir(), DefaultSpec())
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	for b.Loop() {
		if err := n.Step(10*time.Millisecond, 0.7); err != nil {
			b.Fatal(err)
		}
	}
}
