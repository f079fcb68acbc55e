package yarn

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"headroom/scheduler/webclient"
)

const (
	// requestWait bounds one request: under load a task list took 0.4 s.
	requestWait = 3 * time.Second
	// answerMax bounds one answer: 100000 tasks are about 25 MB.
	answerMax = 32 << 20
)

// client reads from the ResourceManagers. It is safe for concurrent use.
type client struct {
	managers []string
	// proxy is the web proxy to application masters; empty for the ResourceManager's own.
	proxy string
	http  *http.Client

	mu sync.Mutex
	// turn is the ResourceManager that answered last.
	turn int
}

func newClient(cfg Config, logger *slog.Logger) *client {
	c := &client{proxy: strings.TrimRight(cfg.WebProxy, "/"), http: &http.Client{
		Timeout: requestWait,
		// Redirects are not followed: they come from a standby or a master that has ended. So credentials of the
		// scheduler never reach a host that is not configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     webclient.New(cfg.web(), logger),
	}}
	for _, m := range cfg.ResourceManager {
		c.managers = append(c.managers, strings.TrimRight(m, "/"))
	}
	return c
}

func (c *client) close() { c.http.CloseIdleConnections() }

// cluster asks the active ResourceManager: first the previous one, then the others in order.
func (c *client) cluster(ctx context.Context, path string) ([]byte, error) {
	var failed error
	first := c.first()
	for i := range c.managers {
		turn := (first + i) % len(c.managers)
		body, err := c.get(ctx, c.managers[turn]+"/ws/v1/cluster/"+path)
		if err == nil {
			c.prefer(turn)
			return body, nil
		}
		about, _, _ := strings.Cut(path, "?")
		switch missing := errors.Is(err, errNotThere); {
		case ctx.Err() != nil, missing && strings.Contains(about, "/"):
			return nil, err // the active one has answered, about one application
		case missing:
			err = fmt.Errorf("%w: check that it is the web address of a ResourceManager (yarn.resourcemanager.webapp.address in yarn-site.xml, port 8088)", err)
		}
		if failed == nil {
			failed = err
		} else {
			failed = fmt.Errorf("%w; %w", failed, err)
		}
	}
	return nil, failed
}

// master asks the application master of a job, through the web proxy.
func (c *client) master(ctx context.Context, app, path string) ([]byte, error) {
	body, err := c.get(ctx, c.proxied()+"/proxy/"+app+"/ws/v1/mapreduce/jobs/"+jobOf(app)+path)
	if errors.Is(err, errStandby) {
		err = fmt.Errorf("no application master, not yet or no longer: %w", errNotThere)
	}
	return body, err
}

// proxied returns the address of the proxy to application masters: the configured one, or the ResourceManager that
// answered last.
func (c *client) proxied() string {
	if c.proxy != "" {
		return c.proxy
	}
	return c.managers[c.first()]
}

func (c *client) first() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.turn
}

func (c *client) prefer(turn int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn = turn
}

// get returns the body of a complete JSON answer.
func (c *client) get(ctx context.Context, address string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("yarn: ask %s: %w", address, err)
	}
	r.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("yarn: %w", withoutQuery(err))
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerMax+1))
	if err == nil {
		err = judge(resp, body)
	} else {
		err = fmt.Errorf("truncated after %d bytes: %w", len(body), err)
	}
	if err != nil {
		return nil, fmt.Errorf("yarn: %s: %w", r.URL.Host+r.URL.Path, err)
	}
	return body, nil
}

// Content types of requests.
const (
	typeXML  = "application/xml"
	typeJSON = "application/json"
)

// document is a change for the ResourceManager.
type document struct {
	kind string
	body []byte
	// refused is the error for a refusal.
	refused error
}

// change sends a document to the active ResourceManager: the one that answered last first, then the others in their order.
func (c *client) change(ctx context.Context, path string, d document) error {
	var failed error
	first := c.first()
	for i := range c.managers {
		turn := (first + i) % len(c.managers)
		err := c.put(ctx, c.managers[turn]+"/ws/v1/cluster/"+path, d)
		if err == nil {
			c.prefer(turn)
			return nil
		}
		failed = err
		if !errors.Is(err, errStandby) {
			return err // it may have been carried out
		}
	}
	return failed
}

// put sends a document and expects a confirmation.
func (c *client) put(ctx context.Context, address string, d document) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, address, bytes.NewReader(d.body))
	if err != nil {
		return fmt.Errorf("yarn: ask %s: %w", address, err)
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", d.kind)
	resp, err := c.http.Do(r)
	if err != nil {
		return fmt.Errorf("yarn: %w", withoutQuery(err))
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	said, err := io.ReadAll(io.LimitReader(resp.Body, answerMax+1))
	if err != nil {
		return fmt.Errorf("yarn: %s: truncated after %d bytes: %w", r.URL.Host+r.URL.Path, len(said), err)
	}
	switch passed := resp.StatusCode >= 300 && resp.StatusCode < 400 || standby(said); {
	case passed || resp.StatusCode == http.StatusNotFound:
		err = judge(resp, said)
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusAccepted:
		err = fmt.Errorf("refused with status %d: %s: %w", resp.StatusCode, words(said), d.refused)
	default:
		return nil // the body is for people
	}
	return fmt.Errorf("yarn: %s: %w", r.URL.Host+r.URL.Path, err)
}

// withoutQuery shortens the address in an error of the HTTP client.
func withoutQuery(err error) error {
	u, ok := errors.AsType[*url.Error](err)
	if !ok {
		return err
	}
	short, _, _ := strings.Cut(u.URL, "?")
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		return fmt.Errorf("ask %s: %w: set yarn.ca to the CA of its certificate", short, u.Err)
	}
	return fmt.Errorf("ask %s: %w", short, u.Err)
}

// judge returns why an answer is invalid. ResourceManagers send HTML pages for people, and as a standby a text with a
// redirect.
func judge(resp *http.Response, body []byte) error {
	standby := strings.HasPrefix(string(body), "This is standby RM") || strings.HasPrefix(string(body), "Can not find any active RM")
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400, standby:
		return fmt.Errorf("redirected to %q: %w", clip(resp.Header.Get("Location")), errStandby)
	case resp.StatusCode == http.StatusNotFound:
		return errNotThere
	case resp.StatusCode == http.StatusUnauthorized && (resp.Request == nil || resp.Request.Header.Get("Authorization") == ""):
		return fmt.Errorf("requires authentication (%s), but yarn.kerberos is not set in scheduler.yaml: %w", clip(resp.Header.Get("WWW-Authenticate")), errAnswer)
	case resp.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("ticket of Kerberos rejected: %s: check that the server's key is the KDC's current one and that its clock is right: %w", words(body), errAnswer)
	case len(body) > answerMax:
		return fmt.Errorf("more than %d bytes: %w", answerMax, errAnswer)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("status %d: %s: %w", resp.StatusCode, words(body), errAnswer)
	case err != nil || kind != "application/json":
		return fmt.Errorf("%q instead of JSON: %s: %w", clip(resp.Header.Get("Content-Type")), words(body), errAnswer)
	}
	return nil
}

// words returns the start of an answer that is for people: the message of a Hadoop exception, or a page without its
// tags.
func words(body []byte) string {
	var exception struct {
		Remote struct {
			Message string `json:"message"`
		} `json:"RemoteException"`
	}
	if read(body, &exception) == nil && exception.Remote.Message != "" {
		return clip(exception.Remote.Message)
	}
	var text strings.Builder
	inside := false
	for _, r := range string(body[:min(len(body), 4*textMax)]) {
		switch {
		case r == '<':
			inside = true
			text.WriteByte(' ')
		case r == '>':
			inside = false
		case !inside:
			text.WriteRune(r)
		}
	}
	return clip(text.String())
}
