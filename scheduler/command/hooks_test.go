package command

// Claims: where the scheduler has a certificate Hadoop's hooks' port speaks TLS and asks for
// the cluster's token.

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headroom/internal/secure"
	"headroom/internal/testkit"
	"headroom/scheduler"
)

func TestHooksAskForAToken(t *testing.T) {
	t.Parallel()
	c, hooks := yarnCluster(t)
	certs := testkit.NewCertificates(t)
	own, token := certs.Files(secure.Scheduler, "s1"), strings.Repeat("hook", 8)
	file := c.write("hooks.token", token+"\n")
	data := testkit.Need(os.ReadFile(filepath.Join(c.dir, "scheduler.yaml")))(t)
	text := strings.Replace(string(data), "dev: true\n", fmt.Sprintf("tls: {ca: %s, cert: %s, key: %s}\n", own.CA, own.Cert, own.Key), 1)
	c.write("scheduler.yaml", text)
	if _, err := scheduler.LoadConfig(filepath.Join(c.dir, "scheduler.yaml")); err == nil || !strings.Contains(err.Error(), "yarn.hooks_token_file is missing") {
		t.Errorf("hooks without a token: %v", err)
	}
	c.write("scheduler.yaml", strings.Replace(text, "  poll: 200ms\n", "  poll: 200ms\n  hooks_token_file: "+file+"\n", 1))
	c.serveHere()

	config := testkit.Need(secure.Anonymous(own.CA, []string{"http/1.1"}, secure.Scheduler))(t)
	ask := func(scheme string, config *tls.Config, authorization string) (int, error) {
		client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		r := testkit.Need(http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+"://"+hooks+"/v1/shares", http.NoBody))(t)
		r.Header.Set("Authorization", authorization)
		resp, err := client.Do(r)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	testkit.Eventually(t, patience, "an answer to a hook with the token", func() bool {
		status, err := ask("https", config, "Bearer "+token)
		return err == nil && status == http.StatusOK
	})
	for _, wrong := range []string{"", "Bearer ", "Bearer " + strings.Repeat("kooh", 8)} {
		if status, err := ask("https", config, wrong); err != nil || status != http.StatusUnauthorized {
			t.Errorf("%q: %d, %v", wrong, status, err)
		}
	}
	if status, err := ask("http", nil, "Bearer "+token); err == nil && status == http.StatusOK {
		t.Error("answered in the clear")
	}
	other := testkit.Need(secure.Anonymous(testkit.NewCertificates(t).Files(secure.Scheduler, "s1").CA, []string{"http/1.1"}, secure.Scheduler))(t)
	if _, err := ask("https", other, "Bearer "+token); err == nil {
		t.Error("a hook that pins another authority went on")
	}
}
