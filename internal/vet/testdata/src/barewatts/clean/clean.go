package clean

import "headroom/units"

type Row struct {
	CapW       float64 `json:"cap_w,omitempty"` // the unit stands on the wire
	Cap        units.Power
	New        float64 // ends in w, and is no watt
	JobsPerW   float64
	perJoule   float64
	PerJoule   float64
	RatioKnown bool
}

type row struct{ capWatts float64 }

func (r row) Watts() float64 { return r.capWatts }

func Plan(budget units.Power, share float64) float64 { return share * budget.Watts() }

func watts(p units.Power) float64 { return p.Watts() }
