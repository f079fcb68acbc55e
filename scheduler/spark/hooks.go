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
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"headroom/internal/cli"
	"headroom/internal/listen"
	"headroom/internal/rpc"
	"headroom/scheduler/hookserver"
	"headroom/scheduler/sparkapp"
)

const (
	// hooksMax bounds the requests that are answered at one time.
	hooksMax = 64
	// portWait bounds the time that the port of the last process is waited for.
	portWait  = 2 * time.Second
	portPause = 20 * time.Millisecond
)

// listenOn opens the hooks' port. Where the system is to choose it, the one that the file
// remembers is tried first: drivers that outlived the last process ask there.
func listenOn(address, file string, logger *slog.Logger) (net.Listener, error) {
	if _, port, err := net.SplitHostPort(address); err == nil && port != "0" {
		l, err := rpc.Listen(address)
		if err != nil {
			return nil, &cli.Error{
				Code: "listen", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("spark.hooks: %v", err),
				Hint: "another process may use the port (see ss -ltnp), or it is not an address of this machine",
			}
		}
		return l, nil
	}
	host, _, _ := net.SplitHostPort(address) // Check has seen it
	if last, err := os.ReadFile(file); err == nil {
		if h, _, err := net.SplitHostPort(string(last)); err == nil && h == host {
			if l, err := listenAgain(string(last)); err == nil {
				return l, nil
			}
			logger.Warn("previous hooks port in use; running drivers cannot report their progress", slog.String("address", string(last)))
		}
	}
	l, err := rpc.Listen(address)
	if err != nil {
		return nil, err
	}
	if err := renameio.WriteFile(file, []byte(l.Addr().String()), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("spark: store the hooks port: %w", err), l.Close())
	}
	return l, nil
}

// listenAgain opens a port that was this scheduler's. It may still be open for a moment: the last
// process is ending, or one that is being started has a copy until it begins its program.
func listenAgain(address string) (net.Listener, error) {
	for began := time.Now(); ; time.Sleep(portPause) {
		if l, err := rpc.Listen(address); err == nil || !errors.Is(err, syscall.EADDRINUSE) || time.Since(began) > portWait {
			return l, err
		}
	}
}

// hooks serves the protocol of the hook in Spark's drivers: docs/hooks.md.
type hooks struct {
	engine *Engine
	places *hookserver.Places
}

func newHooks(e *Engine) *hooks { return &hooks{e, hookserver.NewPlaces(hooksMax)} }

func (h *hooks) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/spark/progress", func(w http.ResponseWriter, r *http.Request) {
		h.places.Serve(w, r, listen.Guest{Name: h.engine.runOf(tokenOf(r))}, h.progress)
	})
	return mux
}

func tokenOf(r *http.Request) string {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return token
}

// runOf returns the job whose run has the token; that of all others is one name.
func (e *Engine) runOf(token string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	for job, x := range e.runs {
		if subtle.ConstantTimeCompare([]byte(x.token), []byte(token)) == 1 {
			return job
		}
	}
	return "?"
}

func (h *hooks) progress(w http.ResponseWriter, r *http.Request) {
	rep, err := sparkapp.ParseReport(r.Body)
	if err != nil {
		hookserver.Refuse(w, http.StatusBadRequest, err)
		return
	}
	token := tokenOf(r)
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

// report records a hook's report and answers with the orders for its run.
func (e *Engine) report(now time.Time, token string, rep sparkapp.Report) (sparkapp.Reply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.runs[rep.Job]
	switch {
	case x == nil:
		return sparkapp.Reply{}, fmt.Errorf("job %.100q: %w", rep.Job, errNotRunning)
	case subtle.ConstantTimeCompare([]byte(x.token), []byte(token)) != 1:
		return sparkapp.Reply{}, fmt.Errorf("job %s: %w", rep.Job, errToken)
	case x.run.Number != rep.Run:
		return sparkapp.Reply{}, fmt.Errorf("run %d of %s, but run %d is in progress: %w", rep.Run, rep.Job, x.run.Number, errOldRun)
	}
	if rep.Sequence > x.sequence { // an older one that was delayed changes nothing
		if sparkapp.Stopped(rep.Trouble) {
			rep.Trouble = x.progress.Trouble
		}
		if rep.Trouble != "" && rep.Trouble != x.progress.Trouble {
			e.logger.Warn("Spark driver reported a problem", slog.String("job", rep.Job), slog.String("trouble", sparkapp.FirstLine(rep.Trouble)))
		}
		x.sequence, x.heard, x.app = rep.Sequence, now, rep.App
		e.take(x, rep.Progress(x.theta, e.cfg.node))
		e.divide(now)
	}
	a := sparkapp.Reply{Theta: x.theta, Seed: int64(x.seed), Cancel: x.killed, End: x.run.promise().End(now)}
	if n := x.aim.executors; n > 0 {
		a.Executors = &n
	}
	a.Copies = rep.Copies(e.policy, x.run.promise(), now)
	return a, nil
}

// take makes p the run's progress. The caller holds mu.
func (e *Engine) take(x *execution, p sparkapp.Progress) {
	x.progress = p
	e.tell(Event{Job: x.run.Job, Number: x.run.Number, Kind: KindProgress, Progress: p})
}

// quiet notes that neither a run's hook nor its driver's REST interface has said anything
// for too long. The caller holds mu.
func (e *Engine) quiet(x *execution, now time.Time) {
	if !x.progress.Known || now.Sub(x.heard) < silence || now.Sub(x.looked) < silence {
		return
	}
	e.logger.Warn("hook and REST interface of a Spark driver unreachable; progress unknown", slog.String("job", x.run.Job), slog.Duration("for", silence))
	p := x.progress
	p.Known = false
	e.take(x, p)
}
