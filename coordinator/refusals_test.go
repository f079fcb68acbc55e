package coordinator

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/ledger"
	"headroom/units"
)

// A sprint that is refused for its energy names how long to wait, where waiting helps.
func TestRefusedSprintsNameTheWayOut(t *testing.T) {
	t.Parallel()
	const watt = units.Watt
	for name, x := range map[string]struct {
		err        error
		code, hint string
	}{
		"refills in time": {
			&ledger.EscrowError{Domain: "site/lab", Escrow: 600 * units.Joule, Balance: 100 * units.Joule, Room: 6 * units.Kilojoule, Refill: 20 * watt},
			"no-energy", "retry in 25s: 20.0 W refills it",
		},
		"no refill": {
			&ledger.EscrowError{Domain: "site/lab", Escrow: 600 * units.Joule, Balance: 100 * units.Joule, Room: 6 * units.Kilojoule},
			"no-energy", "the budget has no refill",
		},
		"never enough": {
			&ledger.EscrowError{Domain: "site/lab", Escrow: 7 * units.Kilojoule, Room: 6 * units.Kilojoule, Refill: 20 * watt},
			"no-energy", "at most 6.00 kJ can become available",
		},
		"at its rated cap": {fmt.Errorf("sprint: %w", ledger.ErrAtRated), "at-rated", "coordinator node set NODE --max"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refusal, ok := errors.AsType[*connect.Error]((&requests{}).refuse(x.err))
			if !ok || len(refusal.Details()) != 1 {
				t.Fatal(refusal)
			}
			detail, err := refusal.Details()[0].Value()
			if err != nil {
				t.Fatal(err)
			}
			got, _ := detail.(*headroomv1.Refusal)
			if got.GetCode() != x.code || got.GetExit() != 6 || !strings.Contains(got.GetHint(), x.hint) {
				t.Errorf("code %q, exit %d, hint %q", got.GetCode(), got.GetExit(), got.GetHint())
			}
		})
	}
}

func TestDomainsWithoutARatingAreNamed(t *testing.T) {
	t.Parallel()
	c := Config{Site: []DomainConfig{{Name: "site/lab", Rating: 4000 * units.Watt}, {Name: "rack/r1"}}}
	if got := c.CheckRatings(); got.State != "warn" || !strings.HasPrefix(got.Text, "no rating: rack/r1;") {
		t.Errorf("%+v", got)
	}
	c.Site[1].Rating = 3000 * units.Watt
	if got := c.CheckRatings(); got.State != "ok" {
		t.Errorf("%+v", got)
	}
}
