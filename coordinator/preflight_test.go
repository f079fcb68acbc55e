package coordinator

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headroom/gossip/brake"
	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/internal/secure"
	"headroom/internal/testkit"
)

// checkable is a configuration whose files are all there, in a folder that every user enters.
func checkable(t *testing.T) Config {
	t.Helper()
	dir := t.TempDir()
	for d := dir; strings.HasPrefix(d, os.TempDir()+"/"); d = filepath.Dir(d) {
		testkit.Check(t, os.Chmod(d, 0o755))
	}
	c := Defaults()
	c.ID, c.StateDir = "c1", filepath.Join(dir, "state")
	c.TLS = secure.Config{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "c1.crt"), Key: filepath.Join(dir, "c1.key")}
	const life = 60 * 24 * time.Hour
	authority, pair, err := secure.NewAuthority("lab", time.Now(), life)
	testkit.Check(t, err)
	testkit.Check(t, pair.Write(c.TLS.CA, filepath.Join(dir, "ca.key")))
	testkit.Check(t, testkit.Need(authority.Issue(secure.Identity{Role: secure.Server, Name: "c1"}, time.Now(), life, "127.0.0.1"))(t).Write(c.TLS.Cert, c.TLS.Key))
	c.Servers = []ServerConfig{{ID: "c1", RPC: "127.0.0.1:7400", Raft: "127.0.0.1:7401"}}
	c.Gossip = GossipConfig{Bind: "127.0.0.1:7402", KeyFile: filepath.Join(dir, "gossip.key")}
	c.Brake = BrakeConfig{PublicKeyFile: filepath.Join(dir, "brake.pub"), PrivateKeyFile: filepath.Join(dir, "brake.key")}
	testkit.Check(t, devKey(c.Gossip.KeyFile))
	testkit.Check(t, brake.WriteKey(c.Brake.PrivateKeyFile, c.Brake.PublicKeyFile))
	return c
}

// states are the checks that are not ok, as "name state".
func states(checks cli.Checks) string {
	var found []string
	for _, c := range checks {
		if c.State != cli.CheckOK {
			found = append(found, c.Name+" "+c.State)
		}
	}
	return strings.Join(found, ", ")
}

func TestPreflight(t *testing.T) {
	t.Parallel()
	type date struct{ years, days int } // from now
	for name, x := range map[string]struct {
		change func(*testing.T, *Config)
		at     date
		want   string
	}{
		"nothing is wrong":     {func(*testing.T, *Config) {}, date{}, ""},
		"tls off":              {func(_ *testing.T, c *Config) { c.TLS = secure.Config{Mode: "off"} }, date{}, ""},
		"expired":              {func(*testing.T, *Config) {}, date{years: 30}, "tls FAIL"},
		"ends in 29 days":      {func(*testing.T, *Config) {}, date{days: 31}, "tls warn"},
		"a clock of the 1970s": {func(*testing.T, *Config) {}, date{years: -50}, "tls FAIL"},
		"an open key":          {func(t *testing.T, c *Config) { testkit.Check(t, os.Chmod(c.TLS.Key, 0o644)) }, date{}, "tls FAIL"},
		"dialled otherwise":    {func(_ *testing.T, c *Config) { c.Servers[0].RPC = "localhost:7400" }, date{}, "tls warn"},
		"of another server":    {func(_ *testing.T, c *Config) { c.ID = "c2"; c.Servers[0].ID = "c2" }, date{}, "tls FAIL"},
		"another authority":    {func(t *testing.T, c *Config) { c.TLS.CA = testkit.NewCertificates(t).Files(secure.Server, "x").CA }, date{}, "tls FAIL"},
		"no gossip key":        {func(t *testing.T, c *Config) { testkit.Check(t, os.Remove(c.Gossip.KeyFile)) }, date{}, "gossip FAIL"},
		"open gossip key":      {func(t *testing.T, c *Config) { testkit.Check(t, os.Chmod(c.Gossip.KeyFile, 0o644)) }, date{}, "gossip warn"},
		"not a pair": {func(t *testing.T, c *Config) {
			testkit.Check(t, os.Remove(c.Brake.PublicKeyFile))
			testkit.Check(t, brake.WriteKey(c.Brake.PublicKeyFile+".key", c.Brake.PublicKeyFile))
		}, date{}, "brake FAIL"},
		"no password":         {func(_ *testing.T, c *Config) { c.BMC = BMCConfig{User: "reader", PasswordFile: "/no/such/file"} }, date{}, "bmc FAIL"},
		"address of another":  {func(_ *testing.T, c *Config) { c.Servers[0].Raft = "192.0.2.1:7401" }, date{}, "addresses FAIL"},
		"state_dir is a file": {func(t *testing.T, c *Config) { testkit.WriteFile(t, c.StateDir, "") }, date{}, "state_dir FAIL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := checkable(t)
			x.change(t, &c)
			if got := states(c.Preflight(time.Now().AddDate(x.at.years, 0, x.at.days))); got != x.want {
				t.Errorf("%q, want %q", got, x.want)
			}
		})
	}
}

// What root can read is not what the service can read.
func TestPreflightOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		testkit.NotRun(t, "only root takes the rights of another user")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		testkit.NotRun(t, "there is no user nobody")
	}
	c := checkable(t)
	account := testkit.Need(config.ServiceAccount(nobody.Username, "headroom-coordinator"))(t)
	var checks cli.Checks
	testkit.Check(t, account.Do(func() { checks = c.Preflight(time.Now()) }))
	if got, want := states(checks), "tls FAIL, gossip FAIL, brake FAIL, state_dir FAIL"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, check := range checks {
		if check.Name == "gossip" && !strings.Contains(check.Hint, "chown root:GROUP") {
			t.Errorf("hint %q does not say how to give the file to the service", check.Hint)
		}
	}
	if got := states(c.Preflight(time.Now())); got != "" {
		t.Errorf("root keeps the rights of another user: %q", got)
	}
}
