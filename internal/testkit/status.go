package testkit

import headroomv1 "headroom/api/headroom/v1"

// FullStatus is the status of a node with everything that an agent can tell.
func FullStatus() *headroomv1.GetAgentStatusResponse {
	return &headroomv1.GetAgentStatusResponse{
		Node: "n03", Version: "0.1.0", Domain: "rack/r1", UptimeMs: 273_600_000, Tree: "kernel", Rung: "rapl", Enforce: true,
		Holding: &headroomv1.Holding{
			State:   headroomv1.LeaseState_LEASE_STATE_HELD,
			Applied: &headroomv1.Stamp{Epoch: &headroomv1.Epoch{Incarnation: 1, Term: 7}, Seq: 90211},
			CapUw:   190_000_000, EffectiveUw: new(int64(189_900_000)), FailSafeUw: 95_000_000,
		},
		LeaseMs: new(int64(4100)), Leader: "c2", PowerUw: new(int64(153_240_000)), DemandUw: new(int64(204_000_000)), LimitedRatio: new(0.12),
		LimitedBy: "cap",
		Zones: []*headroomv1.ZoneStatus{
			{
				Zone: "package-0", Kind: "package", ControlType: "intel-rapl", PowerUw: new(int64(61_449_999)), EnergyUj: new(int64(6_310_999_999)),
				RequestedUw: new(int64(72_000_000)), WrittenUw: new(int64(72_000_000)), EffectiveUw: new(int64(72_000_000)), WindowUs: new(int64(999_424)),
				State: "limited",
			},
			{Zone: "dram-0", Kind: "dram", ControlType: "intel-rapl", PowerUw: new(int64(9_800_000)), EnergyUj: new(int64(12_000_000)), State: "read-only"},
			{
				Zone: "package-1", Kind: "package", ControlType: "intel-rapl", RequestedUw: new(int64(72_000_000)), WrittenUw: new(int64(72_000_000)),
				EffectiveUw: new(int64(70_000_000)), State: "drift",
			},
		},
		Health: []*headroomv1.HealthItem{{
			Code: "limit-drift", Severity: "warn", Text: "package-1 holds 70.0 W, 72.0 W was written; another program may be writing",
			Hint: "stop the other writer",
		}},
		Saved: 10,
		Sensors: []*headroomv1.SensorStatus{
			{Source: "rapl", Name: "package-0", PowerUw: new(int64(61_449_999)), AgeMs: new(int64(250)), State: "ok"},
			{Source: "dcmi", PowerUw: new(int64(158_000_000)), AgeMs: new(int64(2100)), Disagreement: new(0.031), State: "ok"},
			{Source: "hwmon", Name: "coretemp Package id 0", TempMc: new(int64(61_000)), State: "ok"},
			{Source: "sdr", State: "stale", Text: "unchanged for 31s"},
		},
		Ladder: []*headroomv1.RungStatus{
			{Rung: "rapl", State: "used"},
			{Rung: "cpufreq", State: "locked", Text: "intel_pstate answers EBUSY"},
		},
		Policies: []*headroomv1.PolicyStatus{{
			Policy: "policy0", Driver: "intel_pstate", Governor: "powersave", Epp: "balance_power", FreqKhz: new(int64(2_410_000)),
			MinKhz: new(int64(800_000)), MaxKhz: new(int64(3_500_000)), EffectiveKhz: new(int64(3_500_000)), State: "ok",
		}},
		Sprint:  &headroomv1.SprintStatus{Id: "s-17", CapUw: 220_000_000, BaseUw: 190_000_000, RemainingMs: 8200, EscrowUj: 600_000_000, SpentUj: new(int64(140_000_000))},
		Rivals:  []string{"thermald.service"},
		OtherUw: new(int64(13_500_000)), OtherFrom: "learned",
		Local: &headroomv1.LocalLimit{
			CapUw: new(int64(150_000_000)), RemainingMs: 61_000, Change: &headroomv1.Change{Actor: "mia", Reason: "fan test", RequestId: "01K"},
		},
		Advertise: "10.0.0.3", Slices: []*headroomv1.SliceStatus{{Slice: "batch.slice", RequestedCpus: new(2.5), WrittenCpus: new(2.5), EffectiveCpus: new(2.5)}},
		Counters: &headroomv1.AgentCounters{Renewals: 90210, Refusals: 1, Expiries: 2, Steps: 4, DeadlineMisses: 3, Drifts: 5, WriteErrors: 6, ThermalEvents: 7, Sprints: 8},
	}
}
