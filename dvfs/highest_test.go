// Claims: the highest ceiling is known only if every online policy's is: one that could not
// be read may be the highest.
package dvfs

import (
	"errors"
	"testing"
)

func TestUnreadPolicyMakesTheHighestUnknown(t *testing.T) {
	t.Parallel()
	held := Result{Policy: "policy0", Effective: 1200 * mhz, Known: true, State: Held}
	for name, c := range map[string]struct {
		other Result
		known bool
	}{
		"unread":  {Result{Policy: "policy1", State: Failed, Err: errors.New("i/o error")}, false},
		"offline": {Result{Policy: "policy1", State: Offline, Err: ErrOffline}, true},
		"lower":   {Result{Policy: "policy1", Effective: 800 * mhz, Known: true, State: Lower}, true},
	} {
		for order, r := range map[string]Report{"first": {c.other, held}, "last": {held, c.other}} {
			highest, known := r.Highest()
			if known != c.known || known && highest != held.Effective {
				t.Errorf("%s, read %s: %v, known %v", name, order, highest, known)
			}
		}
	}
}
