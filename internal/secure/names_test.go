package secure_test

// Claims: a server's certificate is accepted by clients that know only the authority and the host
// name or address that they dial; those of nodes, workers and people are not, and one for metrics
// opens nothing; what cannot stand in a certificate is refused before it is made.

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"headroom/internal/secure"
)

// hosted makes an identity's files with host names.
func hosted(t *testing.T, a *secure.Authority, dir string, who secure.Identity, hosts ...string) secure.Files {
	t.Helper()
	pair, err := a.Issue(who, time.Now(), time.Hour, hosts...)
	f := secure.Files{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "hosted-"+who.Role+".crt"), Key: filepath.Join(dir, "hosted-"+who.Role+".key")}
	if err := errors.Join(err, pair.Write(f.Cert, f.Key)); err != nil {
		t.Fatal(err)
	}
	return f
}

// plain is the configuration of a client that is not Headroom's: Go's own checks and the authority.
func plain(t *testing.T, ca, host string) *tls.Config {
	t.Helper()
	text, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12}
}

func TestServersAreVerifiedByHostAndAuthorityAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := authority(t, dir)
	named := keeper(t, hosted(t, a, dir, secure.Identity{Role: secure.Server, Name: "c1"}, "c1.example.org", "10.0.0.11", "fd00::11"))
	old := keeper(t, files(t, a, dir, secure.Identity{Role: secure.Server, Name: "c2"}))
	metrics := keeper(t, hosted(t, a, dir, secure.Identity{Role: secure.Metrics, Name: "n03"}, "n03"))
	node := keeper(t, files(t, a, dir, secure.Identity{Role: secure.Node, Name: "n03"}))
	worker := keeper(t, files(t, a, dir, secure.Identity{Role: secure.Worker, Name: "n03"}))
	for _, c := range []struct {
		what, host string
		server     *secure.Keeper
		good       bool
	}{
		{"by its name", "c1.example.org", named, true},
		{"by its address", "10.0.0.11", named, true},
		{"by its IPv6 address", "fd00::11", named, true},
		{"by another name", "c2.example.org", named, false},
		{"without names", "c2", old, false},
		{"metrics of a node", "n03", metrics, true},
		{"a node", "n03", node, false},
		{"a worker", "n03", worker, false},
	} {
		if _, _, err := meet(t, c.server.Server(), plain(t, filepath.Join(dir, "ca.crt"), c.host)); (err == nil) != c.good {
			t.Errorf("%s: %v", c.what, err)
		}
	}

	// Headroom's own programs go by the URI: names, or none, change nothing for them.
	for what, c := range map[string]struct {
		server, client *secure.Keeper
		good           bool
	}{
		"a server with names":             {named, node, true},
		"a server without":                {old, node, true},
		"a node as server":                {node, old, false},
		"a certificate of metrics as one": {metrics, node, false},
		"a certificate of metrics calls":  {named, metrics, false},
	} {
		_, one, two := meet(t, c.server.Server(), c.client.Client(nil, secure.Server))
		if (one == nil && two == nil) != c.good {
			t.Errorf("%s: server says %v, client %v", what, one, two)
		}
	}

	// Nor does serverAuth rest on the role alone.
	for _, k := range []*secure.Keeper{node, worker} {
		c := leaf(t, filepath.Join(dir, k.Identity().Role+"-n03.crt"))
		if _, err := c.Verify(x509.VerifyOptions{Roots: plain(t, filepath.Join(dir, "ca.crt"), "").RootCAs, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err == nil {
			t.Errorf("%s may serve", k.Identity())
		}
	}
}

func TestWhatNoCertificateCarries(t *testing.T) {
	t.Parallel()
	a := authority(t, t.TempDir())
	server, now := secure.Identity{Role: secure.Server, Name: "c1"}, time.Now()
	many := make([]string, 1000)
	for i := range many {
		many[i] = fmt.Sprintf("h%d.example.org", i)
	}
	for what, issue := range map[string]func() error{
		"1,000 names":              func() error { _, err := a.Issue(server, now, time.Hour, many...); return err },
		"a name with a space":      func() error { _, err := a.Issue(server, now, time.Hour, "a b"); return err },
		"an address with a port":   func() error { _, err := a.Issue(server, now, time.Hour, "10.0.0.1:7400"); return err },
		"an empty name":            func() error { _, err := a.Issue(server, now, time.Hour, ""); return err },
		"a name of 300 characters": func() error { _, err := a.Issue(server, now, time.Hour, fmt.Sprintf("%0300d", 1)); return err },
		"a node with a host name": func() error {
			_, err := a.Issue(secure.Identity{Role: secure.Node, Name: "n1"}, now, time.Hour, "n1")
			return err
		},
	} {
		if err := issue(); !errors.Is(err, secure.ErrIdentity) {
			t.Errorf("%s: %v", what, err)
		}
	}
	unset := time.Unix(0, 0)
	if _, _, err := secure.NewAuthority("lab", unset, time.Hour); !errors.Is(err, secure.ErrClock) {
		t.Errorf("an authority in 1970: %v", err)
	}
	if err := a.Covers(unset); !errors.Is(err, secure.ErrClock) {
		t.Errorf("a certificate in 1970: %v", err)
	}
	if err := a.Covers(now.Add(2 * time.Hour)); err == nil {
		t.Error("an authority that has expired signs")
	}
}

// A peer's certificate with 1,000 names: with one identity it is only long, with more it is nobody's.
func TestCertificateOf1000Names(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := authority(t, dir)
	node := keeper(t, files(t, a, dir, secure.Identity{Role: secure.Node, Name: "n1"}))
	ca, err := secure.ReadPair(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(ca.Key)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	forge := func(edit func(c *x509.Certificate, i int)) *tls.Config {
		c := &x509.Certificate{
			SerialNumber: big.NewInt(7), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Minute),
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			URIs: []*url.URL{{Scheme: "headroom", Host: secure.Server, Path: "/c1"}},
		}
		for i := range 1000 {
			edit(c, i)
		}
		der, err := x509.CreateCertificate(rand.Reader, c, leaf(t, filepath.Join(dir, "ca.crt")), &own.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: own}}}
	}
	hosts := forge(func(c *x509.Certificate, i int) { c.DNSNames = append(c.DNSNames, fmt.Sprintf("h%d.example.org", i)) })
	if _, _, err := meet(t, hosts, node.Client(nil, secure.Server)); err != nil {
		t.Errorf("1,000 host names: %v", err)
	}
	identities := forge(func(c *x509.Certificate, i int) {
		c.URIs = append(c.URIs, &url.URL{Scheme: "headroom", Host: secure.Node, Path: fmt.Sprintf("/n%d", i)})
	})
	if _, _, err := meet(t, identities, node.Client(nil, secure.Server)); err == nil {
		t.Error("a certificate of 1,001 identities is accepted")
	}
}

// A program that runs keeps its certificate when its files are replaced by another's, and takes over the
// next one of its own.
func TestWrongFilesReplaceNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a := authority(t, dir)
		f := files(t, a, dir, secure.Identity{Role: secure.Node, Name: "n1"})
		k := keeper(t, f)
		first := k.Ends()
		put := func(who string) {
			t.Helper()
			pair, err := a.Issue(secure.Identity{Role: secure.Node, Name: who}, time.Now(), 30*time.Minute)
			if err = errors.Join(err, os.Remove(f.Cert), os.Remove(f.Key), pair.Write(f.Cert, f.Key)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(11 * time.Second) // longer than between two looks at the files
		}
		put("n2")
		if !k.Ends().Equal(first) || k.Identity().Name != "n1" {
			t.Errorf("%s until %v was taken over", k.Identity(), k.Ends())
		}
		put("n1")
		if k.Ends().Equal(first) || k.Verify(time.Now()) != nil {
			t.Errorf("a good one was not taken over: until %v, %v", k.Ends(), k.Verify(time.Now()))
		}
	})
}
