// Claims: a private authority is the only one trusted, a certificate is shown, both are read
// again when they change, TLS below 1.2 is refused; what is wrong with a file is said with
// its key; a document that is no keytab or krb5.conf is refused, never a panic or a hang.
package webclient

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/internal/testkit/kdc"
)

// authority makes certificates, as a site's own does.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.key = testkit.Need(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "site"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := testkit.Need(x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key))(t)
	a.cert = testkit.Need(x509.ParseCertificate(der))(t)
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// issue makes a certificate of that name and its key, in PEM.
func (a *authority) issue(name string) (certificate, key []byte) {
	a.t.Helper()
	own := testkit.Need(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(a.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der := testkit.Need(x509.CreateCertificate(rand.Reader, template, a.cert, own.Public(), a.key))(a.t)
	private := testkit.Need(x509.MarshalPKCS8PrivateKey(own))(a.t)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
}

// serve is a server with the authority's certificate that asks clients for one of clients.
func (a *authority) serve(clients *authority, version uint16) string {
	a.t.Helper()
	certificate, key := a.issue("localhost")
	roots := x509.NewCertPool()
	roots.AddCert(clients.cert)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.TLS.PeerCertificates[0].Subject.CommonName))
	}))
	s.TLS = &tls.Config{
		Certificates: []tls.Certificate{testkit.Need(tls.X509KeyPair(certificate, key))(a.t)}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS10, MaxVersion: version,
	}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	a.t.Cleanup(s.Close)
	return strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
}

func put(t *testing.T, path string, data []byte, mode os.FileMode) string {
	t.Helper()
	testkit.Check(t, os.WriteFile(path, data, mode))
	testkit.Check(t, os.Chmod(path, mode))
	return path
}

func TestPrivateAuthority(t *testing.T) {
	t.Parallel()
	site, stranger, dir := newAuthority(t), newAuthority(t), t.TempDir()
	certificate, key := site.issue("headroom")
	cfg := Config{
		Section: "yarn", CA: put(t, filepath.Join(dir, "ca"), site.pem, 0o644),
		Certificate: put(t, filepath.Join(dir, "crt"), certificate, 0o644), Key: put(t, filepath.Join(dir, "key"), key, 0o600),
	}
	if err := cfg.CheckFiles(); err != nil {
		t.Fatal(err)
	}
	address := site.serve(site, tls.VersionTLS13)
	tr := New(cfg, slog.New(slog.DiscardHandler))
	t.Cleanup(tr.CloseIdleConnections)
	if got, err := ask(within(t), tr, address, ""); err != nil || got != "headroom" {
		t.Fatalf("got %q, %v", got, err)
	}
	if _, err := ask(within(t), tr, stranger.serve(site, tls.VersionTLS13), ""); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("a server of another authority: %v", err)
	}
	if _, err := ask(within(t), tr, site.serve(stranger, tls.VersionTLS13), ""); err == nil {
		t.Error("a server that trusts others was satisfied")
	}
	if _, err := ask(within(t), tr, site.serve(site, tls.VersionTLS11), ""); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.1: %v", err)
	}

	// Damaged files leave the old ones in force, new ones are taken up.
	age := func() { tr.mu.Lock(); defer tr.mu.Unlock(); tr.looked = time.Time{} }
	put(t, cfg.CA, []byte("damaged"), 0o644)
	testkit.Check(t, os.Chtimes(cfg.CA, time.Time{}, time.Now().Add(time.Minute)))
	age()
	if _, err := ask(within(t), tr, address, ""); err != nil {
		t.Errorf("with a damaged file: %v", err)
	}
	certificate, key = stranger.issue("renewed")
	put(t, cfg.CA, stranger.pem, 0o644)
	put(t, cfg.Certificate, certificate, 0o644)
	put(t, cfg.Key, key, 0o600)
	age()
	if got, err := ask(within(t), tr, stranger.serve(stranger, tls.VersionTLS12), ""); err != nil || got != "renewed" {
		t.Errorf("after the change: %q, %v", got, err)
	}
}

// Without readable files nothing is asked, and the request says why.
func TestFilesThatAreMissing(t *testing.T) {
	t.Parallel()
	tr := New(Config{Section: "yarn", CA: "/nowhere/ca.pem"}, slog.New(slog.DiscardHandler))
	if _, err := ask(within(t), tr, "https://localhost:1/", ""); err == nil || !strings.Contains(err.Error(), "/nowhere/ca.pem") {
		t.Errorf("got %v", err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	web, secure := []string{"http://rm1:8088"}, []string{"http://rm1:8088", "https://rm2:8090"}
	who := Kerberos{Principal: "headroom/rm1@A.B", Keytab: "/k", Krb5Conf: "/c"}
	with := func(edit func(*Kerberos)) Config {
		k := who
		edit(&k)
		return Config{Section: "yarn", Kerberos: k}
	}
	for name, c := range map[string]struct {
		cfg       Config
		addresses []string
		want      string // "" for nothing wrong
	}{
		"nothing":           {Config{Section: "yarn", Kerberos: Defaults()}, web, ""},
		"everything":        {Config{Section: "yarn", CA: "/ca", Certificate: "/crt", Key: "/key", Kerberos: who}, secure, ""},
		"no realm":          {with(func(k *Kerberos) { k.Principal = "headroom" }), web, "is not NAME/HOST@REALM"},
		"blanks":            {with(func(k *Kerberos) { k.Principal = "head room@A" }), web, "is not NAME/HOST@REALM"},
		"no keytab":         {with(func(k *Kerberos) { k.Keytab = "" }), web, "needs keytab and krb5_conf"},
		"relative keytab":   {with(func(k *Kerberos) { k.Keytab = "k" }), web, "yarn.kerberos.keytab \"k\" is not an absolute path"},
		"address":           {with(func(*Kerberos) {}), []string{"http://10.0.0.1:8088"}, "is an IP address"},
		"half a pair":       {Config{Section: "yarn", Certificate: "/crt"}, secure, "needs yarn.key"},
		"authority for TLS": {Config{Section: "yarn", CA: "/ca"}, web, "need an https address"},
		"relative":          {Config{Section: "yarn", CA: "ca"}, secure, "yarn.ca \"ca\" is not an absolute path"},
	} {
		err := c.cfg.Check(c.addresses)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Message, c.want) || err.Hint == "") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestCheckFiles(t *testing.T) {
	t.Parallel()
	a, dir := newAuthority(t), t.TempDir()
	certificate, key := a.issue("headroom")
	_, another := a.issue("another")
	file := func(name string, data []byte, mode os.FileMode) string {
		return put(t, filepath.Join(dir, name), data, mode)
	}
	ca, crt, secret := file("ca", a.pem, 0o644), file("crt", certificate, 0o644), file("key", key, 0o640)
	conf := file("krb5.conf", []byte(kdc.Conf("127.0.0.1:88")), 0o644)
	kerberos := func(keytab, conf string) Config {
		return Config{Section: "yarn", Kerberos: Kerberos{ownFull, keytab, conf}}
	}
	empty := file("empty", []byte{5, 2}, 0o600)
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"missing":            {Config{Section: "yarn", CA: "/nowhere"}, "yarn.ca: stat /nowhere"},
		"a folder":           {Config{Section: "yarn", CA: dir}, "not a regular file"},
		"too large":          {Config{Section: "yarn", CA: file("large", make([]byte, fileMax+1), 0o644)}, "larger than"},
		"no certificate":     {Config{Section: "yarn", CA: file("text", []byte("text"), 0o644)}, "contains no certificate"},
		"damaged":            {Config{Section: "yarn", CA: file("damaged", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), 0o644)}, "certificate 1"},
		"open key":           {Config{Section: "yarn", CA: ca, Certificate: crt, Key: file("open", key, 0o644)}, "mode 0644"},
		"another's key":      {Config{Section: "yarn", CA: ca, Certificate: crt, Key: file("other", another, 0o600)}, "does not match"},
		"right":              {Config{Section: "yarn", CA: ca, Certificate: crt, Key: secret}, ""},
		"open keytab":        {kerberos(file("open.keytab", []byte{5, 2}, 0o644), conf), "mode 0644"},
		"keytab of nobody":   {kerberos(empty, conf), "is not a keytab"},
		"no keytab":          {kerberos(secret, conf), "is not a keytab"},
		"krb5.conf is empty": {kerberos(empty, file("empty.conf", nil, 0o644)), "has no kdc"},
		"krb5.conf of other": {kerberos(empty, file("other.conf", []byte("[realms]\n X = {\n  kdc = a\n }\n"), 0o644)), "has no kdc for " + kdc.Realm},
		"krb5.conf broken":   {kerberos(empty, file("broken.conf", []byte("[libdefaults]\n ticket_lifetime = long\n"), 0o644)), "broken.conf"},
	} {
		err := c.cfg.CheckFiles()
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Message, c.want) || err.Hint == "") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func FuzzKeytab(f *testing.F) {
	f.Add([]byte{5, 2})
	f.Add([]byte("\x05\x02\x00\x00\x00\x30\x00\x02\x00\x01A\x00\x01b\x00\x01c\x00\x00\x00\x01\x00\x00\x00\x00\x01\x00\x12\x00\x04keyy"))
	f.Add([]byte("\x05\x02\xff\xff\xff\xff\x00\x00\x00\x00"))
	f.Add([]byte("\x05\x01\x7f\xff\xff\xff"))
	path := filepath.Join(f.TempDir(), "keytab")
	f.Fuzz(func(t *testing.T, data []byte) {
		put(t, path, data, 0o600)
		if keys, err := (Kerberos{Principal: "b/c@A", Keytab: path}).key(); err == nil && len(keys.Entries) == 0 {
			t.Error("a keytab without keys was taken")
		}
	})
}

func FuzzKrb5Conf(f *testing.F) {
	f.Add(kdc.Conf("127.0.0.1:88"))
	f.Add("includedir /etc/krb5.conf.d/\n[libdefaults]\n dns_lookup_kdc = true\n")
	f.Add("[realms]\n A = {\n auth_to_local = {\n }\n kdc = x\n}")
	f.Add("[realms]\n}\n{\n")
	path := filepath.Join(f.TempDir(), "krb5.conf")
	f.Fuzz(func(t *testing.T, text string) {
		put(t, path, []byte(text), 0o600)
		if conf, err := (Kerberos{Principal: "b@A", Krb5Conf: path}).realmConfig(); err == nil && conf == nil {
			t.Error("neither a configuration nor an error")
		}
	})
}
