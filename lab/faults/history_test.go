// Claims: a history that loses, repeats, invents or reorders an acknowledged change is
// found, and one that only lacks answers is not; a cut counts from its acknowledgement.
package faults

import (
	"testing"
	"time"
)

var origin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(s float64) time.Time { return origin.Add(time.Duration(s * float64(time.Second))) }

// done is a change that was sent and acknowledged at these seconds; never when to is 0.
func done(id string, watts, from, to float64, revision uint64) *change {
	x := &change{id: id, watts: watts, call: at(from), revision: revision}
	if to != 0 {
		x.ret = at(to)
	}
	return x
}

func TestLinear(t *testing.T) {
	t.Parallel()
	changes := []*change{done("a", 400, 1, 2, 5), done("b", 300, 3, 0, 0)}
	for name, c := range map[string]struct {
		reads []read
		ok    bool
	}{
		"the last change is read":                   {[]read{{400, at(2.1), at(2.2)}}, true},
		"a change without an answer comes late":     {[]read{{400, at(4), at(5)}, {300, at(6), at(7)}}, true},
		"a read beside a change finds the first":    {[]read{{500, at(1.5), at(1.6)}}, true},
		"an acknowledged change is lost":            {[]read{{500, at(2.1), at(2.2)}}, false},
		"a change without an answer comes and goes": {[]read{{300, at(4), at(5)}, {400, at(6), at(7)}}, false},
		"a value that nobody set":                   {[]read{{123, at(2.1), at(2.2)}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &history{first: 500, changes: changes, reads: c.reads}
			checked, wrong := h.linear()
			if checked == 0 || (wrong == "") != c.ok {
				t.Errorf("%d operations: %q", checked, wrong)
			}
		})
	}
}

func TestAudited(t *testing.T) {
	t.Parallel()
	a := record{Revision: 5, FromW: 500, ToW: 400, Reason: "a"}
	audit := []event{{Revision: 5, RequestID: "a"}}
	for name, c := range map[string]struct {
		events  []event
		records []record
		ok      bool
	}{
		"as it was":             {audit, []record{a}, true},
		"no answer, yet done":   {audit, []record{a, {6, 400, 300, "b"}}, true},
		"not in the audit":      {nil, []record{a}, false},
		"not in the history":    {audit, nil, false},
		"twice in the audit":    {append(audit, audit[0]), []record{a}, false},
		"carried out twice":     {audit, []record{a, {6, 400, 400, "a"}}, false},
		"other watts":           {audit, []record{{5, 500, 401, "a"}}, false},
		"under other revision":  {audit, []record{{7, 500, 400, "a"}}, false},
		"nobody asked for it":   {audit, []record{a, {6, 400, 310, "x"}}, false},
		"a change between lost": {audit, []record{a, {6, 450, 300, "b"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &history{first: 500, changes: []*change{done("a", 400, 1, 2, 5), done("b", 300, 3, 0, 0)}}
			if _, wrong := h.audited(c.events, c.records); (len(wrong) == 0) != c.ok {
				t.Errorf("%q", wrong)
			}
		})
	}
}

func TestMostInForce(t *testing.T) {
	t.Parallel()
	h := &history{first: 500, changes: []*change{done("a", 400, 1, 2, 5), done("b", 600, 3, 0, 0), done("c", 300, 10, 11, 6)}}
	for _, c := range []struct{ since, want float64 }{{1.5, 600}, {2.5, 600}, {12, 600}} {
		if got := h.most(at(c.since)); got != c.want {
			t.Errorf("since %g s: %g W, want %g W", c.since, got, c.want)
		}
	}
	h.changes[1].ret = at(4)
	for _, c := range []struct{ since, want float64 }{{10, 600}, {12, 300}} {
		if got := h.most(at(c.since)); got != c.want {
			t.Errorf("with all answers, since %g s: %g W, want %g W", c.since, got, c.want)
		}
	}
}
