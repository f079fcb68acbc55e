// Package heat reads a node's temperatures and detects thermal throttling.
//
// A node is hot when a temperature reaches its bound, or when the hardware counts or reports
// throttling. One goroutine, powerd's loop, reads the sensors and receives the kernel's
// events; nothing is written. An unknown temperature makes nothing hot: sprints then end by
// their other bounds, and the status shows the missing sensors.
package heat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	headroomv1 "headroom/api/headroom/v1"

	"headroom/agent/config"
	"headroom/agent/health"
	"headroom/agent/status"
	"headroom/thermal"
	"headroom/units"
)

// Heat is how hot the machine is. It belongs to the owner goroutine.
type Heat struct {
	log      *slog.Logger
	Sensors  *thermal.Sensors // nil: none could be listed
	bound    units.Power      // above it no meter is believed
	max      thermal.Temp     // at which sprints end; 0: only trips do
	Events   <-chan thermal.Event
	Temp     thermal.Reading
	throttle thermal.Throttle
	Counted  bool          // throttle stands on a reading
	HotAt    time.Duration // when the hardware last reported throttling
	// slowed counts those events: of the cores' and the packages' counters, and of the kernel.
	slowed struct{ cores, packages, events uint64 }
}

const (
	// hotFor is how long one thermal event counts: a processor that was held back
	// comes back within seconds.
	hotFor = 10 * time.Second
)

// New knows no sensor yet.
func New(cfg *config.Config, log *slog.Logger) *Heat {
	return &Heat{log: log, max: thermal.Temp(cfg.Sprint.TempMax * float64(thermal.Degree)), bound: config.SaneAbove * cfg.Power.Rated}
}

// Open finds the sensors, which the first safe cap does not wait for. None is no error: sprints
// then end by the other bounds, and status says what is missing.
func (h *Heat) Open(root *os.Root) {
	sensors, err := thermal.Open(root)
	if err != nil {
		h.log.Warn("temperatures not available", slog.Any("error", err))
		return
	}
	sensors.Bound(h.bound)
	h.Sensors = sensors
}

// Watch follows the kernel's thermal events. They are this machine's, so a node
// below another root has none.
func (h *Heat) Watch(ctx context.Context, cfg *config.Config) {
	if cfg.Root != "/" {
		return
	}
	events, err := thermal.Watch(ctx, h.log)
	switch {
	case errors.Is(err, thermal.ErrNoEvents):
		h.log.Info("no thermal events, polling temperatures", slog.Any("because", err))
	case err != nil:
		h.log.Warn("no thermal events, polling temperatures", slog.Any("because", err))
	default:
		h.Events = events
	}
}

// Look reads temperature and throttle counters: once a second, and at each turn
// of a sprint.
//
//headroom:control
func (h *Heat) Look(now time.Duration) {
	if h.Sensors == nil {
		return
	}
	var known bool
	if h.Temp, known = h.Sensors.Package(); !known {
		h.Temp.Known = false
	}
	next, err := h.Sensors.Throttled()
	if err != nil {
		h.Counted = false
		return
	}
	if h.Counted {
		since := next.Since(h.throttle)
		if more := since.Cores + since.Packages; more > 0 {
			h.slowed.cores, h.slowed.packages, h.HotAt = h.slowed.cores+since.Cores, h.slowed.packages+since.Packages, now
		}
	}
	h.throttle, h.Counted = next, true
}

// Take judges one event of the kernel.
//
//headroom:control
func (h *Heat) Take(now time.Duration, e thermal.Event) {
	bad := e.Throttles()
	if e.Kind == thermal.TripUp && h.Sensors != nil {
		trip, ok := h.Sensors.Trip(e.Zone, e.Trip)
		bad = ok && trip.Kind != thermal.TripActive
	}
	if bad {
		h.slowed.events, h.HotAt = h.slowed.events+1, now
	}
}

// tooHot reports whether the temperature at which sprints end is reached.
func (h *Heat) tooHot() bool { return h.max > 0 && h.Temp.Known && h.Temp.Temp >= h.max }

// Slow reports whether the hardware held a processor back lately.
func (h *Heat) Slow(now time.Duration) bool { return h.HotAt > 0 && now-h.HotAt < hotFor }

// Hot reports whether no sprint may go on.
func (h *Heat) Hot(now time.Duration) bool { return h.tooHot() || h.Slow(now) }

// Close closes the sensors.
func (h *Heat) Close() error {
	if h == nil || h.Sensors == nil {
		return nil
	}
	return h.Sensors.Close()
}

// Report shows when the hardware holds the node back, and returns how often it did: by the
// counters of cores and of packages, and by events of the kernel.
//
//headroom:control
func (h *Heat) Report(now time.Duration, health *health.Items) (cores, packages, events uint64) {
	health.Warn(h.Slow(now), "thermal",
		fmt.Sprintf("the processor is throttled by heat (%s)", h.words()),
		"check fans and inlet temperature; no sprint starts meanwhile")
	return h.slowed.cores, h.slowed.packages, h.slowed.events
}

func (h *Heat) words() string {
	if !h.Temp.Known {
		return "temperature unknown"
	}
	return h.Temp.Name + " " + h.Temp.Temp.String()
}

// EndEvents records that events have ended: temperatures are polled from now on.
func (h *Heat) EndEvents() { h.Events = nil }

// Rows are the sensors for status, and what is missing.
func (h *Heat) Rows() []*headroomv1.SensorStatus {
	if h.Sensors == nil {
		return nil
	}
	var rows []*headroomv1.SensorStatus
	for _, s := range h.Sensors.Sample() {
		row := &headroomv1.SensorStatus{Source: s.Source, Name: s.Name, State: status.OK}
		switch {
		case !s.Known:
			row.State = "unknown"
			if s.Err != nil {
				row.Text = s.Err.Error()
			}
		case s.Meter:
			row.PowerUw = new(int64(s.Power))
		default:
			row.TempMc = new(int64(s.Temp))
		}
		rows = append(rows, row)
	}
	for _, missing := range h.Sensors.Missing() {
		rows = append(rows, &headroomv1.SensorStatus{Source: missing.Source, Name: missing.Kind, State: "absent", Text: "this machine has no " + missing.Source + " " + missing.Kind})
	}
	return rows
}

// Refresh looks for sensors that came or went, where rest says so or one cannot be read.
func (h *Heat) Refresh(rest bool) {
	if h.Sensors == nil || !rest && h.Temp.Known && h.Counted {
		return
	}
	if err := h.Sensors.Refresh(); err != nil {
		h.log.Debug("sensor scan failed", slog.Any("error", err))
	}
}
