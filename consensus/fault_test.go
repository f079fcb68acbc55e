package consensus

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// sickDisk is a log and stable store whose writes can be made to hang or fail.
type sickDisk struct {
	*raft.InmemStore
	hang   atomic.Bool
	broken atomic.Bool
	let    chan struct{} // ends the hanging writes
	writes atomic.Int64  // attempts while broken or hanging
}

func (d *sickDisk) write() error {
	if d.hang.Load() {
		d.writes.Add(1)
		<-d.let
	}
	if d.broken.Load() {
		d.writes.Add(1)
		return syscall.ENOSPC
	}
	return nil
}

func (d *sickDisk) StoreLog(l *raft.Log) error { return d.StoreLogs([]*raft.Log{l}) }

func (d *sickDisk) StoreLogs(l []*raft.Log) error {
	if err := d.write(); err != nil {
		return err
	}
	return d.InmemStore.StoreLogs(l)
}

func (d *sickDisk) Set(k, v []byte) error {
	if err := d.write(); err != nil {
		return err
	}
	return d.InmemStore.Set(k, v)
}

func (d *sickDisk) SetUint64(k []byte, v uint64) error {
	if err := d.write(); err != nil {
		return err
	}
	return d.InmemStore.SetUint64(k, v)
}

// sicken gives every server of a cluster a disk that can fall ill.
func sicken(disks map[string]*sickDisk) func(*Config) {
	return func(cfg *Config) {
		d := &sickDisk{InmemStore: raft.NewInmemStore(), let: make(chan struct{})}
		disks[cfg.ID] = d
		cfg.Stores = &Stores{Log: d, Stable: d, Snapshots: raft.NewInmemSnapshotStore()}
	}
}

// Lesson 15: a leader whose disk hangs closes its transport and ends within the deadline;
// another leads within three seconds more. raft alone would keep it for ever.
func TestHangingDisk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		disks := map[string]*sickDisk{}
		c := newCluster(t, 3, sicken(disks))
		g := c.leader()
		id := g.cfg.ID
		c.propose(g, "before")
		disks[id].hang.Store(true)
		start := time.Now()
		if _, err := g.Propose(t.Context(), []byte("hangs")); !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("proposal on a hanging disk: %v", err)
		}
		next := c.leader(id)
		if took := time.Since(start); took > defaultWriteDeadline+3*time.Second {
			t.Errorf("the next leader came after %v", took)
		}
		if err := c.fatalOf(id); !errors.Is(err, ErrWriteDeadline) {
			t.Errorf("Fatal got %v", err)
		}
		if !g.trans.isGone() {
			t.Error("the transport is open")
		}
		c.propose(next, "after")
		close(disks[id].let) // the write returns at last: nothing may follow it
		time.Sleep(10 * time.Second)
		if n := disks[id].writes.Load(); n != 1 {
			t.Errorf("%d writes on a disk that hung", n)
		}
		if c.tapes[id].has("after") {
			t.Error("the ended server still takes entries")
		}
	})
}

// Without the deadline a hanging disk keeps its lead: the reason for the guard.
func TestHangingDiskWithoutDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		disks := map[string]*sickDisk{}
		c := newCluster(t, 3, func(cfg *Config) {
			cfg.WriteDeadline = time.Hour
			sicken(disks)(cfg)
		})
		g := c.leader()
		disks[g.cfg.ID].hang.Store(true)
		go func() { _, _ = g.Propose(t.Context(), []byte("hangs")) }()
		time.Sleep(time.Minute)
		for _, id := range c.ids {
			if other := c.groups[id]; other != g && other.leading.Load() != nil {
				t.Errorf("%s leads, so raft now notices by itself", id)
			}
		}
		close(disks[g.cfg.ID].let)
	})
}

// A follower whose disk is full ends; the group goes on.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for name, pick := range map[string]func(*cluster, *Group) string{
		"leader":   func(_ *cluster, g *Group) string { return g.cfg.ID },
		"follower": func(c *cluster, g *Group) string { return otherThan(c, g.cfg.ID) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				disks := map[string]*sickDisk{}
				c := newCluster(t, 3, sicken(disks))
				g := c.leader()
				ill := pick(c, g)
				disks[ill].broken.Store(true)
				_, err := g.Propose(t.Context(), []byte("full"))
				if ill == g.cfg.ID && !errors.Is(err, ErrUnknownOutcome) {
					t.Errorf("proposal on a full disk: %v", err)
				}
				if ill != g.cfg.ID && err != nil {
					t.Errorf("proposal past a full follower: %v", err)
				}
				time.Sleep(5 * time.Second)
				if err := c.fatalOf(ill); !errors.Is(err, errWriteFailed) || !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("Fatal got %v", err)
				}
				if n := disks[ill].writes.Load(); n != 1 {
					t.Errorf("%d writes on a disk that failed", n)
				}
				c.propose(c.leader(ill), "after")
			})
		})
	}
}

// A disk on which the vote cannot be stored ends the server as well.
func TestVoteCannotBeStored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		disks := map[string]*sickDisk{}
		c := newCluster(t, 3, sicken(disks))
		g := c.leader()
		ill := otherThan(c, g.cfg.ID)
		disks[ill].broken.Store(true)
		c.isolate(g.cfg.ID) // an election: the ill one has to store a term
		time.Sleep(5 * time.Second)
		if err := c.fatalOf(ill); !errors.Is(err, errWriteFailed) {
			t.Errorf("Fatal got %v", err)
		}
	})
}

// rottenLog returns other bytes than were written.
type rottenLog struct {
	*raft.InmemStore
	rotten atomic.Bool
}

func (r *rottenLog) GetLog(i uint64, l *raft.Log) error {
	err := r.InmemStore.GetLog(i, l)
	if err == nil && r.rotten.Load() && i == 20 {
		l.Data = append([]byte{envelopeV1 + 1}, l.Data...)
	}
	return err
}

// A log that reads back wrong ends the server at the next checkpoint.
func TestRottenLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		logs := map[string]*rottenLog{}
		c := newCluster(t, 3, func(cfg *Config) {
			l := &rottenLog{InmemStore: raft.NewInmemStore()}
			logs[cfg.ID] = l
			cfg.Stores = &Stores{Log: l, Stable: l, Snapshots: raft.NewInmemSnapshotStore()}
		})
		g := c.leader()
		ill := otherThan(c, g.cfg.ID)
		for range 60 {
			c.propose(g, "x")
		}
		c.converge()
		logs[ill].rotten.Store(true)
		for range 2 * checkpointEvery {
			c.propose(g, "x")
		}
		synctest.Wait()
		if err := c.fatalOf(ill); !errors.Is(err, errCorrupt) {
			t.Errorf("Fatal got %v", err)
		}
		for _, id := range c.ids {
			if err := c.fatalOf(id); id != ill && err != nil {
				t.Errorf("%s, whose log is sound, ended: %v", id, err)
			}
		}
	})
}

// The tail of a deposed leader is cut off again; that is no corruption, whoever
// leads afterwards and wherever the checkpoints fall.
func TestCutTailIsNotCorruption(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		for round := range 12 {
			g := c.leader()
			for range 37 {
				c.propose(g, "x")
			}
			id := g.cfg.ID
			c.isolate(id)
			for range round % 4 { // entries that will never commit
				go func() { _, _ = g.Propose(t.Context(), []byte("lost")) }()
			}
			next := c.leader(id)
			for range 5 {
				c.propose(next, "y")
			}
			c.heal(id)
			c.converge()
		}
		for range 2 * checkpointEvery {
			c.propose(c.leader(), "z")
		}
		c.converge()
		for _, id := range c.ids {
			if err := c.fatalOf(id); err != nil {
				t.Errorf("%s ended: %v", id, err)
			}
			if c.tapes[id].has("lost") {
				t.Errorf("%s applied a lost entry", id)
			}
		}
	})
}

// A term or a vote that hangs on its way to the disk is a write like any other: the server ends
// within the deadline, and does not wait for ever while nobody is elected.
func TestVoteHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		disks := map[string]*sickDisk{}
		c := newCluster(t, 3, sicken(disks))
		g := c.leader()
		ill := otherThan(c, g.cfg.ID)
		time.Sleep(time.Second) // it has all entries: the term is its next write
		disks[ill].hang.Store(true)
		c.isolate(g.cfg.ID) // an election: the ill one has to store a term
		time.Sleep(5 * time.Second)
		if err := c.fatalOf(ill); !errors.Is(err, ErrWriteDeadline) {
			t.Errorf("Fatal got %v", err)
		}
		close(disks[ill].let)
	})
}
