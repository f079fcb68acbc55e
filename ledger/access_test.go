// Claim: a token lets in who has its secret, for as long as it is valid, and
// nobody after it was revoked; the log never holds the secret. Servers and
// acknowledged alarms are kept, in bounds.
package ledger_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"headroom/ledger"
	"headroom/units"
)

// Each role has the rights of those below it; a node has only its own.
func TestRoles(t *testing.T) {
	t.Parallel()
	want := map[ledger.Role]string{
		ledger.RoleNode: "node", ledger.RoleObserver: "observer", ledger.RoleOperator: "observer operator", ledger.RoleAdmin: "observer operator admin",
	}
	for r, rights := range want {
		var may []string
		for _, need := range []ledger.Role{ledger.RoleNode, ledger.RoleObserver, ledger.RoleOperator, ledger.RoleAdmin, "root", ""} {
			if r.May(need) {
				may = append(may, string(need))
			}
		}
		if got := strings.Join(may, " "); got != rights {
			t.Errorf("%s may %q, want %q", r, got, rights)
		}
		if back, err := ledger.ParseRole(string(r)); err != nil || back != r {
			t.Errorf("%s: %v", r, err)
		}
	}
	for _, text := range []string{"", "root", "Admin", "admin "} {
		if _, err := ledger.ParseRole(text); !errors.Is(err, ledger.ErrRole) {
			t.Errorf("%q: %v", text, err)
		}
		for r := range want {
			if ledger.Role(text).May(r) {
				t.Errorf("%q may do what %s may", text, r)
			}
		}
	}
}

func token(id string) ledger.Command {
	return ledger.Command{Token: &ledger.Token{ID: id, Name: "mia", Role: ledger.RoleOperator, Hash: ledger.TokenHash("secret"), Created: 1, Expires: 100}}
}

func TestToken(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	do(t, s, token("t1"))
	bear := func(id, secret string, at int64) bool {
		_, ok := s.Bearer(id, secret, at)
		return ok
	}
	if x, ok := s.Bearer("t1", "secret", 99); !ok || x.Name != "mia" || x.Role != ledger.RoleOperator {
		t.Errorf("%+v, %v", x, ok)
	}
	for name, ok := range map[string]bool{
		"another secret": bear("t1", "Secret", 1), "no secret": bear("t1", "", 1), "its hash": bear("t1", ledger.TokenHash("secret"), 1),
		"another id": bear("t2", "secret", 1), "no id": bear("", "", 1), "at its end": bear("t1", "secret", 100),
	} {
		if ok {
			t.Errorf("%s lets in", name)
		}
	}
	if strings.Contains(snapshot(t, s), `"secret"`) {
		t.Error("the secret is in the state")
	}
	refused(t, s, token("t1"), ledger.ErrToken)
	refused(t, s, ledger.Command{RevokeToken: &ledger.Named{Name: "t2"}}, ledger.ErrUnknownToken)
	do(t, s, ledger.Command{RevokeToken: &ledger.Named{Name: "t1"}})
	if bear("t1", "secret", 1) {
		t.Error("revoked, and lets in")
	}
	for name, bend := range map[string]func(*ledger.Token){
		"no id": func(x *ledger.Token) { x.ID = "" }, "no name": func(x *ledger.Token) { x.Name = "" },
		"no hash": func(x *ledger.Token) { x.Hash = "" }, "the secret as hash": func(x *ledger.Token) { x.Hash = "secret" },
		"a name without end": func(x *ledger.Token) { x.Name = strings.Repeat("x", 300) },
	} {
		c := token("t2")
		bend(c.Token)
		refused(t, s, c, ledger.ErrToken)
		if t.Failed() {
			t.Fatal(name)
		}
	}
	c := token("t2")
	c.Token.Role = "root"
	refused(t, s, c, ledger.ErrRole)
	for i := range 1000 {
		do(t, s, token(fmt.Sprint(i)))
	}
	refused(t, s, token("one more"), ledger.ErrFull)
	if got := s.TokensByName(); len(got) != 1000 || got[0].ID != "0" {
		t.Errorf("%d tokens, first %v", len(got), got[0].ID)
	}
}

func TestServers(t *testing.T) {
	t.Parallel()
	s := ledger.New()
	next(t, s)
	c1 := ledger.Server{ID: "c1", RPC: "10.0.0.1:7400", Raft: "10.0.0.1:7401"}
	do(t, s, ledger.Command{Server: &c1}) // before there is a power tree
	before := snapshot(t, s)
	do(t, s, ledger.Command{Server: &c1})
	if snapshot(t, s) != before {
		t.Error("the same server again is a change")
	}
	moved := c1
	moved.RPC = "10.0.0.9:7400"
	do(t, s, ledger.Command{Server: &moved})
	do(t, s, ledger.Command{Server: &ledger.Server{ID: "c0", RPC: "a", Raft: "b"}})
	if list := s.ServersByID(); len(list) != 2 || list[1] != moved {
		t.Errorf("%+v", list)
	}
	for _, bad := range []ledger.Server{{RPC: "a", Raft: "b"}, {ID: "c2", Raft: "b"}, {ID: "c2", RPC: "a"}, {ID: strings.Repeat("x", 300), RPC: "a", Raft: "b"}} {
		refused(t, s, ledger.Command{Server: &bad}, ledger.ErrServer)
	}
	found := ledger.Command{Found: &ledger.Found{Domains: ledger.PlainDomains(site(800))}}
	do(t, s, found)
	refused(t, s, ledger.Command{RemoveServer: &ledger.Named{Name: "c9"}}, ledger.ErrUnknownServer)
	do(t, s, ledger.Command{RemoveServer: &ledger.Named{Name: "c0"}})
	if len(s.Servers) != 1 {
		t.Errorf("%+v", s.Servers)
	}
}

// Of too many acknowledged alarms the oldest are forgotten; acknowledging one again forgets none.
func TestAckedAlarmsAreBounded(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	ack := func(key string, at int64) {
		t.Helper()
		do(t, s, ledger.Command{At: at, Actor: "mia", AckAlarm: &ledger.Named{Name: key}})
	}
	for i := range 1000 {
		ack(fmt.Sprintf("node-lost/n%04d", i), int64(i))
	}
	ack("node-lost/n0007", 5000)
	if len(s.Acked) != 1000 {
		t.Errorf("%d are kept", len(s.Acked))
	}
	ack("shortfall/site", 5001)
	if _, ok := s.Acked["node-lost/n0000"]; ok || len(s.Acked) != 1000 {
		t.Errorf("%d are kept, the oldest among them: %v", len(s.Acked), ok)
	}
	if x := s.Acked["node-lost/n0007"]; x.At != 5000 || x.Actor != "mia" {
		t.Errorf("%+v", x)
	}
	refused(t, s, ledger.Command{AckAlarm: &ledger.Named{}}, ledger.ErrUnknownAlarm)
	refused(t, s, ledger.Command{AckAlarm: &ledger.Named{Name: strings.Repeat("x", 300)}}, ledger.ErrUnknownAlarm)
}

// begunAnew is the state of a saved snapshot, begun anew at the budget of its domains.
func begunAnew(t *testing.T, saved string, keep ...string) (*ledger.State, error) {
	t.Helper()
	r, err := ledger.Restore([]byte(saved))
	if err != nil {
		t.Fatal(err)
	}
	budgets := map[string]units.Power{}
	for name, d := range r.Domains {
		budgets[name] = d.Budget
	}
	return r, r.Recover(budgets, 1_700_000_000_000_000, "mia", "disks", keep...)
}

// What was revoked after a snapshot lets nobody in after its restore, of whatever role: no
// token of it does that the operator does not name.
func TestRestoreDropsTokens(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	for _, role := range []ledger.Role{ledger.RoleAdmin, ledger.RoleObserver, ledger.RoleNode, ledger.RoleOperator} {
		id := "of-" + string(role)
		do(t, s, ledger.Command{Token: &ledger.Token{ID: id, Name: "the-" + string(role), Role: role, Hash: ledger.TokenHash("secret")}})
	}
	saved := snapshot(t, s)
	do(t, s, ledger.Command{RevokeToken: &ledger.Named{Name: "of-admin"}})
	for _, keep := range [][]string{nil, {"the-operator"}, {"of-operator"}} {
		r, err := begunAnew(t, saved, keep...)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range s.TokensByName() {
			if _, ok := r.Bearer(x.ID, "secret", 1); ok != (x.Role == ledger.RoleOperator && len(keep) > 0) {
				t.Errorf("keeping %v: the token of role %s lets in: %v", keep, x.Role, ok)
			}
		}
		if _, ok := r.Bearer("of-admin", "secret", 1); ok {
			t.Errorf("keeping %v: a revoked token lets in", keep)
		}
	}
	if _, err := begunAnew(t, saved, "nobody"); !errors.Is(err, ledger.ErrUnknownToken) {
		t.Errorf("a token that is none was kept: %v", err)
	}
}

// Denials only grow, also in a state that begins anew.
func TestDenials(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	deny := func(at int64, x ledger.Denial) ledger.Command {
		return ledger.Command{At: at, Actor: "mia", Reason: "stolen", Deny: &x}
	}
	do(t, s, deny(10, ledger.Denial{Identity: "node/n01"}))
	do(t, s, deny(5, ledger.Denial{Identity: "node/n01"}))
	do(t, s, deny(7, ledger.Denial{Serial: "ab"}))
	do(t, s, deny(9, ledger.Denial{Serial: "ab"}))
	do(t, s, deny(20, ledger.Denial{Identity: "node/n02"}))
	do(t, s, deny(30, ledger.Denial{Identity: "node/n02"})) // its second certificate was stolen too
	want := []ledger.Denial{
		{Serial: "ab", At: 7, Actor: "mia", Reason: "stolen"},
		{Identity: "node/n01", At: 10, Actor: "mia", Reason: "stolen"},
		{Identity: "node/n02", At: 30, Actor: "mia", Reason: "stolen"},
	}
	if got := s.DeniedByKey(); !slices.Equal(got, want) {
		t.Errorf("denied %v", got)
	}
	for _, bad := range []ledger.Denial{{}, {Identity: "node/n1", Serial: "ab"}, {Serial: strings.Repeat("a", 300)}} {
		refused(t, s, deny(1, bad), ledger.ErrDenial)
	}
	r, err := begunAnew(t, snapshot(t, s))
	if err != nil || !slices.Equal(r.DeniedByKey(), want) {
		t.Errorf("after a restore: %v, %v", r.DeniedByKey(), err)
	}
}
