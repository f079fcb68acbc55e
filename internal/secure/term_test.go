// Claim: a connection is replaced at the time that the first change of the files after it gave,
// however often they change: a certificate that is renewed all the time does not keep old ones alive.
package secure_test

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"headroom/internal/secure"
)

func TestLaterRenewalsPutNothingOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a := authority(t, dir)
		who := secure.Identity{Role: secure.Node, Name: "n01"}
		f := files(t, a, dir, who)
		k := keeper(t, f)
		term := k.Term()
		if _, due := k.Due(term, 1); due {
			t.Error("due before the files changed")
		}
		var first time.Time
		for i := range 10 {
			time.Sleep(3 * time.Second)
			_, _ = os.Remove(f.Cert), os.Remove(f.Key)
			filesOf(t, a, dir, who, time.Now())
			at, due := k.Due(term, 1)
			if i == 0 {
				first = at
			}
			if !due || !at.Equal(first) {
				t.Fatalf("after change %d: due %v at %v, first at %v", i+1, due, at, first)
			}
		}
	})
}
