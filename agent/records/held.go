package records

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"headroom/agent/config"
	"headroom/agent/statedir"
	"headroom/agent/status"
	"headroom/lease"
	"headroom/units"
)

// HeldFile is held.json: the most that the node may hold, for the process that evaluates a
// node whose powerd is dead. It is written before a raise reaches the hardware
// and after a lowering was verified, so it never understates.
type HeldFile struct {
	AtUs  int64       `json:"at_us"`
	Node  string      `json:"node"`
	State string      `json:"state"`
	CapW  float64     `json:"cap_w"`
	Stamp lease.Stamp `json:"stamp"`
	// Limits are empty when the node holds none: then CapW is what it is rated.
	Limits           []heldLimit `json:"limits"`
	OtherW           float64     `json:"other_w"`
	SupplyEfficiency float64     `json:"supply_efficiency"`
}

// heldLimit is one limit in held.json.
type heldLimit struct {
	Zone       string      `json:"zone"`
	Constraint string      `json:"constraint"`
	WrittenUw  units.Power `json:"written_uw"`
}

// States of held.json beside those of lease.State.
const (
	StateObserving = status.Observing
	StateReleased  = "released"
)

// Limits is the two limits of one package.
type Limits struct {
	Zone        string
	Long, Short units.Power
}

// Bound is what held.json allows the hardware to hold.
type Bound struct {
	Cap    units.Power
	Limits []Limits // one a package
	State  string
	Stamp  lease.Stamp
}

// Allows reports whether o lies inside c.
func (c Bound) Allows(o Bound) bool {
	if o.Cap > c.Cap || len(o.Limits) > len(c.Limits) {
		return false
	}
	for i, l := range o.Limits {
		if l.Long > c.Limits[i].Long || l.Short > c.Limits[i].Short {
			return false
		}
	}
	return true
}

// Union allows whatever c or o allows, and is described as o.
func (c Bound) Union(o Bound) Bound {
	u := Bound{Cap: max(c.Cap, o.Cap), State: o.State, Stamp: o.Stamp, Limits: make([]Limits, len(o.Limits))}
	copy(u.Limits, o.Limits)
	for i := range min(len(u.Limits), len(c.Limits)) {
		u.Limits[i].Long = max(u.Limits[i].Long, c.Limits[i].Long)
		u.Limits[i].Short = max(u.Limits[i].Short, c.Limits[i].Short)
	}
	return u
}

// Same reports whether two bounds are written as the same file but for its time.
func (c Bound) Same(o Bound) bool {
	return c.State == o.State && c.Stamp == o.Stamp && c.Allows(o) && o.Allows(c)
}

// EncodeHeld is held.json for a bound.
func EncodeHeld(cfg *config.Config, c Bound) ([]byte, error) {
	h := HeldFile{
		AtUs: time.Now().UnixMicro(), Node: cfg.Node, State: c.State, CapW: c.Cap.Watts(), Stamp: c.Stamp, Limits: []heldLimit{},
		OtherW: cfg.Power.Other.Watts(), SupplyEfficiency: cfg.Power.SupplyEfficiency,
	}
	for _, l := range c.Limits {
		h.Limits = append(h.Limits, heldLimit{l.Zone, "long_term", l.Long}, heldLimit{l.Zone, "short_term", l.Short})
	}
	data, err := json.Marshal(h)
	return append(data, '\n'), err
}

// LoadState is what earlier processes remembered. A file that cannot be read is
// as good as none, and is told apart: the node then starts at lowest, the least
// it can hold, for a fail-safe cap that was configured since may be more than it
// is charged for. It has no stamp, which no lease of an earlier process can abuse
// (leases name the process they answer); the first lease brings the fail-safe cap.
func LoadState(d statedir.Disk, lowest units.Power) (m State, fresh bool, err error) {
	none := State{Memory: lease.Memory{FailSafe: lowest}}
	data, err := d.Read(statedir.MemoryFile)
	if errors.Is(err, fs.ErrNotExist) {
		return none, true, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err == nil && m.FailSafe <= 0 {
		err = errors.New("no fail-safe cap in it")
	}
	if err != nil {
		return none, true, fmt.Errorf("agent: %s unusable: %w", statedir.MemoryFile, err)
	}
	return m, false, nil
}

// State is state.json.
type State struct {
	lease.Memory

	// BrakeMessage is the signed brake of the generation remembered, so that others
	// can hear of it from this node after a restart of everybody.
	BrakeMessage []byte `json:"brake_message,omitempty"`
}

// EncodeState returns state.json.
func EncodeState(m State) ([]byte, error) {
	data, err := json.MarshalIndent(m, "", "  ")
	return append(data, '\n'), err
}
