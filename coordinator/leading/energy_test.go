// Claims: what a node counts goes to the job that runs there, is told while it runs, and is
// committed when it ends; a leader knows nothing from before it saw the job; what is not
// counted is no energy of 0.
package leading

import (
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/ledger"
	"headroom/units"
)

func TestEnergyOfJobs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, _, _, _ := admitted(t)
		d.must(t, ledger.Command{Job: &ledger.Job{ID: "j1", Class: "low", Submitted: time.Now().UnixMicro(), State: ledger.JobAccepted}})
		d.must(t, ledger.Command{Job: &ledger.Job{ID: "elsewhere", Class: "high", State: ledger.JobAccepted}})
		d.must(t, ledger.Command{Job: &ledger.Job{ID: "waiting", Class: "high", State: ledger.JobAccepted}})
		began := time.Now()
		drawn, counted := units.Energy(0), time.Duration(0)
		second := func(jobs ...*headroomv1.JobProgress) {
			t.Helper()
			drawn, counted = drawn+150*units.Joule, counted+time.Second
			r := beat(uint64(time.Now().UnixNano()), 150*w, 2)
			r.Energy, r.EnergyTime, r.EnergyFrom = &drawn, counted, "packages"
			told := drawn
			r.Energy = &told
			if err := d.Hear(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			d.onBoard(t, &headroomv1.ProgressReport{Jobs: jobs})
			time.Sleep(time.Second)
		}
		of := func(id string) (e *headroomv1.JobEnergy) {
			t.Helper()
			if err := d.Ask(t.Context(), func(*Known) {
				d.machine.View(func(s *ledger.State) { e = d.known.Job(s.Jobs[id]).GetEnergy() })
			}); err != nil {
				t.Fatal(err)
			}
			return e
		}
		for range 12 {
			second(runsNow("j1", map[string]uint32{"n01": 3}), runsNow("elsewhere", map[string]uint32{"n77": 1}))
		}
		e := of("j1")
		if e == nil || e.GetUj() < int64(1500*units.Joule) || e.GetUj() > int64(1800*units.Joule) || e.GetFrom()[0] != "packages" {
			t.Fatalf("after 12 s of 150 W: %v", e)
		}
		if since := time.UnixMicro(e.GetSinceUs()); since.Before(began) || since.Sub(began) > 2*time.Second {
			t.Errorf("since %v, it began at %v", since, began)
		}
		if x := of("elsewhere"); x != nil {
			t.Errorf("a job on a node that nobody hears drew %v", x)
		}
		if x := of("waiting"); x != nil {
			t.Errorf("a job that waits drew %v", x)
		}
		finish := ledger.Command{Finish: &ledger.FinishJob{ID: "j1", State: ledger.JobDone, Tasks: 40, Done: 40}}
		if err := d.Ask(t.Context(), func(*Known) { finish.Finish.Energy = d.jobs.energy.final("j1") }); err != nil {
			t.Fatal(err)
		}
		d.must(t, finish)
		for range 3 {
			second()
		}
		if end := of("j1"); end == nil || end.GetUj() < e.GetUj() || end.GetMeasuredS()+end.GetUnknownS() < 11 {
			t.Errorf("committed %v, before it ended %v", end, e)
		}
		var classes map[string]float64
		var idle float64
		if err := d.Ask(t.Context(), func(*Known) { classes, idle = d.jobs.energy.classes(), d.jobs.energy.idle() }); err != nil {
			t.Fatal(err)
		}
		if classes["low"] < 1500 || classes["high"] != 0 || idle < 300 {
			t.Errorf("classes %v, idle %v J", classes, idle)
		}
	})
}
