package spark

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"headroom/scheduler/sparkapp"
)

const (
	// probeEvery is how often drivers are asked whose hooks are silent.
	probeEvery = time.Second
	// probeAfter is after how much silence a hook's driver is asked: hooks speak each second.
	probeAfter = 5 * time.Second
	// probersMax bounds the drivers that are asked at one time.
	probersMax = 4
)

// probe asks the drivers whose hooks are silent, until ctx ends.
func (e *Engine) probe(ctx context.Context) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var asking sync.WaitGroup
		places := make(chan struct{}, probersMax)
		for _, x := range e.silent(time.Now()) {
			places <- struct{}{}
			asking.Go(func() {
				defer func() { <-places }()
				one, cancel := context.WithTimeout(ctx, askWait)
				defer cancel()
				e.probed(one, x)
			})
		}
		asking.Wait()
	}
}

// silent returns the runs whose hooks have not reported lately.
func (e *Engine) silent(now time.Time) (all []*execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.runs {
		if now.Sub(x.heard) >= probeAfter && now.Sub(x.began) >= probeAfter && (x.ui > 0 || (x.tag != "" && e.manager != nil)) {
			all = append(all, x)
		}
	}
	return all
}

// probed asks one driver how far it is.
func (e *Engine) probed(ctx context.Context, x *execution) {
	e.mu.Lock()
	id, app, known := x.identified, x.app, x.progress
	e.mu.Unlock()
	ask, err := e.driver(ctx, x)
	if err == nil && !id {
		if app, err = e.identify(ctx, ask, x); err == nil {
			id = true
		}
	}
	var p sparkapp.Progress
	if err == nil {
		p, err = sparkapp.Look(ctx, ask, app, known, e.cfg.node)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.logger.Debug("REST interface of a Spark driver unreachable", slog.String("job", x.run.Job), slog.Any("error", err))
		return
	}
	x.identified, x.app = id, app
	now := time.Now()
	if now.Sub(x.heard) < probeAfter || e.runs[x.run.Job] != x {
		return // the hook has spoken meanwhile, or the run is over
	}
	if known.From != sparkapp.ByREST {
		e.logger.Warn("hook of a Spark driver unreachable; using its REST interface", slog.String("job", x.run.Job))
	}
	x.looked = now
	p.Trouble, p.Exact = known.Trouble, known.Exact
	e.take(x, p)
	e.divide(now)
}

// driver returns how the REST interface of a run's driver is asked.
func (e *Engine) driver(ctx context.Context, x *execution) (sparkapp.Ask, error) {
	if x.ui > 0 {
		base := "http://" + net.JoinHostPort(cmp.Or(os.Getenv("SPARK_LOCAL_IP"), "127.0.0.1"), strconv.Itoa(x.ui)) + "/api/v1"
		return func(ctx context.Context, path string) ([]byte, error) {
			return e.web.get(ctx, base+path, sparkapp.AnswerMax)
		}, nil
	}
	a, found, err := e.manager.Find(ctx, x.tag)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, fmt.Errorf("no application has the tag %s: %w", x.tag, errNotRunning)
	}
	return func(ctx context.Context, path string) ([]byte, error) { return e.manager.Driver(ctx, a.ID, path) }, nil
}

// identify makes sure that the driver is the run's: its port may have been taken by another.
func (e *Engine) identify(ctx context.Context, ask sparkapp.Ask, x *execution) (app string, err error) {
	id, err := sparkapp.Identify(ctx, ask)
	if err != nil {
		return "", err
	}
	job, run := id.Properties["spark.headroom.job"], id.Properties["spark.headroom.run"]
	if job != x.run.Job || run != strconv.FormatUint(uint64(x.run.Number), 10) {
		return "", fmt.Errorf("%s is run %q of %q: %w", id.ID, sparkapp.Clip(run), sparkapp.Clip(job), errStranger)
	}
	return id.ID, nil
}
