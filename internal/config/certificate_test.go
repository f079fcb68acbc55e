package config

// Claims: a certificate that no peer would accept is refused with the reason and the way out, before a
// program starts and by its check alike; one that ends soon, or that curl would refuse, is a warning.

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headroom/internal/cli"
	"headroom/internal/secure"
)

func TestCertificate(t *testing.T) {
	t.Parallel()
	now := time.Now()
	dir, elsewhere := t.TempDir(), t.TempDir()
	authority := func(dir string) *secure.Authority {
		a, pair, err := secure.NewAuthority("lab", now.Add(-time.Hour), 1000*time.Hour)
		if err = errors.Join(err, pair.Write(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"))); err != nil {
			t.Fatal(err)
		}
		return a
	}
	ours, theirs := authority(dir), authority(elsewhere)
	files := 0
	issue := func(a *secure.Authority, who string, from time.Time, life time.Duration, hosts ...string) Certificate {
		t.Helper()
		files++
		role, name, _ := strings.Cut(who, "/")
		f := secure.Files{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, string(rune('a'+files))+".crt"), Key: filepath.Join(dir, string(rune('a'+files))+".key")}
		pair, err := a.Issue(secure.Identity{Role: role, Name: name}, from, life, hosts...)
		if err = errors.Join(err, pair.Write(f.Cert, f.Key)); err != nil {
			t.Fatal(err)
		}
		return Certificate{Files: f, Of: secure.Identity{Role: secure.Server, Name: "c1"}, Addrs: []string{"c1.example.org:7400", "0.0.0.0:7401", "10.0.0.1:7400"}}
	}
	const long = 900 * time.Hour
	hosts := []string{"c1.example.org", "10.0.0.1"}
	open := issue(ours, "server/c1", now, long, hosts...)
	if err := os.Chmod(open.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	missing := issue(ours, "server/c1", now, long, hosts...)
	missing.Cert = filepath.Join(dir, "none.crt")
	anybody := issue(ours, "server/c7", now, long, hosts...)
	anybody.Of.Name = ""
	for _, c := range []struct {
		what        string
		own         Certificate
		at          time.Time
		state, text string
		hint        string
	}{
		{"a good one", issue(ours, "server/c1", now, long, hosts...), now, cli.CheckOK, "server/c1 until", ""},
		{"any name of the role", anybody, now, cli.CheckOK, "server/c7", ""},
		{"ended", issue(ours, "server/c1", now.Add(-2*time.Hour), time.Hour, hosts...), now, cli.CheckFail, "expired at", "tls cert create server/c1"},
		{"of the future", issue(ours, "server/c1", now.Add(time.Hour), long, hosts...), now, cli.CheckFail, "not valid yet", "set the clock"},
		{"a clock of 1970", issue(ours, "server/c1", now, long, hosts...), time.Unix(0, 0), cli.CheckFail, "this machine shows 1970-01-01", "set the clock"},
		{"of another authority", issue(theirs, "server/c1", now, long, hosts...), now, cli.CheckFail, "not valid with tls.ca", "tls cert create"},
		{"of another name", issue(ours, "server/c2", now, long, hosts...), now, cli.CheckFail, "names server/c2, needed is server/c1", "tls cert create"},
		{"of another role", issue(ours, "node/c1", now, long), now, cli.CheckFail, "names node/c1", "tls cert create"},
		{"a key that others read", open, now, cli.CheckFail, "every user of this machine can read", "chmod 0640"},
		{"missing", missing, now, cli.CheckFail, "no such file", "tls cert create"},
		{"29 days left", issue(ours, "server/c1", now, 29*24*time.Hour, hosts...), now, cli.CheckWarn, "expires at", "makes a new one"},
		{"without names", issue(ours, "server/c1", now, long), now, cli.CheckWarn, "does not name c1.example.org, 10.0.0.1", "--host c1.example.org,10.0.0.1"},
		{"with one name of two", issue(ours, "server/c1", now, long, hosts[0]), now, cli.CheckWarn, "does not name 10.0.0.1", "--host"},
	} {
		got := c.own.Check(c.at)
		if got.State != c.state || !strings.Contains(got.Text, c.text) || !strings.Contains(got.Hint, c.hint) || (got.Hint == "") != (c.hint == "") {
			t.Errorf("%s: %s %q, hint %q", c.what, got.State, got.Text, got.Hint)
		}
		_, err := c.own.Open(c.at)
		var bad *cli.Error
		if (err == nil) == (c.state == cli.CheckFail) || err != nil && (!errors.As(err, &bad) || bad.Exit != cli.ExitUsage || bad.Code != "tls") {
			t.Errorf("%s: opening it is %v", c.what, err)
		}
	}
}
