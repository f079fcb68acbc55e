// Claims: each call takes the role that it takes, and a call that nobody has
// thought of takes an administrator; a node reports only as itself; a caller that
// asks without end is slowed down, nodes in the clear are not one caller; tokens let in until they end or are revoked.
package access

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/ledger"
)

func testGuard(t *testing.T, tokens ...ledger.Token) *Guard {
	t.Helper()
	state := ledger.New()
	for _, x := range tokens {
		state.Tokens[x.ID] = x
	}
	g := New(func(f func(*ledger.State)) { f(state) }, slog.New(slog.DiscardHandler))
	at := time.Unix(1_700_000_000, 0)
	g.now = func() time.Time { return at }
	return g
}

func by(role, name string) rpc.Caller {
	return rpc.Caller{Shown: true, Identity: secure.Identity{Role: role, Name: name}}
}

func TestRoles(t *testing.T) {
	t.Parallel()
	const (
		read, change, exchange = headroomv1connect.ClusterServiceListNodesProcedure, headroomv1connect.ClusterServiceSetBudgetProcedure, headroomv1connect.NodeServiceExchangeProcedure
		tokens, unknown        = headroomv1connect.ClusterServiceListTokensProcedure, "/headroom.v1.NewService/Melt"
	)
	g := testGuard(t)
	for name, c := range map[string]struct {
		caller rpc.Caller
		call   string
		good   bool
	}{
		"an observer reads":                       {by("observer", "mia"), read, true},
		"an observer changes":                     {by("observer", "mia"), change, false},
		"an operator changes":                     {by("operator", "mia"), change, true},
		"an operator looks at tokens":             {by("operator", "mia"), tokens, false},
		"an administrator does":                   {by("admin", "root"), tokens, true},
		"an operator calls the unknown":           {by("operator", "mia"), unknown, false},
		"a node reports":                          {by("node", "n03"), exchange, true},
		"a node reads nodes":                      {by("node", "n03"), read, true},
		"a node reads domains":                    {by("node", "n03"), headroomv1connect.ClusterServiceListDomainsProcedure, true},
		"a node without a name reads nodes":       {by("node", ""), read, false},
		"a node reads the audit log":              {by("node", "n03"), headroomv1connect.ClusterServiceListEventsProcedure, false},
		"a node reads the status":                 {by("node", "n03"), headroomv1connect.ClusterServiceGetStatusProcedure, false},
		"an operator reports as a node":           {by("operator", "mia"), exchange, false},
		"another server asks for itself":          {by("server", "c2"), headroomv1connect.ClusterServiceListMembersProcedure, true},
		"another server looks at tokens":          {by("server", "c2"), tokens, false},
		"nobody":                                  {rpc.Caller{}, read, false},
		"somebody else on the unix socket":        {rpc.Caller{Local: true, UID: 65534}, read, false},
		"root on the unix socket":                 {rpc.Caller{Local: true, UID: 0}, tokens, true},
		"the scheduler commits a job":             {by("scheduler", "s1"), headroomv1connect.JobServiceCommitJobProcedure, true},
		"the scheduler reads jobs":                {by("scheduler", "s1"), headroomv1connect.JobServiceListJobsProcedure, true},
		"the scheduler changes a budget":          {by("scheduler", "s1"), change, false},
		"the scheduler reads nodes":               {by("scheduler", "s1"), read, false},
		"the scheduler looks at tokens":           {by("scheduler", "s1"), tokens, false},
		"the scheduler sets the brake":            {by("scheduler", "s1"), headroomv1connect.BrakeServiceSetBrakeProcedure, false},
		"the scheduler asks who is denied":        {by("scheduler", "s1"), headroomv1connect.ClusterServiceListDeniedProcedure, true},
		"a node asks who is denied":               {by("node", "n03"), headroomv1connect.ClusterServiceListDeniedProcedure, true},
		"nobody asks who is denied":               {rpc.Caller{}, headroomv1connect.ClusterServiceListDeniedProcedure, false},
		"a worker reads":                          {by("worker", "n03"), read, false},
		"a worker reports as its node":            {by("worker", "n03"), exchange, false},
		"a submitter commits a job":               {by("submitter", "mia"), headroomv1connect.JobServiceCommitJobProcedure, false},
		"anybody, where the configuration has it": {rpc.Caller{Clear: true}, change, true},
	} {
		if _, err := g.Admit(rpc.WithCaller(t.Context(), c.caller), c.call, http.Header{}); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A refusal names a command that the refused one may run, and whom to ask for the rest.
func TestRefusalNamesWhatTheRefusedMayRun(t *testing.T) {
	t.Parallel()
	g := testGuard(t)
	for role, c := range map[string]struct{ command, call string }{
		"observer":  {"coordinator token self", headroomv1connect.ClusterServiceGetSelfProcedure},
		"operator":  {"coordinator token self", headroomv1connect.ClusterServiceGetSelfProcedure},
		"node":      {"coordinator budget show", headroomv1connect.ClusterServiceListDomainsProcedure},
		"scheduler": {"coordinator job list", headroomv1connect.JobServiceListJobsProcedure},
		"master":    {"scheduler master", ""},
		"worker":    {"scheduler worker", ""},
		"submitter": {"scheduler submit", ""},
	} {
		_, err := g.Admit(rpc.WithCaller(t.Context(), by(role, "x")), headroomv1connect.ClusterServiceListTokensProcedure, http.Header{})
		e := rpc.AsCLI(err, "token list", "c1")
		if e.Exit != cli.ExitDenied || !strings.Contains(e.Hint, c.command) || !strings.Contains(e.Hint, "administrator for role admin") {
			t.Errorf("%s: %v, hint %q", role, err, e.Hint)
		}
		if c.call == "" {
			continue
		}
		if _, err := g.Admit(rpc.WithCaller(t.Context(), by(role, "x")), c.call, http.Header{}); err != nil {
			t.Errorf("%s may not run %s: %v", role, c.command, err)
		}
	}
}

// Every procedure of the contract has a role that was thought of: no service but
// the node's is open to nodes, and reading is what its name says.
func TestEveryProcedureHasARole(t *testing.T) {
	t.Parallel()
	for procedure, want := range map[string]ledger.Role{
		headroomv1connect.ClusterServiceGetStatusProcedure:   ledger.RoleObserver,
		headroomv1connect.ClusterServiceAwaitBudgetProcedure: ledger.RoleObserver,
		headroomv1connect.ClusterServiceExplainNodeProcedure: ledger.RoleObserver,
		headroomv1connect.ClusterServiceChangeProcedure:      ledger.RoleOperator,
		headroomv1connect.ClusterServiceRollbackProcedure:    ledger.RoleOperator,
		headroomv1connect.ClusterServiceReportMeterProcedure: ledger.RoleOperator,
		headroomv1connect.JobServiceCommitJobProcedure:       ledger.RoleOperator,
		headroomv1connect.JobServiceDirectProcedure:          ledger.RoleOperator,
		headroomv1connect.JobServiceListJobsProcedure:        ledger.RoleObserver,
		headroomv1connect.NodeServiceReleaseProcedure:        ledger.RoleNode,
		headroomv1connect.ClusterServiceListTokensProcedure:  ledger.RoleAdmin,
		"/headroom.v1.MemberService/AddMember":               ledger.RoleAdmin,
		headroomv1connect.DebugServiceCollectBundleProcedure: ledger.RoleAdmin,
		"": ledger.RoleAdmin,
	} {
		if got := Needs(procedure); got != want {
			t.Errorf("%s takes %s, want %s", procedure, got, want)
		}
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0).UnixMicro()
	g := testGuard(t,
		ledger.Token{ID: "good", Name: "mia", Role: ledger.RoleOperator, Hash: ledger.TokenHash("secret")},
		ledger.Token{ID: "over", Name: "mia", Role: ledger.RoleAdmin, Hash: ledger.TokenHash("secret"), Expires: now - 1})
	for token, want := range map[string]bool{
		"good.secret": true, "good.guess": false, "over.secret": false, "none.secret": false, "good": false, "": false, ".": false, "good.secret.more": false,
	} {
		ctx, err := g.Admit(rpc.WithCaller(t.Context(), rpc.Caller{}), headroomv1connect.ClusterServiceSetBudgetProcedure, http.Header{"Authorization": {"Bearer " + token}})
		if (err == nil) != want {
			t.Errorf("token %q: %v", token, err)
		}
		if err == nil && CallerOf(ctx).Name != "mia" {
			t.Errorf("token %q is %s's", token, CallerOf(ctx).Name)
		}
	}
	// A token does not add to a certificate: it replaces it.
	if _, err := g.Admit(rpc.WithCaller(t.Context(), by("admin", "root")), headroomv1connect.ClusterServiceListTokensProcedure, http.Header{"Authorization": {"Bearer good.secret"}}); err == nil {
		t.Error("an operator's token was let in as the administrator whose connection it came on")
	}
}

func TestNodeReportsAsItself(t *testing.T) {
	t.Parallel()
	node := context.WithValue(t.Context(), callerKey{}, certified(secure.Identity{Role: secure.Node, Name: "n03"}))
	if err := OwnNode(node, "n03"); err != nil {
		t.Error(err)
	}
	if err := OwnNode(node, "n04"); connect.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(err.Error(), "n03") {
		t.Errorf("n03 reported as n04: %v", err)
	}
}

func TestNodeReadsItsOwnRow(t *testing.T) {
	t.Parallel()
	node := context.WithValue(t.Context(), callerKey{}, certified(secure.Identity{Role: secure.Node, Name: "n03"}))
	if err := OwnRow(node, "n03"); err != nil {
		t.Error(err)
	}
	for _, other := range []string{"n04", ""} {
		if err := OwnRow(node, other); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("n03 read the row of %q: %v", other, err)
		}
	}
	observer := context.WithValue(t.Context(), callerKey{}, certified(secure.Identity{Role: "observer", Name: "mia"}))
	if err := OwnRow(observer, "n04"); err != nil {
		t.Error(err)
	}
}

// A refusal names the action as commands have it, the role it needs and the caller's role.
func TestRefusalNamesAction(t *testing.T) {
	t.Parallel()
	for procedure, want := range map[string]string{
		headroomv1connect.ClusterServiceSetBudgetProcedure: "budget set", headroomv1connect.ClusterServiceListNodesProcedure: "node list",
		headroomv1connect.ClusterServiceListPoliciesProcedure: "policy list", headroomv1connect.ClusterServiceGetStatusProcedure: "status",
		headroomv1connect.ClusterServiceRollbackProcedure: "rollback", headroomv1connect.MemberServiceGetMemberHealthProcedure: "member health", "": "",
	} {
		if got := action(procedure); got != want {
			t.Errorf("%s is %q, want %q", procedure, got, want)
		}
	}
	_, err := testGuard(t).Admit(rpc.WithCaller(t.Context(), by("node", "n03")), headroomv1connect.ClusterServiceSetBudgetProcedure, http.Header{})
	if want := "permission denied: budget set needs role operator; n03 has role node"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("refused with %v, want %q", err, want)
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	g := testGuard(t)
	at := g.now()
	g.now = func() time.Time { return at }
	greedy, modest := Caller{Role: ledger.RoleObserver, Name: "loop"}, Caller{Role: ledger.RoleObserver, Name: "mia"}
	let := 0
	for range 2 * CallBurst {
		if g.paced(greedy) {
			let++
		}
	}
	if let != CallBurst {
		t.Errorf("%d calls at once were let in, want %d", let, CallBurst)
	}
	if !g.paced(modest) {
		t.Error("one caller's loop keeps another out")
	}
	if at = at.Add(time.Second / 2); !g.paced(greedy) {
		t.Error("it is never let in again")
	}
}

// With TLS off nodes have no names: a thousand that open their streams at once, as after
// a leader's end, are let in, while other calls without a name are one caller's.
func TestPaceInTheClear(t *testing.T) {
	t.Parallel()
	g := testGuard(t)
	calls := func(procedure string) (let int) {
		ctx := rpc.WithCaller(t.Context(), rpc.Caller{Clear: true})
		for range 5 * CallBurst {
			if _, err := g.Admit(ctx, procedure, http.Header{}); err == nil {
				let++
			}
		}
		return let
	}
	if let := calls(headroomv1connect.NodeServiceExchangeProcedure); let != 5*CallBurst {
		t.Errorf("%d of %d streams of nodes were let in", let, 5*CallBurst)
	}
	if let := calls(headroomv1connect.ClusterServiceSetBudgetProcedure); let != CallBurst {
		t.Errorf("%d other calls were let in, want %d", let, CallBurst)
	}
}
