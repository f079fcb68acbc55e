package command

// Claims: where the scheduler has a certificate Hadoop's hooks' port speaks TLS and asks for
// the cluster's token, or for one of a job that the command "scheduler hook token" let its
// user make.

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headroom/internal/cli"
	"headroom/internal/secure"
	"headroom/internal/testkit"
	"headroom/scheduler"
	"headroom/scheduler/hookserver"
)

// hookPort asks a hooks' port for the status of a path.
type hookPort struct {
	t    *testing.T
	addr string
	tls  *tls.Config
}

func (p hookPort) ask(scheme, path, token string) (int, error) {
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: p.tls, DisableKeepAlives: true}}
	r := testkit.Need(http.NewRequestWithContext(p.t.Context(), http.MethodGet, scheme+"://"+p.addr+path, http.NoBody))(p.t)
	r.Header.Set("Authorization", token)
	resp, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func TestHooksOfJobs(t *testing.T) {
	t.Parallel()
	c, hooks := yarnCluster(t)
	certs := testkit.NewCertificates(t)
	own := certs.Files(secure.Scheduler, "s1")
	key, token := c.write("hooks.key", strings.Repeat("key", 20)+"\n"), c.write("hooks.token", strings.Repeat("hook", 8)+"\n")
	path := filepath.Join(c.dir, "scheduler.yaml")
	text := strings.Replace(string(testkit.Need(os.ReadFile(path))(t)), c.coords.addresses[0], startSecure(t, certs), 1)
	text = strings.Replace(text, "dev: true\n", fmt.Sprintf("tls: {ca: %s, cert: %s, key: %s}\n", own.CA, own.Cert, own.Key), 1)
	with := func(keys string) {
		c.write("scheduler.yaml", strings.Replace(text, "  poll: 200ms\n", "  poll: 200ms\n"+keys, 1))
	}
	for want, keys := range map[string]string{
		"is unknown":                     "  hooks_auth: nobody\n",
		"yarn.hooks_key_file is missing": "  hooks_auth: job\n",
		"any hook could act for any job": "  hooks_auth: job\n  hooks_key_file: " + key + "\n  hooks_token_file: " + token + "\n",
		"are one file":                   "  hooks_key_file: " + token + "\n  hooks_token_file: " + token + "\n",
	} {
		with(keys)
		if _, err := scheduler.LoadConfig(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", keys, err, want)
		}
	}
	with("  hooks_token_file: " + token + "\n")
	if exit, _, errs := testkit.Run(t, New(), "", "hook", "token", "--config", path, "--shares"); exit != cli.ExitUsage || !strings.Contains(errs, "yarn.hooks_key_file is missing") {
		t.Errorf("without a key: %d %s", exit, errs)
	}
	with("  hooks_auth: job\n  hooks_key_file: " + key + "\n")
	c.serveHere()

	made := func(args ...string) string {
		exit, out, errs := testkit.Run(t, New(), "", append([]string{"hook", "token", "--config", path}, args...)...)
		if exit != 0 || !strings.Contains(errs, "good until") {
			t.Fatalf("%v: %d %s", args, exit, errs)
		}
		return strings.TrimSpace(out)
	}
	var credentials map[string]string
	testkit.Check(t, json.Unmarshal([]byte(made("--user", "ann", "--for", "1h")), &credentials))
	job := testkit.Need(hookserver.JobToken(credentials["headroom.user-token"], "application_1_0007"))(t)
	p := hookPort{t, hooks, testkit.Need(secure.Anonymous(own.CA, []string{"http/1.1"}, secure.Scheduler))(t)}
	testkit.Eventually(t, patience, "an answer to the plug-in", func() bool {
		status, err := p.ask("https", "/v1/shares", "Bearer "+made("--shares"))
		return err == nil && status == http.StatusOK
	})
	for about, a := range map[string]struct {
		path, token string
		let         bool
	}{
		"its job":             {"/v1/jobs/job_1_0007/stop", job, true}, // which is not there
		"another job":         {"/v1/jobs/job_1_0008/stop", job, false},
		"the cluster's token": {"/v1/shares", strings.Repeat("hook", 8), false},
	} {
		if status, err := p.ask("https", a.path, "Bearer "+a.token); err != nil || (status != http.StatusUnauthorized) != a.let {
			t.Errorf("%s: %d, %v", about, status, err)
		}
	}
	for _, args := range [][]string{{}, {"--user", "ann", "--shares"}, {"--user", "a b"}, {"--shares", "--for", "-1h"}, {"--shares", "--for", "9000h"}} {
		if exit, out, _ := testkit.Run(t, New(), "", append([]string{"hook", "token", "--config", path}, args...)...); exit != cli.ExitUsage || out != "" {
			t.Errorf("%v: %d %s", args, exit, out)
		}
	}
}

func TestHooksAskForAToken(t *testing.T) {
	t.Parallel()
	c, hooks := yarnCluster(t)
	certs := testkit.NewCertificates(t)
	own, token := certs.Files(secure.Scheduler, "s1"), strings.Repeat("hook", 8)
	file := c.write("hooks.token", token+"\n")
	data := testkit.Need(os.ReadFile(filepath.Join(c.dir, "scheduler.yaml")))(t)
	text := strings.Replace(string(data), c.coords.addresses[0], startSecure(t, certs), 1)
	text = strings.Replace(text, "dev: true\n", fmt.Sprintf("tls: {ca: %s, cert: %s, key: %s}\n", own.CA, own.Cert, own.Key), 1)
	c.write("scheduler.yaml", text)
	if _, err := scheduler.LoadConfig(filepath.Join(c.dir, "scheduler.yaml")); err == nil || !strings.Contains(err.Error(), "yarn.hooks_token_file is missing") {
		t.Errorf("hooks without a token: %v", err)
	}
	c.write("scheduler.yaml", strings.Replace(text, "  poll: 200ms\n", "  poll: 200ms\n  hooks_token_file: "+file+"\n", 1))
	c.serveHere()

	config := testkit.Need(secure.Anonymous(own.CA, []string{"http/1.1"}, secure.Scheduler))(t)
	ask := func(scheme string, config *tls.Config, authorization string) (int, error) {
		return hookPort{t, hooks, config}.ask(scheme, "/v1/shares", authorization)
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
