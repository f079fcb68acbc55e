// Claim: with the plug-in, jobs of one queue each hold their own share of it, and one with a share of 0 its application
// master only; shares that are turned round are followed.
package hadoop

import (
	"fmt"
	"net"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/pause"
	"headroom/internal/testkit"
	"headroom/lab/hadoop"
	"headroom/scheduler/yarn"
)

func TestJobsOfOneQueue(t *testing.T) {
	l, ctx := shared(t), within(t)
	hooks := testkit.Need((&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"))(t)
	e, _ := l.engine(t, "hook", hooks)
	testkit.Check(t, l.ReplaceScheduler("headroom.hadoop.LiveFairScheduler", map[string]string{"headroom.url": "http://" + hooks.Addr().String()}))
	t.Cleanup(func() { testkit.Check(t, l.ReplaceScheduler(hadoop.FairScheduler, nil)) })
	testkit.Check(t, l.AwaitNodes(ctx, "n1", "n2"))
	first, second := l.sleeps(ctx, t, "q1"), l.sleeps(ctx, t, "q1")
	held := func(id string) uint32 {
		for _, j := range e.List(id) {
			return j.GetProgress().GetContainers()
		}
		return 0
	}
	for len(e.List(first.ID)) == 0 || len(e.List(second.ID)) == 0 {
		if !pause.For(ctx, 200*time.Millisecond) {
			t.Fatal("the engine does not see both jobs")
		}
	}
	// A look that finds them so by chance is not enough.
	const looks = 3
	await := func(what string, a, b uint32) {
		t.Helper()
		for found := 0; found < looks; {
			x, y := held(first.ID), held(second.ID)
			if found++; x != a || y != b {
				found = 0
			}
			if !pause.For(ctx, time.Second) {
				t.Fatalf("%s: they hold %d and %d containers, not %d and %d", what, x, y, a, b)
			}
		}
		t.Log(what, a, b)
	}
	share := func(a, b uint32) {
		t.Helper()
		testkit.Check(t, e.Share(&headroomv1.ShareDirective{Engine: yarn.Name, Jobs: []*headroomv1.JobShare{{Id: first.ID, Containers: a}, {Id: second.ID, Containers: b}}}))
	}
	for _, s := range [][2]uint32{{5, 0}, {0, 5}, {4, 3}} {
		share(s[0], s[1])
		await(fmt.Sprintf("shares of %d and %d", s[0], s[1]), max(1, s[0]), max(1, s[1]))
	}
}
