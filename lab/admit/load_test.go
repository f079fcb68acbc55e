package admit

import (
	"math"
	"math/rand/v2"
)

// deadlines are the paper's five types: the multiple of the optimal execution time, work / tasks.
var deadlines = []struct {
	name string
	draw func(r *rand.Rand) float64
}{
	{"fixed2x", func(*rand.Rand) float64 { return 2 }},
	{"jockey1x2x", func(r *rand.Rand) float64 { return 1 + float64(r.IntN(2)) }},
	{"jockey2x4x", func(r *rand.Rand) float64 { return 2 + 2*float64(r.IntN(2)) }},
	{"aria1x3x", func(r *rand.Rand) float64 { return 1 + 2*r.Float64() }},
	{"aria2x4x", func(r *rand.Rand) float64 { return 2 + 2*r.Float64() }},
}

// generate draws jobs like those of the paper's traces: six in ten have one task, one in ten has more than 500 and
// nearly all of the work. rho is the work offered in parts of the capacity.
func generate(seed uint64, jobs, capacity int, rho float64, multiple func(*rand.Rand) float64) Load {
	r := rand.New(rand.NewPCG(seed, 7))
	l := Load{Capacity: capacity}
	total := 0.0
	for range jobs {
		tasks := 1
		switch u := r.Float64(); {
		case u < 0.60:
		case u < 0.78:
			tasks = 2 + r.IntN(9)
		case u < 0.90:
			tasks = int(10 * math.Pow(50, r.Float64()))
		default:
			tasks = int(500 * math.Pow(6, r.Float64()))
		}
		length := 20 * math.Exp(0.8*r.NormFloat64())
		if tasks > 10 {
			length *= 3
		}
		work := float64(tasks) * length
		total += work
		l.Jobs = append(l.Jobs, Job{User: string(rune('a' + r.IntN(5))), Tasks: tasks, Work: work, Deadline: length * multiple(r)})
	}
	gap := total / (rho * float64(capacity)) / float64(jobs)
	now := 0.0
	for i := range l.Jobs {
		now += gap * r.ExpFloat64()
		l.Jobs[i].Arrival = now
	}
	return l
}

// halved is the load with half of the capacity in the middle third.
func halved(l Load) Load {
	end := l.Jobs[len(l.Jobs)-1].Arrival
	l.Changes = []Change{{end / 3, l.Capacity / 2}, {2 * end / 3, l.Capacity}}
	return l
}
