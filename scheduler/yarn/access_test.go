// Claims: what proves the scheduler is shown to the hosts that are configured and to no
// other; a separate web proxy is asked for masters; a ResourceManager that asks who is
// asking, or has a certificate of an unknown authority, is told as such, with the key that
// mends it.
package yarn

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"headroom/scheduler/webclient"
)

// asker is a client with more patience than the scheduler's: a handshake takes long on a busy machine.
func asker(t *testing.T, cfg Config) *client {
	t.Helper()
	c := newClient(cfg, slog.New(slog.DiscardHandler))
	c.http.Timeout = time.Minute
	t.Cleanup(c.close)
	return c
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer elsewhere.Close()
	rm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer rm.Close()
	c := asker(t, Config{ResourceManager: []string{rm.URL}})
	if _, err := c.cluster(t.Context(), "apps"); err == nil || !strings.Contains(err.Error(), "redirected to") {
		t.Errorf("got %v", err)
	}
	if _, err := c.master(t.Context(), "application_1_0001", "/tasks"); err == nil {
		t.Error("a master elsewhere was asked")
	}
	if asked.Load() != 0 {
		t.Error("the client has followed a redirect")
	}
}

func TestWebProxyIsAsked(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`"` + r.URL.Path + `"`))
	}))
	defer proxy.Close()
	c := asker(t, Config{ResourceManager: []string{"http://127.0.0.1:1"}, WebProxy: proxy.URL + "/"})
	body, err := c.master(t.Context(), "application_1_0001", "/tasks")
	if err != nil || string(body) != `"/proxy/application_1_0001/ws/v1/mapreduce/jobs/job_1_0001/tasks"` {
		t.Errorf("got %s, %v", body, err)
	}
}

func TestWhoAsksIsAsked(t *testing.T) {
	t.Parallel()
	rm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", "Negotiate")
		http.Error(w, "Authentication required", http.StatusUnauthorized)
	}))
	defer rm.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	secure.StartTLS()
	defer secure.Close()
	for address, want := range map[string]string{rm.URL: "yarn.kerberos is not set", secure.URL: "set yarn.ca to the CA"} {
		c := asker(t, Config{ResourceManager: []string{address}})
		if _, err := c.cluster(t.Context(), "apps"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestAccessIsChecked(t *testing.T) {
	t.Parallel()
	right := func() Config {
		c := Defaults()
		c.ResourceManager, c.Queues, c.Shares = []string{"https://rm1:8090"}, []Queue{{Name: "root.q1"}}, sharesNone
		return c
	}
	for name, c := range map[string]struct {
		edit func(*Config)
		want string
	}{
		"plain":    {func(*Config) {}, ""},
		"proxy":    {func(c *Config) { c.WebProxy = "rm1:8089" }, "yarn.web_proxy"},
		"password": {func(c *Config) { c.ResourceManager = []string{"http://ann:secret@rm1"} }, "is not the address of a web server"},
		"pair":     {func(c *Config) { c.Key = "/key" }, "needs yarn.key"},
		"by number": {func(c *Config) {
			c.Kerberos.Principal, c.WebProxy = "headroom@A", "http://10.0.0.1:8089"
		}, "http://10.0.0.1:8089 is an IP address"},
	} {
		cfg := right()
		c.edit(&cfg)
		if err := cfg.Check(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Message, c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	cfg := right()
	cfg.CA = "/nowhere/ca.pem"
	if err := cfg.CheckFiles(); err == nil || !strings.Contains(err.Message, "yarn.ca") {
		t.Errorf("a missing authority: %v", err)
	}
	cfg.ResourceManager, cfg.Kerberos = []string{"http://rm1"}, webclient.Kerberos{Principal: "headroom@A"}
	if notes := cfg.Notes(); len(notes) != 1 {
		t.Errorf("Kerberos in the clear: %q", notes)
	}
}
