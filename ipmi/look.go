package ipmi

import (
	"context"
	"errors"
	"log/slog"
)

// Found is what one look at a BMC showed.
type Found struct {
	Reading

	// Limit is the BMC's own limit, unless LimitErr says why it was not shown.
	Limit    Limit
	LimitErr error
}

// Look asks a BMC once and writes nothing: what it measures, by which cipher it talks,
// and what limit it holds. It returns when ctx ends, even where the BMC hangs; a call that
// the kernel still holds then ends by its own deadline. Errors: ErrConfig, ErrAbsent,
// ErrNoReading, ErrNoAnswer, ErrDenied, ErrMalformed, ErrRefused.
func Look(ctx context.Context, cfg Config) (Found, error) {
	if err := cfg.validate(); err != nil {
		return Found{}, err
	}
	cfg = cfg.withDefaults()
	open, err := openerOf(cfg)
	if err != nil {
		return Found{}, err
	}
	type outcome struct {
		found Found
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		found, err := look(ctx, cfg, open)
		done <- outcome{found, err}
	}()
	select {
	case o := <-done:
		return o.found, o.err
	case <-ctx.Done():
		return Found{}, errors.Join(ErrNoAnswer, ctx.Err())
	}
}

func look(ctx context.Context, cfg Config, open opener) (Found, error) {
	m := &Meter{
		cfg: cfg, log: slog.New(slog.DiscardHandler), open: open, now: boottime,
		track: newTracker(limits{least: cfg.Least, most: cfg.Most, period: cfg.Period, timeout: cfg.Timeout}),
	}
	r := newReader(m)
	r.searches = patience // there is no second look
	defer r.hangUp()
	obs, err := r.observe(ctx)
	if err != nil {
		return Found{}, err
	}
	found := Found{Reading: r.note(boottime(), boottime(), obs, nil)}
	found.Limit, found.LimitErr = getLimit(ctx, r.link)
	return found, nil
}

// suiteOf is the cipher suite of a link, 0 for none.
func suiteOf(l link) byte {
	if s, ok := l.(*session); ok {
		return s.suite
	}
	return 0
}
