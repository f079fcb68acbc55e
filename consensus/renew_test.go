// Claim: the servers' connections to each other follow certificates that are renewed, through
// ten ends of each: no leader is lost, and no connection is closed before another one is open.
package consensus

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"headroom/internal/secure"
	"headroom/internal/testkit"
)

// lives is how long each certificate is valid.
const lives = 40 * time.Second

// secured puts each server of a cluster on a network in memory, by TLS.
func secured(certs testkit.Certificates, m *testkit.Memory) func(*Config) {
	return func(cfg *Config) {
		k := testkit.Need(secure.Open(certs.Renew(secure.Server, cfg.ID, lives)))(certs.TB())
		own := cfg.own()
		s := newStream(m.Listen(own.Address), own, k, m.Dial)
		cfg.Transport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: s, MaxPool: connectionsKept, Timeout: rpcTimeout, Logger: newLogger(slog.New(slog.DiscardHandler))})
	}
}

func TestServersFollowTheirCertificates(t *testing.T) {
	testkit.Unraced(t)
	bubble(t, func(t *testing.T) {
		certs, m := testkit.NewCertificates(t), &testkit.Memory{}
		c := newCluster(t, 3, secured(certs, m))
		g := c.leader()
		term := g.raft.CurrentTerm()
		for i := range 100 { // renewed one after the other, half way to their ends
			if i%10 >= 3 && i%10 < 6 {
				certs.Renew(secure.Server, c.ids[i%10-3], lives)
			}
			for range 4 {
				c.propose(g, fmt.Sprint("entry ", i))
				time.Sleep(lives / 80)
			}
		}
		c.converge()
		if now := g.raft.CurrentTerm(); now != term {
			t.Errorf("term %d became %d: a leader was lost", term, now)
		}
	})
}

// A server whose certificate has ended is left out, and comes back when it is renewed.
func TestServerRenewedTooLateComesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		certs, m := testkit.NewCertificates(t), &testkit.Memory{}
		c := newCluster(t, 3, secured(certs, m))
		late := ""
		for range 4 {
			g := c.leader()
			for _, id := range c.ids {
				if late == "" && c.groups[id] != g {
					late = id
				}
				if id != late {
					certs.Renew(secure.Server, id, lives)
				}
			}
			time.Sleep(lives / 2)
		}
		g := c.leader()
		c.propose(g, "without "+late)
		if c.tapes[late].has("without " + late) {
			t.Error("an ended certificate is good enough")
		}
		certs.Renew(secure.Server, late, time.Hour)
		time.Sleep(10 * time.Second)
		if !c.tapes[late].has("without " + late) {
			t.Error("it is not back within ten seconds")
		}
	})
}

func TestRequestIsRepeatedOnAnotherConnection(t *testing.T) {
	t.Parallel()
	n := 0
	err := again(func() error {
		if n++; n < 3 {
			return fmt.Errorf("send: %w", errMoved)
		}
		return nil
	})
	if err != nil || n != 3 {
		t.Errorf("%d times: %v", n, err)
	}
	if err := again(func() error { n++; return errMoved }); !errors.Is(err, errMoved) || n != 7 {
		t.Errorf("%d times: %v", n, err)
	}
}
