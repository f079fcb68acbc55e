package secure

import (
	"crypto/x509"
	"time"
)

const (
	// marginMost is how long before a certificate ends the connections that were made with it
	// are replaced at the latest: a tenth of its life for one that lives shorter than 50 s.
	marginMost = 5 * time.Second
	// spreadLeast and spreadMost bound over how long clients spread that by chance: the
	// certificates of a thousand nodes are renewed in the same second, and a server takes on
	// a few hundred strangers at a time.
	spreadLeast = 4 * time.Second
	spreadMost  = 30 * time.Second
	// LookEvery is how often the owner of a connection asks Due about it.
	LookEvery = lookEvery
)

// Term is what a process's connections are made with between two changes of its files.
// Connections live for weeks, and the other side refuses one whose certificate has ended.
type Term struct {
	ends   time.Time
	margin time.Duration
	over   time.Time // when the files changed; of the keeper's lock, zero in the present term
}

// Term is the present one. It is asked for before the handshake.
func (k *Keeper) Term() *Term {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.look()
	return k.term
}

// Over reports whether the certificate of the term has ended.
func (t *Term) Over() bool { return !time.Now().Before(t.ends) }

// Due is when a connection of an earlier term has to be replaced; false while the files
// have not changed since. chance is 0 to 1, and each client has its own. Later changes do
// not put it off.
func (k *Keeper) Due(t *Term, chance float64) (at time.Time, due bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.look()
	if k.term == t {
		return time.Time{}, false
	}
	spread := min(max(t.ends.Add(-t.margin).Sub(t.over), spreadLeast), spreadMost)
	return t.over.Add(time.Duration(chance * float64(spread))), true
}

// Margin is how long before the certificate ends what was made with it is replaced at the latest.
func Margin(c *x509.Certificate) time.Duration {
	return min(marginMost, c.NotAfter.Sub(c.NotBefore)/10)
}
