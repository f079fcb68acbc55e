// Claims: a group whose tasks take twice as long as those of the same jobs elsewhere has half the power a slot; what a task that failed or a
// worker that lies says teaches nothing; a change of the usable slots makes speeds unknown; a master that says its power is believed.
package distributor

import (
	"math"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
)

func TestPowersLearn(t *testing.T) {
	t.Parallel()
	p, four := newPowers(2), &headroomv1.GroupState{Usable: 4}
	if a, b := p.of(p.began, 0, four), p.of(p.began, 1, four); a != 4 || b != 4 {
		t.Fatalf("before anything has ended: %g and %g", a, b)
	}
	now := p.began
	for job := range uint64(50) {
		now = now.Add(time.Minute)
		took := float64(1 + job%7) // jobs differ, and neither group's tasks are longer
		for range 4 {
			p.ended(now, 0, job, &headroomv1.TaskResult{Seconds: took})
			p.ended(now, 1, job, &headroomv1.TaskResult{Seconds: 2 * took})
		}
		for _, r := range []*headroomv1.TaskResult{{Seconds: 1e-6, ExitCode: 1}, {Seconds: 1e-6, Error: "killed"}, {Seconds: math.NaN()}, {Seconds: math.Inf(1)}, {Seconds: -1}} {
			p.ended(now, 1, job, r)
		}
		p.done(job)
	}
	if ratio := p.of(now, 0, four) / p.of(now, 1, four); math.Abs(ratio-2) > 0.1 {
		t.Errorf("a slot of the first group is %.3f times as fast, want 2", ratio)
	}
	if power, known := p.told(1, four); !known || power <= 0 {
		t.Errorf("the power that is told is %g, known %v", power, known)
	}
	if got := p.of(now, 1, &headroomv1.GroupState{Usable: 3}); got != 3 {
		t.Errorf("after a change of the caps the power is %g, want that of 3 slots of unknown speed", got)
	}
	if power, known := p.told(1, &headroomv1.GroupState{Usable: 3}); known {
		t.Errorf("after a change of the caps %g is told as known", power)
	}
	if got := p.of(now, 0, &headroomv1.GroupState{Usable: 4, Power: 1.5}); got != 1.5 {
		t.Errorf("the power that its master says is 1.5, and it has %g", got)
	}
}
