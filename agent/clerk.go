package agent

import (
	"time"

	"headroom/agent/statedir"
)

// clerk writes to the state directory for the owner, who must never wait for a
// disk. It carries out one errand after the other; the owner has at most one of
// each kind under way, so the queue is bounded by the number of kinds.
type clerk struct {
	disk    statedir.Disk
	errands chan errand
	done    chan errand
	ended   chan struct{}
}

// errandKind says what an errand is about.
type errandKind int

// Kinds of errand.
const (
	storeMemory errandKind = iota
	storeHeld
	storeCoordinators
	storeControls // a longer journal
	storeDenied
	errandKinds // their number
)

// errand is one file to write, and how that went.
type errand struct {
	kind    errandKind
	name    string
	data    []byte
	durable bool
	err     error
}

func startClerk(d statedir.Disk) *clerk {
	c := &clerk{disk: d, errands: make(chan errand, errandKinds), done: make(chan errand, errandKinds), ended: make(chan struct{})}
	go c.work()
	return c
}

func (c *clerk) work() {
	defer close(c.ended)
	for e := range c.errands {
		if e.durable {
			e.err = c.disk.Durable(e.name, e.data)
		} else {
			e.err = c.disk.Replace(e.name, e.data)
		}
		c.done <- e
	}
}

// stop ends the clerk once its errands are done, or leaves it to a disk that
// does not answer. Nobody may send any more.
func (c *clerk) stop() {
	close(c.errands)
	late := time.NewTimer(settleWait)
	defer late.Stop()
	for {
		select {
		case <-c.done:
		case <-c.ended:
			return
		case <-late.C:
			return
		}
	}
}
