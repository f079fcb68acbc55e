package netns

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headroom/internal/testkit"
)

// shortLife is how long the certificates of TestCertificatesAreRenewed are valid.
const shortLife = 40 * time.Second

// renew replaces the certificates of the identities ROLE/NAME by new ones, as tools do.
func (c *cluster) renew(who ...string) {
	c.t.Helper()
	fresh := testkit.Need(os.MkdirTemp(c.dir, "renewed"))(c.t)
	must(c.t, append([]string{tool("coordinator"), "tls", "cert", "create", "--for", shortLife.String(), "--dir", fresh, "--ca-dir", c.dir}, who...)...)
	for _, id := range who {
		_, name, _ := strings.Cut(id, "/")
		for _, ext := range []string{".key", ".crt"} {
			testkit.Check(c.t, os.Rename(filepath.Join(fresh, name+ext), c.path(name+ext)))
		}
	}
}

// Every program's certificate is renewed again and again, half way to its end: through two
// ends no lease expires, no leader changes and no stream is refused.
func TestCertificatesAreRenewed(t *testing.T) { //nolint:paralleltest // uses the whole machine
	c := newCluster(t, shape{servers: 3, nodes: 2, lease: shortLease, budget: 600})
	who := []string{"scheduler/s1"}
	for _, id := range c.servers {
		who = append(who, "server/"+id)
	}
	for _, name := range c.nodes {
		who = append(who, "node/"+name)
	}
	c.renew(who...)
	c.write("s1.yaml", fmt.Sprintf("listen: 127.0.0.1:7410\ndir: %q\ncoordinators: [%s]\n%sclasses: [high, low]\n", c.path("s1"), quoted(c.addresses("7400")), c.identity("s1")))
	c.launch("s1", operator, tool("scheduler"), "run", "--config", c.path("s1.yaml"))
	_, epoch := c.leader()
	for range 4 {
		c.pass(shortLife / 2)
		c.renew(who...)
		c.leased(c.nodes...)
	}
	c.pass(shortLife / 4)
	c.leased(c.nodes...)
	if _, now := c.leader(); now != epoch {
		t.Errorf("epoch %d became %d", epoch, now)
	}
	logs := []string{c.path("s1.log")}
	for _, name := range c.nodes {
		logs = append(logs, c.path("nodes", name, "powerd.log"))
	}
	for _, name := range logs {
		log := string(testkit.Need(os.ReadFile(name))(t))
		for _, trouble := range []string{"lease expired", "stream closed", "no stream to the leader"} {
			if strings.Contains(log, trouble) {
				t.Errorf("%s: %s", name, trouble)
			}
		}
	}
}
