// Claims: Latest and Close never wait for a BMC that hangs; a limit is only left active
// with exception action none; the password is never shown; one log line per change.
package ipmi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"headroom/units"
)

// fakeLink answers from a function.
type fakeLink struct {
	answer func(ctx context.Context, cmd command, data []byte) (completion, []byte, error)
}

func (f fakeLink) ask(ctx context.Context, cmd command, data []byte) (completion, []byte, error) {
	return f.answer(ctx, cmd, data)
}
func (fakeLink) close() {}

// bubbleMeter runs a meter over the link on the bubble's time.
func bubbleMeter(t *testing.T, log *slog.Logger, answer func(context.Context, command, []byte) (completion, []byte, error)) *Meter {
	t.Helper()
	began := time.Now()
	m := start(Config{Mode: ModeInBand}, log, func(context.Context) (link, error) { return fakeLink{answer}, nil },
		func() time.Duration { return time.Hour + time.Since(began) })
	t.Cleanup(m.Close)
	return m
}

// Lesson 11: a hung BMC holds a call for many seconds, and must hold nothing else.
func TestHungBMCHoldsNothingUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var hang atomic.Bool
		m := bubbleMeter(t, slog.New(slog.NewTextHandler(&log, nil)), func(context.Context, command, []byte) (completion, []byte, error) {
			if hang.Load() {
				time.Sleep(20 * time.Second) // the kernel cannot be interrupted
				return 0, nil, ErrNoAnswer
			}
			return codeOK, dcmiAnswer(), nil
		})
		time.Sleep(2500 * time.Millisecond)
		if r := m.Latest(); !r.Known || r.Power != 143*units.Watt {
			t.Fatalf("healthy: %+v", r)
		}
		hang.Store(true)
		time.Sleep(8 * time.Second)
		before := time.Now()
		if r := m.Latest(); r.State != StateStale || !strings.Contains(r.Why, "no answer") {
			t.Errorf("hung: %+v", r)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := m.SetLimit(ctx, 200*units.Watt); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("limit on a hung BMC: %v", err)
		}
		if took := time.Since(before); took > time.Second {
			t.Errorf("Latest and SetLimit took %v", took)
		}
		before = time.Now()
		m.Close()
		if took := time.Since(before); took > closeWait {
			t.Errorf("Close took %v", took)
		}
		time.Sleep(time.Minute) // the call ends by its own deadline
		synctest.Wait()
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("%d log lines, want one:\n%s", n, log.String())
		}
		if _, err := m.Limit(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestLogsChangesOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var code atomic.Uint32
		m := bubbleMeter(t, slog.New(slog.NewTextHandler(&log, nil)), func(context.Context, command, []byte) (completion, []byte, error) {
			return completion(code.Load()), dcmiAnswer(), nil
		})
		time.Sleep(20 * time.Second)
		code.Store(uint32(codeBusy))
		time.Sleep(20 * time.Second)
		code.Store(uint32(codeOK))
		time.Sleep(5 * time.Second)
		m.Close()
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 3 || !strings.Contains(lines[1], "state=stale") || !strings.Contains(lines[1], "busy") {
			t.Errorf("want ok, stale, ok:\n%s", log.String())
		}
	})
}

func TestAbsentIsSaid(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		cfg  Config
		want string
	}{
		"off":          {Config{Mode: ModeOff}, "disabled by configuration"},
		"no device":    {Config{Device: "/dev/ipmi987"}, "/dev/ipmi987"},
		"other device": {Config{Mode: ModeInBand, Device: "/etc/passwd"}, "must be /dev/ipmiN"},
		"no address":   {Config{Mode: ModeLAN}, "address is missing"},
		"wrong mode":   {Config{Mode: "redfish"}, "have off, auto, in-band, lan"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := Start(c.cfg, nil)
			defer m.Close()
			deadline := time.Now().Add(30 * time.Second)
			for m.Latest().State == StateUnknown && time.Now().Before(deadline) {
				<-time.NewTimer(time.Millisecond).C
			}
			if r := m.Latest(); r.State != StateAbsent || !strings.Contains(r.Why, c.want) {
				t.Errorf("%+v, want absent because of %q", r, c.want)
			}
			if _, err := m.Limit(t.Context()); err == nil {
				t.Error("a limit without a BMC")
			}
		})
	}
}

func TestPasswordIsNeverShown(t *testing.T) {
	t.Parallel()
	cfg := Config{Mode: ModeLAN, Address: "192.0.2.1", User: "u", Password: "hunter2"}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("config", slog.Any("ipmi", cfg))
	for _, shown := range []string{fmt.Sprint(cfg), fmt.Sprintf("%+v %#v %s", cfg, cfg, cfg), log.String()} {
		if strings.Contains(shown, "hunter2") {
			t.Errorf("the password is shown: %s", shown)
		}
	}
}
