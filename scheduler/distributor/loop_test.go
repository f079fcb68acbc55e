package distributor

// Claims, message by message: what moved to another group is cancelled where it was; what was sent more than once and is then refused
// is a new attempt; of two active masters the one that has been active for longer gets the tasks.

import (
	"log/slog"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
)

// told is a distributor without streams: its masters' messages are applied one at a time.
type told struct {
	*testing.T
	*loop
	now time.Time
}

func newTold(t *testing.T, groups ...Group) *told {
	t.Helper()
	d := testkit.Need(New(Config{Name: "d1", Groups: groups, LostAfter: time.Second, Logger: slog.New(slog.DiscardHandler)}))(t)
	t.Cleanup(d.peers.Close)
	return &told{t, d.loop, time.Unix(1e9, 0)}
}

// opens is a new stream of a master of a group.
func (l *told) opens(group, master int) *session {
	return &session{link: l.groups[group].links[master], out: make(chan *headroomv1.PlaceMessage, outboxMax), over: make(chan struct{})}
}

// says applies a master's message, and then sends what the windows permit.
func (l *told) says(s *session, m *headroomv1.GroupMessage) {
	received{s, m}.apply(l.loop, l.now)
	l.handOver()
}

// active is the state of a master that has been active for so long.
func (l *told) active(s *session, d time.Duration) {
	l.says(s, &headroomv1.GroupMessage{Message: &headroomv1.GroupMessage_State{State: &headroomv1.GroupState{
		Master: s.link.address, Active: true, Usable: 8, Window: 8, ActiveMs: d.Milliseconds(),
	}}})
}

func (l *told) submits(tasks int) {
	l.Helper()
	f := &Flight{distributor: l.Distributor, results: make(chan Result, tasks), left: tasks, Job: Job{Tasks: tasks, Task: func(index, attempt int) *headroomv1.Task {
		return &headroomv1.Task{Ref: &headroomv1.TaskRef{Job: "j", Phase: "map", Index: uint32(index), Attempt: uint32(attempt)}}
	}}}
	reply := make(chan error, 1)
	submitted{f, reply}.apply(l.loop, l.now)
	testkit.Check(l, <-reply)
	l.handOver()
}

// sent is what a stream was sent since it was asked last.
func sent(s *session) (fresh, again []*headroomv1.TaskRef, cancelled map[attempt]bool) {
	cancelled = map[attempt]bool{}
	for len(s.out) > 0 {
		m := <-s.out
		for _, x := range m.GetTasks().GetTasks() {
			if m.GetTasks().GetAgain() {
				again = append(again, x.GetRef())
			} else {
				fresh = append(fresh, x.GetRef())
			}
		}
		for _, r := range m.GetCancel().GetRefs() {
			cancelled[attemptOf(r)] = true
		}
	}
	return fresh, again, cancelled
}

func TestMovedTasksAreCancelled(t *testing.T) {
	t.Parallel()
	l := newTold(t, Group{"g0", []string{"a:1"}}, Group{"g1", []string{"b:1"}})
	a, b := l.opens(0, 0), l.opens(1, 0)
	l.active(a, time.Minute)
	l.active(b, time.Minute)
	l.submits(8)
	before, _, _ := sent(a)
	if len(before) != 4 {
		t.Fatalf("the first group got %d of 8 tasks", len(before))
	}
	sent(b)
	closed{a.link, errSilent}.apply(l.loop, l.now)
	l.now = l.now.Add(2 * time.Second)
	l.expire(l.now)
	l.handOver()
	if moved, _, _ := sent(b); len(moved) != 4 || moved[0].GetAttempt() != 1 {
		t.Fatalf("moved to the other group: %v", moved)
	}
	back := l.opens(0, 0)
	l.active(back, time.Minute)
	_, again, cancelled := sent(back)
	for _, r := range before {
		if !cancelled[attemptOf(r)] {
			t.Errorf("task %d runs in two groups: its first attempt is not cancelled", r.GetIndex())
		}
	}
	if len(again) != 0 {
		t.Errorf("%d are sent again to the group that lost them", len(again))
	}
}

func TestRefusedAfterItWasSentAgain(t *testing.T) {
	t.Parallel()
	l := newTold(t, Group{"g0", []string{"a:1", "a:2"}})
	a, b := l.opens(0, 0), l.opens(0, 1)
	l.active(a, time.Minute)
	l.submits(4)
	before, _, _ := sent(a)
	closed{a.link, errSilent}.apply(l.loop, l.now)
	l.active(b, time.Second)
	_, again, _ := sent(b)
	if len(before) != 4 || len(again) != 4 {
		t.Fatalf("sent %d, and again %d, of 4", len(before), len(again))
	}
	l.says(b, &headroomv1.GroupMessage{Message: &headroomv1.GroupMessage_Refused{Refused: &headroomv1.GroupRefused{Refs: again}}})
	l.active(b, 2*time.Second)
	fresh, _, _ := sent(b)
	for _, r := range fresh {
		if r.GetAttempt() != 1 {
			t.Errorf("task %d is sent as attempt %d, which may have begun at the first master", r.GetIndex(), r.GetAttempt())
		}
	}
	if len(fresh) != 4 {
		t.Errorf("%d of 4 are sent as new attempts", len(fresh))
	}
}

func TestLongerActiveMasterIsElected(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]int{"heard first": 0, "heard last": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newTold(t, Group{"g0", []string{"old:1", "young:1"}})
			both := []*session{l.opens(0, 0), l.opens(0, 1)}
			for _, i := range []int{first, 1 - first} {
				l.active(both[i], []time.Duration{time.Hour, time.Second}[i])
			}
			l.submits(4)
			old, _, _ := sent(both[0])
			young, _, _ := sent(both[1])
			if len(old) != 4 || len(young) != 0 {
				t.Errorf("the one that has been active for longer got %d tasks, the other one %d", len(old), len(young))
			}
		})
	}
}
