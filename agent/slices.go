package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"headroom/agent/config"
	"headroom/agent/originals"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/capping"
	"headroom/systemd"
	"headroom/units"
)

// bandwidth is the last rung of software: CPU bandwidth of slices of low
// priority, below the lowest frequency. It belongs to the owner goroutine.
type bandwidth struct {
	slices []sliceReport // as last told
	err    error         // why slices are missing
	told   bool
	state  capping.BandwidthState
	wanted map[string]systemd.Bandwidth
	usedAt time.Duration
	used   map[string]time.Duration
	cpus   float64 // used by all of them now
	known  bool
	least  units.Power // least wall power seen, for what a busy CPU costs
}

// slicesTold takes a report about the slices.
func (n *node) slicesTold(found []sliceReport, err error, now time.Duration) {
	b := &n.slices
	b.slices, b.err, b.told = found, err, true
	b.known, b.cpus = len(found) > 0 && b.usedAt > 0, 0
	used := map[string]time.Duration{}
	var failed error
	for _, s := range found {
		used[s.name] = s.state.Used
		before, ok := b.used[s.name]
		b.known = b.known && ok && s.state.UsedKnown && s.state.Used >= before
		b.cpus += (s.state.Used - before).Seconds() / max((now-b.usedAt).Seconds(), 1e-3)
		failed = errors.Join(failed, s.err)
		if s.wrote {
			n.countWrite(s.name, s.err)
		}
	}
	b.used, b.usedAt = used, now
	n.health.Warn(err != nil || failed != nil, "slices",
		fmt.Sprintf("slices whose CPU bandwidth cannot be bounded: %v", errors.Join(err, failed)),
		"name slices of low priority that exist under bandwidth.slices:, and let powerd set their properties (polkit)")
}

// bandwidthInfo is the slices as a rung.
func (n *node) bandwidthInfo() capping.RungInfo {
	info := capping.RungInfo{Rung: capping.RungBandwidth, State: capping.RungOff, Text: "bandwidth.slices is empty"}
	b := &n.slices
	switch {
	case len(n.cfg.Bandwidth.Slices) == 0:
	case len(n.cfg.AllowedSlices()) == 0:
		info.Text = n.cfg.Controls.Denied(config.SliceNames(n.cfg.Bandwidth.Slices[0]))
	case !b.told:
		info.State, info.Text = capping.RungMissing, "systemd has not answered yet"
	case len(b.slices) == 0:
		info.State, info.Text = capping.RungRefused, fmt.Sprint(b.err)
	default:
		info.State, info.Text = capping.RungReady, fmt.Sprintf("%d of %d slices", len(b.slices), len(n.cfg.Bandwidth.Slices))
	}
	return info
}

// boundSlices is the last rung's step, once a second: below the lowest frequency
// the slices give way.
func (n *node) boundSlices() {
	b := &n.slices
	wall, known := n.meter.mean.value()
	if known && (b.least == 0 || wall < b.least) {
		b.least = wall
	}
	if n.mode != holding || n.machine.Ladder.Use != capping.RungFreq || n.bandwidthInfo().State != capping.RungReady {
		return
	}
	f := n.machine.Freq
	b.state = capping.StepBandwidth(capping.BandwidthInput{
		Wall: capping.Reading{Power: wall, Known: known}, Elapsed: beat,
		Lowest: f.Actions.Rail == capping.AtFloor, Used: b.cpus, UsedKnown: b.known,
	}, n.caps.now, b.state, capping.BandwidthConfig{CPUs: runtime.NumCPU(), PerCPU: n.perCPU()})
	want := map[string]systemd.Bandwidth{}
	for _, s := range b.slices {
		want[s.name] = systemd.Unlimited
		if b.state.Bounded {
			want[s.name] = systemd.CPUs(b.state.CPUs / float64(len(b.slices)))
		}
	}
	n.askSlices(want)
}

// perCPU is what one busy CPU draws at the lowest frequency, 0 while unknown.
func (n *node) perCPU() units.Power {
	f := n.machine.Freq
	full := f.Config.Charge(f.Config.Min, f.State)
	if n.slices.least == 0 || full <= n.slices.least {
		return 0
	}
	return (full - n.slices.least) / units.Power(runtime.NumCPU())
}

// askSlices has the bounds carried out, once each slice's own is saved.
func (n *node) askSlices(want map[string]systemd.Bandwidth) {
	b := &n.slices
	same := len(want) == len(b.wanted)
	for name, w := range want {
		was, ok := b.wanted[name]
		same = same && ok && was == w
	}
	if same || b.wanted == nil && !b.state.Bounded {
		return
	}
	for _, s := range b.slices {
		found := s.state.Asked
		path := slicePrefix + s.name
		if !n.records.saved(originals.Control{Path: path, Label: "CPU bandwidth of " + s.name, Kind: originals.Bandwidth, Read: func() (originals.Value, error) {
			return originals.Value{Number: int64(found)}, nil
		}}) {
			return
		}
		to := want[s.name]
		if to == systemd.Unlimited {
			to = n.originalBandwidth(path)
			want[s.name] = to
		}
		if err := n.records.trail.NoteValue(path, originals.Value{Number: int64(to)}, originals.Value{Number: int64(found)}); err != nil {
			n.log.Warn("a slice is not bounded", slog.String("slice", s.name), slog.Any("error", err))
			return
		}
	}
	b.wanted = want
	n.far.bounds.put(want)
}

// originalBandwidth is what a slice held before powerd bounded it.
func (n *node) originalBandwidth(path string) systemd.Bandwidth {
	for _, c := range n.records.journal.Controls {
		if c.Path == path {
			return systemd.Bandwidth(c.Original)
		}
	}
	return systemd.Unlimited
}

// sliceRows are the slices for status.
func (n *node) sliceRows() []*headroomv1.SliceStatus {
	rows := make([]*headroomv1.SliceStatus, 0, len(n.slices.slices))
	for _, s := range n.slices.slices {
		row := &headroomv1.SliceStatus{Slice: s.name, EffectiveCpus: cpus(s.state.Asked)}
		if held, proven := s.state.Effective(); proven {
			row.EffectiveCpus = cpus(held)
		}
		if w, ok := n.slices.wanted[s.name]; ok {
			row.RequestedCpus = cpus(w)
		}
		if n.records.trail != nil {
			if w, ever := n.records.trail.Wrote(slicePrefix + s.name); ever {
				row.WrittenCpus = cpus(systemd.Bandwidth(w.Number))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// cpus is a bandwidth for the wire; nil: not bounded.
func cpus(b systemd.Bandwidth) *float64 {
	if b == systemd.Unlimited {
		return nil
	}
	return new(b.CPUs())
}
