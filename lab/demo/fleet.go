package demo

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"headroom/internal/cli"
	"headroom/lab/cluster"
)

// stopGrace is how long a program may take to stop before it is killed: a node
// stops its worker first, then its powerd.
const stopGrace = 6 * time.Second

// program is one process of the cluster, in a session of its own so that an
// interrupt of the terminal reaches only the demo.
type program struct {
	*cluster.Program
	argv []string
	// meant: we ended it, its end is no news.
	meant atomic.Bool
}

// kill ends the program the hard way and waits for it.
func (p *program) kill() {
	p.meant.Store(true)
	p.Kill()
}

// stop sends the program SIGTERM, kills it when it does not end, and waits for it.
func (p *program) stop() {
	p.meant.Store(true)
	p.Stop(stopGrace)
}

// fleet starts the programs and tracks them. They end when the demo itself is killed,
// but for those of a cluster that must be kept.
type fleet struct {
	group *cluster.Group
	ended chan error // a program that ended by itself

	// revived is called with a program that was started again after it ended unexpectedly; nil where its end ends the demo.
	revived atomic.Pointer[func(name string)]

	mu       sync.Mutex
	programs []*program
}

// revivals bounds how often programs are started again, after a pause each.
const (
	revivals    = 50
	reviveAfter = 2 * time.Second
)

// newFleet makes a fleet; with detach (--keep) the programs outlive the demo.
func newFleet(logs string, detach bool) (*fleet, error) {
	group, err := cluster.NewGroup, error(nil)
	if detach {
		group = cluster.NewLooseGroup
	}
	f := &fleet{ended: make(chan error, 1)}
	if f.group, err = group(logs); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	return f, nil
}

// start runs a program, its output in logs/NAME.log.
func (f *fleet) start(name string, argv ...string) (*program, error) {
	started, err := f.group.Start(name, nil, argv...)
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	p := &program{Program: started, argv: argv}
	f.mu.Lock()
	f.programs = append(f.programs, p)
	f.mu.Unlock()
	go f.await(p)
	return p, nil
}

// await reports an unintended end of the program.
func (f *fleet) await(p *program) {
	<-p.Done()
	if p.meant.Load() || f.revive(p) {
		return
	}
	select {
	case f.ended <- cli.Failed("see its log: "+p.Log, "%w", p.Ended()):
	default:
	}
}

// revive starts a program again that ended unexpectedly, as an init system does; false where that ends the demo.
func (f *fleet) revive(p *program) bool {
	revived := f.revived.Load()
	f.mu.Lock()
	many := len(f.programs) > revivals
	f.mu.Unlock()
	if revived == nil || many {
		return false
	}
	time.Sleep(reviveAfter)
	if p.meant.Load() { // the demo is over
		return true
	}
	if _, err := f.start(p.Name, p.argv...); err != nil {
		return false
	}
	(*revived)(p.Name)
	return true
}

// stopAll stops the named programs at once and waits for all of them.
func (f *fleet) stopAll(which func(name string) bool) {
	f.mu.Lock()
	programs := slices.Clone(f.programs)
	f.mu.Unlock()
	var all sync.WaitGroup
	for _, p := range programs {
		if which(p.Name) {
			all.Go(p.stop)
		}
	}
	all.Wait()
}

// find is the newest program of this name, or nil.
func (f *fleet) find(name string) *program {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range slices.Backward(f.programs) {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// close ends what is left of the programs and of what they have started.
func (f *fleet) close() error { return f.group.Close() }

// running are the programs that have not ended.
func (f *fleet) running() []*program {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.programs), func(p *program) bool { return p.Ended() != nil })
}
