package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"headroom/agent/config"
	"headroom/agent/health"
	"headroom/agent/machine"
	"headroom/agent/originals"
	"headroom/agent/records"
	"headroom/agent/remote"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/capping"
	"headroom/systemd"
	"headroom/units"
)

// bandwidth is the last rung: CPU bandwidth of low-priority slices, below the lowest
// frequency. It belongs to the owner goroutine.
type bandwidth struct {
	cfg    *config.Config
	log    *slog.Logger
	health *health.Items

	machine *machine.Machine
	control *controller
	records *records.Records
	tally   *tally
	remote  *remote.Remote

	slices []remote.SliceReport // of the last report
	err    error                // reason for missing slices
	asked  bool                 // systemd has answered
	state  capping.BandwidthState
	wanted map[string]systemd.Bandwidth
	usedAt time.Duration
	used   map[string]time.Duration
	cpus   float64 // used by all of them now
	known  bool
	least  units.Power // lowest wall power seen, to estimate the power of a busy CPU
}

// told handles a report about the slices.
func (b *bandwidth) told(found []remote.SliceReport, err error, now time.Duration) {
	b.slices, b.err, b.asked = found, err, true
	b.known, b.cpus = len(found) > 0 && b.usedAt > 0, 0
	used := map[string]time.Duration{}
	var failed error
	for _, s := range found {
		used[s.Name] = s.State.Used
		before, ok := b.used[s.Name]
		b.known = b.known && ok && s.State.UsedKnown && s.State.Used >= before
		b.cpus += (s.State.Used - before).Seconds() / max((now-b.usedAt).Seconds(), 1e-3)
		failed = errors.Join(failed, s.Err)
		if s.Wrote {
			b.tally.writeFailed(s.Name, s.Err)
		}
	}
	b.used, b.usedAt = used, now
	b.health.Warn(err != nil || failed != nil, "slices",
		fmt.Sprintf("CPU bandwidth of slices not limited: %v", errors.Join(err, failed)),
		"list existing low-priority slices in bandwidth.slices:, and allow powerd to set their properties (polkit)")
}

// info returns the slices as a rung.
func (b *bandwidth) info() capping.RungInfo {
	info := capping.RungInfo{Rung: capping.RungBandwidth, State: capping.RungOff, Text: "bandwidth.slices is empty"}
	switch {
	case len(b.cfg.Bandwidth.Slices) == 0:
	case len(b.cfg.AllowedSlices()) == 0:
		info.Text = b.cfg.Controls.Denied(config.SliceNames(b.cfg.Bandwidth.Slices[0]))
	case !b.asked:
		info.State, info.Text = capping.RungMissing, "systemd has not answered yet"
	case len(b.slices) == 0:
		info.State, info.Text = capping.RungRefused, fmt.Sprint(b.err)
	default:
		info.State, info.Text = capping.RungReady, fmt.Sprintf("%d of %d slices", len(b.slices), len(b.cfg.Bandwidth.Slices))
		if b.state.AtFloor(b.limits()) {
			info.State, info.Text = capping.RungFixed, info.Text+" at their lowest bandwidth"
		}
	}
	return info
}

// limits returns the configuration of the law.
func (b *bandwidth) limits() capping.BandwidthConfig {
	return capping.BandwidthConfig{CPUs: runtime.NumCPU(), PerCPU: b.perCPU()}
}

// step runs once a second: below the lowest frequency it lowers the bandwidth of the slices.
func (b *bandwidth) step() {
	wall, known := b.control.meter.Mean.Value()
	if known && (b.least == 0 || wall < b.least) {
		b.least = wall
	}
	state := b.info().State
	if b.control.mode != holding || b.machine.Ladder.Use != capping.RungFreq || state != capping.RungReady && state != capping.RungFixed {
		return
	}
	f := b.machine.Freq
	b.state = capping.StepBandwidth(capping.BandwidthInput{
		Wall: capping.Reading{Power: wall, Known: known}, Elapsed: beat,
		Lowest: f.Actions.Rail == capping.AtFloor, Used: b.cpus, UsedKnown: b.known,
	}, b.control.caps.now, b.state, b.limits())
	want := map[string]systemd.Bandwidth{}
	for _, s := range b.slices {
		want[s.Name] = systemd.Unlimited
		if b.state.Bounded {
			want[s.Name] = systemd.CPUs(b.state.CPUs / float64(len(b.slices)))
		}
	}
	b.ask(want)
}

// perCPU returns the power of one busy CPU at the lowest frequency, 0 if unknown.
func (b *bandwidth) perCPU() units.Power {
	f := b.machine.Freq
	if f == nil {
		return 0
	}
	full := f.Config.Charge(f.Config.Min, f.State)
	if b.least == 0 || full <= b.least {
		return 0
	}
	return (full - b.least) / units.Power(runtime.NumCPU())
}

// ask submits the bandwidths, once the original of each slice is saved.
func (b *bandwidth) ask(want map[string]systemd.Bandwidth) {
	same := len(want) == len(b.wanted)
	for name, w := range want {
		was, ok := b.wanted[name]
		same = same && ok && was == w
	}
	if same || b.wanted == nil && !b.state.Bounded {
		return
	}
	for _, s := range b.slices {
		found := s.State.Asked
		path := remote.SlicePrefix + s.Name
		if !b.records.Saved(originals.Control{Path: path, Label: "CPU bandwidth of " + s.Name, Kind: originals.Bandwidth, Read: func() (originals.Value, error) {
			return originals.Value{Number: int64(found)}, nil
		}}) {
			return
		}
		to := want[s.Name]
		if to == systemd.Unlimited {
			to = b.original(path)
			want[s.Name] = to
		}
		if err := b.records.Trail.NoteValue(path, originals.Value{Number: int64(to)}, originals.Value{Number: int64(found)}); err != nil {
			b.log.Warn("CPU bandwidth of slice not limited", slog.String("slice", s.Name), slog.Any("error", err))
			return
		}
	}
	b.wanted = want
	b.remote.SetSlices(want)
}

// original returns the bandwidth of a slice before powerd limited it.
func (b *bandwidth) original(path string) systemd.Bandwidth {
	for _, c := range b.records.Journal.Controls {
		if c.Path == path {
			return systemd.Bandwidth(c.Original)
		}
	}
	return systemd.Unlimited
}

// rows returns the slices for the status.
func (b *bandwidth) rows() []*headroomv1.SliceStatus {
	rows := make([]*headroomv1.SliceStatus, 0, len(b.slices))
	for _, s := range b.slices {
		row := &headroomv1.SliceStatus{Slice: s.Name, EffectiveCpus: cpus(s.State.Asked)}
		if held, proven := s.State.Effective(); proven {
			row.EffectiveCpus = cpus(held)
		}
		if w, ok := b.wanted[s.Name]; ok {
			row.RequestedCpus = cpus(w)
		}
		if b.records.Trail != nil {
			if w, ever := b.records.Trail.Wrote(remote.SlicePrefix + s.Name); ever {
				row.WrittenCpus = cpus(systemd.Bandwidth(w.Number))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// cpus returns a bandwidth for the status; nil: not limited.
func cpus(b systemd.Bandwidth) *float64 {
	if b == systemd.Unlimited {
		return nil
	}
	return new(b.CPUs())
}
