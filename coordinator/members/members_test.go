// Claims: a server ends where a leader of its group says that it has no place in it; a
// member that was away learns of a newer one from those that it knows; health says what is
// wrong with a server, and why.
package members

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/consensus"
	"headroom/ledger"
)

// A group that was restored on two servers finds out: both end, and nodes fall to
// their fail-safe caps rather than obey two leaders.
func TestRestoredTwice(t *testing.T) {
	t.Parallel()
	own := &headroomv1.ServerFacts{Id: "c1", Role: roleLeader, Incarnation: 1, RpcAddress: "rpc-c1"}
	answer := func(change func(*headroomv1.DescribeServerResponse)) []*headroomv1.DescribeServerResponse {
		a := &headroomv1.DescribeServerResponse{
			Server:   &headroomv1.ServerFacts{Id: "c2", Role: roleLeader, Incarnation: 1},
			Standing: &headroomv1.Standing{Why: "server c1 is not a member of the group"},
		}
		change(a)
		return []*headroomv1.DescribeServerResponse{a}
	}
	for name, x := range map[string]struct {
		change func(*headroomv1.DescribeServerResponse)
		want   string
	}{
		"restored twice":          {func(*headroomv1.DescribeServerResponse) {}, "restored on two servers"},
		"a later incarnation":     {func(a *headroomv1.DescribeServerResponse) { a.Server.Incarnation = 2 }, "incarnation 2 of the cluster"},
		"a member":                {func(a *headroomv1.DescribeServerResponse) { a.Standing = &headroomv1.Standing{Member: true} }, ""},
		"not proven":              {func(a *headroomv1.DescribeServerResponse) { a.Standing = nil }, ""},
		"an earlier incarnation":  {func(a *headroomv1.DescribeServerResponse) { a.Server.Incarnation = 0 }, ""},
		"nobody answers, nothing": {func(a *headroomv1.DescribeServerResponse) { a.Standing, a.Server = nil, nil }, ""},
	} {
		err := expulsion(own, "/var/lib/headroom", answer(x.change))
		if (err != nil) != (x.want != "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What a server says of itself is judged by these bounds.
func TestHealthItems(t *testing.T) {
	t.Parallel()
	free := func(n uint64) *uint64 { return &n }
	ago := func(d time.Duration) *int64 { ms := d.Milliseconds(); return &ms }
	sound := func(change func(*judged)) judged {
		j := judged{
			x: ledger.Server{ID: "c1", Voter: true}, rules: ledger.Rules, newest: ledger.Rules,
			raft: &consensus.Health{Member: consensus.Member{ID: "c1", Voter: true}, Lag: free(0)},
			fact: fact{said: &headroomv1.ServerFacts{RulesNewest: ledger.Rules, RulesOldest: 1, DiskFreeBytes: free(10 << 30), SlowestWriteUs: 5000, WriteDeadlineUs: 2_000_000}},
		}
		change(&j)
		return j
	}
	lag := consensus.MaxLag + uint64(1)
	for name, x := range map[string]struct {
		change func(*judged)
		want   []string
	}{
		"sound":             {func(*judged) {}, nil},
		"disk getting full": {func(j *judged) { j.fact.said.DiskFreeBytes = free(100 << 20) }, []string{"warn member-disk-full"}},
		"disk full":         {func(j *judged) { j.fact.said.DiskFreeBytes = free(10 << 20) }, []string{"fail member-disk-full"}},
		"disk unknown":      {func(j *judged) { j.fact.said.DiskFreeBytes = nil }, nil},
		"disk slow":         {func(j *judged) { j.fact.said.SlowestWriteUs = 600_000 }, []string{"warn member-disk-slow"}},
		"disk frozen":       {func(j *judged) { j.fact.said.SlowestWriteUs = 1_900_000 }, []string{"fail member-disk-slow"}},
		"clock":             {func(j *judged) { j.fact.offset = -3 * time.Second }, []string{"warn member-clock"}},
		"wrong clock":       {func(j *judged) { j.fact.offset = time.Hour }, []string{"fail member-clock"}},
		"older version":     {func(j *judged) { j.rules, j.fact.said.RulesNewest = 1, 1 }, []string{"warn member-version"}},
		"too old":           {func(j *judged) { j.fact.said.RulesNewest = 1 }, []string{"fail member-version"}},
		"behind":            {func(j *judged) { j.raft.Lag, j.raft.Fault = &lag, errors.New("behind") }, []string{"fail member-behind"}},
		"silent":            {func(j *judged) { j.raft.Fault, j.fact.said = errors.New("silent"), nil }, []string{"fail member-silent"}},
		"no rpc":            {func(j *judged) { j.fact.said = nil }, []string{"warn member-no-rpc"}},
		"leaving":           {func(j *judged) { j.x.Leaving, j.stuck = true, errors.New("why") }, []string{"warn member-leaving"}},
		"joining":           {func(j *judged) { j.raft = nil }, []string{"fail member-joining"}},
		"old gossip key":    {func(j *judged) { j.fact.said.ForeignGossipMs = ago(time.Minute) }, []string{"warn gossip-foreign-key"}},
		"long ago":          {func(j *judged) { j.fact.said.ForeignGossipMs = ago(time.Hour) }, nil},
		"to vote":           {func(j *judged) { j.raft.Voter = false }, []string{"warn member-joining"}},
	} {
		m := sound(x.change).message(time.Now())
		if got := codes(m); !slices.Equal(got, x.want) {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
		if fails := strings.Contains(strings.Join(x.want, " "), "fail"); m.GetHealthy() == fails {
			t.Errorf("%s: healthy %v", name, m.GetHealthy())
		}
	}
}

// Servers that send gossip with different keys are named, each with its key.
func TestGossipKeysDiffer(t *testing.T) {
	t.Parallel()
	server := func(id string, keys ...string) *headroomv1.MemberHealth {
		return &headroomv1.MemberHealth{Id: id, Facts: &headroomv1.ServerFacts{GossipKeys: keys}}
	}
	silent := &headroomv1.MemberHealth{Id: "c4"}
	for name, x := range map[string]struct {
		members []*headroomv1.MemberHealth
		want    string
	}{
		"one key":            {[]*headroomv1.MemberHealth{server("c1", "aa"), server("c2", "aa", "bb"), silent}, ""},
		"no gossip":          {[]*headroomv1.MemberHealth{server("c1"), server("c2")}, ""},
		"half way":           {[]*headroomv1.MemberHealth{server("c1", "bb", "aa"), server("c2", "aa", "bb"), server("c3", "aa", "bb")}, "c1 with bb; c2, c3 with aa"},
		"one without gossip": {[]*headroomv1.MemberHealth{server("c1"), server("c2", "aa")}, ""},
	} {
		text := ""
		for _, i := range gossipKeys(x.members) {
			text += i.GetText()
		}
		if x.want == "" && text != "" || !strings.HasSuffix(text, x.want) {
			t.Errorf("%s: %q, want %q", name, text, x.want)
		}
	}
}

// A member that was away learns of a newer one from a member that it knows, and from nobody else.
func TestNewerMembersAreVouchedFor(t *testing.T) {
	t.Parallel()
	f := &Facts{wall: time.Now, facts: map[string]fact{}, words: map[string]farewell{}}
	known := []string{"c1", "c2", "c3"}
	says := func(id, newer string, incarnation uint64) {
		f.note(&headroomv1.ServerFacts{Id: id, Incarnation: incarnation, Members: []string{newer}}, time.Now())
	}
	if says("c8", "c9", 3); f.vouched("c9", known, 3) {
		t.Error("the word of a stranger counts")
	}
	if says("c2", "c7", 3); !f.vouched("c7", known, 3) {
		t.Error("the word of a member does not count")
	}
	if f.vouched("c7", known, 4) {
		t.Error("the word of a member of an earlier incarnation counts")
	}
}

// codes are what is said of a server.
func codes(m *headroomv1.MemberHealth) (out []string) {
	for _, i := range m.GetHealth() {
		out = append(out, i.GetSeverity()+" "+i.GetCode())
		if i.GetText() == "" || i.GetHint() == "" {
			out = append(out, "without words or way out")
		}
	}
	return out
}

// A restart that is too short for raft to notice begins the time of stability anew.
func TestStableSinceTheRestart(t *testing.T) {
	t.Parallel()
	now := time.Now()
	j := judged{
		raft: &consensus.Health{Member: consensus.Member{ID: "c2", Voter: true}, Since: now.Add(-time.Hour)},
		fact: fact{said: &headroomv1.ServerFacts{UptimeMs: 2500}, at: now.Add(-500 * time.Millisecond)},
	}
	if got := j.message(now).GetStableMs(); got != 3000 {
		t.Errorf("stable for %d ms, want 3000", got)
	}
	j.fact.said.UptimeMs = 0 // a server of an earlier version
	if got := j.message(now).GetStableMs(); got != time.Hour.Milliseconds() {
		t.Errorf("stable for %d ms, want an hour", got)
	}
}
