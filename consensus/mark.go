package consensus

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"headroom/internal/cli"
	"headroom/internal/durable"
)

// The mark says what this server has acknowledged: to its leader, to a candidate or to a client.
// It is a file beside log/ and snapshots/, so a server that has lost one of them, or has got an
// older copy back, knows at its start that something is missing, and does not start.
//
// The mark never says more than the log holds: an entry is appended first and marked after. Ticks
// are marked once a second; the vote and entries that hold anything else are marked before they
// are acknowledged. docs/adr/0022 explains why, and what it costs.

const (
	// markFile is the mark's name in the server's directory.
	markFile = "acknowledged"
	// markFormat is the version of its content.
	markFormat = 1
	// markSlot is the size of each of its two lines: a block, so that a torn write of one leaves
	// the other.
	markSlot = 4096
	// markEvery is how often ticks are marked.
	markEvery = time.Second
)

// keyVoteTerm is raft's own key of the last term with a vote.
const keyVoteTerm = "LastVoteTerm"

// Acknowledged is what a mark says.
type Acknowledged struct {
	// Format is the version of the content, Serial rises with each write.
	Format int    `json:"format"`
	Serial uint64 `json:"serial"`
	// Server and Origin are whose log it belongs to.
	Server string `json:"server"`
	Origin string `json:"origin,omitempty"`
	// Incarnation is the highest of the cluster.
	Incarnation uint64 `json:"incarnation,omitempty"`
	// Term is raft's current term; Voted is the last term in which this server has voted.
	Term  uint64 `json:"term"`
	Voted uint64 `json:"voted,omitempty"`
	// Entry is the end of the log, EntryTerm its term.
	Entry     uint64 `json:"entry"`
	EntryTerm uint64 `json:"entry_term"`
	// Command is the last entry with a command, Sum its checksum; 0 is unknown.
	Command uint64 `json:"command,omitempty"`
	Sum     uint32 `json:"sum,omitempty"`
}

// ending is a with an entry as the end of the log.
func (a Acknowledged) ending(e *raft.Log) Acknowledged {
	a.Entry, a.EntryTerm = e.Index, e.Term
	switch {
	case e.Type == raft.LogCommand:
		a.Command, a.Sum = e.Index, sumOf(e)
	case a.Command >= e.Index:
		a.Command, a.Sum = 0, 0 // it was cut off
	}
	return a
}

// behind reports whether a log that ends with this entry lacks acknowledged ones. Of two logs,
// the one with the higher term holds more, as in raft's elections.
func (a Acknowledged) behind(term, index uint64) bool {
	return cmp.Or(cmp.Compare(term, a.EntryTerm), cmp.Compare(index, a.Entry)) < 0
}

// mark writes the file. The methods of a nil mark do nothing: without a directory there is none.
type mark struct {
	file  durable.File
	guard *guard
	// fill adds what only the others know: origin and incarnation.
	fill        func(*Acknowledged)
	stop, ended chan struct{}

	writing sync.Mutex // one write at a time; whoever waited for it finds its change written
	mu      sync.Mutex
	want    Acknowledged
	asked   uint64 // number of changes
	kept    uint64 // how many of them are on disk
}

// openMark opens the file for writing, and makes it durable where it is new.
func openMark(fsys durable.FS, dir string, begin Acknowledged, g *guard, fill func(*Acknowledged)) (*mark, error) {
	if dir == "" {
		return nil, nil //nolint:nilnil // stores in memory have no mark
	}
	path := filepath.Join(dir, markFile)
	if _, err := fsys.ReadFile(path); errors.Is(err, fs.ErrNotExist) {
		if err := durable.Write(fsys, path, append(begin.slot(), make([]byte, markSlot)...), 0o600); err != nil {
			return nil, fmt.Errorf("consensus: %w", err)
		}
	}
	f, err := fsys.OpenFile(path, os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("consensus: open %s: %w", path, err)
	}
	m := &mark{file: f, guard: g, fill: fill, want: begin, stop: make(chan struct{}), ended: make(chan struct{})}
	go m.work()
	return m, nil
}

// work writes once a second, and at the end.
func (m *mark) work() {
	defer close(m.ended)
	tick := time.NewTicker(markEvery)
	defer tick.Stop()
	for stopped := false; !stopped; _ = m.keep() {
		select {
		case <-tick.C:
		case <-m.stop:
			stopped = true
		}
	}
}

// set changes what is to be marked, and does not wait.
func (m *mark) set(change func(*Acknowledged)) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.want)
	m.asked++
}

// wanted is what is to be written next, and the number of changes in it; false if nothing.
func (m *mark) wanted(since uint64) (Acknowledged, uint64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept >= since {
		return m.want, m.kept, false
	}
	m.want.Serial++
	return m.want, m.asked, true
}

// keep returns when everything that was set before is on disk. The log's own deadline and rule
// hold: a disk that fails or hangs ends the server.
func (m *mark) keep() error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	since := m.asked
	m.mu.Unlock()
	m.writing.Lock()
	defer m.writing.Unlock()
	want, asked, dirty := m.wanted(since)
	if !dirty {
		return nil
	}
	m.fill(&want)
	err := m.guard.do("store what was acknowledged", func() error {
		if _, err := m.file.WriteAt(want.slot(), int64(want.Serial%2)*markSlot); err != nil {
			return err
		}
		return m.file.Sync()
	})
	if err == nil {
		m.mu.Lock()
		m.kept = asked
		m.mu.Unlock()
	}
	return err
}

// markedStable is a store of term and vote whose votes are marked before they are given.
type markedStable struct {
	guardedStable
	mark *mark
}

// SetUint64 stores a number.
func (s markedStable) SetUint64(key []byte, val uint64) error {
	if err := s.guardedStable.SetUint64(key, val); err != nil {
		return err
	}
	switch string(key) {
	case keyTerm:
		s.mark.set(func(a *Acknowledged) { a.Term = val })
	case keyVoteTerm:
		s.mark.set(func(a *Acknowledged) { a.Voted = val })
		return s.mark.keep()
	}
	return nil
}

// identify adds to the mark what only the group knows.
func (g *Group) identify(a *Acknowledged) {
	a.Origin = g.trans.from()
	if g.cfg.Incarnation != nil {
		a.Incarnation = max(a.Incarnation, g.cfg.Incarnation())
	}
}

// routineEntry reports whether an entry of the log holds nothing that anybody was promised: what
// raft writes for itself, and what the group calls routine.
func (g *Group) routineEntry(e *raft.Log) bool {
	switch e.Type {
	case raft.LogCommand:
		_, data, err := unseal(e.Data)
		return err == nil && g.routine(data)
	case raft.LogNoop, raft.LogBarrier:
		return true
	case raft.LogConfiguration, raft.LogAddPeerDeprecated, raft.LogRemovePeerDeprecated:
		return false
	}
	return false
}

// leadsIn reports whether this server leads in a term.
func (g *Group) leadsIn(term uint64) bool {
	r := g.leading.Load()
	return r != nil && r.term == term
}

// close writes what is left, for at most closeTimeout.
func (m *mark) close() error {
	if m == nil {
		return nil
	}
	close(m.stop)
	if !within(func() { <-m.ended }) {
		return fmt.Errorf("consensus: close the mark: %w", ErrWriteDeadline)
	}
	return m.file.Close()
}

// slot is one line: the checksum and the content, filled up with blanks.
func (a Acknowledged) slot() []byte {
	text, err := json.Marshal(a)
	if err != nil {
		panic(err) // numbers, strings and bytes
	}
	line := fmt.Sprintf("%08x %s", crc(text), text)
	return fmt.Appendf(nil, "%-*s\n", markSlot-1, line)
}

// errMark means that the mark's file is not what was written.
var errMark = errors.New("it has no valid line")

// readMark returns the newer of the two lines; false if there is no file.
func readMark(fsys durable.FS, dir string) (newest Acknowledged, found bool, err error) {
	data, err := fsys.ReadFile(filepath.Join(dir, markFile))
	if errors.Is(err, fs.ErrNotExist) {
		return newest, false, nil
	}
	if err != nil {
		return newest, false, fmt.Errorf("consensus: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		sum, text, _ := strings.Cut(strings.Trim(line, " \n\x00"), " ")
		want, err := strconv.ParseUint(sum, 16, 32)
		var a Acknowledged
		if err != nil || crc([]byte(text)) != uint32(want) || json.Unmarshal([]byte(text), &a) != nil {
			continue
		}
		if !found || a.Serial > newest.Serial {
			newest, found = a, true
		}
	}
	if !found {
		return newest, false, fmt.Errorf("consensus: %s: %w", filepath.Join(dir, markFile), errMark)
	}
	return newest, true, nil
}

// ReadAcknowledged returns what a stopped server has acknowledged, by the mark in its directory;
// nothing where there is none, or none that can be read.
func ReadAcknowledged(dir string) Acknowledged {
	a, _, err := readMark(durable.OS{}, filepath.Clean(dir))
	if err != nil {
		return Acknowledged{}
	}
	return a
}

// checkMark compares the log with the mark, before anything is made of the log. It returns what
// the mark goes on from.
func checkMark(cfg Config, stores *Stores) (Acknowledged, error) {
	begin := Acknowledged{Format: markFormat, Server: cfg.ID}
	if cfg.Dir == "" {
		return begin, nil
	}
	a, found, err := readMark(cfg.files, cfg.Dir)
	if err != nil && errors.Is(err, fs.ErrPermission) {
		return begin, err
	}
	if err != nil {
		return begin, cfg.lost(fmt.Sprintf("the file %s is damaged, so nobody knows what this server has acknowledged: %v", markFile, err), errors.Join(errCorrupt, err))
	}
	if !found {
		return begin, cfg.checkSnapshotsOnly(stores)
	}
	if a.Server != cfg.ID {
		return begin, cfg.foreign("the file "+markFile, a.Server)
	}
	if a.Format > markFormat {
		return begin, cfg.unreadable(fmt.Errorf("%s has format %d, this is version %s with format %d", markFile, a.Format, cli.Version, markFormat))
	}
	why, err := a.missing(stores)
	if err == nil && why != nil {
		err = cfg.lost(why.Error(), why)
	}
	return a, err
}

// checkSnapshotsOnly refuses, where no mark is, snapshots whose log is gone: no server writes a
// snapshot before its term.
func (c Config) checkSnapshotsOnly(stores *Stores) error {
	snaps, err := stores.Snapshots.List()
	if err != nil || len(snaps) == 0 {
		return err
	}
	term, err := stores.Stable.GetUint64([]byte(keyTerm))
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("consensus: read the term: %w", err)
	}
	if term > 0 {
		return nil // written by a version that had no mark
	}
	return c.lost(fmt.Sprintf("there is a snapshot of entry %d but no log: the folder log was removed or replaced", snaps[0].Index), errLogLost)
}

// missing says what a log lacks of what was acknowledged; nil if nothing.
func (a Acknowledged) missing(stores *Stores) (why, err error) {
	term, index, err := lastEntry(stores)
	if err != nil {
		return nil, err
	}
	if a.behind(term, index) {
		return fmt.Errorf("%w: it ends with entry %d of term %d, and this server has acknowledged entry %d of term %d", errLogLost, index, term, a.Entry, a.EntryTerm), nil
	}
	origin, err := readOrigin(stores.Stable)
	if err != nil {
		return nil, err
	}
	if a.Origin != "" && a.Origin != origin {
		return fmt.Errorf("the file %s belongs to a log of another origin (%s, not %s): %w", markFile, a.Origin, cmp.Or(origin, "none"), errForeignLog), nil
	}
	// A server that forgot its vote could vote twice in a term.
	for key, at := range map[string]uint64{keyTerm: a.Term, keyVoteTerm: a.Voted} {
		stored, err := stores.Stable.GetUint64([]byte(key))
		if err != nil && !isNotFound(err) {
			return nil, fmt.Errorf("consensus: read %s: %w", key, err)
		}
		if stored < at {
			return fmt.Errorf("%w: its %s is %d, and this server has answered in term %d", errLogLost, key, stored, at), nil
		}
	}
	// Another server's log, or another cluster's, has another entry where the acknowledged one was.
	first, last, err := logRange(stores)
	if err != nil || a.Command < max(first, 1) || a.Command > last {
		return nil, err
	}
	var e raft.Log
	if err := stores.Log.GetLog(a.Command, &e); err != nil {
		return nil, fmt.Errorf("consensus: read entry %d: %w", a.Command, err)
	}
	if sumOf(&e) != a.Sum {
		return fmt.Errorf("entry %d of term %d is not the one that this server has acknowledged: %w", e.Index, e.Term, errForeignLog), nil
	}
	return nil, nil
}

// lost is the refusal of a log that lacks what was acknowledged.
func (c Config) lost(why string, err error) error {
	hint := "the other servers have what is missing: move the directory aside, remove this server from the group and add it again empty; " +
		"with no majority left, coordinator member recover begins anew from what is here (docs/runbooks/lost-quorum.md)"
	if len(c.Servers) == 1 {
		hint = "put the missing files back if they exist; otherwise coordinator member recover begins anew from what is left, " +
			"with the budgets that you name (docs/runbooks/lost-quorum.md)"
	}
	return &cli.Error{Code: "log-lost", Exit: cli.ExitFailed, Message: fmt.Sprintf("%s: %s", c.Dir, why), Hint: hint, Err: err}
}
