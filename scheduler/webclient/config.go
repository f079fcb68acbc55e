// Package webclient is how the scheduler proves itself to the web services of an engine
// and checks who answers: a private authority, a certificate of its own, Kerberos.
//
// The one idea: it is an http.RoundTripper. Whoever asks an engine writes plain HTTP; this
// package decides who is trusted and what is shown, and reads its files again when they
// change.
//
// Guarantees:
//   - TLS 1.2 or newer; where an authority is named it is the only one trusted;
//   - tickets are acquired in the background and renewed before they expire; a request
//     waits for a KDC at most as long as its own deadline;
//   - a KDC that fails is asked again after a pause, not with each request;
//   - files that become unreadable leave the last good ones in force;
//   - no key, ticket or cookie appears in an error or in the log.
//
// What it never does: follow a redirect, so nothing is shown to a host that the
// configuration does not name.
package webclient

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"headroom/internal/cli"
	"headroom/internal/config"
)

// Config states who is trusted and how the scheduler proves itself.
type Config struct {
	// Section is the part of scheduler.yaml that the keys stand in, for messages: yarn.
	Section string
	// CA is a file of the only authorities trusted; empty stands for those of this machine.
	CA string
	// Certificate and Key are shown to servers that ask for a certificate; both may be empty.
	Certificate, Key string
	// Kerberos is the principal that logs in; empty for none.
	Kerberos Kerberos
}

// Kerberos is a principal and where its key is.
type Kerberos struct {
	// Principal logs in, headroom/HOST@REALM; empty for no Kerberos.
	Principal string `yaml:"principal"`
	// Keytab is the file with its key.
	Keytab string `yaml:"keytab"`
	// Krb5Conf names the KDCs of the realm.
	Krb5Conf string `yaml:"krb5_conf"`
}

// Defaults returns the files' usual places.
func Defaults() Kerberos {
	return Kerberos{Keytab: "/etc/headroom/scheduler/headroom.keytab", Krb5Conf: "/etc/krb5.conf"}
}

// On reports whether a principal logs in.
func (k Kerberos) On() bool { return k.Principal != "" }

// fileMax bounds each file, in bytes: real ones have some kilobytes.
const fileMax = 1 << 20

// principalRule is a principal of one or two components with its realm.
var principalRule = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)?@[A-Za-z0-9._-]+$`)

// split returns the principal's name and its realm.
func (k Kerberos) split() (name, realm string) {
	name, realm, _ = strings.Cut(k.Principal, "@")
	return name, realm
}

// Check returns what is wrong with the configuration, nil when nothing is. addresses are
// the web addresses that are asked. It reads no file: CheckFiles does.
func (c Config) Check(addresses []string) *cli.Error {
	secure := slices.ContainsFunc(addresses, func(a string) bool { return strings.HasPrefix(a, "https:") })
	switch {
	case (c.Certificate == "") != (c.Key == ""):
		return config.Bad("set both, or neither", "%s.certificate needs %s.key, and the other way round", c.Section, c.Section)
	case (c.CA != "" || c.Certificate != "") && !secure:
		return config.Bad("use https:// addresses, or remove ca and certificate",
			"%s.ca and %s.certificate need an https address", c.Section, c.Section)
	case !c.Kerberos.On():
		return c.checkPaths()
	case !principalRule.MatchString(c.Kerberos.Principal):
		return config.Bad("for example principal: headroom/host.example.org@EXAMPLE.ORG", "%s.kerberos.principal %q is not NAME/HOST@REALM", c.Section, c.Kerberos.Principal)
	case c.Kerberos.Keytab == "" || c.Kerberos.Krb5Conf == "":
		return config.Bad("the usual paths are keytab: /etc/headroom/scheduler/headroom.keytab and krb5_conf: /etc/krb5.conf",
			"%s.kerberos needs keytab and krb5_conf", c.Section)
	}
	for _, a := range addresses {
		if u, err := url.Parse(a); err == nil && net.ParseIP(u.Hostname()) != nil {
			return config.Bad("use the host name in the principal HTTP/HOST@REALM of the server",
				"%s.kerberos: %s is an IP address; Kerberos needs a host name", c.Section, a)
		}
	}
	return c.checkPaths()
}

func (c Config) checkPaths() *cli.Error {
	for _, f := range c.files() {
		if f.path != "" && !filepath.IsAbs(f.path) {
			return config.Bad("use an absolute path", "%s %q is not an absolute path", f.key, f.path)
		}
	}
	return nil
}

type namedFile struct{ key, path string }

// files returns the files of the configuration, with the keys that name them.
func (c Config) files() []namedFile {
	list := []namedFile{{c.Section + ".ca", c.CA}, {c.Section + ".certificate", c.Certificate}, {c.Section + ".key", c.Key}}
	if c.Kerberos.On() {
		list = append(list, namedFile{c.Section + ".kerberos.keytab", c.Kerberos.Keytab}, namedFile{c.Section + ".kerberos.krb5_conf", c.Kerberos.Krb5Conf})
	}
	return list
}

// CheckFiles returns what is wrong with the files, nil when all are as they must be.
func (c Config) CheckFiles() *cli.Error {
	for _, f := range c.files() {
		if f.path == "" {
			continue
		}
		secret := f.path == c.Key || c.Kerberos.On() && f.path == c.Kerberos.Keytab
		if _, err := read(f.path, secret); err != nil {
			return config.Bad(wayOut(err), "%s: %v", f.key, err)
		}
	}
	if c.CA != "" {
		if _, err := c.roots(); err != nil {
			return config.Bad("it must contain the certificate of the CA in PEM form", "%s.ca: %v", c.Section, err)
		}
	}
	if c.Certificate != "" {
		if _, err := c.own(); err != nil {
			return config.Bad("both must be PEM, and the key must belong to the certificate", "%s.certificate: %v", c.Section, err)
		}
	}
	if !c.Kerberos.On() {
		return nil
	}
	if _, err := c.Kerberos.realmConfig(); err != nil {
		return config.Bad("test the file with kinit -kt KEYTAB PRINCIPAL", "%s.kerberos.krb5_conf: %v", c.Section, err)
	}
	if _, err := c.Kerberos.key(); err != nil {
		return config.Bad("list its keys with klist -kt KEYTAB; add one with kadmin ktadd -k KEYTAB PRINCIPAL", "%s.kerberos.keytab: %v", c.Section, err)
	}
	return nil
}

// errOpen refuses a secret that other users can read.
var errOpen = errors.New("readable by every user of this machine")

func wayOut(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "create it, or use another path"
	case errors.Is(err, errOpen):
		return "chmod 0640, owner root, group of the scheduler"
	default:
		return "the scheduler's user must be able to read it"
	}
}

// read reads a file; a secret must not be open to everybody.
func read(path string, secret bool) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if secret && info.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("%s has mode %04o: %w", path, info.Mode().Perm(), errOpen)
	}
	data, err := config.ReadFile(path, fileMax+1)
	if err != nil {
		return nil, err
	}
	if len(data) > fileMax {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, fileMax)
	}
	return data, nil
}

// roots returns the authorities of CA.
func (c Config) roots() (*x509.CertPool, error) {
	text, err := read(c.CA, false)
	if err != nil {
		return nil, err
	}
	roots, n := x509.NewCertPool(), 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: certificate %d: %w", c.CA, n+1, err)
		}
		roots.AddCert(cert)
		n++
	}
	if n == 0 {
		return nil, fmt.Errorf("%s contains no certificate", c.CA)
	}
	return roots, nil
}

// own returns the certificate that is shown.
func (c Config) own() (tls.Certificate, error) {
	certificate, err := read(c.Certificate, false)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := read(c.Key, true)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s, %s: %w", c.Certificate, c.Key, err)
	}
	return pair, nil
}
