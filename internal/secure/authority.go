package secure

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// Lives of certificates when nothing else is asked for.
const (
	AuthorityLife   = 10 * 365 * 24 * time.Hour
	CertificateLife = 365 * 24 * time.Hour
	// skew is how long before its making a certificate is valid: clocks differ.
	skew = 5 * time.Minute
)

// hostsMost bounds the names and addresses of one certificate: a machine has a few, and every
// handshake carries them.
const hostsMost = 100

// clockSet is what a clock shows at least once it has been set: an unset one begins in 1970.
var clockSet = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Authority signs the certificates of one cluster.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate and its key, both PEM.
type Pair struct{ Cert, Key []byte }

// NewAuthority makes the authority of a cluster; its key must be kept offline,
// or as safe as the breaker itself.
func NewAuthority(cluster string, now time.Time, life time.Duration) (*Authority, Pair, error) {
	if now.Before(clockSet) {
		return nil, Pair{}, fmt.Errorf("%w: it shows %s", ErrClock, now.Format(time.RFC3339))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, Pair{}, fmt.Errorf("secure: key: %w", err)
	}
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: "headroom " + cluster}, NotBefore: now.Add(-skew), NotAfter: now.Add(life),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	pair, err := sign(c, c, key, key)
	if err != nil {
		return nil, Pair{}, err
	}
	a, err := ReadAuthority(pair)
	return a, pair, err
}

// ReadAuthority reads an authority's certificate and key.
func ReadAuthority(p Pair) (*Authority, error) {
	cert, err := parseCertificate(p.Cert)
	if err != nil {
		return nil, err
	}
	if !cert.IsCA {
		return nil, errAuthority
	}
	block, _ := pem.Decode(p.Key)
	if block == nil {
		return nil, fmt.Errorf("%w: its key is not PEM", errAuthority)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: its key: %w", errAuthority, err)
	}
	own, ok := key.(*ecdsa.PrivateKey)
	if !ok || !own.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("%w: the key is another's", errAuthority)
	}
	return &Authority{cert: cert, key: own}, nil
}

// Issue makes a certificate for one identity. It never outlives the authority. hosts are the DNS
// names and addresses at which clients reach what serves with it; other identities have none.
func (a *Authority) Issue(who Identity, now time.Time, life time.Duration, hosts ...string) (Pair, error) {
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: who.String()}, URIs: []*url.URL{who.uri()}, NotBefore: now.Add(-skew), NotAfter: now.Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: who.usages(),
	}
	if err := errors.Join(who.Validate(), addHosts(c, who, hosts)); err != nil {
		return Pair{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("secure: key: %w", err)
	}
	if c.NotAfter.After(a.cert.NotAfter) {
		c.NotAfter = a.cert.NotAfter
	}
	return sign(c, a.cert, key, a.key)
}

// Covers returns why nobody would accept what is signed at a time: it is outside the authority's
// own life, or the clock is not set.
func (a *Authority) Covers(now time.Time) error {
	switch {
	case now.Before(a.cert.NotBefore):
		return fmt.Errorf("%w: it shows %s, and the authority is valid from %s", ErrClock, now.Format(time.RFC3339), a.cert.NotBefore.Format(time.RFC3339))
	case now.After(a.cert.NotAfter):
		return fmt.Errorf("%w: it expired on %s", errAuthority, a.cert.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// addHosts puts DNS names and addresses into a certificate that servers show.
func addHosts(c *x509.Certificate, who Identity, hosts []string) error {
	if len(hosts) > 0 && !who.Serves() {
		return fmt.Errorf("%w: %s serves nobody, its certificate has no host names", ErrIdentity, who)
	}
	if len(hosts) > hostsMost {
		return fmt.Errorf("%w: %d host names, the maximum is %d", ErrIdentity, len(hosts), hostsMost)
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
			continue
		}
		if !hostname.MatchString(host) || len(host) > hostnameMax {
			return fmt.Errorf("%w: %.60q is neither a host name nor an address", ErrIdentity, host)
		}
		c.DNSNames = append(c.DNSNames, host)
	}
	return nil
}

// hostname is a DNS name, of letters, digits, hyphens and dots, at most hostnameMax long; *. at its beginning
// stands for one label.
var hostname = regexp.MustCompile(`^(\*\.)?([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$`)

const hostnameMax = 253

// sign makes the certificate and both PEM texts.
func sign(c, parent *x509.Certificate, key, by *ecdsa.PrivateKey) (Pair, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return Pair{}, fmt.Errorf("secure: serial number: %w", err)
	}
	c.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	if err != nil {
		return Pair{}, fmt.Errorf("secure: sign: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("secure: key: %w", err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, nil
}

func parseCertificate(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%w: not PEM", errAuthority)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errAuthority, err)
	}
	return c, nil
}

// Absent returns ErrExists if one of the files exists.
func Absent(names ...string) error {
	for _, name := range names {
		if _, err := os.Lstat(name); err == nil {
			return fmt.Errorf("%w: %s", ErrExists, name)
		}
	}
	return nil
}

// Write puts the pair into two new files: the certificate readable by all, the
// key by its owner. An existing file is never written over.
func (p Pair) Write(certFile, keyFile string) error {
	if err := Absent(certFile, keyFile); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(keyFile), 0o700); err != nil {
		return fmt.Errorf("secure: %w", err)
	}
	if err := writeNew(keyFile, p.Key, 0o600); err != nil {
		return err
	}
	if err := writeNew(certFile, p.Cert, 0o644); err != nil {
		return errors.Join(err, os.Remove(keyFile))
	}
	return nil
}

func writeNew(name string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("secure: %w", err)
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// ReadPair reads a certificate and its key.
func ReadPair(certFile, keyFile string) (Pair, error) {
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return Pair{}, fmt.Errorf("secure: %w", err)
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return Pair{}, fmt.Errorf("secure: %w", err)
	}
	return Pair{Cert: cert, Key: key}, nil
}
