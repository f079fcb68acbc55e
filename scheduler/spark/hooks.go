package spark

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"headroom/internal/cli"
	"headroom/internal/listen"
	"headroom/internal/rpc"
	"headroom/scheduler/hookserver"
)

const (
	// hooksMax bounds the requests that are answered at one time.
	hooksMax = 64
	// executorsMax is the most executors that a hook takes.
	executorsMax = 10_000
)

// listenOn opens the hooks' port. Where the system is to choose it, the one that the file
// remembers is tried first: drivers that outlived the last process ask there.
func listenOn(address, file string, logger *slog.Logger) (net.Listener, error) {
	if _, port, err := net.SplitHostPort(address); err == nil && port != "0" {
		l, err := rpc.Listen(address)
		if err != nil {
			return nil, &cli.Error{
				Code: "listen", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("spark.hooks: %v", err),
				Hint: "another process may hold the port: ss -ltnp shows which; or it is not an address of this machine",
			}
		}
		return l, nil
	}
	host, _, _ := net.SplitHostPort(address) // Check has seen it
	if last, err := os.ReadFile(file); err == nil {
		if h, _, err := net.SplitHostPort(string(last)); err == nil && h == host {
			if l, err := rpc.Listen(string(last)); err == nil {
				return l, nil
			}
			logger.Warn("the port of the last run is taken: hooks of drivers that still run will not be heard", slog.String("address", string(last)))
		}
	}
	l, err := rpc.Listen(address)
	if err != nil {
		return nil, err
	}
	if err := renameio.WriteFile(file, []byte(l.Addr().String()), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("spark: remember the hooks' port: %w", err), l.Close())
	}
	return l, nil
}

// hooks serves the protocol of the hook in Spark's drivers: docs/hooks.md.
type hooks struct{ engine *Engine }

func newHooks(e *Engine) *hooks { return &hooks{engine: e} }

func (h *hooks) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/spark/progress", h.progress)
	return hookserver.Bounded(hooksMax, mux)
}

// reply is what a hook is told.
type reply struct {
	Theta     float64 `json:"theta"`
	Seed      int64   `json:"seed"` // Java has no unsigned numbers
	Executors *int    `json:"executors"`
	Cancel    bool    `json:"cancel"`
}

func (h *hooks) progress(w http.ResponseWriter, r *http.Request) {
	rep, err := parseReport(r.Body)
	if err != nil {
		hookserver.Refuse(w, http.StatusBadRequest, err)
		return
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	a, err := h.engine.report(time.Now(), token, rep)
	if err == nil {
		listen.Prove(r.Context(), listen.Guest{Name: token}) // of one run
	}
	switch {
	case err == nil:
		hookserver.Answer(w, a)
	case errors.Is(err, errToken):
		hookserver.Refuse(w, http.StatusForbidden, err)
	case errors.Is(err, errOldRun):
		hookserver.Refuse(w, http.StatusConflict, err)
	default:
		hookserver.Refuse(w, http.StatusNotFound, err)
	}
}

// report takes over what a hook tells and answers what holds for its run.
func (e *Engine) report(now time.Time, token string, rep report) (reply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.runs[rep.Job]
	switch {
	case x == nil:
		return reply{}, fmt.Errorf("job %.100q: %w", rep.Job, errNotRunning)
	case subtle.ConstantTimeCompare([]byte(x.token), []byte(token)) != 1:
		return reply{}, fmt.Errorf("job %s: %w", rep.Job, errToken)
	case x.run.Number != rep.Run:
		return reply{}, fmt.Errorf("run %d of %s, %d is under way: %w", rep.Run, rep.Job, x.run.Number, errOldRun)
	}
	if rep.Sequence > x.sequence { // an older one that was delayed changes nothing
		if stopped(rep.Trouble) {
			rep.Trouble = x.progress.Trouble
		}
		if rep.Trouble != "" && rep.Trouble != x.progress.Trouble {
			e.logger.Warn("trouble in a Spark driver", slog.String("job", rep.Job), slog.String("trouble", firstLine(rep.Trouble)))
		}
		x.sequence, x.heard, x.progress = rep.Sequence, now, rep.progress(e.cfg, x)
		e.tell(Event{Job: x.run.Job, Number: x.run.Number, Kind: KindProgress, Progress: x.progress})
	}
	a := reply{Theta: x.theta, Seed: int64(x.seed), Cancel: x.killed}
	if x.executors > 0 {
		a.Executors = &x.executors
	}
	return a, nil
}

// stopped tells that a hook was told something when its application had come to its end already,
// as it may at every normal end: that is no trouble.
func stopped(trouble string) bool { return strings.Contains(trouble, "stopped SparkContext") }

// firstLine leaves out what Java says beneath an error.
func firstLine(text string) string {
	line, _, _ := strings.Cut(clip(text), "\n")
	return line
}

// quiet notes that a run's hook has been silent for too long. The caller holds mu.
func (e *Engine) quiet(x *execution, now time.Time) {
	if !x.progress.Known || now.Sub(x.heard) < silence {
		return
	}
	e.logger.Warn("the hook of a Spark driver is silent: its progress is unknown", slog.String("job", x.run.Job), slog.Duration("for", silence))
	x.progress.Known = false
	e.tell(Event{Job: x.run.Job, Number: x.run.Number, Kind: KindProgress, Progress: x.progress})
}
