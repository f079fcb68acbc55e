package yarn

// The page of an application shows since when caps slow it, its share and its drops; faults of the plug-in are logged when
// their number changes.

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
)

func (l *lab) lines() map[string]string {
	l.Helper()
	_, text := l.ask("GET", "/v1/shares", "")
	var a sharesAnswer
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		l.Error(err)
	}
	all := map[string]string{}
	for _, x := range a.Lines {
		all[x.Application] = x.Line
	}
	return all
}

func TestPagesShowALine(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		_, id, path := started(l, 40)
		if got := l.lines()[id]; got != "Headroom: not capped" {
			l.Errorf("got %q", got)
		}
		for _, cap := range []int64{50, 40} {
			for _, node := range []string{"n01", "node2", "node3"} {
				l.engine.Cap(&headroomv1.CapDirective{Node: node, CapUw: cap, MaxUw: 100})
			}
			if cap == 50 {
				l.pass(10 * time.Second) // a lower cap later does not change since when
			}
		}
		if err := l.engine.Share(&headroomv1.ShareDirective{Engine: "yarn", Jobs: []*headroomv1.JobShare{{Id: id, Containers: 5}}}); err != nil {
			l.Error(err)
		}
		l.stopJob(id, 40, 38)
		l.want("POST", path+"/drop", `{"tasks":40,"candidates":[{"task":35,"bytes":100}]}`, 200, `{"dropped":[35]}`)
		began := time.Now().UTC().Add(-10 * time.Second).Format("15:04:05 UTC")
		if got, want := l.lines()[id], "Headroom: capped since "+began+", share 5 of 8 containers, 1 of 40 map tasks dropped"; got != want {
			l.Errorf("got %q, want %q", got, want)
		}
	})
}

// The last line stays among an ended application's diagnostics; it is not what ended it.
func TestOurLineIsNoOutcome(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"Headroom: not capped, share 5 of 8 containers": "", "": "", "Task failed": "Task failed", "Headroom refuses it: needs 9": "Headroom refuses it: needs 9",
		"Headroom: not capped\nAM Container exited": "Headroom: not capped\nAM Container exited",
	} {
		if got := withoutLine(said); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}

func TestFaultsOfThePlugInAreSaid(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		l.start()
		for _, n := range []string{"", "?faults=2", "?faults=2", "?faults=3", "?faults=0"} {
			l.want("GET", "/v1/shares"+n, "", 200, "")
		}
		l.want("GET", "/v1/shares?faults=many", "", 400, "")
		if n := strings.Count(l.said.String(), "plug-in had faults of its own"); n != 2 {
			l.Errorf("said %d times, want 2", n)
		}
	})
}
