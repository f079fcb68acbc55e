package bad

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

type node struct {
	file   *os.File
	events chan int
	wg     sync.WaitGroup
}

//headroom:control
func (n *node) turn() {
	n.store()
	n.tell(1)
	f := n.named
	f()
	func() { time.Sleep(time.Second) }() // want `Sleep waits for a clock in a control path \(turn\)`
}

func (n *node) store() {
	n.file.Sync()                      // want `Sync waits for a disk in a control path \(turn > store\)`
	os.WriteFile("state.json", nil, 0) // want `WriteFile waits for a disk`
	n.wg.Wait()                        // want `Wait waits for other goroutines`
}

func (n *node) tell(e int) {
	n.events <- e // want `a send waits for its receiver in a control path \(turn > tell\)`
	select {
	case n.events <- e: // want `a send waits for its receiver`
	case <-time.After(time.Second):
	}
	fmt.Fprintln(os.Stderr, e) // want `os.Stderr waits for the reader`
	slog.Info("told")          // want `Info waits for the reader of the default log`
}

func (n *node) named() {
	net.LookupHost("c1") // want `LookupHost waits for a network in a control path \(turn > named\)`
}

func start() *node { return &node{events: make(chan int)} }
