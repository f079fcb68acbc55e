package machine

import (
	"time"

	"headroom/agent/status"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/capping"
	"headroom/dvfs"
	"headroom/internal/each"
	"headroom/rapl"
	"headroom/units"
)

// sensorOld is how long a counter may stand still under load before it counts as stale.
const sensorOld = 5 * time.Second

// SensorRows are the counters of packages and memory for status.
func (m *Machine) SensorRows() []*headroomv1.SensorStatus {
	rows := each.Of(m.Packages, func(s *Package) *headroomv1.SensorStatus { return raplRow(s.Zone.Label, s.Power, s.Meter.Unchanged()) })
	for _, d := range m.Memories {
		rows = append(rows, raplRow(d.zone.Label, d.power, d.meter.Unchanged()))
	}
	return rows
}

func raplRow(name string, power capping.Reading, still time.Duration) *headroomv1.SensorStatus {
	row := &headroomv1.SensorStatus{Source: "rapl", Name: name, State: status.OK, AgeMs: new(still.Milliseconds())}
	switch {
	case still > sensorOld:
		row.State, row.Text = "stale", "counter does not advance"
	case !power.Known:
		row.State, row.Text, row.AgeMs = "unknown", "counter not readable, or reset", nil
	default:
		row.PowerUw = new(int64(power.Power))
	}
	return row
}

// Usage is how the machine is used, for the rows of status.
type Usage struct {
	Holding, Shadows bool // a cap is held, or decided on without writing
	Limited          bool // the cap holds the packages back
}

// ZoneRows are the zones for status: packages with their limits, then what is only read.
func (m *Machine) ZoneRows(as Usage) []*headroomv1.ZoneStatus {
	if m.Tree == nil {
		return nil
	}
	rows := make([]*headroomv1.ZoneStatus, 0, len(m.Tree.Zones()))
	for _, z := range m.Tree.Zones() {
		if z.Repeats() {
			continue
		}
		row := &headroomv1.ZoneStatus{Zone: z.Label, Kind: z.Kind.String(), State: "read-only", ControlType: z.Control}
		for _, s := range m.Packages {
			if s.Zone == z {
				s.fill(row, as, m.OnRAPL())
				row.EnergyUj = total(s.Meter)
			}
		}
		for _, d := range m.Memories {
			if d.zone == z {
				row.EnergyUj = total(d.meter)
				if d.power.Known {
					row.PowerUw = new(int64(d.power.Power))
				}
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func total(m *rapl.Meter) *int64 {
	if e, ok := m.Total(); ok {
		return (*int64)(&e)
	}
	return nil
}

// fill adds a package to its row; onRAPL: the limits of the packages hold the cap.
func (s *Package) fill(row *headroomv1.ZoneStatus, as Usage, onRAPL bool) {
	if s.Power.Known {
		row.PowerUw = new(int64(s.Power.Power))
	}
	if s.Readable {
		row.EffectiveUw = new(int64(s.Effective.Long))
	}
	if s.Limiter != nil && s.Limiter.Lock() == rapl.Locked {
		row.State = "locked"
	}
	if as.Shadows && onRAPL && s.Requested.Long > 0 {
		row.RequestedUw = new(int64(s.Requested.Long))
	}
	if s.Limiter == nil || !as.Holding || !onRAPL {
		return
	}
	row.RequestedUw, row.WrittenUw = new(int64(s.Requested.Long)), new(int64(s.Written.Long))
	if w, err := s.Limiter.Window(rapl.LongTerm); err == nil {
		row.WindowUs = new(w.Microseconds())
	}
	switch {
	case !s.Readable:
		row.State = "unknown"
	case s.Drifted || s.Off:
		row.State = "drift"
	case s.Limiter.Lock() == rapl.Locked:
		row.State = "locked"
	case as.Limited:
		row.State = "limited"
	default:
		row.State = status.OK
	}
}

// Rows are the policies for status. shadows: what is decided on is shown, though nothing
// is written.
func (f *Frequency) Rows(shadows bool) []*headroomv1.PolicyStatus {
	rows := make([]*headroomv1.PolicyStatus, 0, len(f.Set.Policies()))
	for _, p := range f.Set.Policies() {
		row := f.policyRow(p)
		if shadows {
			row.RequestedKhz = khz(f.requested[p.Name])
		}
		rows = append(rows, row)
	}
	return rows
}

func (f *Frequency) policyRow(p *dvfs.Policy) *headroomv1.PolicyStatus {
	row := &headroomv1.PolicyStatus{Policy: p.Name, Driver: p.Driver, MinKhz: new(int64(p.Min)), MaxKhz: new(int64(p.Max)), State: "read-only"}
	row.Governor, _ = p.Governor() // "" where the policy is offline
	if e, err := p.EPP(); err == nil {
		row.Epp = e.String()
	}
	if v, err := p.Frequency(); err == nil {
		row.FreqKhz = new(int64(v))
	}
	now, err := p.CeilingNow()
	if err != nil {
		row.State = "offline"
		return row
	}
	row.EffectiveKhz = new(int64(now))
	if !f.Used {
		return row
	}
	row.RequestedKhz, row.WrittenKhz = khz(f.requested[p.Name]), khz(f.Written[p.Name])
	switch {
	case f.Written[p.Name] > 0 && now > f.Written[p.Name]:
		row.State = "drift"
	case f.State.Limited:
		row.State = "limited"
	default:
		row.State = status.OK
	}
	return row
}

func khz(f units.Freq) *int64 {
	if f == 0 {
		return nil
	}
	return new(int64(f))
}
