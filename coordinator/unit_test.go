package coordinator

import (
	"errors"
	"fmt"
	"testing"

	"connectrpc.com/connect"

	"headroom/budget"
	"headroom/consensus"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/ledger"
	"headroom/ledger/leader"
	"headroom/units"
)

const w = units.Watt

// Every refusal tells the operator what was wrong, with a code, an exit code and
// a way out; and what certainly changed nothing never says that it is unknown.
func TestEveryRefusalHasAWayOut(t *testing.T) {
	t.Parallel()
	s := &requests{}
	type want struct {
		code string
		exit int
	}
	for name, c := range map[string]struct {
		err  error
		want want
	}{
		"floor":                        {&ledger.FloorError{Domain: "site/lab", Budget: w, Floor: 2 * w}, want{"infeasible", cli.ExitRefused}},
		"conflict":                     {&ledger.ConflictError{Planned: 1, Now: 2}, want{"conflict", cli.ExitConflict}},
		"over budget":                  {&ledger.OverBudgetError{Domain: "site/lab"}, want{"over-budget", cli.ExitRefused}},
		"domain":                       {ledger.ErrUnknownDomain, want{"unknown-domain", cli.ExitUsage}},
		"node":                         {ledger.ErrUnknownNode, want{"unknown-node", cli.ExitUsage}},
		"job":                          {ledger.ErrUnknownJob, want{"unknown-job", cli.ExitUsage}},
		"job differs":                  {ledger.ErrJob, want{"bad-job", cli.ExitConflict}},
		"identity":                     {ledger.ErrIdentity, want{"name-taken", cli.ExitConflict}},
		"target":                       {ledger.ErrTarget, want{"moved", cli.ExitConflict}},
		"not grantable":                {ledger.ErrNotGrantable, want{"moved", cli.ExitConflict}},
		"epoch":                        {ledger.ErrEpoch, want{"no-leader", cli.ExitUnreachable}},
		"not founded":                  {ledger.ErrNotFounded, want{"not-founded", cli.ExitUnreachable}},
		"full":                         {ledger.ErrFull, want{"full", cli.ExitRefused}},
		"zero budget":                  {budget.ErrAmount, want{"usage", cli.ExitUsage}},
		"too large":                    {consensus.ErrTooLarge, want{"too-large", cli.ExitUsage}},
		"busy":                         {consensus.ErrBusy, want{"busy", cli.ExitUnreachable}},
		"any other that Apply refused": {ledger.ErrDeclaration, want{"refused", cli.ExitRefused}},
	} {
		got := rpc.AsCLI(s.refuse(fmt.Errorf("ledger: %w", leader.RefusedError{Err: c.err})), "test", "addr")
		if got.Code != c.want.code || got.Exit != c.want.exit || got.Hint == "" || got.Message == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	got := rpc.AsCLI(s.refuse(consensus.ErrUnknownOutcome), "test", "addr")
	if got.Exit != cli.ExitUnknown || got.Hint == "" {
		t.Errorf("unknown outcome: %+v", got)
	}
	for _, r := range refusals() {
		if r.code == 0 || r.short == "" || r.exit == 0 || r.hint == "" {
			t.Errorf("rule for %v is not complete: %+v", r.when, r)
		}
	}
	if errors.Is(leader.RefusedError{Err: ledger.ErrFull}, ledger.ErrFounded) {
		t.Error("errors are mixed up")
	}
	if c := connect.CodeOf(nameTaken("n1", "m2")); c != connect.CodeAlreadyExists {
		t.Errorf("name taken is %v", c)
	}
}
