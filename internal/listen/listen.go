// Package listen bounds the connections of a port that strangers can reach.
//
// The one idea: whoever has not proved who they are is a stranger, and strangers share a
// few places. A stranger has so long to prove itself; where all places are taken, the one
// that has had its turn longest gives way, so that a flood keeps nobody out for longer than
// it takes to pass the queue. Connections that are proven have the rest of the process's
// descriptors, but for a reserve that files, gossip and the log need. Nobody who is proven
// has more than a share: beyond it the oldest connection of the same name is closed. And
// some places are kept for operators and servers, who must get in when all others are many.
//
// The package knows no protocol: the server above says when a connection is proven.
package listen

import (
	"container/list"
	"context"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Limits of one port.
type Limits struct {
	// Strangers at a time, at least 1.
	Strangers int
	// All connections at a time, strangers too.
	All int
	// Turn is how long a stranger keeps its place while others wait for one.
	Turn time.Duration
	// Patience is how long a stranger may stay at all.
	Patience time.Duration
	// Each is how many connections one name may have; 0 for any number.
	Each int
	// Kept is how many places only those may take who come first, see Guest.
	Kept int
}

// Guest is who has proved itself on a connection.
type Guest struct {
	// Name that it has proved; "" for none, which has no share to keep to.
	Name string
	// First may take the places that are kept: operators and servers.
	First bool
}

const (
	// reserve of descriptors for files, sockets to others and the log.
	reserve = 64
	// strangersMost is enough for a thousand nodes that all come at once: each is proven
	// with its first request.
	strangersMost = 256
	// turn and patience: a handshake and a first request take milliseconds, on a busy
	// machine or a long line a second.
	turn     = time.Second
	patience = 10 * time.Second
	// hearing is how long who is refused has to be told why.
	hearing = 200 * time.Millisecond
	// eachMost and keptMost: a node, a server or a monitor has a handful of connections.
	eachMost = 256
	keptMost = 64
)

// Defaults are the limits by the descriptors that this process may have, beside those that are
// open already.
func Defaults() Limits {
	files := 1024
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) == nil {
		files = int(min(r.Cur, 1<<20))
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		open = nil // no /proc: then the limit alone counts
	}
	return limitsFor(max(0, files-len(open)))
}

func limitsFor(files int) Limits {
	all := max(files-reserve, files/2, 2)
	return Limits{
		Strangers: min(strangersMost, max(1, all/4)), All: all, Turn: turn, Patience: patience,
		Each: min(eachMost, max(4, all/8)), Kept: min(keptMost, all/8),
	}
}

// Listener accepts no more than its limits let in. Make it with [New].
type Listener struct {
	net.Listener
	limits Limits

	mu        sync.Mutex
	freed     chan struct{} // has a value after a place became free
	closed    chan struct{}
	close     sync.Once
	all       int
	strangers *list.List         // of *Conn, the one that came first in front
	named     map[string][]*Conn // proven connections by name, the one that came first in front
	ordinary  int                // proven ones that may not take the places that are kept
	turnedOut uint64
}

// New bounds l.
func New(l net.Listener, limits Limits) *Listener {
	limits.Strangers = max(1, limits.Strangers)
	limits.All = max(limits.Strangers, limits.All)
	return &Listener{Listener: l, limits: limits, freed: make(chan struct{}, 1), closed: make(chan struct{}), strangers: list.New(), named: map[string][]*Conn{}}
}

// TurnedOut is the number of connections that were closed because they had not proved
// themselves, or because there were too many of theirs, since the start.
func (l *Listener) TurnedOut() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.turnedOut
}

// Count returns the connections that the listener l, or the one that it says it bounds,
// has turned out; false where nothing bounds them.
func Count(l net.Listener) (uint64, bool) {
	if c, ok := l.(interface{ TurnedOut() uint64 }); ok {
		return c.TurnedOut(), true
	}
	return 0, false
}

// Close stops accepting; connections stay.
func (l *Listener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// Accept waits for a connection and for a place for it. What waits meanwhile stands in the
// kernel's queue.
func (l *Listener) Accept() (net.Conn, error) {
	if err := l.awaitPlace(); err != nil {
		return nil, err
	}
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: raw, of: l, came: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all++
	c.place = l.strangers.PushBack(c)
	c.end = time.AfterFunc(l.limits.Patience, c.turnOut)
	return c, nil
}

// awaitPlace returns when a stranger's place is free.
func (l *Listener) awaitPlace() error {
	for {
		wait, oldest := l.fullFor()
		if wait <= 0 && oldest == nil {
			return nil
		}
		if wait <= 0 {
			oldest.turnOut()
			continue
		}
		pause := time.NewTimer(wait)
		select {
		case <-l.freed:
		case <-pause.C:
		case <-l.closed:
			pause.Stop()
			return net.ErrClosed
		}
		pause.Stop()
	}
}

// fullFor returns how long the longest-standing stranger may still stay, and who that is;
// nil while there is a place.
func (l *Listener) fullFor() (time.Duration, *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.strangers.Len() < l.limits.Strangers && l.all < l.limits.All {
		return 0, nil
	}
	front := l.strangers.Front()
	if front == nil { // all places are proven ones: wait for an end
		return l.limits.Turn, nil
	}
	c, _ := front.Value.(*Conn)
	return l.limits.Turn - time.Since(c.came), c
}

// Conn is one connection of a [Listener]: a stranger until it is proven.
type Conn struct {
	net.Conn
	of   *Listener
	came time.Time
	end  *time.Timer
	// Guarded by of.mu.
	place *list.Element // nil once it is no stranger
	gone  bool
	guest *Guest // nil until it is proven
	full  bool   // it has been refused a place
}

// Prove takes the connection out of the strangers: it may stay, and another one of the
// same name is closed where those are too many. It is false where all places are taken but
// those that are kept; the connection is closed soon then. Only the first word counts.
func (c *Conn) Prove(g Guest) bool {
	l := c.of
	l.mu.Lock()
	if c.guest != nil || c.gone {
		l.mu.Unlock()
		return true
	}
	if c.full {
		l.mu.Unlock()
		return false
	}
	if !g.First && l.ordinary >= max(1, l.limits.All-l.limits.Strangers-l.limits.Kept) {
		c.full = true
		l.turnedOut++
		l.mu.Unlock()
		time.AfterFunc(hearing, func() { _ = c.Close() })
		return false
	}
	c.leave()
	c.guest = &g
	if !g.First {
		l.ordinary++
	}
	oldest := l.enter(c)
	l.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
	return true
}

// enter counts a proven connection to its name, and returns the oldest one of it where
// those are too many. mu is held.
func (l *Listener) enter(c *Conn) *Conn {
	if c.guest.Name == "" || l.limits.Each == 0 {
		return nil
	}
	mine := append(l.named[c.guest.Name], c)
	l.named[c.guest.Name] = mine
	if len(mine) <= l.limits.Each {
		return nil
	}
	l.turnedOut++
	return mine[0]
}

// exit takes a proven connection that ends out of the books. of.mu is held.
func (c *Conn) exit() {
	l := c.of
	if c.guest == nil {
		return
	}
	if !c.guest.First {
		l.ordinary--
	}
	rest := slices.DeleteFunc(l.named[c.guest.Name], func(x *Conn) bool { return x == c })
	if l.named[c.guest.Name] = rest; len(rest) == 0 {
		delete(l.named, c.guest.Name)
	}
}

// leave gives the stranger's place free. of.mu is held.
func (c *Conn) leave() {
	if c.place == nil {
		return
	}
	c.of.strangers.Remove(c.place)
	c.place = nil
	c.end.Stop()
	c.of.free()
}

// free wakes whoever waits for a place.
func (l *Listener) free() {
	select {
	case l.freed <- struct{}{}:
	default:
	}
}

// turnOut closes the connection if it is still a stranger.
func (c *Conn) turnOut() {
	c.of.mu.Lock()
	stranger := c.place != nil
	if stranger {
		c.of.turnedOut++
	}
	c.of.mu.Unlock()
	if stranger {
		_ = c.Close()
	}
}

// Close closes the connection and gives its place free.
func (c *Conn) Close() error {
	c.of.mu.Lock()
	if !c.gone {
		c.gone = true
		c.leave()
		c.exit()
		c.of.all--
		c.of.free()
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}

type key struct{}

// With keeps the connection below c, such as a TLS connection's, for [Prove].
func With(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	if x, ok := c.(*Conn); ok {
		return context.WithValue(ctx, key{}, x)
	}
	return ctx
}

// Prove is [Conn.Prove] of the connection that a request came on; without one of a
// [Listener] it is true.
func Prove(ctx context.Context, g Guest) bool {
	c, ok := ctx.Value(key{}).(*Conn)
	return !ok || c.Prove(g)
}
