// Claims: what a hook tells becomes progress that adds up, whatever it sends, with the reason why it drops nothing; where tasks wait,
// nodes of idle executors count, because those are where they will run.
package sparkapp

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"

	"headroom/internal/testkit"
)

// report is what a hook sends, by the example of docs/hooks.md.
const report = `{"job":"words","run":1,"app":"app-1","attempt":1,"sequence":2,"ended":false,"asks":{"class":"high"},
 "stages":[{"id":0,"attempt":0,"name":"map","kind":"map","partitions":50,"kept":40,"shuffle":0,"done":12,"running":%d,"failed":0,"task_ms":4100,"begun":true,"ended":false}],
 "executors":3,"surplus":1,"tasks_done":12,"tasks_total":%d,"running_on":{"10.0.0.11":3},"cores_on":{"10.0.0.11":4,"other":2,"more":2},
 "shuffles":[{"id":0,"total":50,"kept":40,"theta":0.2,"seed":42,"input":true}],"trouble":""}`

// node names the node of a host.
func node(host string) string {
	if host == "10.0.0.11" {
		return "n01"
	}
	return "n02" // both others are on one
}

func TestProgressOfAReport(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		running, total int
		on             map[string]int
	}{
		"tasks wait":          {4, 48, map[string]int{"n01": 3, "n02": 4}},
		"all tasks run":       {28, 40, map[string]int{"n01": 3}},
		"before its first":    {4, 12, map[string]int{"n01": 3}},
		"all that there were": {0, 12, map[string]int{"n01": 3}},
	} {
		r := testkit.Need(ParseReport(strings.NewReader(fmt.Sprintf(report, c.running, c.total))))(t)
		p := r.Progress(0.2, node)
		if !p.Known || p.Done != 12 || p.Dropped != 10 || p.Tasks != c.total+10 || p.Executors != 3 || p.Cores != 8 || p.Surplus != 1 || !maps.Equal(p.RunningOn, c.on) {
			t.Errorf("%s: %+v", name, p)
		}
		if r.App != "app-1" || r.Attempt != 1 || r.Asks["class"] != "high" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// What people are shown of a hook: its problem, and why it drops nothing.
func TestExactnessHasAReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ trouble, exact, want string }{
		{"", "", ""},
		{"a report failed", "", "a report failed"},
		{"", "a join of type LeftAnti", "computed exactly: a join of type LeftAnti"},
		{"a report failed", "a subquery", "a report failed; computed exactly: a subquery"},
	} {
		text := strings.Replace(fmt.Sprintf(report, 4, 48), `"trouble":""`, fmt.Sprintf(`"exact":%q,"trouble":%q`, c.exact, c.trouble), 1)
		p := testkit.Need(ParseReport(strings.NewReader(text)))(t).Progress(0, node)
		if p.Remark() != c.want || p.Trouble != c.trouble {
			t.Errorf("%+v: %q", c, p.Remark())
		}
	}
}

// An application whose executors have come, and which has begun nothing yet, runs on their nodes.
func TestExecutorsBeforeTheFirstStage(t *testing.T) {
	t.Parallel()
	const first = `{"job":"words","run":1,"sequence":2,"ended":%v,"stages":[],"shuffles":[],"executors":1,"tasks_done":0,"tasks_total":0,"running_on":{},"cores_on":{"10.0.0.11":4}}`
	for ended, want := range map[bool]map[string]int{false: {"n01": 4}, true: {}} {
		p := testkit.Need(ParseReport(strings.NewReader(fmt.Sprintf(first, ended))))(t).Progress(0, node)
		if !maps.Equal(p.RunningOn, want) {
			t.Errorf("ended %v: %v", ended, p.RunningOn)
		}
	}
	// An older hook tells no cores, and one before it no hosts: unknown is not nothing.
	old := testkit.Need(ParseReport(strings.NewReader(`{"job":"words","run":1,"sequence":2,"ended":false,"stages":[],"shuffles":[],"executors":1,"tasks_done":0,"tasks_total":0}`)))(t)
	if p := old.Progress(0, node); p.RunningOn != nil || p.Cores != 0 {
		t.Errorf("%+v", p)
	}
}

func FuzzReport(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(report, 4, 48)))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"stages":` + strings.Repeat("[", 60_000)))
	f.Add([]byte(`{"job":"a","run":1,"sequence":1,"ended":true,"stages":[],"shuffles":[],"executors":0,"tasks_done":0,"tasks_total":0,"cores_on":{"a":1073741824,"b":1073741824}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var r Report
		var err error
		testkit.Cheap(t, len(body), func() { r, err = ParseReport(io.LimitReader(bytes.NewReader(body), 1<<20)) })
		if err != nil {
			return
		}
		sane(t, r.Progress(0, node))
	})
}

func sane(t *testing.T, p Progress) {
	t.Helper()
	if p.Done < 0 || p.Running < 0 || p.Dropped < 0 || p.Cores < 0 || p.Cores > numberMax || p.Done+p.Running+p.Dropped > p.Tasks {
		t.Errorf("%+v", p)
	}
}
