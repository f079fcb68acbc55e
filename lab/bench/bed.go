package bench

import (
	"math"
	"math/rand/v2"
	"time"

	"headroom/capping"
	"headroom/lab/emulator/plant"
	"headroom/units"
)

// The node that laws are compared on: one or two sockets on the plant, each with a twin without a
// cap that shows what the load would draw, and a BMC.
const (
	// loopPeriod is powerd's, plantStep the step of the plant.
	loopPeriod = 250 * time.Millisecond
	plantStep  = 5 * time.Millisecond
	// band around the new cap that counts as met.
	band = 0.02
	// judged is the length of the means of wall power that are judged.
	judged = 50 * time.Millisecond
	// bmcEvery, bmcLag and bmcSpan: how the BMC updates, how late, over what mean.
	bmcEvery, bmcLag, bmcSpan = 2 * time.Second, 500 * time.Millisecond, time.Second
	bmcHeld                   = int((bmcLag + bmcSpan) / judged)
)

// scene is a stretch of one node's life: the same for every law.
type scene struct {
	sockets int
	seed    uint64
	start   units.Power
	steps   []capStepTo
}

// capStepTo is one step of the cap, and the load beside it.
type capStepTo struct {
	cap  units.Power
	load workload
	wait time.Duration // before it, so that any phase of a loop is met
}

// workload is a kind of load.
type workload int

const (
	loadFull   workload = iota // all CPUs busy
	loadNoisy                  // busy, and never the same
	loadPhases                 // jumps between two levels every few seconds
	loadWave                   // swells and ebbs
	loadLopsided
	loads
)

// stage makes scenes with the given number of steps in all; plain ones have one socket that is always busy.
func stage(seed uint64, steps int, plain bool) []scene {
	const perScene = 8
	rng := rand.New(rand.NewPCG(seed, 21))
	var all []scene
	for left := steps; left > 0; left -= perScene {
		s := scene{sockets: 1 + rng.IntN(2), seed: rng.Uint64()}
		if plain {
			s.sockets = 1
		}
		draw := func() units.Power { return units.Power(s.sockets) * units.FromWatts(85+125*rng.Float64()) }
		s.start = draw()
		for range min(left, perScene) {
			s.steps = append(s.steps, capStepTo{
				cap: draw(), load: workload(rng.IntN(int(loads))), wait: time.Duration(rng.IntN(50)) * plantStep,
			})
			if plain {
				s.steps[len(s.steps)-1].load = loadFull
			}
		}
		all = append(all, s)
	}
	return all
}

// bed is the node that a law is tried on.
type bed struct {
	plants, twins []*plant.Plant
	config        capping.Config
	cap           units.Power
	now           time.Duration

	rng   *rand.Rand
	load  workload
	level float64 // of the load, 0 to 1
	other float64 // the second level of phases, the swing of waves
	until time.Duration

	recent  [bmcHeld]float64 // means of wall power, newest at next-1
	next    int
	filled  int
	bmcAt   time.Duration
	reading capping.WallReading
}

func newBed(s scene) (*bed, error) {
	rng := rand.New(rand.NewPCG(s.seed, 22))
	b := &bed{rng: rng, cap: s.start, level: 1}
	for range s.sockets {
		spec := plant.DefaultSpec()
		spec.EnergyStart = units.Energy(rng.Int64N(int64(plant.DRAMRange)))
		p, err := plant.New(spec)
		if err != nil {
			return nil, err
		}
		twin, err := plant.New(spec)
		if err != nil {
			return nil, err
		}
		twin.SetEnabled(false)
		b.plants, b.twins = append(b.plants, p), append(b.twins, twin)
	}
	spec, n := plant.DefaultSpec(), units.Power(s.sockets)
	b.config = capping.Config{
		Other: n * spec.Other, Efficiency: spec.WorstEfficiency(), PackageMin: n * 5 * units.Watt, PackageMax: n * spec.TDP, HasDRAM: true,
	}
	return b, nil
}

// begin starts another load.
func (b *bed) begin(l workload) {
	b.load, b.level, b.other, b.until = l, 0.95+0.05*b.rng.Float64(), 0.75+0.15*b.rng.Float64(), b.now
}

// busy is how busy one socket is now.
func (b *bed) busy(socket int) float64 {
	switch b.load {
	case loadNoisy:
		if b.now >= b.until {
			b.level = min(1, max(0.8, b.level+0.2*(0.93-b.level)+0.02*b.rng.NormFloat64()))
			b.until = b.now + 20*time.Millisecond
		}
	case loadPhases:
		if b.now >= b.until {
			b.level, b.other = b.other, b.level
			b.until = b.now + time.Duration(2+b.rng.IntN(4))*time.Second
		}
	case loadWave:
		return b.level - (b.level-b.other)*(0.5-0.5*math.Cos(b.now.Seconds()*2*math.Pi/8))
	case loadLopsided:
		if socket > 0 {
			return b.other
		}
	case loadFull, loads:
	}
	return b.level
}

// tick advances the plants by one step and returns wall power, and wall power without a cap.
func (b *bed) tick(turn func()) (wall, free float64) {
	turn()
	for i, p := range b.plants {
		busy := b.busy(i)
		p.Step(plantStep, busy)
		b.twins[i].Step(plantStep, busy)
		wall, free = wall+p.Wall().Watts(), free+b.twins[i].Wall().Watts()
	}
	b.now += plantStep
	return wall, free
}

// step advances by one judged mean and returns its point.
func (b *bed) step(turn func()) (p point) {
	n := int(judged / plantStep)
	for range n {
		wall, free := b.tick(turn)
		p.wall, p.free = p.wall+wall/float64(n), p.free+free/float64(n)
	}
	b.updateBMC(p.wall)
	return p
}

// updateBMC gives the BMC a mean of wall power, and makes a new reading every bmcEvery.
func (b *bed) updateBMC(wall float64) {
	b.recent[b.next] = wall
	b.next = (b.next + 1) % bmcHeld
	b.filled = min(b.filled+1, bmcHeld)
	if b.now < b.bmcAt || b.filled < bmcHeld {
		return
	}
	b.bmcAt = b.now + bmcEvery
	sum, n := 0.0, int(bmcSpan/judged)
	for i := range n { // the oldest that are held
		sum += b.recent[(b.next+i)%bmcHeld]
	}
	if p := units.FromWatts(sum/float64(n)) / units.Watt * units.Watt; p != b.reading.Power {
		b.reading = capping.WallReading{Power: p, Known: true, Serial: b.reading.Serial + 1, ChangedAt: b.now}
	}
}

// point is one judged mean.
type point struct{ wall, free float64 }

// verdict is how one step of the cap went.
type verdict struct {
	settle  float64 // s; +Inf: never
	entered bool
	over    float64 // highest mean above the cap once the band had been entered, ratio
	longest float64 // s: longest stretch above the cap by half the band or more, from then on
	steady  float64 // mean difference to what the node should draw, ratio to the cap
}

const (
	// holdFor is how long power must stay in the band to count as settled.
	holdFor = 2 * time.Second
	// steadyFrom is where the steady part of a step begins.
	steadyFrom = 4 * time.Second
	// stepWatched is how long each step is followed.
	stepWatched = 12 * time.Second
)

// judge looks at the means from the moment of the step on. What the node should
// draw is the cap, or what its load draws with no cap where that is less.
func judge(points []point, granted float64) verdict {
	v := verdict{settle: math.Inf(1)}
	hold, stretch, above, sum, count := int(holdFor/judged), 0, 0, 0.0, 0
	for i, p := range points {
		off := (p.wall - min(granted, p.free)) / granted
		if math.Abs(off) <= band {
			stretch++
			v.entered = true
		} else {
			stretch = 0
		}
		if stretch == hold && math.IsInf(v.settle, 1) {
			v.settle = (time.Duration(i+1-hold) * judged).Seconds()
		}
		if ratio := p.wall/granted - 1; v.entered {
			v.over = max(v.over, ratio)
			if ratio > band/2 {
				above++
			} else {
				above = 0
			}
			v.longest = max(v.longest, (time.Duration(above) * judged).Seconds())
		}
		if time.Duration(i)*judged >= steadyFrom {
			sum, count = sum+off, count+1
		}
	}
	v.steady = sum / float64(max(count, 1))
	return v
}
