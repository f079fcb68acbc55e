package agent

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

// held is held.json: the most that the node may hold, for whoever has to judge a
// node whose powerd is dead. It is written before a raise reaches the hardware
// and after a lowering was verified, so it never understates.
type held struct {
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
	stateObserving = status.Observing
	stateReleased  = "released"
)

// limit is the two limits of one package.
type limit struct {
	zone        string
	long, short units.Power
}

// cover is what held.json allows the hardware to hold.
type cover struct {
	cap    units.Power
	limits []limit // one a package
	state  string
	stamp  lease.Stamp
}

// allows says whether o lies inside c.
func (c cover) allows(o cover) bool {
	if o.cap > c.cap || len(o.limits) > len(c.limits) {
		return false
	}
	for i, l := range o.limits {
		if l.long > c.limits[i].long || l.short > c.limits[i].short {
			return false
		}
	}
	return true
}

// union allows whatever c or o allows, and is described as o.
func (c cover) union(o cover) cover {
	u := cover{cap: max(c.cap, o.cap), state: o.state, stamp: o.stamp, limits: make([]limit, len(o.limits))}
	copy(u.limits, o.limits)
	for i := range min(len(u.limits), len(c.limits)) {
		u.limits[i].long = max(u.limits[i].long, c.limits[i].long)
		u.limits[i].short = max(u.limits[i].short, c.limits[i].short)
	}
	return u
}

// same says whether two covers are written as the same file but for its time.
func (c cover) same(o cover) bool {
	return c.state == o.state && c.stamp == o.stamp && c.allows(o) && o.allows(c)
}

// encodeHeld is the file for a cover.
func encodeHeld(cfg *config.Config, c cover) ([]byte, error) {
	h := held{
		AtUs: time.Now().UnixMicro(), Node: cfg.Node, State: c.state, CapW: c.cap.Watts(), Stamp: c.stamp, Limits: []heldLimit{},
		OtherW: cfg.Power.Other.Watts(), SupplyEfficiency: cfg.Power.SupplyEfficiency,
	}
	for _, l := range c.limits {
		h.Limits = append(h.Limits, heldLimit{l.zone, "long_term", l.long}, heldLimit{l.zone, "short_term", l.short})
	}
	data, err := json.Marshal(h)
	return append(data, '\n'), err
}

// loadMemory is what earlier processes remembered. A file that cannot be read is
// as good as none, and is told apart: the node then starts at lowest, the least
// it can hold, for a fail-safe cap that was configured since may be more than it
// is charged for. It has no stamp, which no lease of an earlier process can abuse
// (leases name the process they answer); the first lease brings the fail-safe cap.
func loadMemory(d statedir.Disk, lowest units.Power) (m remembered, fresh bool, err error) {
	none := remembered{Memory: lease.Memory{FailSafe: lowest}}
	data, err := d.Read(statedir.MemoryFile)
	if errors.Is(err, fs.ErrNotExist) {
		return none, true, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err == nil && m.FailSafe <= 0 {
		err = errors.New("it holds no fail-safe cap")
	}
	if err != nil {
		return none, true, fmt.Errorf("agent: %s cannot be used: %w", statedir.MemoryFile, err)
	}
	return m, false, nil
}

// remembered is state.json.
type remembered struct {
	lease.Memory

	// BrakeMessage is the signed brake of the generation remembered, so that others
	// can hear of it from this node after a restart of everybody.
	BrakeMessage []byte `json:"brake_message,omitempty"`
}

func encodeMemory(m remembered) ([]byte, error) {
	data, err := json.MarshalIndent(m, "", "  ")
	return append(data, '\n'), err
}
