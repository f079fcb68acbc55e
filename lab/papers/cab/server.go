package cab

import (
	"math"
	"time"

	"headroom/lab/emulator/plant"
	"headroom/units"
)

// The paper's server: two sockets, 28 cores, 350 W at maximum load.
const (
	containersAll = 28
	// overhead is the container that each job's application master takes.
	overhead = 1
	fullLoad = 350 * units.Watt
)

// physics are the two numbers of the server that the paper does not give.
type physics struct {
	// exponent is that of the dynamic power over the frequency.
	exponent float64
	// busy is how much of its core a running task uses; the rest of the time it waits
	// for its input.
	busy float64
}

// chosen is the server that targets are judged on. The exponent, 1.15, is chosen once, so
// that a run under the stepping cap takes about 1.72 times as long as without, as in the
// paper's Table II; near 1 it means that power follows frequency with nearly the same
// voltage, as in the lower half of the range of these CPUs. With 78 % of a core
// busy the server draws less than at maximum load, and the paper's highest cap, 250 W,
// costs little, as in the paper.
func chosen() physics { return physics{exponent: 1.15, busy: 0.78} }

// spec is the server. It draws 350 W at the wall at full load and 100 W idle.
func (p physics) spec() plant.Spec {
	return plant.Spec{
		Packages: 2, Cores: containersAll,
		Idle: 18 * units.Watt, Dynamic: units.FromWatts(108.5), Exponent: p.exponent,
		FreqMin: 1200 * units.Megahertz, FreqMax: 2900 * units.Megahertz, FreqStep: 100 * units.Megahertz,
		TDP: 130 * units.Watt, Peak: 156 * units.Watt,
		LongWindow: 999424 * time.Microsecond, ShortWindow: 1952 * time.Microsecond, Response: 40 * time.Millisecond,
		DRAMIdle: 4 * units.Watt, DRAMDynamic: 8 * units.Watt, Other: 45 * units.Watt,
		Efficiency: 0.92, EfficiencyDroop: 0.015,
		FailSafe: 150 * units.Watt, EnergyStart: units.Joule,
	}
}

// server is the plant under a cap at the wall that its board holds, as the paper's
// feedback controller does. Where nothing changes any more it is not stepped: its
// speed stays.
type server struct {
	plant   *plant.Plant
	busy    float64
	cap     units.Power
	running int
	settled time.Duration // for how long the speed has not moved
}

func newServer(of physics) (*server, error) {
	p, err := plant.New(of.spec())
	if err != nil {
		return nil, err
	}
	return &server{plant: p, busy: of.busy}, nil
}

// clone is a server in the same state.
func (s *server) clone() *server {
	c := *s
	c.plant = s.plant.Clone()
	return &c
}

// What counts as a speed that does not move, and for how long it must not, until the
// server counts as settled: the board looks once a second.
const (
	settledMove = 1e-3
	settledFor  = 4 * time.Second
)

// setCap sets the cap at the wall; 0 is none.
func (s *server) setCap(to units.Power) {
	if to != s.cap {
		s.plant.SetWallLimit(to)
		s.cap, s.settled = to, 0
	}
}

// step lets dt go by with so many tasks running and returns the speed, as a share of
// the full one.
func (s *server) step(dt time.Duration, running int) float64 {
	if running != s.running {
		s.running, s.settled = running, 0
	}
	if s.settled < settledFor {
		before := s.plant.Speed()
		s.plant.Step(dt, s.busy*float64(running)/containersAll)
		if s.settled += dt; math.Abs(s.plant.Speed()-before) > settledMove {
			s.settled = 0
		}
	}
	return s.plant.Speed()
}
