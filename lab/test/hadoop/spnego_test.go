// Claims, with the package's cluster and a real KDC: a ResourceManager whose web services require
// SPNEGO, and its proxy to application masters, answer the scheduler by its keytab, and
// no client without a ticket. Hadoop's RPC stays without Kerberos here: the scheduler does not
// use it.
package hadoop

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/internal/testkit/kdc"
	"headroom/lab/cluster"
	"headroom/lab/hadoop"
)

func TestResourceManagerAsksWho(t *testing.T) {
	k, s, ctx := kdc.New(t), newSite(t), within(t)
	const maps, web, own = 2, "HTTP/localhost", "headroom/s1"
	k.Principal(web)
	k.Principal(own)
	s.write("signature", strings.Repeat("s", 32), 0o600)
	job := testkit.Need(s.Submit(ctx, s.Sleep("q1", maps, time.Hour)))(t) // its master keeps the configuration of now
	testkit.Check(t, job.AwaitContainers(ctx, 1+maps))

	const address, class = "yarn.resourcemanager.webapp.address", hadoop.LiveFairScheduler
	open := map[string]string{
		address: "rm:" + s.RM()[strings.LastIndex(s.RM(), ":")+1:], "hadoop.http.filter.initializers": "org.apache.hadoop.http.lib.StaticUserWebFilter",
		"hadoop.http.authentication.type": "simple",
	}
	t.Cleanup(func() {
		testkit.Check(t, s.ReplaceScheduler(class, open))
		ctx, cancel := context.WithTimeout(context.Background(), patience) // the test's own has ended
		defer cancel()
		testkit.Check(t, s.AwaitNodes(ctx, "n1", "n2"))
		testkit.Check(t, job.Kill(ctx))
	})
	t.Setenv("JAVA_TOOL_OPTIONS", "-Djava.security.krb5.conf="+k.Conf())
	at := testkit.Need(cluster.FreePorts(1))(t)[0]
	at = "localhost" + at[strings.LastIndex(at, ":"):]
	testkit.Check(t, s.ReplaceScheduler(class, map[string]string{
		address: at, "hadoop.http.filter.initializers": "org.apache.hadoop.security.AuthenticationFilterInitializer",
		"hadoop.http.authentication.type":                  "kerberos",
		"hadoop.http.authentication.kerberos.principal":    web + "@" + kdc.Realm,
		"hadoop.http.authentication.kerberos.keytab":       k.Keytab("web.keytab", web),
		"hadoop.http.authentication.signature.secret.file": s.path("signature"),
	}))
	s.await(ctx, "the ResourceManager does not ask for a ticket", func() bool {
		ask := testkit.Need(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/ws/v1/cluster/apps", http.NoBody))(t)
		resp, err := http.DefaultClient.Do(ask)
		if err != nil {
			return false // it is starting
		}
		testkit.Check(t, resp.Body.Close())
		if resp.StatusCode == http.StatusOK {
			t.Fatal("the ResourceManager answers without a ticket")
		}
		return resp.StatusCode == http.StatusUnauthorized
	})

	s.start("c1", "coordinator", "run", "--config", s.path("c1.yaml"))
	s.write("scheduler.yaml", s.scheduling(fmt.Sprintf("  resourcemanager: [\"http://%s\"]\n  queues: [{name: root.q1}]\n  container: {memory_mb: 256, vcores: 1}\n  shares: none\n"+
		"  kerberos: {principal: %s@%s, keytab: %s, krb5_conf: %s}\n", at, own, kdc.Realm, k.Keytab("own.keytab", own), k.Conf())), 0o644)
	s.start("scheduler", "scheduler", "run", "--config", s.path("scheduler.yaml"))
	s.await(ctx, "the scheduler does not follow the job", func() bool {
		view, ok := s.job(ctx, job.ID)
		return ok && view.State == "running" && view.Tasks == maps // the tasks are reported by the master, through the proxy
	})
}
