package simulation

import (
	"bytes"
	"slices"
	"time"

	"headroom/ledger"
)

// Intervals of the consensus. They are shorter than hashicorp/raft's defaults by a constant, which only makes leaderships change more often.
const (
	beatEvery   = 150 * time.Millisecond // leader to followers
	electionMin = 500 * time.Millisecond
	electionMax = 1100 * time.Millisecond
	sendMost    = 64 // entries in one message
	snapshotGap = 40 // applied entries between two snapshots
	nobody      = -1
	// writeDeadline is how long a log write may take before the process ends itself.
	writeDeadline = 2 * time.Second
)

type role int

const (
	follower role = iota
	candidate
	leading
)

// entry is one place of the log.
type entry struct {
	term uint64
	data []byte
	made time.Duration // true time
}

// wallNow is the wall clock of the server.
func (s *server) wallNow() time.Time { return s.w.wall.Add(s.w.now + s.wallOff) }

// server is one coordinator: consensus, its replica of the ledger, and the leadership while it believes to lead.
//
// Invariant: log[0] is a sentinel; durable < len(log); what is above durable is lost in a crash and was never acknowledged to anybody.
type server struct {
	process
	w     *world
	clock clock
	group int // which beginning of the servers it belongs to

	wallOff time.Duration // its wall clock against true time
	frozen  time.Duration // until when its disk stands still
	length  time.Duration // of leases, by its own configuration
	gone    bool          // its disk is gone, and it has not been replaced yet

	// On disk.
	term     uint64
	voted    int
	log      []entry
	durable  int
	snapshot []byte
	snapAt   int

	// In memory.
	role     role
	votes    map[int]bool
	commit   int
	applied  int
	state    *ledger.State
	ticked   time.Duration // own monotonic time at which the newest tick was applied; 0 before any
	hint     int           // who leads, as far as known
	deadline time.Duration
	armed    bool
	next     []int
	match    []int
	replied  []time.Duration
	lead     *leadership
	round    uint64   // numbers the messages to the others
	proofs   []*proof // that wait for a majority
}

// proof is a question whether this server leads: a majority has to answer what was sent after it began.
type proof struct {
	round uint64
	by    map[int]bool
	done  func()
}

// verify runs done once a majority has confirmed that this server leads.
func (s *server) verify(done func()) {
	s.round++
	s.proofs = append(s.proofs, &proof{s.round, map[int]bool{s.address: true}, done})
	s.replicate()
}

// confirmed is another server's answer to a message of a round.
func (s *server) confirmed(by int, round uint64) {
	var done []func()
	s.proofs = slices.DeleteFunc(s.proofs, func(p *proof) bool {
		if p.round <= round {
			p.by[by] = true
		}
		proven := len(p.by) >= s.w.majority()
		if proven {
			done = append(done, p.done)
		}
		return proven
	})
	for _, f := range done {
		f()
	}
}

func (w *world) newServer(id int) *server {
	r := w.random("computer", id)
	s := &server{w: w, voted: nobody, log: make([]entry, 1), clock: w.drawClock(r, +1)}
	s.wallOff = r.upTo(200*time.Millisecond) - 100*time.Millisecond
	s.process = process{name: "c" + string(rune('1'+id)), address: id, random: w.random("server", id)}
	s.braked = func(generation uint64) {
		if s.lead != nil {
			s.lead.braked(generation)
		}
	}
	return s
}

// boot starts the server from its disk.
func (s *server) boot() {
	s.w.start(&s.process)
	s.role, s.hint, s.lead, s.armed, s.proofs = follower, nobody, nil, false, nil
	s.state, s.commit, s.ticked = ledger.New(), 0, 0
	if s.snapshot != nil {
		s.state, s.commit = s.w.judge.restore(s.snapshot), s.snapAt
		s.w.hit("snapshot_restored")
	}
	s.applied = s.commit
	s.gossip = gossip{known: s.state.Brake.Set}
	s.w.tracef("%s starts at index %d", s.name, s.applied)
	s.await()
	s.w.meet(&s.process)
}

// crash is kill -9 with the disk surviving: what was not yet durable is lost.
func (s *server) crash() {
	s.w.kill(&s.process)
	if len(s.log)-1 > s.durable {
		s.w.hit("unsynced_entries_lost")
	}
	s.log = slices.Clone(s.log[:s.durable+1])
	s.lead = nil
	s.w.tracef("%s killed", s.name)
}

// await sets the election deadline again.
func (s *server) await() {
	s.deadline = s.w.now + s.random.between(electionMin, electionMax)
	if !s.armed {
		s.arm()
	}
}

func (s *server) arm() {
	s.armed = true
	s.w.timer(&s.process, s.deadline-s.w.now, func() {
		s.armed = false
		switch {
		case s.role == leading:
		case s.w.now < s.deadline:
			s.arm()
		default:
			s.campaign()
		}
	})
}

func (s *server) campaign() {
	s.term++
	s.voted, s.role, s.hint = s.address, candidate, nobody
	s.votes = map[int]bool{s.address: true}
	s.w.tracef("%s stands for term %d", s.name, s.term)
	s.await()
	term, last := s.term, len(s.log)-1
	lastTerm := s.log[last].term
	for _, peer := range s.w.servers {
		if peer != s {
			s.to(peer, func() { peer.asked(s, term, last, lastTerm) })
		}
	}
}

// asked is a request for this server's vote.
func (s *server) asked(by *server, term uint64, last int, lastTerm uint64) {
	s.follow(term)
	mine := len(s.log) - 1
	fresh := lastTerm > s.log[mine].term || lastTerm == s.log[mine].term && last >= mine
	if term < s.term || !fresh || s.voted != nobody && s.voted != by.address {
		return
	}
	s.voted = by.address
	s.await()
	s.to(by, func() { by.elected(s.address, term) })
}

// elected is a vote for this server.
func (s *server) elected(by int, term uint64) {
	if s.role != candidate || s.term != term {
		return
	}
	s.votes[by] = true
	if len(s.votes) < s.w.majority() {
		return
	}
	s.role, s.hint = leading, s.address
	s.match = make([]int, len(s.w.servers))
	s.next = slices.Repeat([]int{len(s.log)}, len(s.w.servers))
	s.replied = slices.Repeat([]time.Duration{s.w.now}, len(s.w.servers))
	s.w.happens("leader_elected", "%s leads term %d", s.name, s.term)
	s.beat(s.term)
	s.takeLead()
}

// follow steps down when a newer term is seen.
func (s *server) follow(term uint64) {
	if term > s.term {
		s.term, s.voted = term, nobody
		s.stepDown()
	}
}

func (s *server) stepDown() {
	if s.role == leading {
		s.w.tracef("%s leads no more", s.name)
	}
	s.role, s.lead, s.proofs = follower, nil, nil
	s.await()
}

// beat keeps followers at bay, and ends a leadership that gets no answer from a majority for as long as the schedule lets it believe.
func (s *server) beat(term uint64) {
	if s.role != leading || s.term != term {
		return
	}
	heard := 1
	for i, at := range s.replied {
		if i != s.address && s.w.now-at < s.w.conviction {
			heard++
		}
	}
	if heard < s.w.majority() {
		s.w.hit("leader_lost_majority")
		s.hint = nobody
		s.stepDown()
		return
	}
	s.replicate()
	s.w.timer(&s.process, beatEvery, func() { s.beat(term) })
}

// to sends to another server of the same beginning; what comes from an earlier one finds its connection gone.
func (s *server) to(peer *server, arrive func()) {
	group := s.group
	s.w.send(&s.process, &peer.process, func() {
		if peer.group == group {
			arrive()
		}
	})
}

func (s *server) replicate() {
	for _, peer := range s.w.servers {
		if peer != s {
			s.replicateTo(peer)
		}
	}
}

func (s *server) replicateTo(peer *server) {
	prev := s.next[peer.address] - 1
	entries := slices.Clone(s.log[prev+1 : min(len(s.log), prev+1+sendMost)])
	m := message{s.term, prev, s.log[prev].term, entries, s.commit, s.round}
	s.to(peer, func() { peer.told(s, m) })
}

// message is what a leader sends: entries behind prev, or none.
type message struct {
	term     uint64
	prev     int
	prevTerm uint64
	entries  []entry
	commit   int
	round    uint64
}

// told is a message arriving.
func (s *server) told(by *server, m message) {
	s.follow(m.term)
	if m.term < s.term {
		s.reply(by, m.round, s.term, 0, false)
		return
	}
	if s.role != follower {
		s.stepDown()
	}
	s.hint = by.address
	s.await()
	if m.prev >= len(s.log) || s.log[m.prev].term != m.prevTerm {
		s.reply(by, m.round, m.term, min(m.prev-1, len(s.log)-1), false)
		return
	}
	changed := s.store(m.prev, m.entries)
	last := m.prev + len(m.entries)
	s.advance(min(m.commit, last))
	if !changed {
		s.reply(by, m.round, m.term, min(last, s.durable), true)
		return
	}
	s.sync(last, func() { s.reply(by, m.round, m.term, last, true) })
}

// store puts entries behind prev, and reports whether that changed the log.
func (s *server) store(prev int, entries []entry) bool {
	for i, e := range entries {
		at := prev + 1 + i
		if at < len(s.log) && s.log[at].term == e.term {
			continue
		}
		if at < len(s.log) {
			s.w.hit("entries_overwritten")
			if at <= s.commit {
				s.w.judge.broken("consensus", "%s overwrites committed entry %d", s.name, at)
			}
			s.log = slices.Clone(s.log[:at])
			s.durable = min(s.durable, at-1)
		}
		s.log = append(s.log, entries[i:]...)
		return true
	}
	return false
}

// sync writes the log up to last to disk, then calls done. A write that misses its deadline ends the process.
func (s *server) sync(last int, done func()) {
	term := s.log[last].term
	freeze := max(0, s.frozen-s.w.now)
	d := s.w.syncDelay(s.random) + freeze
	if d > writeDeadline {
		s.w.timer(&s.process, writeDeadline, func() {
			s.w.hit("write_deadline_missed")
			s.crash()
			s.w.restart(s, freeze+s.random.upTo(time.Second))
		})
		return
	}
	s.w.timer(&s.process, d, func() {
		if last < len(s.log) && s.log[last].term == term {
			s.durable = max(s.durable, last)
			done()
		}
	})
}

func (s *server) reply(to *server, round, term uint64, match int, ok bool) {
	s.to(to, func() { to.answered(s, round, term, match, ok) })
}

// answered is a follower's reply.
func (s *server) answered(by *server, round, term uint64, match int, ok bool) {
	s.follow(term)
	if s.role != leading || s.term != term {
		return
	}
	s.replied[by.address] = s.w.now
	s.confirmed(by.address, round)
	if ok {
		s.match[by.address] = max(s.match[by.address], match)
		s.next[by.address] = max(s.next[by.address], s.match[by.address]+1)
		s.count()
		return
	}
	s.next[by.address] = max(s.match[by.address], min(match, s.next[by.address]-1, len(s.log)-1)) + 1
	s.replicateTo(by)
}

// append hands data to the log as the leader, and returns its place.
func (s *server) append(data []byte) int {
	s.log = append(s.log, entry{term: s.term, data: data, made: s.w.now})
	at := len(s.log) - 1
	s.sync(at, func() {
		if s.role == leading {
			s.count()
		}
	})
	s.replicate()
	return at
}

// count commits what a majority has on disk; only entries of the own term are counted (Ongaro and Ousterhout, "In Search of an Understandable
// Consensus Algorithm", 5.4.2).
func (s *server) count() {
	s.match[s.address] = s.durable
	at := slices.Sorted(slices.Values(s.match))[len(s.match)-s.w.majority()]
	if at > s.commit && s.log[at].term == s.term {
		s.advance(at)
	}
}

// advance applies what has committed.
func (s *server) advance(commit int) {
	s.commit = max(s.commit, min(commit, len(s.log)-1))
	for s.applied < s.commit {
		s.applied++
		s.apply(s.applied)
	}
}

func (s *server) apply(at int) {
	e := s.log[at]
	command, ok := s.w.judge.committed(s, at, e)
	if !ok {
		return
	}
	result, err := s.state.Apply(command)
	if err == nil && command.Tick != nil {
		s.ticked = s.now()
	}
	if want, ok := s.w.judge.snaps[at]; ok && !bytes.Equal(want, s.w.judge.snapshot(s.state)) {
		s.w.judge.broken("ledger", "the replica of %s differs after entry %d", s.name, at)
	}
	if at-s.snapAt >= snapshotGap {
		s.snapshot, s.snapAt = s.w.save(s).data, at
	}
	if s.lead != nil {
		s.lead.applied(at, result, err)
	}
}

func (w *world) majority() int { return len(w.servers)/2 + 1 }

// syncDelay is how long a write to a disk takes to be durable.
func (w *world) syncDelay(r random) time.Duration {
	d, slow, by := 200*time.Microsecond+r.upTo(2*time.Millisecond), r.chance(w.slowDisk), r.upTo(time.Second)
	if slow {
		w.hit("disk_slow")
		d += by
	}
	return d
}
