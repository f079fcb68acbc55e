package spark

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"headroom/scheduler/sparkapp"
)

const (
	// capacityEvery is how often the size of the cluster is read.
	capacityEvery = 2 * time.Second
	// capacityLife is how long an answer is valid.
	capacityLife = 15 * time.Second
	// askWait bounds one request.
	askWait = 2 * time.Second
	// connectionsMax bounds the connections to one host.
	connectionsMax = 8
)

// Application is an application of YARN.
type Application struct {
	ID string
	// Over reports that it has ended, OK that it reached its end.
	Over, OK bool
	// Words say its state, and why it ended.
	Words string
}

// YARN is the engine's view of YARN. The context bounds its methods.
type YARN interface {
	// Find is the application that carries the tag; false where there is none.
	Find(ctx context.Context, tag string) (Application, bool, error)
	// Kill ends an application. It may have ended already.
	Kill(ctx context.Context, id string) error
	// Cores are those of the running nodes, and those that containers of applications
	// without this tag hold.
	Cores(ctx context.Context, tag string) (all, others int, err error)
	// Driver asks the REST interface of an application's driver through YARN's proxy.
	Driver(ctx context.Context, id, path string) ([]byte, error)
}

// Capacity returns how many cores there are to divide among jobs, or why that is unknown, in words.
func (e *Engine) Capacity() (cores int, trouble string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch c := e.capacity; {
	case e.cfg.Cores > 0:
		return e.cfg.Cores, ""
	case c.at.IsZero() && c.why == "":
		return 0, "the number of cores of the cluster has not been read yet"
	case c.at.IsZero() || time.Since(c.at) > capacityLife:
		return 0, fmt.Sprintf("the number of cores of the cluster is unknown: %s; set spark.cores in scheduler.yaml", c.why)
	default:
		return c.cores, ""
	}
}

// capacity is the cluster's last answer, and the error since then.
type capacity struct {
	cores int
	at    time.Time
	why   string
}

// measure asks the cluster how large it is, again and again, until ctx ends.
func (e *Engine) measure(ctx context.Context) {
	if e.cfg.Cores > 0 {
		return
	}
	tick := time.NewTicker(capacityEvery)
	defer tick.Stop()
	for {
		one, cancel := context.WithTimeout(ctx, askWait)
		n, err := e.ask(one)
		cancel()
		if ctx.Err() != nil {
			return
		}
		e.measured(n, err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (e *Engine) measured(n int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		e.capacity = capacity{cores: n, at: time.Now()}
		return
	}
	if e.capacity.why == "" {
		e.logger.Warn("size of the Spark cluster unknown", slog.Any("error", err))
	}
	e.capacity.why = sparkapp.Clip(err.Error())
}

// ask returns how many cores there are that applications of nobody else hold.
func (e *Engine) ask(ctx context.Context) (int, error) {
	if e.cfg.OnYARN() {
		all, others, err := e.manager.Cores(ctx, tagPrefix)
		return max(0, all-others), err
	}
	var failed error
	for _, address := range e.cfg.webs() {
		body, err := e.web.get(ctx, strings.TrimRight(address, "/")+"/json/", sparkapp.AnswerMax)
		if err == nil {
			var n int
			if n, err = e.coresOf(body); err == nil {
				return n, nil
			}
			err = fmt.Errorf("%s: %w", address, err)
		}
		failed = errors.Join(failed, err)
	}
	return 0, failed
}

// coresOf reads a standalone master's page: the cores of its workers that live, less those
// that applications of others hold.
func (e *Engine) coresOf(body []byte) (int, error) {
	var page struct {
		Status  *string `json:"status"`
		Workers []struct {
			Cores int    `json:"cores"`
			State string `json:"state"`
		} `json:"workers"`
		Active []struct {
			ID    string `json:"id"`
			Name  string `json:"name"`
			Cores int    `json:"cores"`
		} `json:"activeapps"`
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return 0, fmt.Errorf("%w: %w", err, errMaster)
	}
	switch {
	case page.Status == nil:
		return 0, fmt.Errorf("no status: %w", errMaster)
	case *page.Status != "ALIVE":
		return 0, fmt.Errorf("it is %s: %w", sparkapp.Clip(*page.Status), errMaster)
	}
	n := 0
	for _, w := range page.Workers {
		switch {
		case w.Cores < 0 || w.Cores > coresMax:
			return 0, fmt.Errorf("a worker of %d cores: %w", w.Cores, errMaster)
		case w.State == "ALIVE":
			n = min(n+w.Cores, coresMax)
		}
	}
	for _, a := range page.Active {
		if a.Cores > 0 && a.Cores <= coresMax && !e.ours(a.ID, a.Name) {
			n -= a.Cores
		}
	}
	return max(0, n), nil
}

// ours reports whether an application is a run's: by the id that its hook has told, before
// that by the name that it was given.
func (e *Engine) ours(id, name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.runs[name] != nil {
		return true
	}
	for _, x := range e.runs {
		if x.app == id {
			return true
		}
	}
	return false
}

// web asks pages of Spark's daemons and drivers.
type web struct{ client *http.Client }

func newWeb() web {
	return web{&http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     &http.Transport{MaxConnsPerHost: connectionsMax, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute},
	}}
}

// get returns the body of a whole answer of at most so many bytes.
func (w web) get(ctx context.Context, address string, most int64) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("spark: ask %s: %w", address, err)
	}
	r.Header.Set("Accept", "application/json")
	resp, err := w.client.Do(r)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		return nil, fmt.Errorf("spark: ask %s: %w", address, err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("spark: ask %s: %w", address, err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("spark: ask %s: status %d: %w", address, resp.StatusCode, sparkapp.ErrAnswer)
	case int64(len(body)) > most:
		return nil, fmt.Errorf("spark: ask %s: more than %d bytes: %w", address, most, sparkapp.ErrAnswer)
	}
	return body, nil
}

// freePort returns a port of this machine that nobody listens on now; 0 where there is none.
func freePort() int {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed at once
	if err != nil {
		return 0
	}
	defer func() { _ = l.Close() }()
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}
