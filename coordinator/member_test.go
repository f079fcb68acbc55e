// Claims: a change of the group that has begun is finished by whoever leads next;
// a server that was removed is told so and ends; old and new versions stay alike
// until all are new; health tells what is wrong with a server, and why.
package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/consensus"
	"headroom/coordinator/leading"
	"headroom/coordinator/members"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/internal/testkit"
	"headroom/ledger"
	"headroom/units"
)

// asked calls a handler of whoever leads, as the command line does: it follows
// the leader, and repeats the same request while there is none.
func asked[Req, Res any](c *cluster, req *Req, method func(memberService, context.Context, *connect.Request[Req]) (*connect.Response[Res], error)) (*Res, error) {
	c.t.Helper()
	for range 50 {
		r, err := method(memberService{c.leader().server}, context.Background(), connect.NewRequest(req))
		if _, elsewhere := rpc.LeaderOf(err); !elsewhere {
			if err != nil {
				return nil, rpc.AsCLI(err, "test", "addr")
			}
			return r.Msg, nil
		}
		time.Sleep(200 * time.Millisecond)
	}
	return nil, errors.New("nobody led for long enough")
}

func change(id string) *headroomv1.Change {
	return &headroomv1.Change{Actor: "mia", Reason: "because", RequestId: id}
}

func addMember(c *cluster, id, request string) (*headroomv1.AddMemberResponse, error) {
	return asked(c, &headroomv1.AddMemberRequest{Id: id, RpcAddress: "rpc-" + id, Change: change(request)}, memberService.AddMember)
}

func removeMember(c *cluster, id, request string) (*headroomv1.RemoveMemberResponse, error) {
	return asked(c, &headroomv1.RemoveMemberRequest{Id: id, Change: change(request)}, memberService.RemoveMember)
}

func promoteMember(c *cluster, id, request string) (*headroomv1.PromoteMemberResponse, error) {
	return asked(c, &headroomv1.PromoteMemberRequest{Id: id, Change: change(request)}, memberService.PromoteMember)
}

func healthNow(t *testing.T, c *cluster) map[string]*headroomv1.MemberHealth {
	t.Helper()
	r, err := asked(c, &headroomv1.GetMemberHealthRequest{}, memberService.GetMemberHealth)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*headroomv1.MemberHealth{}
	for _, m := range r.GetMembers() {
		out[m.GetId()] = m
	}
	return out
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

// seated waits until raft's list is that of the ledger.
func (c *cluster) seated(want ...string) {
	c.t.Helper()
	c.until(fmt.Sprintf("the group is %v", want), time.Minute, func() bool {
		l := c.leader()
		var in []string
		for _, m := range l.group.Members() {
			text := m.ID
			if !m.Voter {
				text += "?"
			}
			in = append(in, text)
		}
		slices.Sort(in)
		var known []string
		l.machine.View(func(s *ledger.State) {
			for _, x := range s.ServersByID() {
				if x.Leaving {
					known = append(known, "leaving "+x.ID)
				} else {
					known = append(known, x.ID)
				}
			}
		})
		return slices.Equal(in, want) && slices.Equal(known, strings.Split(strings.ReplaceAll(strings.Join(want, " "), "?", ""), " "))
	})
}

// A server is added, promoted and removed; each request may be repeated, and is
// carried out once; nodes hold their leases through all of it.
func TestMembershipIsChanged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		c.addNodes(2)
		c.leader()
		c.allHeld(6 * time.Second)
		c.seated("c1", "c2", "c3")
		c.await("c4")
		for i, already := range []bool{false, true} {
			r, err := addMember(c, "c4", fmt.Sprint("add", i))
			if err != nil || r.GetAlready() != already || r.GetMember().GetRaftAddress() != "raft-c4" {
				t.Fatalf("added: %v, %v", r, err)
			}
		}
		c.seated("c1", "c2", "c3", "c4?")
		time.Sleep(time.Second) // looking who leads has made entries, which it is still sent
		if _, err := promoteMember(c, "c4", "p0"); exitOf(err) != cli.ExitRefused || !strings.Contains(err.Error(), "of the required 10s") {
			t.Errorf("promoted at once: %v", err)
		}
		time.Sleep(consensus.StableFor)
		for range 2 {
			if _, err := promoteMember(c, "c4", "p1"); err != nil {
				t.Fatal(err)
			}
		}
		c.seated("c1", "c2", "c3", "c4")
		if r, err := promoteMember(c, "c4", "p2"); err != nil || !r.GetAlready() {
			t.Errorf("promoted again: %v, %v", r, err)
		}
		leader := c.leader().cfg.ID
		for range 2 {
			if _, err := removeMember(c, leader, "r1"); err != nil {
				t.Fatal(err)
			}
		}
		if now := c.leader().cfg.ID; now == leader {
			t.Errorf("%s leads and was removed", now)
		}
		c.until("the removed server has ended", 30*time.Second, func() bool { return c.expelledWith(leader) != nil })
		e, _ := errors.AsType[*cli.Error](c.expelledWith(leader))
		if e == nil || !strings.Contains(e.Message, `by mia: "because"`) || !strings.Contains(e.Hint, "join:") {
			t.Errorf("it ended with %+v", e)
		}
		if n := c.watch.fallen(); n != 0 {
			t.Errorf("%d falls to fail-safe", n)
		}
		if what := audited(c, "server c4"); len(what) != 2 {
			t.Errorf("the audit log says %q", what)
		}
	})
}

func exitOf(err error) int {
	if e, ok := errors.AsType[*cli.Error](err); ok {
		return e.Exit
	}
	return -1
}

// audited are the lines of the audit log that begin so.
func audited(c *cluster, prefix string) (out []string) {
	for _, e := range c.newest().Events {
		if strings.HasPrefix(e.What, prefix) {
			out = append(out, e.What)
		}
	}
	return out
}

// What cannot be done is refused with its rule and a way out, a dry run tells the
// same, and neither changes anything.
func TestMembershipRefusals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		c.leader()
		c.seated("c1", "c2", "c3")
		before := c.newest().Revision
		type got struct {
			code string
			exit int
		}
		refused := func(what string, err error, want got) {
			t.Helper()
			e, ok := errors.AsType[*cli.Error](err)
			if !ok || e.Code != want.code || e.Exit != want.exit || e.Hint == "" {
				t.Errorf("%s: %+v", what, err)
			}
		}
		_, err := addMember(c, "c9", "x")
		refused("one that does not answer", err, got{"no-answer", cli.ExitRefused})
		_, err = asked(c, &headroomv1.AddMemberRequest{Id: "c9", RpcAddress: "rpc-c2", Change: change("x")}, memberService.AddMember)
		refused("another server there", err, got{"other-server", cli.ExitConflict})
		_, err = asked(c, &headroomv1.AddMemberRequest{Change: change("x")}, memberService.AddMember)
		refused("no id", err, got{"bad-server", cli.ExitUsage})
		_, err = promoteMember(c, "c9", "x")
		refused("a stranger", err, got{"unknown-server", cli.ExitUsage})
		_, err = removeMember(c, "c9", "x")
		refused("a stranger", err, got{"unknown-server", cli.ExitUsage})
		_, err = asked(c, &headroomv1.TransferLeadRequest{Id: "c9", Change: change("x")}, memberService.TransferLead)
		refused("a stranger", err, got{"unknown-server", cli.ExitUsage})

		c.await("c4")
		r, err := asked(c, &headroomv1.AddMemberRequest{Id: "c4", RpcAddress: "rpc-c4", DryRun: true, Change: change("x")}, memberService.AddMember)
		if err != nil || r.GetAlready() || c.leader().members.Roster.Has("c4") {
			t.Errorf("dry run: %v, %v", r, err)
		}
		leader := c.leader().cfg.ID
		down := slices.DeleteFunc([]string{"c1", "c2", "c3"}, func(id string) bool { return id == leader })
		if x, err := asked(c, &headroomv1.RemoveMemberRequest{Id: down[1], DryRun: true, Change: change("x")}, memberService.RemoveMember); err != nil || x.GetAlready() {
			t.Errorf("dry run: %v", err)
		}
		c.kill(down[0])
		time.Sleep(3 * time.Second)
		_, err = removeMember(c, down[1], "x")
		refused("the last healthy follower", err, got{"loses-quorum", cli.ExitRefused})
		_, err = asked(c, &headroomv1.TransferLeadRequest{Id: down[0], Change: change("x")}, memberService.TransferLead)
		refused("the lead to one that is down", err, got{"not-stable", cli.ExitRefused})
		if now := c.newest().Revision; now != before {
			t.Errorf("refusals moved the revision from %d to %d", before, now)
		}
	})
}

// The lead is handed over, and nodes do not notice.
func TestTransferLead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		c.addNodes(2)
		c.leader()
		c.allHeld(6 * time.Second)
		for range 5 {
			r, err := asked(c, &headroomv1.TransferLeadRequest{Change: change("")}, memberService.TransferLead)
			if err != nil || r.GetFrom() == r.GetTo() {
				t.Fatalf("%v, %v", r, err)
			}
			if now := c.leader().cfg.ID; now != r.GetTo() {
				t.Errorf("%s leads, not %s", now, r.GetTo())
			}
			time.Sleep(5 * time.Second)
		}
		r, err := asked(c, &headroomv1.TransferLeadRequest{Id: c.leader().cfg.ID, Change: change("")}, memberService.TransferLead)
		if err != nil || !r.GetAlready() {
			t.Errorf("to itself: %v, %v", r, err)
		}
		if n := c.watch.fallen(); n != 0 {
			t.Errorf("%d falls to fail-safe", n)
		}
	})
}

// A leader that dies right after a change has been committed to the ledger leaves
// the rest to the next one: nothing is half done for good.
func TestChangeIsFinishedByTheNextLeader(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		begin ledger.Server
		want  []string
	}{
		"add":     {ledger.Server{ID: "c6", RPC: "rpc-c6", Raft: "raft-c6"}, []string{"c1", "c2", "c3", "c4", "c5", "c6?"}},
		"vote":    {ledger.Server{ID: "c6", RPC: "rpc-c6", Raft: "raft-c6", Voter: true}, []string{"c1", "c2", "c3", "c4", "c5", "c6"}},
		"remove":  {ledger.Server{ID: "c4", RPC: "rpc-c4", Raft: "raft-c4", Voter: true, Leaving: true}, []string{"c1", "c2", "c3", "c5"}},
		"address": {ledger.Server{ID: "c4", RPC: "rpc-c9", Raft: "raft-c4", Voter: true}, []string{"c1", "c2", "c3", "c4", "c5"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 5, 700*units.Watt)
				c.leader()
				c.seated("c1", "c2", "c3", "c4", "c5")
				c.await("c6")
				l := c.leader()
				if err := l.requests.commit(t.Context(), ledger.Command{Server: &x.begin, Actor: "mia"}); err != nil {
					t.Fatal(err)
				}
				id := l.cfg.ID
				c.kill(id)
				c.leader(id)
				c.start(id)
				c.seated(x.want...)
			})
		})
	}
}

// Any server may be asked to leave while the leader is killed or cut off at any
// moment: the group ends as the ledger says, what was acknowledged stands in the
// log, two servers never answer reads in one epoch, and the watts stay inside the
// budget.
func TestMembershipThroughFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testkit.Sweep(5)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { membershipThroughFaults(t, rand.New(rand.NewPCG(seed, 2))) })
		})
	}
}

func membershipThroughFaults(t *testing.T, rng *rand.Rand) {
	t.Helper()
	c := newCluster(t, 3, 700*units.Watt)
	c.addNodes(3)
	c.leader()
	c.allHeld(6 * time.Second)
	next := 4
	var acknowledged []string
	for round := range 8 {
		request := fmt.Sprint("request", round)
		do := func() error { return nil }
		switch kind := rng.IntN(3); {
		case kind == 0 && next <= 6:
			id := fmt.Sprintf("c%d", next)
			next++
			c.await(id)
			do = func() error { _, err := addMember(c, id, request); return err }
		case kind == 1:
			id := pickMember(c, rng)
			do = func() error { r, err := promoteMember(c, id, request); return changed(r.GetAlready(), err) }
		case len(c.leader().group.Members()) > 2:
			id := pickMember(c, rng)
			do = func() error { _, err := removeMember(c, id, request); return err }
		default:
			continue
		}
		l := c.leader().cfg.ID
		done := make(chan error, 1)
		go func() { done <- do() }()
		time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
		kill := rng.IntN(2) == 0
		if kill {
			c.kill(l)
		} else {
			c.isolate(l)
		}
		for range 3 {
			c.oneReader()
			time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
		}
		if kill {
			c.start(l)
		} else {
			c.heal(l)
		}
		err := <-done
		if err == nil {
			acknowledged = append(acknowledged, request)
		}
		t.Logf("round %d, %s killed %v: %v", round, l, kill, err)
		for range 5 + rng.IntN(15) {
			c.oneReader()
			c.reap()
			time.Sleep(time.Second)
		}
	}
	c.until("raft's list is the ledger's", 2*time.Minute, func() bool {
		return c.settled()
	})
	for _, request := range acknowledged {
		if !slices.ContainsFunc(c.newest().Requests, func(r ledger.Request) bool { return r.ID == request }) {
			t.Errorf("%s was acknowledged and is not in the log", request)
		}
	}
	if n := c.held(); n != len(c.nodes) {
		t.Errorf("%d of %d nodes hold a lease in the end", n, len(c.nodes))
	}
}

// changed makes an error of a change that had nothing to do.
func changed(already bool, err error) error {
	if err == nil && already {
		return errors.New("already so")
	}
	return err
}

// oneReader checks that no two servers answer reads in one epoch.
func (c *cluster) oneReader() {
	c.t.Helper()
	answered := map[string]string{}
	for _, id := range c.every() {
		s := c.server(id)
		if s == nil || !s.requests.leads() {
			continue
		}
		ctx, cancel := context.WithTimeout(c.t.Context(), 300*time.Millisecond)
		meta, err := s.requests.read(ctx, false, func(*ledger.State, *leading.Known) {})
		cancel()
		if err != nil {
			continue
		}
		epoch := meta.GetEpoch().String()
		if other := answered[epoch]; other != "" {
			c.t.Errorf("%s and %s both answer reads in epoch %s", other, id, epoch)
		}
		answered[epoch] = id
	}
}

func pickMember(c *cluster, rng *rand.Rand) string {
	all := c.leader().group.Members()
	return all[rng.IntN(len(all))].ID
}

// Health says what is wrong with a server: silent, ended and why, its disk, its
// clock, an older version.
func TestHealthSaysWhatIsWrong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		l := c.leader()
		c.seated("c1", "c2", "c3")
		time.Sleep(consensus.StableFor)
		for id, m := range healthNow(t, c) {
			if !m.GetHealthy() || len(m.GetHealth()) > 0 || !m.GetVoter() || m.Lag == nil || m.GetStableMs() < 10_000 || m.GetFacts().GetVersion() != Version {
				t.Errorf("%s: %v", id, m)
			}
		}
		away := slices.DeleteFunc([]string{"c1", "c2", "c3"}, func(id string) bool { return id == l.cfg.ID })[0]
		c.server(away).members.Facts.SayLastWords(fmt.Errorf("consensus: append to the log after 2s: %w", consensus.ErrWriteDeadline))
		c.kill(away)
		time.Sleep(5 * time.Second)
		m := healthNow(t, c)[away]
		if got := codes(m); m.GetHealthy() || m.GetRole() != "unreachable" || !slices.Equal(got, []string{"fail member-ended", "fail member-silent"}) {
			t.Errorf("ended: %q", got)
		}
		if text := m.GetHealth()[0].GetText(); !strings.Contains(text, "log write missed its deadline") {
			t.Errorf("last words: %q", text)
		}
		r, err := asked(c, &headroomv1.GetMemberHealthRequest{}, memberService.GetMemberHealth)
		if err != nil || r.GetTolerates() != 0 || len(r.GetHealth()) != 1 || r.GetHealth()[0].GetCode() != "group-fragile" {
			t.Errorf("the group: %v, %v", r.GetHealth(), err)
		}
		c.start(away)
		time.Sleep(consensus.StableFor + 2*time.Second)
		if m := healthNow(t, c)[away]; !m.GetHealthy() || len(m.GetHealth()) > 0 {
			t.Errorf("back again: %v", m)
		}
		read, voters := c.leader().members.Clocks(t.Context())
		if voters != 3 || len(read) != 3 || !(ledger.Clock{Servers: read, Voters: voters}).Agreed(time.Now().UnixMicro()) {
			t.Errorf("clocks %v of %d", read, voters)
		}
	})
}

// Every refusal about the group has a code, an exit code and a way out.
func TestMemberRefusalsAreComplete(t *testing.T) {
	t.Parallel()
	for _, r := range memberRefusals() {
		if r.when == nil || r.code == 0 || r.short == "" || r.exit == 0 || r.hint == "" {
			t.Errorf("rule for %v is not complete: %+v", r.when, r)
		}
	}
}

// A server that has lost its folder takes the log of the group that its fellows
// lead; it founds none of its own beside it. At the first start there is none.
func TestNoSecondGroupIsFounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		fresh := newServer(c.config("c3"), slog.New(slog.DiscardHandler))
		fresh.peers = rpc.PeersOver(shortcut{c, "c3"})
		c.isolate("c3")
		if fresh.foundedElsewhere(t.TempDir()) {
			t.Error("it knows of a group that it cannot reach")
		}
		c.heal("c3")
		c.leader()
		empty, used := t.TempDir(), t.TempDir()
		if err := os.MkdirAll(filepath.Join(used, "log", "x"), 0o700); err != nil {
			t.Fatal(err)
		}
		if !fresh.foundedElsewhere(empty) || fresh.foundedElsewhere(used) || fresh.foundedElsewhere("") {
			t.Errorf("with nothing %v, with a log %v", fresh.foundedElsewhere(empty), fresh.foundedElsewhere(used))
		}
	})
}

// settled reports whether nothing is left to do about the members: raft's list is the
// ledger's, and nobody is to join, to vote or to leave.
func (c *cluster) settled() bool {
	l := c.leader()
	h, err := l.members.Health(members.Lately())
	if err != nil {
		return false
	}
	in, known := []string{}, []string{}
	for _, m := range l.group.Members() {
		in = append(in, m.ID+m.Address)
	}
	l.machine.View(func(s *ledger.State) {
		for _, x := range s.ServersByID() {
			known = append(known, x.ID+x.Raft)
		}
	})
	slices.Sort(in)
	return slices.Equal(in, known) && !slices.ContainsFunc(h.Members, func(m *headroomv1.MemberHealth) bool {
		return slices.ContainsFunc(m.GetHealth(), func(i *headroomv1.HealthItem) bool {
			return slices.Contains([]string{"member-joining", "member-leaving", "member-version"}, i.GetCode())
		})
	})
}
