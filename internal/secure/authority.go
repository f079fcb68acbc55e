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
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// Lives of certificates when nothing else is asked for.
const (
	AuthorityLife   = 10 * 365 * 24 * time.Hour
	CertificateLife = 365 * 24 * time.Hour
	// skew is how long before its making a certificate is valid: clocks differ.
	skew = 5 * time.Minute
)

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

// Issue makes a certificate for one identity. It never outlives the authority.
func (a *Authority) Issue(who Identity, now time.Time, life time.Duration) (Pair, error) {
	if err := who.Validate(); err != nil {
		return Pair{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("secure: key: %w", err)
	}
	end := now.Add(life)
	if end.After(a.cert.NotAfter) {
		end = a.cert.NotAfter
	}
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: who.String()}, URIs: []*url.URL{who.uri()}, NotBefore: now.Add(-skew), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	return sign(c, a.cert, key, a.key)
}

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

// Write puts the pair into two new files: the certificate readable by all, the
// key by its owner. An existing file is never written over.
func (p Pair) Write(certFile, keyFile string) error {
	for _, name := range []string{certFile, keyFile} {
		if _, err := os.Lstat(name); err == nil {
			return fmt.Errorf("%w: %s", ErrExists, name)
		}
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
