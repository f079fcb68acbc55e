// Claims, against a real KDC and a server that asks for SPNEGO: the scheduler proves who it
// is, keeps the server's session and negotiates again when that has gone; tickets are
// renewed before they expire; each way in which a KDC, a key or a clock can be wrong is one
// clear sentence; no request waits longer than its deadline, and no secret is told.
package webclient

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jcmturner/goidentity/v6"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/service"
	"github.com/jcmturner/gokrb5/v8/spnego"
	"go.uber.org/goleak"

	"headroom/internal/testkit"
	"headroom/internal/testkit/kdc"
)

// The library's server remembers authenticators in a goroutine of its own; it has no end.
func TestMain(m *testing.M) {
	// The library clears its cache for ever; with -race its function is inlined and has another name.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/jcmturner/gokrb5/v8/service.GetReplayCache.func1.1"),
		goleak.IgnoreAnyFunction("github.com/jcmturner/gokrb5/v8/service.VerifyAPREQ.GetReplayCache.func1.1"))
}

const (
	own     = "headroom/rm1"
	ownFull = own + "@" + kdc.Realm
	// patience is many times what an exchange takes on a machine that is not busy.
	patience = 30 * time.Second
)

// web is a server as a ResourceManager with SPNEGO is: it takes a ticket or its own cookie.
type web struct {
	*httptest.Server
	mu         sync.Mutex
	cookie     string // that it takes; "" for none
	negotiated int
	bodies     []string
}

func newWeb(t *testing.T, keys string) *web {
	t.Helper()
	w := &web{cookie: "u=1&t=kerberos"}
	answer := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.bodies = append(w.bodies, string(body))
		if id := goidentity.FromHTTPRequestContext(r); id != nil {
			w.negotiated++
			if w.cookie != "" {
				http.SetCookie(rw, &http.Cookie{Name: session, Value: w.cookie, Quoted: true})
			}
			_, _ = fmt.Fprintf(rw, "%s@%s", id.UserName(), id.Domain())
			return
		}
		_, _ = io.WriteString(rw, "by cookie")
	})
	all := testkit.Need(keytab.Load(keys))(t)
	guarded := spnego.SPNEGOKRB5Authenticate(answer, all, service.DecodePAC(false))
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		known := w.cookie
		w.mu.Unlock()
		if c, err := r.Cookie(session); err == nil && known != "" && c.Value == known {
			answer(rw, r)
			return
		}
		guarded.ServeHTTP(rw, r)
	}))
	t.Cleanup(w.Close)
	return w
}

// address is the server's, by the host name that its principal has.
func (w *web) address() string { return strings.Replace(w.URL, "127.0.0.1", "localhost", 1) }

func (w *web) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.negotiated
}

func (w *web) take(cookie string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cookie = cookie
}

// lab is a realm with the scheduler's principal and a server's.
type lab struct {
	*kdc.KDC
	who Kerberos
	web *web
}

func newLab(t *testing.T, options ...string) *lab {
	t.Helper()
	k := kdc.New(t)
	k.Principal(own, options...)
	k.Principal("HTTP/localhost")
	return &lab{k, Kerberos{Principal: ownFull, Keytab: k.Keytab("own.keytab", own), Krb5Conf: k.Conf()}, newWeb(t, k.Keytab("web.keytab", "HTTP/localhost"))}
}

// transport is a client of the lab's; it ends with the test.
func transport(t *testing.T, who Kerberos) *Transport {
	t.Helper()
	tr := New(Config{Section: "yarn", Kerberos: who}, slog.New(slog.DiscardHandler))
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// ask asks the address for its answer.
func ask(ctx context.Context, tr *Transport, address, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := (&http.Client{Transport: tr}).Do(r)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return string(text), err
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func TestSchedulerIsProven(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	tr, ctx := transport(t, l.who), within(t)
	if got, err := ask(ctx, tr, l.web.address(), "one"); err != nil || got != ownFull {
		t.Fatalf("first: %q, %v", got, err)
	}
	if got, err := ask(ctx, tr, l.web.address(), "two"); err != nil || got != "by cookie" {
		t.Fatalf("the session is not used: %q, %v", got, err)
	}
	l.web.take("u=2") // as a server that was started again
	if got, err := ask(ctx, tr, l.web.address(), "three"); err != nil || got != ownFull {
		t.Fatalf("after the session was lost: %q, %v", got, err)
	}
	if n := l.web.count(); n != 2 || strings.Join(l.web.bodies, " ") != "one two three" {
		t.Errorf("negotiated %d times, bodies %q", n, l.web.bodies)
	}
	l.Stop() // the ticket is good without its KDC
	l.web.take("u=3")
	if got, err := ask(ctx, tr, l.web.address(), ""); err != nil || got != ownFull {
		t.Fatalf("with the KDC away: %q, %v", got, err)
	}
}

func TestTicketsAreRenewed(t *testing.T) {
	t.Parallel()
	l := newLab(t, "-maxlife", `"4 seconds"`)
	l.web.take("")
	tr, ctx := transport(t, l.who), within(t)
	asked := 0
	first := func() time.Time {
		tr.tickets.mu.Lock()
		defer tr.tickets.mu.Unlock()
		if held := tr.tickets.held["HTTP/localhost"]; held != nil {
			return held.ends
		}
		return time.Time{}
	}
	var ends time.Time
	testkit.Eventually(t, patience, "a second ticket", func() bool {
		if got, err := ask(ctx, tr, l.web.address(), ""); err != nil || got != ownFull {
			t.Fatalf("request %d: %q, %v", asked, got, err)
		}
		asked++
		if ends.IsZero() {
			ends = first()
		}
		return first().After(ends)
	})
	if l.web.count() != asked {
		t.Errorf("%d requests, %d negotiated", asked, l.web.count())
	}
}

// A new keytab is used without a restart; nothing of a keytab is told.
func TestTroubleIsOneSentence(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Principal("headroom/other")
	other := l.Keytab("other.keytab", "headroom/other")
	stale := l.who
	stale.Keytab = filepath.Join(t.TempDir(), "stale.keytab")
	testkit.Check(t, os.WriteFile(stale.Keytab, testkit.Need(os.ReadFile(l.who.Keytab))(t), 0o600))
	l.Keytab("own.keytab", own) // the stale copy is wrong from now on
	broken := filepath.Join(t.TempDir(), "broken.keytab")
	secret := strings.Repeat("s3cret", 10)
	testkit.Check(t, os.WriteFile(broken, []byte("\x05\x02\x00\x00\xff\xff"+secret), 0o600))
	silent := silence(t)

	with := func(edit func(*Kerberos)) Kerberos {
		k := l.who
		edit(&k)
		return k
	}
	conf := func(addr string) func(*Kerberos) {
		return func(k *Kerberos) {
			k.Krb5Conf = filepath.Join(t.TempDir(), "krb5.conf")
			testkit.WriteFile(t, k.Krb5Conf, kdc.Conf(addr))
		}
	}
	for name, c := range map[string]struct {
		who  Kerberos
		host string
		want string
	}{
		"unknown principal": {with(func(k *Kerberos) {
			k.Principal, k.Keytab = "headroom/other@"+kdc.Realm, other
			l.Delete("headroom/other")
		}), "", "does not know headroom/other@" + kdc.Realm},
		"stale key":       {stale, "", "is not the current one of " + ownFull},
		"other's keytab":  {with(func(k *Kerberos) { k.Keytab = other }), "", "contains no key of " + ownFull},
		"no keytab":       {with(func(k *Kerberos) { k.Keytab = "/nowhere/keytab" }), "", "no such file"},
		"broken keytab":   {with(func(k *Kerberos) { k.Keytab = broken }), "", "is not a keytab"},
		"no krb5.conf":    {with(func(k *Kerberos) { k.Krb5Conf = "/nowhere/krb5.conf" }), "", "no such file"},
		"unknown service": {l.who, "elsewhere.localhost", "does not know HTTP/elsewhere.localhost"},
		"KDC away":        {with(conf("127.0.0.1:1")), "", "no KDC of " + kdc.Realm + " reachable"},
		"KDC silent":      {with(conf(silent)), "", "no answer of a KDC of " + kdc.Realm + " yet"},
	} {
		t.Run(name, func(t *testing.T) {
			u := testkit.Need(url.Parse(l.web.address()))(t)
			if c.host != "" {
				u.Host = c.host + ":" + u.Port()
			}
			most := patience
			if c.want == "no answer of a KDC of "+kdc.Realm+" yet" {
				most = 200 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), most)
			defer cancel()
			_, err := ask(ctx, transport(t, c.who), u.String(), "")
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// silence is the address of a KDC that takes requests and never answers.
func silence(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	l := testkit.Need(lc.Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	var mu sync.Mutex
	var open []net.Conn
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		accepting.Wait()
		for _, c := range open {
			_ = c.Close()
		}
	})
	return l.Addr().String()
}

func TestClocksThatDiffer(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Stop()
	l.Start("-T", "3600")
	if _, err := ask(within(t), transport(t, l.who), l.web.address(), ""); err == nil || !strings.Contains(err.Error(), "synchronise both by NTP") {
		t.Errorf("got %v", err)
	}
}

// A KDC that failed is left alone for a while, and asked again then.
func TestFailureIsNotRepeatedAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Stop()
	tr := transport(t, l.who)
	if _, err := ask(within(t), tr, l.web.address(), ""); err == nil || !strings.Contains(err.Error(), "reachable: check that it is running") {
		t.Fatalf("got %v", err)
	}
	l.Start() // the next request does not notice yet
	if _, err := ask(within(t), tr, l.web.address(), ""); err == nil {
		t.Error("the KDC was asked again at once")
	}
	tr.tickets.mu.Lock()
	last := tr.tickets.failed["HTTP/localhost"]
	last.at = last.at.Add(-retryAfter)
	tr.tickets.failed["HTTP/localhost"] = last
	tr.tickets.mu.Unlock()
	if got, err := ask(within(t), tr, l.web.address(), ""); err != nil || got != ownFull {
		t.Errorf("after the pause: %q, %v", got, err)
	}
}

// A server that refuses a ticket that is not new has another one acquired.
func TestRefusedTicketIsReplaced(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.web.take("")
	tr, ctx := transport(t, l.who), within(t)
	if _, err := ask(ctx, tr, l.web.address(), ""); err != nil {
		t.Fatal(err)
	}
	rekeyed := newWeb(t, l.Keytab("web.keytab", "HTTP/localhost"))
	if _, err := ask(ctx, tr, rekeyed.address(), ""); err == nil || !strings.Contains(err.Error(), "status 401") {
		t.Fatalf("a ticket for the old key: %v", err)
	}
	tr.tickets.mu.Lock()
	tr.tickets.held["HTTP/localhost"].got = time.Now().Add(-retryAfter)
	tr.tickets.mu.Unlock()
	if _, err := ask(ctx, tr, rekeyed.address(), ""); err == nil {
		t.Fatal("a ticket for the old key was taken")
	}
	if got, err := ask(ctx, tr, rekeyed.address(), ""); err != nil || got != ownFull {
		t.Errorf("with a new ticket: %q, %v", got, err)
	}
}

// What fails tells no key, in whatever form.
func TestNoSecretIsTold(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	data := testkit.Need(os.ReadFile(l.who.Keytab))(t)
	all := keytab.New()
	testkit.Check(t, all.Unmarshal(data))
	var log bytes.Buffer
	var said strings.Builder
	for cut := len(data) - 1; cut > 0; cut -= 7 {
		who := l.who
		who.Keytab = filepath.Join(t.TempDir(), "cut.keytab")
		testkit.Check(t, os.WriteFile(who.Keytab, data[:cut], 0o600))
		_, err := who.key()
		fmt.Fprintln(&said, err)
	}
	tr := New(Config{Section: "yarn", Kerberos: l.who}, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	_, err := ask(within(t), tr, l.web.address(), "")
	tr.CloseIdleConnections()
	fmt.Fprintln(&said, err, log.String())
	for _, e := range all.Entries {
		for _, form := range []string{string(e.Key.KeyValue), hex.EncodeToString(e.Key.KeyValue), base64.StdEncoding.EncodeToString(e.Key.KeyValue)} {
			if strings.Contains(said.String(), form) {
				t.Fatal("a key is told")
			}
		}
	}
}
