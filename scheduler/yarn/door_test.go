// Claims: an application with a deadline that the cluster cannot keep is refused with the numbers and the nearest
// deadline that it could; one that may wait is admitted when others have ended; asked again, the answer is the same; caps
// count; who does not come again is forgotten; nothing is decided about a cluster that does not answer; nonsense is refused.
package yarn

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
)

// admits is the answer about an application that asks for so many tasks.
func (l *lab) admits(id string, tasks int, deadline time.Duration, wait bool) (a struct {
	Decision string  `json:"decision"`
	Slots    int     `json:"slots"`
	Reason   string  `json:"reason"`
	NearestS float64 `json:"nearest_s"`
},
) {
	l.Helper()
	body := fmt.Sprintf(`{"application":%q,"user":"ann","queue":"root.q1","tasks":%d,"deadline_s":%v,"wait":%v}`, id, tasks, deadline.Seconds(), wait)
	code, got := l.ask("POST", "/v1/admit", body)
	if err := json.Unmarshal([]byte(got), &a); code != 200 || err != nil {
		l.Fatalf("%d %s, %v", code, got, err)
	}
	return a
}

// taught is a lab whose door has seen a job of 16 maps of 4 s, 4 at a time, which had 40 s.
func taught(l *lab) {
	l.Helper()
	a := l.plant.submit("root.q1", 16, 1)
	l.start()
	l.pass(time.Second)
	if got := l.admits(l.plant.id(a), 16, 40*time.Second, false); got.Decision != "admitted" || !strings.Contains(got.Reason, "no job has ended yet") {
		l.Fatalf("the first is admitted: %+v", got)
	}
	l.pass(60 * time.Second)
	if j := l.log.job(l.plant.id(a)); j.GetState() != headroomv1.JobState_JOB_STATE_DONE || j.GetAdmission().GetDecision() != "admitted" {
		l.Fatalf("the first has not ended well: %v", j)
	}
}

func TestDoorRefusesWithNumbers(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		taught(l)
		capacity := l.engine.book.capacity()
		first := l.admits("application_1_0001", 1000, 100*time.Second, false)
		if first.Decision != "refused" || first.NearestS <= 100 || !strings.Contains(first.Reason, fmt.Sprintf("can use %d", capacity)) {
			l.Errorf("a job of 1000 tasks on %d containers: %+v", capacity, first)
		}
		if again := l.admits("application_1_0001", 1000, 100*time.Second, false); again != first {
			l.Errorf("asked again: %+v, not %+v", again, first)
		}
	})
}

func TestDoorHolds(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		taught(l)
		capacity := l.engine.book.capacity()
		tasks := 8 * capacity // about a ninth of what it asks for is what a job needs
		if got := l.admits("application_1_0001", tasks, time.Hour, false); got.Decision != "admitted" || got.Slots != capacity {
			l.Fatalf("who needs all containers: %+v", got)
		}
		if got := l.admits("application_1_0100", tasks, 10*time.Minute, false); got.Decision != "refused" || !strings.Contains(got.Reason, "headroom-queue") {
			l.Errorf("who cannot wait: %+v", got)
		}
		if got := l.admits("application_1_0101", tasks, 10*time.Minute, true); got.Decision != "queued" {
			l.Errorf("who waits: %+v", got)
		}
		for range 7 { // nobody of the others ever comes: they are forgotten
			l.pass(10 * time.Second)
			l.admits("application_1_0101", tasks, 10*time.Minute, true)
		}
		if got := l.admits("application_1_0101", tasks, 10*time.Minute, true); got.Decision != "admitted" {
			l.Errorf("when others have gone: %+v", got)
		}
		l.pass(2 * beginsWithin)
		if n := len(l.engine.book.door.visitors); n != 1 { // the one that ended
			l.Errorf("%d applications are remembered", n)
		}
	})
}

func TestDoorKnowsCaps(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		taught(l)
		before := l.engine.book.capacity()
		for _, n := range l.plant.live() {
			l.engine.Cap(&headroomv1.CapDirective{Node: n, CapUw: 50, MaxUw: 100})
		}
		if after := l.engine.book.capacity(); after != before/2 {
			l.Errorf("%d containers under half of the power are worth %d", before, after)
		}
	})
}

func TestDoorRefusesNonsense(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		l.plant.submit("root.q1", 4, 1)
		l.start()
		l.pass(time.Second)
		for body, want := range map[string]string{
			`{`: "JSON",
			`{"application":"","user":"a","queue":"q","deadline_s":1}`:             "needed",
			`{"application":"x","user":"a","queue":"q"}`:                           "deadline_s",
			`{"application":"x","user":"a","queue":"q","deadline_s":-1}`:           "deadline_s",
			`{"application":"x","user":"a","queue":"q","deadline_s":1e300}`:        "deadline_s",
			`{"application":"x","user":"a","queue":"q","deadline_s":1,"error":2}`:  "error",
			`{"application":"x","user":"a","queue":"q","deadline_s":1,"tasks":-1}`: "tasks",
		} {
			if code, got := l.ask("POST", "/v1/admit", body); code != 400 || !strings.Contains(got, want) {
				l.Errorf("%s: %d %s, want 400 and %q", body, code, got, want)
			}
		}
	})
}
