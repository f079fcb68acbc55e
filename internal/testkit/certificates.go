package testkit

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"headroom/internal/secure"
)

// Certificates are those of a cluster, by an authority of their own.
type Certificates struct {
	tb  testing.TB
	dir string
	own *secure.Authority
}

// NewCertificates makes an authority for the test.
func NewCertificates(tb testing.TB) Certificates {
	tb.Helper()
	a, pair, err := secure.NewAuthority("lab", time.Now(), 24*time.Hour)
	c := Certificates{tb, tb.TempDir(), a}
	if err == nil {
		err = pair.Write(filepath.Join(c.dir, "ca.crt"), filepath.Join(c.dir, "ca.key"))
	}
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// Files issues a certificate for the role and name, and returns its files.
func (c Certificates) Files(role, name string) secure.Files {
	c.tb.Helper()
	f := secure.Files{CA: filepath.Join(c.dir, "ca.crt"), Cert: filepath.Join(c.dir, role+"-"+name+".crt"), Key: filepath.Join(c.dir, role+"-"+name+".key")}
	pair, err := c.own.Issue(secure.Identity{Role: role, Name: name}, time.Now(), time.Hour)
	if err == nil {
		err = pair.Write(f.Cert, f.Key)
	}
	if err != nil {
		c.tb.Fatal(err)
	}
	return f
}

// Renew replaces the certificate and key of the role and name by new ones that end after so
// long, as tools for certificates do: by other files of the same names.
func (c Certificates) Renew(role, name string, life time.Duration) secure.Files {
	c.tb.Helper()
	f := secure.Files{CA: filepath.Join(c.dir, "ca.crt"), Cert: filepath.Join(c.dir, role+"-"+name+".crt"), Key: filepath.Join(c.dir, role+"-"+name+".key")}
	pair, err := c.own.Issue(secure.Identity{Role: role, Name: name}, time.Now(), life)
	if err == nil {
		err = pair.Write(f.Cert+".new", f.Key+".new")
	}
	if err = errors.Join(err, os.Rename(f.Key+".new", f.Key), os.Rename(f.Cert+".new", f.Cert)); err != nil {
		c.tb.Fatal(err)
	}
	return f
}
