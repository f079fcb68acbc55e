// Claim: a lost node whose BMC says that the machine is off is charged nothing,
// and one whose BMC is on or tells nothing stays charged.
package leading

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
)

func TestEvidenceNamesWhatIsOff(t *testing.T) {
	t.Parallel()
	e := evidence{poweredOff: func(_ context.Context, address string) (bool, error) {
		if address == "gone" {
			return false, errors.New("it does not answer")
		}
		return address == "off", nil
	}}
	found := e.ask(t.Context(), map[string]string{"n1": "on", "n2": "off", "n3": "gone"}, slog.New(slog.DiscardHandler))
	if !slices.Equal(found, []string{"n2"}) {
		t.Errorf("off are %v", found)
	}
	for name, x := range map[string]struct {
		e    evidence
		want bool
	}{"at its time": {e, true}, "nobody may be asked": {evidence{}, false}, "too early": {evidence{poweredOff: e.poweredOff, next: 1}, false}, "asking": {evidence{poweredOff: e.poweredOff, asking: true}, false}} {
		if got := x.e.due(0); got != x.want {
			t.Errorf("%s: due %v", name, got)
		}
	}
}
