// Package secure says who is at the other end of a connection: certificates of
// the cluster's own authority, and what their bearers may do.
//
// The one idea: a certificate names a role and a name, not a host. Its URI is
// headroom://ROLE/NAME, so an address may change and a machine may be reached by
// any name, and still nobody answers as coordinator, or reports as node n03, who
// was not given the key. Both sides always show a certificate (TLS 1.3), checked
// against the cluster's own authority and no other.
//
// Host names and addresses stand in the certificates of servers beside the URI, for
// clients that are not Headroom's: curl, Python, browsers. Headroom's own programs
// do not look at them.
//
// Guarantees: keys are written with mode 0600, never over an existing file; a
// renewed certificate is taken up without a restart; a certificate without the
// uri, with two, or of another authority is refused and the refusal says which.
//
// What it never does: decide what a role may do at which call; that is the
// server's.
package secure

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Roles of a certificate.
const (
	// Server is a coordinator server.
	Server = "server"
	// Node is the powerd of one node.
	Node = "node"
	// Scheduler is the scheduler of jobs, towards the coordinators: it reads, and tells
	// of jobs.
	Scheduler = "scheduler"
	// Master dispatches the tasks of one group to its workers. It reads the caps of nodes, and
	// nothing else of the coordinators.
	Master = "master"
	// Worker runs the tasks of jobs on one node; it names that node.
	Worker = "worker"
	// Submitter hands in jobs, and changes its own.
	Submitter = "submitter"
	// Metrics is what powerd serves its metrics with; it opens nothing.
	Metrics = "metrics"
	// Observer reads, Operator changes, Admin changes the group as well.
	Observer = "observer"
	Operator = "operator"
	Admin    = "admin"
)

// Roles are all roles that a certificate may name.
func Roles() []string {
	return []string{Server, Node, Scheduler, Master, Worker, Submitter, Metrics, Observer, Operator, Admin}
}

// Identity is who a certificate was given to.
type Identity struct {
	Role, Name string
}

// String is the identity as logs show it: "node/n03".
func (i Identity) String() string { return i.Role + "/" + i.Name }

// Serves reports whether clients connect to a holder of the certificate.
func (i Identity) Serves() bool {
	return i.Role == Server || i.Role == Scheduler || i.Role == Master || i.Role == Metrics
}

// usages are what TLS lets the certificate do, whatever the URI says.
func (i Identity) usages() []x509.ExtKeyUsage {
	switch {
	case i.Role == Metrics:
		return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	case i.Serves():
		return []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	}
	return []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
}

// scheme of the URI in a certificate.
const scheme = "headroom"

// nameMax bounds a name in a certificate.
const nameMax = 128

// uri is the identity as a certificate carries it.
func (i Identity) uri() *url.URL { return &url.URL{Scheme: scheme, Host: i.Role, Path: "/" + i.Name} }

// Validate checks that the identity can stand in a certificate.
func (i Identity) Validate() error {
	known := false
	for _, r := range Roles() {
		known = known || r == i.Role
	}
	switch {
	case !known:
		return fmt.Errorf("%w: role %q is none of %s", ErrIdentity, i.Role, strings.Join(Roles(), ", "))
	case i.Name == "" || len(i.Name) > nameMax || strings.ContainsAny(i.Name, "/?#% \t\n"):
		return fmt.Errorf("%w: name %q", ErrIdentity, i.Name)
	}
	return nil
}

var (
	// ErrIdentity means a role or name that no certificate can carry.
	ErrIdentity = errors.New("secure: bad identity")
	// errNoIdentity means a certificate that names nobody, or more than one.
	errNoIdentity = errors.New("secure: the certificate has no single headroom://ROLE/NAME")
	// errRole means a peer with another role than the one expected.
	errRole = errors.New("secure: the peer has another role")
	// errOther means a certificate that does not replace the one in use.
	errOther = errors.New("secure: not taken over, it is another's")
	// errAuthority means a file that holds no certificate of an authority.
	errAuthority = errors.New("secure: no certificate of an authority")
	// ErrClock means a clock with which no certificate can be made.
	ErrClock = errors.New("secure: the clock of this machine is wrong")
	// ErrEarly means a certificate whose time has not come, by the clock of this machine.
	ErrEarly = errors.New("not valid yet")
	// ErrExists means a file that would be overwritten.
	ErrExists = errors.New("secure: the file exists")
)

// IdentityOf is who the certificate was given to.
func IdentityOf(c *x509.Certificate) (Identity, error) {
	if len(c.URIs) != 1 || c.URIs[0].Scheme != scheme {
		return Identity{}, errNoIdentity
	}
	i := Identity{Role: c.URIs[0].Host, Name: strings.TrimPrefix(c.URIs[0].Path, "/")}
	return i, i.Validate()
}
