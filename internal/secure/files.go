package secure

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"
)

// Files are the three files of a process's identity, as the `tls` section of a
// configuration names them.
type Files struct {
	// CA is the cluster's authority.
	CA string `yaml:"ca"`
	// Cert and Key are the process's own.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// Keeper holds a process's identity, and reads the files again when they change:
// a renewed certificate is taken up by the next connection, and Due says when those
// that are open have to follow. It is safe for use by many goroutines.
type Keeper struct {
	files Files

	mu     sync.Mutex
	looked time.Time
	stamps [3]fs.FileInfo
	term   *Term // since the files were last read
	cert   *tls.Certificate
	roots  *x509.CertPool
	denied *Denials
	vet    func(Identity) error
}

// Deny has the keeper refuse the certificates that are denied, at every handshake from now on.
func (k *Keeper) Deny(d *Denials) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.denied = d
}

// Denials are those of Deny; nil without.
func (k *Keeper) Denials() *Denials {
	denied, _ := k.checks()
	return denied
}

// Vet makes Mutual and Dial call f for each peer, at every handshake from now on:
// a certificate proves an identity, not membership.
func (k *Keeper) Vet(f func(Identity) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.vet = f
}

// checks are the denials, and what Vet was given.
func (k *Keeper) checks() (*Denials, func(Identity) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.denied, k.vet
}

// Still reports whether Mutual or Dial would accept the peer of a connection now.
// Connections live for weeks, so they are checked again meanwhile.
func (k *Keeper) Still(s tls.ConnectionState, roles ...string) error {
	_, roots := k.now()
	denied, vet := k.checks()
	return verify(s, roots, roles, denied, vet)
}

// lookEvery is how often the files are looked at, at most: a certificate that was renewed
// too late works within 10 s, with the clients' pauses.
const lookEvery = 2 * time.Second

// Open reads the files once. Errors name the file.
func Open(f Files) (*Keeper, error) {
	k := &Keeper{files: f}
	if f.CA == "" || f.Cert == "" || f.Key == "" {
		return nil, errors.New("secure: tls needs ca, cert and key")
	}
	if err := k.read(); err != nil {
		return nil, err
	}
	return k, nil
}

// read reads all three files; the caller holds the lock, or is alone.
func (k *Keeper) read() error {
	stamps := k.modified()
	text, err := os.ReadFile(k.files.CA)
	if err != nil {
		return fmt.Errorf("secure: tls.ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return fmt.Errorf("tls.ca: %s: %w", k.files.CA, errAuthority)
	}
	cert, err := tls.LoadX509KeyPair(k.files.Cert, k.files.Key)
	if err != nil {
		return fmt.Errorf("secure: tls.cert %s, tls.key %s: %w", k.files.Cert, k.files.Key, err)
	}
	who, err := IdentityOf(cert.Leaf)
	if err != nil {
		return fmt.Errorf("tls.cert: %s: %w", k.files.Cert, err)
	}
	if k.cert != nil {
		if own, _ := IdentityOf(k.cert.Leaf); who != own { // a wrong copy must not cost what still works
			return fmt.Errorf("tls.cert: %s: %w: %s instead of %s", k.files.Cert, errOther, who, own)
		}
	}
	k.roots, k.cert, k.stamps = roots, &cert, stamps
	if k.term != nil {
		k.term.over = time.Now()
	}
	k.term = &Term{ends: cert.Leaf.NotAfter, margin: Margin(cert.Leaf)}
	return nil
}

// modified is what tells the files from those that were read: a copy may keep the time.
func (k *Keeper) modified() (out [3]fs.FileInfo) {
	for i, name := range []string{k.files.CA, k.files.Cert, k.files.Key} {
		if info, err := os.Stat(name); err == nil {
			out[i] = info
		}
	}
	return out
}

func sameFile(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// now is the identity as the files have it; a file that cannot be read leaves the old one in force.
func (k *Keeper) now() (*tls.Certificate, *x509.CertPool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.look()
	return k.cert, k.roots
}

// look reads the files if they have changed; the caller holds the lock.
func (k *Keeper) look() {
	at := time.Now()
	if at.Sub(k.looked) < lookEvery {
		return
	}
	k.looked = at
	found := k.modified()
	if !slices.EqualFunc(found[:], k.stamps[:], sameFile) {
		_ = k.read() // the old identity is good until it ends, and Ends tells when
	}
}

// Identity is the process's own.
func (k *Keeper) Identity() Identity {
	cert, _ := k.now()
	who, _ := IdentityOf(cert.Leaf) // Open has checked it
	return who
}

// Ends is when the process's certificate ends.
func (k *Keeper) Ends() time.Time {
	cert, _ := k.now()
	return cert.Leaf.NotAfter
}

// Verify checks that the process's certificate is signed by the authority and valid at
// the time. ErrEarly is one that is not valid yet.
func (k *Keeper) Verify(at time.Time) error {
	cert, roots := k.now()
	c := cert.Leaf
	switch {
	case at.Before(c.NotBefore):
		return fmt.Errorf("tls.cert: %s: %w: from %s; the clock of this machine shows %s", k.files.Cert, ErrEarly, c.NotBefore.Format(time.RFC3339), at.UTC().Format(time.RFC3339))
	case at.After(c.NotAfter):
		return fmt.Errorf("tls.cert: %s: expired at %s", k.files.Cert, c.NotAfter.Format(time.RFC3339))
	}
	if _, err := c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return fmt.Errorf("tls.cert: %s: not valid with tls.ca %s: %w", k.files.Cert, k.files.CA, err)
	}
	return nil
}

// Unnamed returns those hosts that the process's certificate does not name: clients that are not
// Headroom's refuse it there.
func (k *Keeper) Unnamed(hosts []string) []string {
	cert, _ := k.now()
	return slices.DeleteFunc(slices.Clone(hosts), func(host string) bool { return cert.Leaf.VerifyHostname(host) == nil })
}

// Server is the configuration of a server that asks every client for a
// certificate, and takes one without only where a token may stand in for it.
func (k *Keeper) Server(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cert, roots := k.now()
			return &tls.Config{
				MinVersion: tls.VersionTLS13, NextProtos: protocols, Certificates: []tls.Certificate{*cert},
				ClientCAs: roots, ClientAuth: tls.VerifyClientCertIfGiven,
				VerifyConnection: func(s tls.ConnectionState) error {
					if len(s.PeerCertificates) == 0 {
						return nil
					}
					denied, _ := k.checks()
					if err := denied.Check(s.PeerCertificates[0]); err != nil {
						return err
					}
					_, err := IdentityOf(s.PeerCertificates[0])
					return err
				},
			}, nil
		},
	}
}

// Client is the configuration of a client that talks to peers of the given roles
// only. Hosts are not checked: the certificate says who answers, wherever it is.
func (k *Keeper) Client(protocols []string, roles ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protocols,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection checks the chain and the role; only the host's name is not looked at
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, _ := k.now()
			return cert, nil
		},
		VerifyConnection: func(s tls.ConnectionState) error {
			return k.Admits(s, roles...)
		},
	}
}

// Admits reports whether Client would accept the peer of a connection now.
func (k *Keeper) Admits(s tls.ConnectionState, roles ...string) error {
	_, roots := k.now()
	denied, _ := k.checks()
	return verify(s, roots, roles, denied, nil)
}

// Dial is the configuration of a client that talks to peers of the given roles
// only, and asks what Vet was given about each.
func (k *Keeper) Dial(roles ...string) *tls.Config {
	c := k.Client(nil, roles...)
	c.VerifyConnection = func(s tls.ConnectionState) error { return k.Still(s, roles...) }
	return c
}

// Mutual is the configuration of a server that talks to peers of the given roles only.
func (k *Keeper) Mutual(roles ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cert, roots := k.now()
			return &tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*cert}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
				VerifyConnection: func(s tls.ConnectionState) error { return k.Still(s, roles...) },
			}, nil
		},
	}
}

// verify checks the peer's chain and role, that it is not denied, and what vet says of it.
func verify(s tls.ConnectionState, roots *x509.CertPool, roles []string, denied *Denials, vet func(Identity) error) error {
	if len(s.PeerCertificates) == 0 {
		return errNoIdentity
	}
	leaf := s.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return fmt.Errorf("secure: the peer's certificate: %w", err)
	}
	who, err := IdentityOf(leaf)
	if err != nil {
		return err
	}
	if !slices.Contains(roles, who.Role) {
		return fmt.Errorf("%w: %s, expected %v", errRole, who, roles)
	}
	if err := denied.Check(leaf); err != nil {
		return err
	}
	if vet != nil {
		return vet(who)
	}
	return nil
}

// PeerOf is who showed a certificate on a connection, and false when nobody did.
func PeerOf(s *tls.ConnectionState) (Identity, bool) {
	if s == nil || len(s.PeerCertificates) == 0 {
		return Identity{}, false
	}
	who, err := IdentityOf(s.PeerCertificates[0])
	return who, err == nil
}

// Anonymous is the configuration of a client without a certificate of its own,
// which talks to peers of the given roles only.
func Anonymous(ca string, protocols []string, roles ...string) (*tls.Config, error) {
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("secure: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: %w", ca, errAuthority)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protocols,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection checks the chain and the role; only the host's name is not looked at
		VerifyConnection:   func(s tls.ConnectionState) error { return verify(s, roots, roles, nil, nil) },
	}, nil
}
