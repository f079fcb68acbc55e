package command

import (
	"time"

	"headroom/agent/status"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
)

// agentJSON is `powerd status -o json`: base units, null for unknown. Fields are only added.
type agentJSON struct {
	Kind         string        `json:"kind" of:"-"`
	API          string        `json:"api" of:"-"`
	AsOf         string        `json:"as_of" of:"-"`
	Node         string        `json:"node"`
	Version      string        `json:"version"`
	Domain       string        `json:"domain"`
	UptimeS      float64       `json:"uptime_s"`
	Tree         string        `json:"tree"`
	Rung         string        `json:"rung"`
	Enforce      bool          `json:"enforce"`
	State        string        `json:"state" of:"-"`
	CapW         *float64      `json:"cap_w" of:"-"`
	EffectiveW   *float64      `json:"effective_w" of:"holding.effective_uw"`
	FailSafeW    float64       `json:"fail_safe_w" of:"holding.fail_safe_uw"`
	PowerW       *float64      `json:"power_w"`
	DemandW      *float64      `json:"demand_w"`
	LimitedRatio *float64      `json:"limited_ratio"`
	LimitedBy    *string       `json:"limited_by"`
	OtherW       *float64      `json:"other_w"`
	OtherFrom    *string       `json:"other_from"`
	Lease        *leaseJSON    `json:"lease" of:"-"`
	Brake        *brakeJSON    `json:"brake"`
	Local        *localJSON    `json:"local"`
	Sprint       *sprintJSON   `json:"sprint"`
	Saved        uint32        `json:"saved"`
	SavedAt      *string       `json:"saved_at" of:"-"`
	Advertise    *string       `json:"advertise"`
	CutOff       bool          `json:"cut_off"`
	Zones        []zoneJSON    `json:"zones"`
	Sensors      []sensorJSON  `json:"sensors"`
	Policies     []policyJSON  `json:"policies"`
	Turbo        *turboJSON    `json:"turbo"`
	Slices       []sliceJSON   `json:"slices"`
	Ladder       []rungJSON    `json:"ladder"`
	Rivals       []string      `json:"rivals"`
	Health       []healthJSON  `json:"health"`
	Counters     *countersJSON `json:"counters"`
}

type leaseJSON struct {
	Leader      string   `json:"leader"`
	Incarnation uint64   `json:"incarnation"`
	Epoch       uint64   `json:"epoch"`
	Seq         uint64   `json:"seq"`
	RemainingS  *float64 `json:"remaining_s"`
}

type localJSON struct {
	CapW       *float64 `json:"cap_w"`
	CeilingHz  *float64 `json:"ceiling_hz"`
	RemainingS float64  `json:"remaining_s"`
	Actor      string   `json:"actor" of:"change.actor"`
	Reason     string   `json:"reason" of:"change.reason"`
	RequestID  string   `json:"request_id" of:"change.request_id"`
}

type sprintJSON struct {
	ID         string   `json:"id"`
	CapW       float64  `json:"cap_w"`
	BaseW      float64  `json:"base_w"`
	RemainingS float64  `json:"remaining_s"`
	EscrowJ    float64  `json:"escrow_j"`
	SpentJ     *float64 `json:"spent_j"`
}

type zoneJSON struct {
	Zone       string   `json:"zone"`
	Kind       string   `json:"kind"`
	Control    string   `json:"control_type"`
	PowerW     *float64 `json:"power_w"`
	EnergyJ    *float64 `json:"energy_j"`
	RequestedW *float64 `json:"requested_w"`
	WrittenW   *float64 `json:"written_w"`
	EffectiveW *float64 `json:"effective_w"`
	WindowS    *float64 `json:"window_s"`
	State      string   `json:"state"`
}

type sensorJSON struct {
	Source       string   `json:"source"`
	Sensor       string   `json:"sensor" of:"name"`
	PowerW       *float64 `json:"power_w"`
	TempC        *float64 `json:"temp_c"`
	AgeS         *float64 `json:"age_s"`
	Disagreement *float64 `json:"disagreement_ratio" of:"disagreement"`
	State        string   `json:"state"`
	Text         string   `json:"text"`
}

type policyJSON struct {
	Policy      string   `json:"policy"`
	Driver      string   `json:"driver"`
	Governor    *string  `json:"governor"`
	EPP         *string  `json:"epp"`
	FreqHz      *float64 `json:"freq_hz"`
	MinHz       *float64 `json:"min_hz"`
	MaxHz       *float64 `json:"max_hz"`
	RequestedHz *float64 `json:"requested_hz"`
	WrittenHz   *float64 `json:"written_hz"`
	EffectiveHz *float64 `json:"effective_hz"`
	State       string   `json:"state"`

	EPPRequested *string `json:"epp_requested"`
	EPPState     *string `json:"epp_state"`
	EPPText      *string `json:"epp_text"`
}

// turboJSON is the machine's turbo switch: "on", "off", or null for unknown.
type turboJSON struct {
	Requested *string `json:"requested"`
	Effective *string `json:"effective"`
	State     string  `json:"state"`
	Text      string  `json:"text"`
}

type sliceJSON struct {
	Slice         string   `json:"slice"`
	RequestedCPUs *float64 `json:"requested_cpus"`
	WrittenCPUs   *float64 `json:"written_cpus"`
	EffectiveCPUs *float64 `json:"effective_cpus"`
}

type rungJSON struct {
	Rung  string `json:"rung"`
	State string `json:"state"`
	Text  string `json:"text"`
}

type healthJSON struct {
	Code     string `json:"code"`
	Severity string `json:"severity"`
	Text     string `json:"text"`
	Hint     string `json:"hint"`
}

type countersJSON struct {
	Renewals       uint64 `json:"renewals"`
	Refusals       uint64 `json:"refusals"`
	Expiries       uint64 `json:"expiries"`
	Steps          uint64 `json:"steps"`
	DeadlineMisses uint64 `json:"deadline_misses"`
	Drifts         uint64 `json:"drifts"`
	WriteErrors    uint64 `json:"write_errors"`
	ThermalEvents  uint64 `json:"thermal_events"`
	Sprints        uint64 `json:"sprints"`
	// Time above the cap in force by more than 2 %, and the energy above it in that time.
	OverCapS float64 `json:"over_cap_s"`
	OverCapJ float64 `json:"over_cap_j"`
}

func statusJSON(s *headroomv1.GetAgentStatusResponse) agentJSON {
	h := s.GetHolding()
	j := agentJSON{Kind: "AgentStatus", API: "v1", AsOf: cli.Now(), State: status.State(holdingOf(s)), Lease: jsonLease(s)}
	cli.Fill(&j, s)
	if s.GetSaved() > 0 {
		j.SavedAt = text(time.UnixMicro(s.GetSavedUs()).UTC().Format(time.RFC3339Nano))
	}
	if j.State != status.Observing {
		j.CapW = new(float64(h.GetCapUw()) / 1e6)
	}
	return j
}

// holdingOf returns what the node holds, never nil.
func holdingOf(s *headroomv1.GetAgentStatusResponse) *headroomv1.Holding {
	if h := s.GetHolding(); h != nil {
		return h
	}
	return &headroomv1.Holding{}
}

// jsonLease returns the lease that the node holds, nil without one.
func jsonLease(s *headroomv1.GetAgentStatusResponse) *leaseJSON {
	h := s.GetHolding()
	if h.GetState() != headroomv1.LeaseState_LEASE_STATE_HELD {
		return nil
	}
	e := h.GetApplied().GetEpoch()
	return &leaseJSON{
		Leader: s.GetLeader(), Incarnation: e.GetIncarnation(), Epoch: e.GetTerm(), Seq: h.GetApplied().GetSeq(), RemainingS: status.Milli(s.LeaseMs),
	}
}
