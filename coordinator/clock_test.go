// Claims: a wall clock that is hours off, the leader's or another's, neither raises
// a budget before its time nor keeps one from coming back while a quorum's clocks
// agree; it touches no lease; a lower waits for no clock, and for no raise of
// another domain; a schedule below a temporary budget is carried out.
package coordinator

import (
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/units"

	"headroom/internal/testkit"
)

// clocked is a group of three servers and three nodes, and how far each server's
// wall clock is off.
func clocked(t *testing.T) (*cluster, map[string]*atomic.Int64) {
	t.Helper()
	return clockedGroup(t, "c1", "c2", "c3")
}

func clockedGroup(t *testing.T, ids ...string) (*cluster, map[string]*atomic.Int64) {
	t.Helper()
	off := map[string]*atomic.Int64{}
	c := newCluster(t, 0, 700*units.Watt)
	c.ids, c.first = ids, ids
	c.fit = func(s *server) {
		mine := &atomic.Int64{}
		off[s.cfg.ID] = mine
		s.wall = func() time.Time { return time.Now().Add(time.Duration(mine.Load())) }
	}
	for _, id := range c.ids {
		c.disks[id] = memory()
		c.start(id)
	}
	c.addNodes(3)
	c.leader()
	c.allHeld(6 * time.Second)
	c.seated(ids...)
	return c, off
}

// operate makes one change at whoever leads.
func (c *cluster) operate(r *headroomv1.ChangeRequest) {
	c.t.Helper()
	if _, err := (clusterService{c.leader().server}).Change(c.t.Context(), connect.NewRequest(r)); err != nil {
		c.t.Fatal(err)
	}
}

// briefly sets the site's budget until a moment.
func (c *cluster) briefly(to units.Power, until time.Time) {
	c.t.Helper()
	r := &headroomv1.SetBudgetRequest{Domain: "site/lab", BudgetUw: int64(to), UntilUs: until.UnixMicro()}
	if _, err := (clusterService{c.leader().server}).SetBudget(c.t.Context(), connect.NewRequest(r)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) budgetOf(domain string) units.Power { return c.newest().Domains[domain].Budget }

// alarmed is what an alarm says, empty where it is not there.
func (c *cluster) alarmed(code string) string {
	c.t.Helper()
	r, err := (clusterService{c.leader().server}).GetStatus(c.t.Context(), connect.NewRequest(&headroomv1.GetStatusRequest{}))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, a := range r.Msg.GetAlarms() {
		if a.GetCode() == code {
			return a.GetText()
		}
	}
	return ""
}

// other is a server that is not the one named.
func (c *cluster) other(id string) string {
	for _, x := range c.ids {
		if x != id {
			return x
		}
	}
	return ""
}

func TestWrongClocks(t *testing.T) {
	const site = "site/lab"
	for name, hours := range map[string]time.Duration{"ahead": 3 * time.Hour, "behind": -3 * time.Hour} {
		t.Run("the leader's, "+name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c, off := clocked(t)
				leader := c.leader().cfg.ID
				until := time.Now().Add(time.Minute)
				c.briefly(500*units.Watt, until)
				off[leader].Store(int64(hours))
				time.Sleep(30 * time.Second)
				if got := c.budgetOf(site); got != 500*units.Watt {
					t.Errorf("it is %v half a minute before its time", got)
				}
				if text := c.alarmed("clocks-disagree"); (text != "") != (hours > 0) {
					t.Errorf("alarm %q", text)
				}
				time.Sleep(time.Minute)
				if got := c.budgetOf(site); got != 500*units.Watt {
					t.Errorf("a leader whose clock nobody shares has raised it to %v", got)
				}
				if _, err := asked(c, &headroomv1.TransferLeadRequest{Id: c.other(leader)}, memberService.TransferLead); err != nil {
					t.Fatal(err)
				}
				c.until("the budget is back", 15*time.Second, func() bool { return c.budgetOf(site) == 700*units.Watt })
				if n := c.watch.fallen(); n != 0 || c.alarmed("clocks-disagree") != "" {
					t.Errorf("%d falls to fail-safe, alarm %q", n, c.alarmed("clocks-disagree"))
				}
			})
		})
		t.Run("a follower's, "+name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c, off := clocked(t)
				off[c.other(c.leader().cfg.ID)].Store(int64(hours))
				until := time.Now().Add(time.Minute)
				c.briefly(500*units.Watt, until)
				time.Sleep(55 * time.Second)
				if got := c.budgetOf(site); got != 500*units.Watt {
					t.Errorf("it is %v before its time", got)
				}
				c.until("the budget is back", 10*time.Second, func() bool { return c.budgetOf(site) == 700*units.Watt })
				if n := c.watch.fallen(); n != 0 {
					t.Errorf("%d falls to fail-safe", n)
				}
			})
		})
	}
}

// A voter that does not answer agrees with nobody: two wrong clocks of five voters raise
// nothing while two others are silent, though they are most of those who answer.
func TestSilentVotersAgreeWithNobody(t *testing.T) {
	testkit.Unraced(t)
	bubble(t, func(t *testing.T) {
		c, off := clockedGroup(t, "c1", "c2", "c3", "c4", "c5")
		leader := c.leader().cfg.ID
		var others []string
		for _, id := range c.ids {
			if id != leader {
				others = append(others, id)
			}
		}
		c.briefly(500*units.Watt, time.Now().Add(2*time.Minute))
		for _, id := range others[2:] {
			c.kill(id)
		}
		for _, id := range []string{leader, others[0]} {
			off[id].Store(int64(3 * time.Hour))
		}
		time.Sleep(time.Minute)
		if got := c.budgetOf("site/lab"); got != 500*units.Watt {
			t.Errorf("two of five clocks have raised it to %v", got)
		}
		if text := c.alarmed("clocks-disagree"); text == "" {
			t.Error("no alarm")
		}
		for _, id := range others[2:] {
			c.start(id)
		}
		off[leader].Store(0)
		off[others[0]].Store(0)
		c.until("the budget is back", 2*time.Minute, func() bool { return c.budgetOf("site/lab") == 700*units.Watt })
	})
}

// A cut by schedule waits for no clock, and for no raise of another domain that waits.
func TestCutPassesARaiseThatWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, off := clocked(t)
		c.briefly(600*units.Watt, time.Now().Add(30*time.Second))
		c.operate(&headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetSchedule{SetSchedule: &headroomv1.Schedule{
			Name: "night", Domain: "rack/r1", Cron: "* * * * *", BudgetUw: int64(400 * units.Watt),
		}}})
		off[c.leader().cfg.ID].Store(int64(3 * time.Hour))
		c.until("the cut is in force", 70*time.Second, func() bool { return c.budgetOf("rack/r1") == 400*units.Watt })
		time.Sleep(15 * time.Second)
		if got := c.budgetOf("site/lab"); got != 600*units.Watt || c.alarmed("clocks-disagree") == "" {
			t.Errorf("the raise that waits came to %v, alarm %q", got, c.alarmed("clocks-disagree"))
		}
	})
}

// What a schedule sets while a temporary budget is in force comes into force after it.
func TestScheduleBelowATemporaryBudget(t *testing.T) {
	testkit.Unraced(t)
	bubble(t, func(t *testing.T) {
		c, _ := clocked(t)
		c.operate(&headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetSchedule{SetSchedule: &headroomv1.Schedule{
			Name: "day", Cron: "* * * * *", BudgetUw: int64(650 * units.Watt),
		}}})
		c.briefly(500*units.Watt, time.Now().Add(150*time.Second))
		time.Sleep(90 * time.Second)
		if got := c.budgetOf("site/lab"); got != 500*units.Watt || c.alarmed("clocks-disagree") != "" {
			t.Errorf("meanwhile it is %v, alarm %q", got, c.alarmed("clocks-disagree"))
		}
		c.until("the schedule's budget", 80*time.Second, func() bool { return c.budgetOf("site/lab") == 650*units.Watt })
	})
}
