package secure_test

// Claims: a denied certificate is refused at the next handshake, on both sides,
// and one made for the same identity afterwards is not; denials only grow, and
// survive in their file.

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"headroom/internal/secure"
)

func TestDeniedCertificatesAreRefused(t *testing.T) {
	t.Parallel()
	dir, later := t.TempDir(), t.TempDir()
	a := authority(t, dir)
	server := keeper(t, files(t, a, dir, secure.Identity{Role: secure.Server, Name: "c1"}))
	n1 := files(t, a, dir, secure.Identity{Role: secure.Node, Name: "n1"})
	n2 := keeper(t, files(t, a, dir, secure.Identity{Role: secure.Node, Name: "n2"}))
	peer := keeper(t, files(t, a, dir, secure.Identity{Role: secure.Server, Name: "c2"}))
	pair, err := a.Issue(secure.Identity{Role: secure.Node, Name: "n1"}, time.Now().Add(time.Minute), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	again := secure.Files{CA: n1.CA, Cert: filepath.Join(later, "n1.crt"), Key: filepath.Join(later, "n1.key")}
	if err := pair.Write(again.Cert, again.Key); err != nil {
		t.Fatal(err)
	}
	denied := secure.NewDenials()
	server.Deny(denied)
	peer.Deny(denied)
	try := func(what string, s, c *tls.Config, good bool) {
		t.Helper()
		if _, one, two := meet(t, s, c); (one == nil && two == nil) != good {
			t.Errorf("%s: server says %v, client %v", what, one, two)
		}
	}
	try("n1 before", server.Server(), keeper(t, n1).Client(nil, secure.Server), true)
	if !denied.Add(secure.Denial{Identity: "node/n1", At: time.Now().UnixMicro(), Actor: "mia", Reason: "stolen"}) {
		t.Error("the denial is no news")
	}
	try("n1 denied", server.Server(), keeper(t, n1).Client(nil, secure.Server), false)
	try("n1 with a newer certificate", server.Server(), keeper(t, again).Client(nil, secure.Server), true)
	try("n2", server.Server(), n2.Client(nil, secure.Server), true)
	try("c1 among servers before", server.Mutual(secure.Server), peer.Dial(secure.Server), true)
	denied.Add(secure.Denial{Serial: secure.SerialOf(leaf(t, filepath.Join(dir, "server-c1.crt"))), At: 1})
	try("c1, whose serial number is denied, seen by a client", server.Server(), peer.Client([]string{}, secure.Server), false)
	denied.Add(secure.Denial{Identity: "server/c2", At: time.Now().UnixMicro()})
	try("c2 among servers", server.Mutual(secure.Server), peer.Dial(secure.Server), false)
}

// leaf reads a certificate's file.
func leaf(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Who is not vetted is refused among servers, whatever the certificate says, at
// the handshake and while the connection lives.
func TestVettedPeersOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := authority(t, dir)
	c1 := keeper(t, files(t, a, dir, secure.Identity{Role: secure.Server, Name: "c1"}))
	c9 := keeper(t, files(t, a, dir, secure.Identity{Role: secure.Server, Name: "c9"}))
	c1.Vet(func(who secure.Identity) error {
		if who.Name == "c9" {
			return errors.New("no member")
		}
		return nil
	})
	if _, s, _ := meet(t, c1.Mutual(secure.Server), c9.Dial(secure.Server)); s == nil {
		t.Error("it was let in")
	}
	if _, _, c := meet(t, c9.Mutual(secure.Server), c1.Dial(secure.Server)); c == nil {
		t.Error("it was talked to")
	}
	state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf(t, filepath.Join(dir, "server-c9.crt"))}}
	if c1.Still(state, secure.Server) == nil {
		t.Error("it may go on")
	}
}

func TestDenialsInTheirFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "denied.json")
	if none, err := secure.ReadDenials(path); err != nil || len(none) != 0 {
		t.Errorf("a missing file: %v, %v", none, err)
	}
	d := secure.NewDenials()
	d.Add(secure.Denial{Identity: "node/n1", At: 5, Reason: "stolen"}, secure.Denial{Serial: "ab12", At: 6})
	if d.Add(secure.Denial{Identity: "node/n1", At: 4}, secure.Denial{}) {
		t.Error("an earlier denial is news")
	}
	if err := secure.WriteDenials(path, d.All()); err != nil {
		t.Fatal(err)
	}
	got, err := secure.ReadDenials(path)
	if err != nil || len(got) != 2 || got[1].Identity != "node/n1" || got[1].At != 5 {
		t.Errorf("read %v, %v", got, err)
	}
	if err := os.WriteFile(path, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := secure.ReadDenials(path); err == nil {
		t.Error("rubbish was read")
	}
	for text, good := range map[string]bool{"node/n1": true, "AB:12": true, "00ff": true, "": false, "root/x": false, "n1": false, "0": false} {
		if _, err := secure.ParseDenial(text); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}
