package members

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/consensus"
	"headroom/coordinator/alarms"
	"headroom/coordinator/view"
	"headroom/internal/each"
	"headroom/ledger"
)

const (
	// diskLow warns that the log will not fit much longer: sixteen files of the log.
	diskLow = 256 << 20
	// diskFull is the free space below which the next file of the log may not fit.
	diskFull = 32 << 20
	// clockWarn is the clock offset that causes a warning: above it, logs are hard to compare.
	clockWarn = time.Second
	// clockFail is half of how far apart the clocks of a quorum may be for a scheduled budget to be raised.
	clockFail = 30 * time.Second
	// foreignShown is how long a gossip sender with an unknown key is reported; one without members
	// retries within a minute.
	foreignShown = 3 * time.Minute
)

// Health is the health of the servers and of the cluster as a whole.
type Health struct {
	Members []*headroomv1.MemberHealth
	Group   []*headroomv1.HealthItem
	// Tolerates is how many more voters may fail.
	Tolerates int32
}

// Health returns the servers' health by their reports since a moment. Only a leader has them.
func (m *Members) Health(since time.Time) (Health, error) {
	now, err := m.now(since)
	if err != nil {
		return Health{}, err
	}
	all := m.judge(now)
	return Health{Members: all, Group: append(groupHealth(now), gossipKeys(all)...), Tolerates: tolerates(now.members)}, nil
}

// keepHealth keeps the servers' health for Alarms; none while this server does not lead.
func (m *Members) keepHealth() {
	var kept *Health
	if h, err := m.Health(Lately()); err == nil {
		kept = &h
	}
	m.health.Store(kept)
}

// Alarms returns the health of the servers and of the cluster as it was at the last check while this server
// leads, as alarms. It does not wait.
func (m *Members) Alarms() (out []alarms.Alarm) {
	h := m.health.Load()
	if h == nil {
		return nil
	}
	for _, x := range h.Members {
		for _, i := range x.GetHealth() {
			out = append(out, alarms.New(i.GetCode(), i.GetSeverity(), x.GetId(), fmt.Sprintf("server %s: %s", x.GetId(), i.GetText()), i.GetHint()))
		}
	}
	for _, i := range h.Group {
		out = append(out, alarms.New(i.GetCode(), i.GetSeverity(), "cluster", i.GetText(), i.GetHint()))
	}
	return out
}

// HealthNow asks every server first.
func (m *Members) HealthNow(ctx context.Context) (Health, error) {
	begun := time.Now()
	m.Facts.Gather(ctx, m.Roster.others())
	return m.Health(begun)
}

// HealthOf returns the health of one server by what is known already; only its
// addresses if it is not a member yet.
func (m *Members) HealthOf(id string, x ledger.Server) *headroomv1.MemberHealth {
	if now, err := m.now(Lately()); err == nil {
		for _, h := range m.judge(now) {
			if h.GetId() == id {
				return h
			}
		}
	}
	return &headroomv1.MemberHealth{Id: id, RpcAddress: x.RPC, RaftAddress: x.Raft, Role: roleAway}
}

// judge returns every server's health, by id.
func (m *Members) judge(now membership) []*headroomv1.MemberHealth {
	words := m.Facts.lastWords()
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*headroomv1.MemberHealth
	for _, x := range m.Roster.Seats() {
		i := slices.IndexFunc(now.members, func(h consensus.Health) bool { return h.ID == x.ID })
		j := judged{x: now.servers[x.ID], fact: now.facts[x.ID], rules: now.rules, newest: now.newest, words: words[x.ID], stuck: m.stuck[x.ID]}
		if i >= 0 {
			j.raft = &now.members[i]
		}
		h := j.message(time.Now())
		h.Id, h.RpcAddress, h.RaftAddress = x.ID, x.RPC, x.Raft
		out = append(out, h)
	}
	return out
}

// judged has the inputs about one server.
type judged struct {
	x             ledger.Server     // its wanted state; zero if the ledger does not have it
	raft          *consensus.Health // nil if raft does not have it
	fact          fact              // zero if it does not answer
	rules, newest int
	words         farewell
	stuck         error
}

func (j judged) message(now time.Time) *headroomv1.MemberHealth {
	m := &headroomv1.MemberHealth{Role: roleAway, ToVote: j.x.Voter, Leaving: j.x.Leaving, Facts: j.fact.said, Health: j.items(now)}
	if j.fact.said != nil {
		m.Role = j.fact.said.GetRole()
		m.ClockOffsetUs = new(j.fact.offset.Microseconds())
	}
	if h := j.raft; h != nil {
		m.Voter, m.Lag = h.Voter, h.Lag
		if !h.Self && !h.Contact.IsZero() {
			m.LastContactMs = new(now.Sub(h.Contact).Milliseconds())
		}
		if !h.Since.IsZero() {
			ms := now.Sub(h.Since).Milliseconds()
			if up := j.fact.said.GetUptimeMs(); up > 0 { // a restart may be too short for raft to notice
				ms = min(ms, up+now.Sub(j.fact.at).Milliseconds())
			}
			m.StableMs = &ms
		}
	}
	m.Healthy = !slices.ContainsFunc(m.GetHealth(), func(i *headroomv1.HealthItem) bool { return i.GetSeverity() == "fail" })
	return m
}

// items returns the server's health items, the worst first.
func (j judged) items(now time.Time) []*headroomv1.HealthItem {
	var fails, warns []*headroomv1.HealthItem
	add := func(fail bool, code, text, hint string) {
		i := &headroomv1.HealthItem{Code: code, Severity: "warn", Text: text, Hint: hint}
		if fail {
			i.Severity = "fail"
			fails = append(fails, i)
			return
		}
		warns = append(warns, i)
	}
	j.place(add)
	j.presence(add, now)
	if j.fact.said != nil {
		j.disk(add)
		j.clock(add)
		j.version(add)
		j.gossip(add)
	}
	return append(fails, warns...)
}

type adder = func(fail bool, code, text, hint string)

// place checks whether raft's list has the server as the ledger wants it.
func (j judged) place(add adder) {
	why := ""
	if j.stuck != nil {
		why = ": " + view.Plain(j.stuck)
	}
	switch {
	case j.x.Leaving:
		add(false, "member-leaving", "its removal is in progress"+why, "coordinator member add cancels it")
	case j.raft == nil:
		add(true, "member-joining", "it has not joined yet"+why, "start it with an empty state_dir and join: in its configuration")
	case j.x.Voter && !j.raft.Voter:
		add(false, "member-joining", "it becomes a voter once it is stable"+why, "wait: it takes ten seconds")
	}
}

// presence checks whether the server answers and keeps up.
func (j judged) presence(add adder, now time.Time) {
	if j.fact.said == nil && j.words.text != "" {
		add(true, "member-ended", fmt.Sprintf("it exited %v ago: %s", now.Sub(j.words.at).Round(time.Second), j.words.text),
			"correct the cause and restart it; the cluster continues without it")
	}
	if j.raft != nil && j.raft.Fault != nil {
		code, hint := "member-silent", "check that it runs, and that the servers can reach each other's raft addresses"
		if j.raft.Lag != nil && *j.raft.Lag > consensus.MaxLag {
			code, hint = "member-behind", "it catches up once its disk and the network are fast enough"
		}
		add(true, code, j.raft.Fault.Error(), hint)
	} else if j.fact.said == nil && j.raft != nil && !j.raft.Self {
		add(false, "member-no-rpc", "it does not answer at its RPC address", "check that the servers can reach each other's rpc addresses")
	}
}

// disk checks the disk of its log.
func (j judged) disk(add adder) {
	f := j.fact.said
	if f.DiskFreeBytes != nil && f.GetDiskFreeBytes() < diskLow {
		add(f.GetDiskFreeBytes() < diskFull, "member-disk-full",
			fmt.Sprintf("%d MiB free on the disk of its log; below %d MiB it may exit", f.GetDiskFreeBytes()>>20, diskFull>>20),
			"free space, or move its state_dir to a larger disk")
	}
	slow, deadline := time.Duration(f.GetSlowestWriteUs())*time.Microsecond, time.Duration(f.GetWriteDeadlineUs())*time.Microsecond
	if deadline > 0 && slow > deadline/4 {
		add(slow > deadline/2, "member-disk-slow",
			fmt.Sprintf("a write to its log took %v in the last two minutes; above %v it exits", slow.Round(time.Millisecond), deadline),
			"use a separate disk for the log; if it is the leader: coordinator member transfer")
	}
}

// clock compares its wall clock with the leader's.
func (j judged) clock(add adder) {
	if off := j.fact.offset; off.Abs() > clockWarn {
		add(off.Abs() > clockFail, "member-clock", fmt.Sprintf("its clock differs from the leader's by %v", off.Round(10*time.Millisecond)),
			"synchronize its clock with NTP; scheduled budgets are raised only while a majority of clocks agree")
	}
}

// version checks whether it delays new rules, or does not support those in force.
func (j judged) version(add adder) {
	f := j.fact.said
	switch {
	case int(f.GetRulesNewest()) < j.rules:
		add(true, "member-version", fmt.Sprintf("version %s supports rules up to %d, but rules %d are in force", f.GetVersion(), f.GetRulesNewest(), j.rules),
			"install the version of the other servers on it")
	case int(f.GetRulesNewest()) < j.newest:
		add(false, "member-version", fmt.Sprintf("version %s supports rules up to %d and delays rules %d", f.GetVersion(), f.GetRulesNewest(), j.newest),
			"install the leader's version on it")
	}
}

// gossip checks whether gossip arrived with a key that this server does not have.
func (j judged) gossip(add adder) {
	f := j.fact.said
	if ago := time.Duration(f.GetForeignGossipMs()) * time.Millisecond; f.ForeignGossipMs != nil && ago < foreignShown {
		add(false, "gossip-foreign-key", fmt.Sprintf("%v ago it rejected gossip from %s, whose key is not among %s", ago.Round(time.Second), f.GetForeignGossipFrom(), strings.Join(f.GetGossipKeys(), ", ")),
			"if that is a member, copy gossip.key to it and reload it with systemctl; coordinator gossip key show FILE lists the keys of a file")
	}
}

// gossipKeys checks whether all servers send with the same gossip key.
func gossipKeys(members []*headroomv1.MemberHealth) []*headroomv1.HealthItem {
	var order []string
	senders := map[string][]string{}
	for _, m := range members {
		if keys := m.GetFacts().GetGossipKeys(); len(keys) > 0 {
			if senders[keys[0]] == nil {
				order = append(order, keys[0])
			}
			senders[keys[0]] = append(senders[keys[0]], m.GetId())
		}
	}
	if len(order) < 2 {
		return nil
	}
	parts := each.Of(order, func(key string) string { return strings.Join(senders[key], ", ") + " with " + key })
	return []*headroomv1.HealthItem{{
		Code: "gossip-keys", Severity: "warn", Text: "servers send gossip with different keys: " + strings.Join(parts, "; "),
		Hint: "finish the key rotation: install the same gossip.key on all servers, and reload each with systemctl",
	}}
}

// tolerates returns how many more voters may fail.
func tolerates(all []consensus.Health) int32 {
	voters, healthy := 0, 0
	for _, h := range all {
		if h.Voter {
			voters++
			if h.Healthy() {
				healthy++
			}
		}
	}
	return int32(healthy - (voters/2 + 1))
}

// groupHealth returns the health items of the cluster as a whole.
func groupHealth(now membership) []*headroomv1.HealthItem {
	voters := 0
	for _, h := range now.members {
		if h.Voter {
			voters++
		}
	}
	left := tolerates(now.members)
	var out []*headroomv1.HealthItem
	if left <= 0 && voters > 1 {
		out = append(out, &headroomv1.HealthItem{
			Code: "group-fragile", Severity: "warn", Text: "the cluster loses its majority if one more server fails",
			Hint: "restart the unhealthy server, or remove it and add another",
		})
	}
	if voters%2 == 0 {
		out = append(out, &headroomv1.HealthItem{
			Code: "group-even", Severity: "warn",
			Text: fmt.Sprintf("%d voters tolerate no more failures than %d", voters, voters-1),
			Hint: "add and promote one more, or remove one",
		})
	}
	return out
}

// Clocks returns the wall clocks of the cluster's voters as this leader has just read
// them, in microseconds since the Unix epoch, and how many voters there are: the
// proof that a scheduled budget may be raised.
func (m *Members) Clocks(ctx context.Context) (read map[string]int64, voters int) {
	begun := time.Now()
	m.Facts.Gather(ctx, m.Roster.others())
	facts, now := m.Facts.since(begun), m.Facts.wall()
	read = map[string]int64{}
	for _, x := range m.Roster.group.Members() {
		if !x.Voter {
			continue
		}
		voters++
		if f, ok := facts[x.ID]; ok {
			read[x.ID] = now.Add(f.offset).UnixMicro()
		}
	}
	return read, voters
}
