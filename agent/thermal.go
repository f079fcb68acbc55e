package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"headroom/agent/config"
	"headroom/agent/health"
	"headroom/thermal"
)

// heat is how hot the machine is. It belongs to the owner goroutine.
type heat struct {
	sensors  *thermal.Sensors // nil: none could be listed
	max      thermal.Temp     // at which sprints end; 0: only trips do
	events   <-chan thermal.Event
	temp     thermal.Reading
	throttle thermal.Throttle
	counted  bool          // throttle stands on a reading
	hotAt    time.Duration // when the hardware last said that it is held back
	// slowed counts those events: of the cores' and the packages' counters, and of the kernel.
	slowed struct{ cores, packages, events uint64 }
}

const (
	// hotFor is how long one thermal event counts: a processor that was held back
	// comes back within seconds.
	hotFor = 10 * time.Second
)

// openHeat finds the sensors. None is no error: sprints then end by the other
// bounds, and status says what is missing.
func openHeat(root *os.Root, cfg *config.Config, log *slog.Logger) *heat {
	h := &heat{max: thermal.Temp(cfg.Sprint.TempMax * float64(thermal.Degree))}
	sensors, err := thermal.Open(root)
	if err != nil {
		log.Warn("no temperatures", slog.Any("error", err))
		return h
	}
	sensors.Bound(config.SaneAbove * cfg.Power.Rated)
	h.sensors = sensors
	return h
}

// watch follows the kernel's thermal events. They are this machine's, so a node
// below another root has none.
func (h *heat) watch(ctx context.Context, cfg *config.Config, log *slog.Logger) {
	if cfg.Root != "/" {
		return
	}
	events, err := thermal.Watch(ctx, log)
	switch {
	case errors.Is(err, thermal.ErrNoEvents):
		log.Info("temperatures are polled", slog.Any("because", err))
	case err != nil:
		log.Warn("temperatures are polled", slog.Any("because", err))
	default:
		h.events = events
	}
}

// look reads temperature and throttle counters: once a second, and at each turn
// of a sprint.
func (h *heat) look(now time.Duration) {
	if h.sensors == nil {
		return
	}
	var known bool
	if h.temp, known = h.sensors.Package(); !known {
		h.temp.Known = false
	}
	next, err := h.sensors.Throttled()
	if err != nil {
		h.counted = false
		return
	}
	if h.counted {
		since := next.Since(h.throttle)
		if more := since.Cores + since.Packages; more > 0 {
			h.slowed.cores, h.slowed.packages, h.hotAt = h.slowed.cores+since.Cores, h.slowed.packages+since.Packages, now
		}
	}
	h.throttle, h.counted = next, true
}

// take judges one event of the kernel.
func (h *heat) take(now time.Duration, e thermal.Event) {
	bad := e.Throttles()
	if e.Kind == thermal.TripUp && h.sensors != nil {
		trip, ok := h.sensors.Trip(e.Zone, e.Trip)
		bad = ok && trip.Kind != thermal.TripActive
	}
	if bad {
		h.slowed.events, h.hotAt = h.slowed.events+1, now
	}
}

// tooHot says that the temperature at which sprints end is reached.
func (h *heat) tooHot() bool { return h.max > 0 && h.temp.Known && h.temp.Temp >= h.max }

// slow says that the hardware held a processor back lately.
func (h *heat) slow(now time.Duration) bool { return h.hotAt > 0 && now-h.hotAt < hotFor }

// hot says that no sprint may go on.
func (h *heat) hot(now time.Duration) bool { return h.tooHot() || h.slow(now) }

func (h *heat) close() error {
	if h == nil || h.sensors == nil {
		return nil
	}
	return h.sensors.Close()
}

// report says when the hardware holds the node back.
func (h *heat) report(now time.Duration, health *health.Items, tally *tally) {
	health.Warn(h.slow(now), "thermal",
		fmt.Sprintf("the processor is held back for its heat (%s)", h.words()),
		"look at fans and inlet temperature; no sprint is begun meanwhile")
	s := h.slowed
	tally.counters.thermalEvents = s.cores + s.packages + s.events
	tally.loop.SetThrottled(s.cores, s.packages, s.events)
}

func (h *heat) words() string {
	if !h.temp.Known {
		return "temperature not known"
	}
	return h.temp.Name + " " + h.temp.Temp.String()
}
