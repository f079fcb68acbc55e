package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"headroom/jobs/queueing"
)

// queueTail is the percentile of the sojourn that the simulation is compared by.
const queueTail = 0.95

// diasQueue has n classes of jobs of DIAS's size: a setup, 50 maps, a shuffle and 10 reduces on 20 slots, which makes
// 62 phases a class. The higher classes are shorter and rarer; the load is 0.8.
func diasQueue(n int, discipline queueing.Discipline) (queueing.Queue, error) {
	q := queueing.Queue{Discipline: discipline}
	for k := range n {
		mean := 20 / float64(k+1)
		service, err := queueing.TaskLevel(queueing.TaskModel{
			Slots: 20, Maps: queueing.Exactly(50), Reduces: queueing.Exactly(10), MapMean: mean, ReduceMean: mean / 2, Setup: mean / 4, Shuffle: mean / 8,
		})
		if err != nil {
			return q, err
		}
		q.Services = append(q.Services, service)
		q.Arrivals.Rates = append(q.Arrivals.Rates, 0.8/float64(n)/service.Mean())
	}
	return q, nil
}

// queueModel measures the priority-queue model: means, three moments and the 95th
// percentiles of wait and sojourn of all classes, non-preemptive and preemptive-resume.
func queueModel(ctx context.Context, r *run) error {
	options := queueing.Options{Moments: 3, Percentiles: []float64{queueTail}}
	for _, n := range []int{2, 3} {
		var took []float64
		err := repeat(ctx, pick(r, 40, 10), time.Minute, func(i int) error {
			q, err := diasQueue(n, []queueing.Discipline{queueing.NonPreemptive, queueing.PreemptiveResume}[i%2])
			if err != nil {
				return err
			}
			began := time.Now()
			_, err = queueing.Solve(q, options)
			took = append(took, 1000*time.Since(began).Seconds())
			return err
		})
		if err != nil {
			return err
		}
		peer, width, err := simulateQueue(n, pick(r, 10_000, 2000))
		if err != nil {
			return err
		}
		r.put(fmt.Sprintf("queue-%d", n), took, one(peer), "%d queues, non-preemptive and preemptive in turn, exact to 1e-7; peer: simulation to +-1 %% of the low class's 95th percentile, from a run to +-%.1f %%", len(took), 100*width)
	}
	return nil
}

// simulateQueue is the peer: how long, in ms, a simulation takes until its 95 % interval
// of the lowest class's tail is within 1 % to each side. It runs for some jobs, with the
// half-width that they give, relative; the time goes with the square of that.
func simulateQueue(n, jobs int) (took, width float64, err error) {
	q, err := diasQueue(n, queueing.NonPreemptive)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	seen, err := queueing.Simulate(q, queueing.Simulation{
		Jobs: jobs, Replications: 20, Options: queueing.Options{Percentiles: []float64{queueTail}},
	}, rand.New(rand.NewPCG(uint64(n), 12)))
	if err != nil {
		return 0, 0, err
	}
	took = 1000 * time.Since(began).Seconds()
	at := seen.Classes[0].Sojourn.Percentiles[0].At
	width = (at.High - at.Low) / 2 / at.Value
	const aimed = 0.01
	return took * (width / aimed) * (width / aimed), width, nil
}
