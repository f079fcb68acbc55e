package ipmi

import (
	"context"
	"encoding/binary"
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
	dcmi  bool     // the BMC has DCMI power readings
	watts []sensor // else these, summed
	pause time.Duration
	said  State
}

func (m *Meter) run(ctx context.Context) {
	defer close(m.done)
	r := &reader{m: m, pause: retryMin, said: StateUnknown}
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
	case errors.Is(err, ErrAbsent), errors.Is(err, ErrDenied):
		t.absent(err.Error())
	case err != nil:
		t.failed(err.Error())
	case obs.why != "":
		t.insane(obs.why)
	default:
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
		r.m.log.Info("BMC power reading available", slog.String("source", string(now.Source)), slog.String("sensors", now.Sensors))
		return
	}
	r.m.log.Warn("BMC power reading lost", slog.String("state", string(now.State)), slog.String("why", now.Why))
}

// connect opens the link when there is none, and finds out what the BMC can do.
func (r *reader) connect(ctx context.Context) error {
	if r.link != nil {
		return nil
	}
	l, err := r.m.open(ctx)
	if err != nil {
		return err
	}
	r.link, r.dcmi, r.watts = l, true, nil
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
	// statistics are the BMC's own, where it keeps them.
	statistics statistics
}

// observe reads by DCMI, or by sensors once the BMC has said that it has no DCMI.
func (r *reader) observe(ctx context.Context) (observation, error) {
	if err := r.connect(ctx); err != nil {
		return observation{}, err
	}
	if r.dcmi {
		obs, missing, err := readDCMI(ctx, r.link)
		if !missing {
			return obs, err
		}
	}
	if r.watts == nil {
		all, err := listSensors(ctx, r.link)
		if err != nil {
			return observation{}, err
		}
		if r.watts = choose(all); len(r.watts) == 0 {
			r.watts = nil
			r.hangUp()
			return observation{}, fmt.Errorf("%w with power readings (neither DCMI nor a watt sensor)", ErrAbsent)
		}
		r.dcmi = false
	}
	return readSensors(ctx, r.link, r.watts)
}

// readDCMI takes one reading; missing tells that the BMC does not know the command.
func readDCMI(ctx context.Context, l link) (obs observation, missing bool, err error) {
	code, data, err := l.ask(ctx, powerReading(), powerRequest())
	switch {
	case err != nil:
		return observation{}, false, err
	case code.missing(), unsupported(code):
		return observation{}, true, refused("power reading", code)
	case code != codeOK:
		return observation{}, false, refused("power reading", code)
	}
	return observeDCMI(data), false, nil
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
// low, and a sum too low raises the cap.
func readSensors(ctx context.Context, l link, sensors []sensor) (observation, error) {
	var sum float64
	for _, s := range sensors {
		code, data, err := l.ask(ctx, command{NetFn: netFnSensor, ID: 0x2d}, []byte{s.number})
		switch {
		case err != nil:
			return observation{}, err
		case code == codeNoData:
			return observation{why: fmt.Sprintf("sensor %q is not present", s.name)}, nil
		case code != codeOK:
			return observation{}, refused("sensor "+s.name, code)
		}
		watts, why := s.decodeReading(data)
		if why != "" {
			return observation{why: why}, nil
		}
		sum += watts
	}
	return observeSum(sum, sensors), nil
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

const (
	// maxRecords bounds the walk through the sensor records, which a BMC may make endless.
	maxRecords = 1024
	// pieceLen is asked for at a time: many BMCs refuse more.
	pieceLen = 16
	// reserveTries bounds how often the walk starts again because the records changed.
	reserveTries = 3
	// walkTime bounds the walk as a whole.
	walkTime   = 2 * time.Minute
	lastRecord = 0xffff
)

var errCancelled = errors.New("ipmi: the sensor records changed while they were read")

// listSensors walks the sensor data records and keeps the watts sensors. It is done once
// per login: a whole scan takes some BMCs half a minute.
func listSensors(ctx context.Context, l link) ([]sensor, error) {
	ctx, cancel := context.WithTimeout(ctx, walkTime)
	defer cancel()
	for range reserveTries {
		all, err := walkSensors(ctx, l)
		if !errors.Is(err, errCancelled) {
			return all, err
		}
	}
	return nil, fmt.Errorf("%w: %w", ErrRefused, errCancelled)
}

func walkSensors(ctx context.Context, l link) ([]sensor, error) {
	code, data, err := l.ask(ctx, command{NetFn: netFnStorage, ID: 0x22}, nil)
	switch {
	case err != nil:
		return nil, err
	case code.missing():
		return nil, nil
	case code != codeOK:
		return nil, refused("reserve sensor records", code)
	case len(data) < 2:
		return nil, fmt.Errorf("%w: reservation of %d bytes", ErrMalformed, len(data))
	}
	reservation := binary.LittleEndian.Uint16(data)
	var all []sensor
	record := uint16(0)
	for range maxRecords {
		next, body, err := readRecord(ctx, l, reservation, record)
		if err != nil {
			return nil, err
		}
		if s, ok := decodeSensor(body); ok {
			all = append(all, s)
		}
		if next == lastRecord || next == record {
			break
		}
		record = next
	}
	return all, nil
}

// readRecord reads one record piece by piece; records of other kinds than full sensors
// stop at the header. No records at all is no error: the body is then empty.
func readRecord(ctx context.Context, l link, reservation, record uint16) (next uint16, body []byte, err error) {
	want := recordHeaderLen
	for len(body) < want {
		count := min(pieceLen, want-len(body))
		code, data, err := l.ask(ctx, command{NetFn: netFnStorage, ID: 0x23}, recordRequest(reservation, record, len(body), count))
		switch {
		case err != nil:
			return 0, nil, err
		case code == codeCancelled:
			return 0, nil, errCancelled
		case code == codeNoData:
			return lastRecord, nil, nil
		case code != codeOK:
			return 0, nil, refused("sensor record", code)
		}
		var piece []byte
		if next, piece, err = decodeRecord(data, count); err != nil {
			return 0, nil, err
		}
		body = append(body, piece...)
		if len(body) == recordHeaderLen && body[3] == recordFull {
			want = min(recordHeaderLen+int(body[4]), maxRecordLen)
		}
	}
	return next, body, nil
}
