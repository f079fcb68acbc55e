// Claim: powerd starts whatever its certificate is and the keys of its gossip and brake are, after a
// reboot without limits too: it adopts its journal, holds its fail-safe cap, names the file as the
// cause, and gets a lease and gossips once the files are right, without a restart.
package agent

import (
	"cmp"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headroom/agent/machine"
	"headroom/agent/status"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/units"
)

// pki is an authority and the files of one node.
type pki struct {
	t   *testing.T
	own *secure.Authority
	dir string
	// gossip has the node's other keys.
	gossip *talk
}

func newPKI(t *testing.T) *pki {
	t.Helper()
	a, pair, err := secure.NewAuthority("lab", time.Now(), 10*time.Hour)
	p := &pki{t, a, t.TempDir(), newTalk(t)}
	if err = errors.Join(err, pair.Write(filepath.Join(p.dir, "ca.crt"), filepath.Join(p.dir, "ca.key"))); err != nil {
		t.Fatal(err)
	}
	return p
}

// issue puts a certificate into the files of a role, in place of what is there.
func (p *pki) issue(role, name string, from time.Time) secure.Files {
	p.t.Helper()
	f := secure.Files{CA: filepath.Join(p.dir, "ca.crt"), Cert: filepath.Join(p.dir, role+".crt"), Key: filepath.Join(p.dir, role+".key")}
	_, _ = os.Remove(f.Cert), os.Remove(f.Key)
	pair, err := p.own.Issue(secure.Identity{Role: role, Name: name}, from, time.Hour)
	if err = errors.Join(err, pair.Write(f.Cert, f.Key)); err != nil {
		p.t.Fatal(err)
	}
	return f
}

func item(s *headroomv1.GetAgentStatusResponse, code string) *headroomv1.HealthItem {
	for _, i := range s.GetHealth() {
		if i.GetCode() == code {
			return i
		}
	}
	return nil
}

func TestStartsWithAnyCertificate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(p *pki, f secure.Files) error
		text  string
		// code of the health item; empty: tls.
		code string
	}{
		"no gossip.key": {func(p *pki, f secure.Files) error {
			return errors.Join(os.Remove(f.Cert), os.Rename(p.gossip.keyFile, p.gossip.keyFile+".away"))
		}, "gossip.key", "gossip"},
		"no brake.pub": {func(p *pki, f secure.Files) error {
			return errors.Join(os.Remove(f.Cert), os.Rename(p.gossip.public, p.gossip.public+".away"))
		}, "brake.pub", "gossip"},
		"ended": {func(p *pki, _ secure.Files) error {
			p.issue(secure.Node, "n01", time.Now().Add(-3*time.Hour))
			return nil
		}, "expired at", ""},
		"future": {func(p *pki, _ secure.Files) error {
			p.issue(secure.Node, "n01", time.Now().Add(2*time.Hour))
			return nil
		}, "not valid yet", ""},
		"foreign": {func(p *pki, f secure.Files) error {
			other := newPKI(p.t).issue(secure.Node, "n01", time.Now())
			return errors.Join(os.Rename(other.Cert, f.Cert), os.Rename(other.Key, f.Key))
		}, "not valid with tls.ca", ""},
		"another node's": {func(p *pki, _ secure.Files) error { p.issue(secure.Node, "n02", time.Now()); return nil }, "names node/n02", ""},
		"missing":        {func(_ *pki, f secure.Files) error { return os.Remove(f.Cert) }, "no such file", ""},
		"missing key":    {func(_ *pki, f secure.Files) error { return os.Remove(f.Key) }, "no such file", ""},
		"garbage":        {func(_ *pki, f secure.Files) error { return os.WriteFile(f.Key, []byte("x"), 0o600) }, "tls.key", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, p := newLab(t), newPKI(t)
			server, err := secure.Open(p.issue(secure.Server, "c1", time.Now()))
			if err != nil {
				t.Fatal(err)
			}
			plain, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			co := &coordinator{leads: true, granted: 190 * units.Watt, failSafe: 95 * units.Watt, duration: 10 * time.Second, seq: 1, refuse: errors.New("not now")}
			co.serve(t, rpc.SecureListener(plain, server))
			own := p.issue(secure.Node, "n01", time.Now())
			cfg := l.config(co.addr)
			cfg.TLS = secure.Config{CA: own.CA, Cert: own.Cert, Key: own.Key}
			cfg = p.gossip.config(cfg, p.gossip.member("c1").Addr())
			first := run(t, cfg)
			waitFor(t, "a lease is held", co.acknowledged)
			_ = first.stop()

			// A reboot: the firmware's limit is back, and nothing holds a cap.
			l.write(machine.BootIDFile, "11111111-2222-3333-4444-555555555555")
			l.write(strings.TrimPrefix(l.zone("constraint_0_power_limit_uw"), filepath.Join(l.dir, "root")), "185000000")
			if err := c.spoil(p, own); err != nil {
				t.Fatal(err)
			}
			run(t, cfg)
			var s *headroomv1.GetAgentStatusResponse
			waitFor(t, "the file is named as the cause", func() bool {
				s = l.status(t)
				i := item(s, cmp.Or(c.code, "tls"))
				return i.GetSeverity() == status.Fail && strings.Contains(i.GetText(), c.text) && i.GetHint() != ""
			})
			if !failSafeLong(l.long()) || s.GetSaved() == 0 || s.GetHolding().GetState() != headroomv1.LeaseState_LEASE_STATE_FAIL_SAFE {
				t.Errorf("limit %v, %d controls saved, %v", l.long(), s.GetSaved(), s.GetHolding())
			}

			p.issue(secure.Node, "n01", time.Now())
			_, _ = os.Rename(p.gossip.keyFile+".away", p.gossip.keyFile), os.Rename(p.gossip.public+".away", p.gossip.public)
			waitFor(t, "a lease is held with the right files, and the node gossips", func() bool {
				s := l.status(t)
				return co.acknowledged() && l.long() > 100*units.Watt && item(s, "tls") == nil && item(s, "gossip") == nil && s.GetAdvertise() != ""
			})
		})
	}
}

// A key that others can read is reported, and costs no lease.
func TestExposedKeyIsReported(t *testing.T) {
	t.Parallel()
	l, p, co := newLab(t), newPKI(t), newCoordinator(t)
	own := p.issue(secure.Node, "n01", time.Now())
	cfg := l.config(co.addr)
	cfg.TLS = secure.Config{CA: own.CA, Cert: own.Cert, Key: own.Key}
	if err := os.Chmod(own.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, cfg)
	waitFor(t, "the key is reported", func() bool {
		i := item(l.status(t), "tls")
		return i.GetSeverity() == status.Fail && strings.Contains(i.GetText(), "can read")
	})
}
