package ipmi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"headroom/units"
)

// reader is the meter's goroutine: it owns the link and what the BMC can do.
type reader struct {
	m     *Meter
	link  link
	pause time.Duration
	said  State

	using    candidate     // the way to wall power that was good last
	goodAt   time.Duration // when it was
	passed   string        // why those before it were not used
	searches int           // in a row, without a plausible one
	records  *records      // nil: not read since the login
	walkErr  error         // of the last attempt to read them
	walkedAt time.Duration
	measured map[byte]bool // sensors that have measured since the start, by number
}

func newReader(m *Meter) *reader {
	return &reader{m: m, pause: retryMin, said: StateUnknown, measured: map[byte]bool{}}
}

func (m *Meter) run(ctx context.Context) {
	defer close(m.done)
	r := newReader(m)
	defer r.hangUp()
	if m.open == nil {
		r.idle(ctx)
		return
	}
	next := time.NewTimer(0)
	defer next.Stop()
	for ctx.Err() == nil { // a closed meter with a hung BMC must not begin another call
		select {
		case <-ctx.Done():
		case j := <-m.jobs:
			j.reply <- r.serve(ctx, j)
		case <-next.C:
			next.Reset(r.poll(ctx))
		}
	}
}

// idle refuses all work until the meter is closed.
func (r *reader) idle(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-r.m.jobs:
			j.reply <- result{err: ErrAbsent}
		}
	}
}

// serve does work on the limit. The job's context and the meter's both end it.
func (r *reader) serve(ctx context.Context, j job) result {
	jobCtx, cancel := context.WithCancel(j.ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	if err := r.connect(jobCtx); err != nil {
		return result{err: err}
	}
	lim, err := j.do(jobCtx, r.link)
	if errors.Is(err, ErrNoAnswer) && jobCtx.Err() == nil {
		r.hangUp()
	}
	return result{limit: lim, err: err}
}

// poll takes one reading and returns how long to wait until the next.
func (r *reader) poll(ctx context.Context) time.Duration {
	asked := r.m.now()
	obs, err := r.observe(ctx)
	now := r.m.now()
	if ctx.Err() != nil {
		return 0 // closing
	}
	state := r.note(asked, now, obs, err)
	r.say(state)
	if err == nil {
		r.pause = retryMin
		return r.m.cfg.Period
	}
	return r.backoff(err)
}

// note gives the outcome to the tracker.
func (r *reader) note(asked, now time.Duration, obs observation, err error) Reading {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	t := &r.m.track
	switch {
	case errors.Is(err, ErrAbsent), errors.Is(err, ErrDenied), errors.Is(err, ErrNoReading):
		t.absent(err.Error())
	case err != nil:
		t.failed(err.Error())
	case obs.why != "":
		t.insane(obs.why)
	default:
		t.note = obs.note
		t.measured(now, obs.statistics)
		t.good(asked, now, obs.power, obs.source, obs.sensors)
	}
	return t.reading(now)
}

// backoff disconnects if a new login may help and waits longer each time. A user that
// the BMC refuses waits longest at once: BMCs lock accounts.
func (r *reader) backoff(err error) time.Duration {
	if errors.Is(err, ErrNoAnswer) || errors.Is(err, ErrMalformed) {
		r.hangUp()
	}
	if errors.Is(err, ErrRefused) && r.link != nil {
		return r.m.cfg.Period // busy: it answers at least
	}
	pause := r.pause
	r.pause = min(2*r.pause, retryMax)
	if errors.Is(err, ErrDenied) {
		return retryMax
	}
	return pause
}

// say logs each change of state once.
func (r *reader) say(now Reading) {
	if now.State == r.said {
		return
	}
	r.said = now.State
	if now.State == StateOK {
		r.m.log.Info("BMC power reading available", slog.String("source", string(now.Source)), slog.String("sensors", now.Sensors), slog.String("note", now.Note))
		return
	}
	r.m.log.Warn("BMC power reading lost", slog.String("state", string(now.State)), slog.String("why", now.Why))
}

// connect opens the link when there is none. What the BMC can do is found out anew.
func (r *reader) connect(ctx context.Context) error {
	if r.link != nil {
		return nil
	}
	l, err := r.m.open(ctx)
	if err != nil {
		return err
	}
	r.link, r.records, r.walkErr = l, nil, nil
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	r.m.track.reset()
	r.m.track.suite = suiteOf(l)
	return nil
}

func (r *reader) hangUp() {
	if r.link != nil {
		r.link.close()
		r.link = nil
	}
}

// observation is one reading; why says that it cannot be true.
type observation struct {
	power   units.Power
	source  Source
	sensors string
	why     string
	// note is what people should know of a good reading.
	note string
	// statistics are the BMC's own, where it keeps them.
	statistics statistics
}

// readDCMI takes one reading.
func readDCMI(ctx context.Context, l link) (observation, error) {
	code, data, err := l.ask(ctx, powerReading(), powerRequest())
	switch {
	case err != nil:
		return observation{}, err
	case code.missing(), unsupported(code):
		return observation{}, fmt.Errorf("%w: no DCMI power reading (%v)", ErrNoReading, code)
	case code != codeOK:
		return observation{}, refused("power reading", code)
	}
	return observeDCMI(data), nil
}

// unsupported are the other codes with which BMCs say that the platform cannot measure.
func unsupported(c completion) bool {
	switch c {
	case codeParameter, codeNoData, codeField, codeState:
		return true
	default:
		return false
	}
}

// observeDCMI judges the bytes of one answer by themselves.
func observeDCMI(data []byte) observation {
	a, err := decodePower(data)
	if err != nil {
		return observation{why: err.Error()}
	}
	return observation{
		power: units.Power(a.now) * units.Watt, source: SourceDCMI, why: a.strange(),
		statistics: statistics{a.least, a.most, a.mean},
	}
}

// readSensors sums the sensors. All of them must measure: the sum of some would be too
// low, and a sum too low raises the cap. The exception is a supply that has not measured since
// the start beside one that does: its bay is empty, and it draws nothing. measured has the
// numbers of those that have.
func readSensors(ctx context.Context, l link, sensors []sensor, measured map[byte]bool) (observation, error) {
	var sum float64
	var there, empty []sensor
	var silent string
	for _, s := range sensors {
		code, data, err := l.ask(ctx, command{NetFn: netFnSensor, ID: 0x2d}, []byte{s.number})
		if err != nil {
			return observation{}, err
		}
		watts, why := 0.0, ""
		switch code {
		case codeOK:
			watts, why = s.decodeReading(data)
		case codeNoData, codeState:
			why = fmt.Sprintf("sensor %q is not present", s.name)
		default:
			return observation{}, refused("sensor "+s.name, code)
		}
		switch {
		case why == "":
			sum, there = sum+watts, append(there, s)
		case s.entity == entityPowerSupply && !measured[s.number]:
			silent, empty = why, append(empty, s)
		default:
			return observation{why: why}, nil
		}
	}
	if len(there) == 0 {
		return observation{why: silent}, nil
	}
	for _, s := range there {
		measured[s.number] = true
	}
	obs := observeSum(sum, there)
	if len(empty) > 0 {
		obs.note = names(empty) + " counts as 0 W: not present since powerd started"
	}
	return obs, nil
}

func observeSum(sum float64, sensors []sensor) observation {
	p, ok := toPower(sum)
	if !ok {
		return observation{why: "the sensors' sum is no number"}
	}
	obs := observation{power: p, source: SourceSDR, sensors: names(sensors)}
	if p == 0 {
		obs.why = "the sensors read 0 W"
	}
	return obs
}
