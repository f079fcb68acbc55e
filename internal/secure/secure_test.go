// Claims: only who was given a key by the cluster's own authority gets a
// connection, and only in the role that is asked for; keys are never written over;
// a renewed certificate is taken up without a restart.
package secure_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headroom/internal/secure"
)

func authority(t *testing.T, dir string) *secure.Authority {
	t.Helper()
	a, pair, err := secure.NewAuthority("lab", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Write(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	return a
}

// files makes an identity's files beside the authority's.
func files(t *testing.T, a *secure.Authority, dir string, who secure.Identity) secure.Files {
	t.Helper()
	return filesOf(t, a, dir, who, time.Now())
}

// filesOf makes them at another time; the certificate is good for an hour from then.
func filesOf(t *testing.T, a *secure.Authority, dir string, who secure.Identity, at time.Time) secure.Files {
	t.Helper()
	pair, err := a.Issue(who, at, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	f := secure.Files{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, who.Role+"-"+who.Name+".crt"), Key: filepath.Join(dir, who.Role+"-"+who.Name+".key")}
	if err := pair.Write(f.Cert, f.Key); err != nil {
		t.Fatal(err)
	}
	return f
}

func keeper(t *testing.T, f secure.Files) *secure.Keeper {
	t.Helper()
	k, err := secure.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// meet lets two sides shake hands, and answers what each says of it.
func meet(t *testing.T, server, client *tls.Config) (seen secure.Identity, serverErr, clientErr error) {
	t.Helper()
	one, two := net.Pipe()
	done := make(chan error, 1)
	var state tls.ConnectionState
	go func() {
		s := tls.Server(one, server)
		_ = s.SetDeadline(time.Now().Add(10 * time.Second))
		err := s.Handshake()
		if err == nil {
			state = s.ConnectionState()
			_, err = s.Write([]byte("x"))
		}
		done <- errors.Join(err, one.Close())
	}()
	c := tls.Client(two, client)
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	clientErr = c.Handshake()
	if clientErr == nil { // in TLS 1.3 the client learns only now that it was refused
		_, clientErr = io.ReadFull(c, make([]byte, 1))
	}
	_ = two.Close()
	serverErr = <-done
	seen, _ = secure.PeerOf(&state)
	return seen, serverErr, clientErr
}

func TestWhoMeetsWhom(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	ours, theirs := authority(t, dir), authority(t, elsewhere)
	server := keeper(t, files(t, ours, dir, secure.Identity{Role: secure.Server, Name: "c1"}))
	other := keeper(t, files(t, ours, dir, secure.Identity{Role: secure.Server, Name: "c2"}))
	node := keeper(t, files(t, ours, dir, secure.Identity{Role: secure.Node, Name: "n03"}))
	ended := keeper(t, filesOf(t, ours, dir, secure.Identity{Role: secure.Node, Name: "n04"}, time.Now().Add(-2*time.Hour)))
	early := keeper(t, filesOf(t, ours, dir, secure.Identity{Role: secure.Node, Name: "n05"}, time.Now().Add(2*time.Hour)))
	over := keeper(t, filesOf(t, ours, dir, secure.Identity{Role: secure.Server, Name: "c3"}, time.Now().Add(-2*time.Hour)))
	stranger := keeper(t, files(t, theirs, elsewhere, secure.Identity{Role: secure.Server, Name: "c1"}))
	for name, c := range map[string]struct {
		server, client *tls.Config
		good           bool
		seen           string
	}{
		"a node meets a server":                {server.Server(), node.Client(nil, secure.Server), true, "node/n03"},
		"a server meets a server":              {server.Mutual(secure.Server), other.Client(nil, secure.Server), true, "server/c2"},
		"a node among servers":                 {server.Mutual(secure.Server), node.Client(nil, secure.Server), false, ""},
		"a node that plays server":             {node.Server(), node.Client(nil, secure.Server), false, ""},
		"a server of another cluster":          {stranger.Server(), node.Client(nil, secure.Server), false, ""},
		"a node whose certificate has ended":   {server.Server(), ended.Client(nil, secure.Server), false, ""},
		"a node whose certificate is to come":  {server.Server(), early.Client(nil, secure.Server), false, ""},
		"a server whose certificate has ended": {over.Server(), node.Client(nil, secure.Server), false, ""},
		"such a server among servers":          {server.Mutual(secure.Server), over.Client(nil, secure.Server), false, ""},
		"a client of another cluster":          {server.Server(), stranger.Client(nil, secure.Server), false, ""},
		"a server that asks for a peer":        {server.Mutual(secure.Server), &tls.Config{InsecureSkipVerify: true}, false, ""},
		"nobody, where a token may follow":     {server.Server(), &tls.Config{InsecureSkipVerify: true}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen, s, cl := meet(t, c.server, c.client)
			if good := s == nil && cl == nil; good != c.good {
				t.Errorf("server says %v, client %v", s, cl)
			}
			if c.good && c.seen != "" && seen.String() != c.seen {
				t.Errorf("the server saw %s", seen)
			}
		})
	}
}

func TestFilesAreChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := authority(t, dir)
	good := files(t, a, dir, secure.Identity{Role: secure.Node, Name: "n01"})
	for name, edit := range map[string]func(*secure.Files){
		"no authority":           func(f *secure.Files) { f.CA = "" },
		"an authority of noise":  func(f *secure.Files) { f.CA = write(t, "noise") },
		"another's key":          func(f *secure.Files) { f.Key = files(t, a, dir, secure.Identity{Role: secure.Node, Name: "n02"}).Key },
		"the authority as self":  func(f *secure.Files) { f.Cert, f.Key = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key") },
		"a file that is missing": func(f *secure.Files) { f.Cert = filepath.Join(dir, "none") },
	} {
		f := good
		edit(&f)
		if _, err := secure.Open(f); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	pair, err := secure.ReadPair(good.Cert, good.Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Write(good.Cert, filepath.Join(dir, "new.key")); !errors.Is(err, secure.ErrExists) {
		t.Errorf("written over: %v", err)
	}
	if info, err := os.Stat(good.Key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key has mode %v, %v", info.Mode(), err)
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// A certificate never outlives its authority, names exactly one identity, and bad names are none.
func TestIssue(t *testing.T) {
	t.Parallel()
	a := authority(t, t.TempDir())
	now := time.Now()
	pair, err := a.Issue(secure.Identity{Role: secure.Admin, Name: "mia"}, now, 1000*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(pair.Cert)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if c.NotAfter.After(now.Add(time.Hour + time.Second)) {
		t.Errorf("it ends %v, after its authority", c.NotAfter)
	}
	if who, err := secure.IdentityOf(c); err != nil || who.String() != "admin/mia" {
		t.Errorf("it names %v, %v", who, err)
	}
	for _, bad := range []secure.Identity{{}, {Role: "root", Name: "x"}, {Role: secure.Node, Name: ""}, {Role: secure.Node, Name: "a/b"}, {Role: secure.Node, Name: strings.Repeat("n", 200)}} {
		if _, err := a.Issue(bad, now, time.Hour); !errors.Is(err, secure.ErrIdentity) {
			t.Errorf("%v was issued: %v", bad, err)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	set := func(mode string) secure.Config { return secure.Config{Mode: mode, CA: "a", Cert: "b", Key: "c"} }
	for name, c := range map[string]struct {
		config   secure.Config
		explicit bool
		addr     string
		good     bool
	}{
		"files":                      {set(""), true, "10.0.0.1:7400", true},
		"nothing, on loopback":       {secure.Config{}, false, "127.0.0.1:7400", true},
		"nothing, on IPv6 loopback":  {secure.Config{}, false, "[::1]:7400", true},
		"nothing, on a network":      {secure.Config{}, false, "10.0.0.1:7400", false},
		"nothing, on every address":  {secure.Config{}, false, "0.0.0.0:7400", false},
		"nothing, by name":           {secure.Config{}, false, "node7:7400", false},
		"nothing, where it is asked": {secure.Config{}, true, "127.0.0.1:7400", false},
		"off, on loopback":           {secure.Config{Mode: "off"}, true, "127.0.0.1:7400", true},
		"off, on a network":          {secure.Config{Mode: "off"}, true, "10.0.0.1:7400", false},
		"off, with files":            {set("off"), true, "127.0.0.1:7400", false},
		"on, without files":          {secure.Config{Mode: "on"}, false, "127.0.0.1:7400", false},
		"on, without a key":          {secure.Config{Mode: "on", CA: "a", Cert: "b"}, false, "127.0.0.1:7400", false},
		"another word":               {secure.Config{Mode: "maybe"}, false, "127.0.0.1:7400", false},
	} {
		if err := c.config.Check(c.explicit, c.addr); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
