// Claim: an idempotency key belongs to its caller and its content. The same request is
// carried out once and answered as the first time, another one under a used key is refused,
// and nobody can answer, refuse or push out a request of somebody else, whoever leads and
// whatever was restored.
package ledger_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

// keyed is a change of the site's budget under a key; its content is the budget.
func keyed(by ledger.Requester, id string, to units.Power) ledger.Command {
	return ledger.Command{RequestID: id, Requester: by, Content: fmt.Sprint(to), Budget: set("site/lab", to)}
}

// requesters are some that differ in one part each: a program for itself and for two people,
// another program, and a person who has the name of one of them.
func requesters() []ledger.Requester {
	return []ledger.Requester{
		{Caller: "scheduler/s1"},
		{Caller: "scheduler/s1", User: "submitter/ann"},
		{Caller: "scheduler/s1", User: "submitter/bob"},
		{Caller: "scheduler/s2"},
		{Caller: "submitter/ann"},
		{Caller: "operator/mia"},
	}
}

func TestKeysBelongToCallerAndContent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		type first struct {
			content  string
			revision uint64
		}
		type key struct {
			by ledger.Requester
			id string
		}
		s, term, known := admitted(t, 800, "n01"), uint64(1), map[key]first{}
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			switch rapid.IntRange(0, 9).Draw(r, "what") {
			case 0:
				term++
				must(t, s, ledger.Command{Epoch: lease.Epoch{Incarnation: 1, Term: term}, Lead: &ledger.Lead{Server: "c2"}})
				continue
			case 1:
				s = restored(t, s)
				continue
			}
			c := keyed(rapid.SampledFrom(requesters()).Draw(r, "by"), fmt.Sprint("finish-", rapid.IntRange(0, 3).Draw(r, "id")),
				units.Power(rapid.IntRange(700, 702).Draw(r, "to")))
			c.Epoch = s.Epoch
			before, at := snapshot(t, s), key{c.Requester, c.RequestID}
			asked, refused := s.Asked(c)
			got, err := s.Apply(c)
			was, used := known[at]
			switch {
			case !used:
				if err != nil || got.Already || asked.Already || refused != nil || s.Domains["site/lab"].Budget != c.Budget.Budget {
					t.Fatalf("a new key of %+v: %+v, %v; asked: %+v, %v", c.Requester, got, err, asked, refused)
				}
				known[at] = first{c.Content, got.Revision}
			case was.content == c.Content:
				if err != nil || !got.Already || got.Revision != was.revision || got != asked || snapshot(t, s) != before {
					t.Fatalf("the same again: %+v, %v; the first was %+v", got, err, was)
				}
			default:
				e, ok := errors.AsType[*ledger.RequestError](err)
				if !ok || e.Revision != was.revision || !strings.Contains(e.Error(), "budget") || refused == nil || snapshot(t, s) != before {
					t.Fatalf("another request under a used key: %+v, %v", got, err)
				}
			}
		}
	})
}

// A caller keeps its last thousand keys for a day, however many others use.
func TestKeysAreBounded(t *testing.T) {
	t.Parallel()
	by := requesters()
	s := admitted(t, 800, "n01")
	do(t, s, keyed(by[5], "night-cut", 790))
	for i := range 1500 {
		do(t, s, keyed(by[1], fmt.Sprint(i), 800))
	}
	again := func(who ledger.Requester, id string, to units.Power) bool {
		t.Helper()
		c := keyed(who, id, to)
		c.Epoch = first()
		res, err := s.Asked(c)
		if err != nil {
			t.Fatal(err)
		}
		return res.Already
	}
	if !again(by[5], "night-cut", 790) || again(by[1], "499", 800) || !again(by[1], "500", 800) || len(s.Requests) != 1001 {
		t.Errorf("%d keys are kept", len(s.Requests))
	}
	for range 24 {
		do(t, s, ledger.Command{Tick: &ledger.Tick{Elapsed: time.Hour}})
	}
	if again(by[5], "night-cut", 790) {
		t.Error("a key is kept for more than a day")
	}
	do(t, s, keyed(by[5], "night-cut", 780))
	if len(s.Requests) != 1 || s.Domains["site/lab"].Budget != 780*watt {
		t.Errorf("%d keys are kept after a day, the budget is %v", len(s.Requests), s.Domains["site/lab"].Budget)
	}
}

// With the keys of very many callers, whoever has the most gives way.
func TestKeysOfAllAreBounded(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	do(t, s, keyed(ledger.Requester{Caller: "operator/mia"}, "night-cut", 790))
	const callers, each = 51, 1000
	for i := range callers { // as if they had asked: it is the bound that is looked at
		for k := range each {
			s.Requests = append(s.Requests, ledger.Request{ID: fmt.Sprint(k), Requester: ledger.Requester{Caller: fmt.Sprint("c", i)}, At: s.Elapsed})
		}
	}
	s.Requests = s.Requests[:50_000]
	do(t, s, keyed(ledger.Requester{Caller: "operator/zoe"}, "first", 780))
	if len(s.Requests) != 50_000 || s.Requests[0].ID != "night-cut" || s.Requests[1].ID != "1" || s.Requests[1].Caller != "c0" {
		t.Errorf("%d keys, the oldest %+v and %+v", len(s.Requests), s.Requests[0], s.Requests[1])
	}
}

// A log of rules 1 has its old meaning to the end, and the same bytes. Its keys are refused
// from rules 2 on: nobody knows whose they were.
func TestKeysOfOldRules(t *testing.T) {
	t.Parallel()
	s := ledger.New()
	must(t, s, ledger.Command{Rules: 1, Epoch: first(), Lead: &ledger.Lead{Server: "c1"}})
	must(t, s, ledger.Command{Rules: 1, Epoch: first(), Found: &ledger.Found{Domains: ledger.PlainDomains(site(800))}})
	old := func(to units.Power) ledger.Command {
		return ledger.Command{Rules: 1, RequestID: "x", Budget: set("site/lab", to)}
	}
	one := must(t, s, withEpoch(old(700)))
	if two := must(t, s, withEpoch(old(600))); !two.Already || two.Revision != one.Revision || s.Domains["site/lab"].Budget != 700*watt {
		t.Errorf("under rules 1: %+v", two)
	}
	if text := snapshot(t, s); !strings.Contains(text, fmt.Sprintf(`"requests":[{"id":"x","revision":%d}]`, one.Revision)) {
		t.Errorf("under rules 1 the state is %s", text)
	}
	s = restored(t, s)
	do(t, s, ledger.Command{Upgrade: &ledger.Upgrade{Rules: 2}})
	c := keyed(ledger.Requester{Caller: "operator/mia"}, "x", 650)
	c.Epoch = first()
	if e, ok := errors.AsType[*ledger.RequestError](apply(s, c)); !ok || !strings.Contains(e.Error(), "before the upgrade") {
		t.Errorf("after the upgrade: %v", apply(s, c))
	}
	c.RequestID = "y"
	must(t, s, c)

	c.Rules = 1 // what an older server cannot read is not written for it
	if c = c.UnderRules(); c.Caller != "" || c.Content != "" {
		t.Errorf("%+v", c)
	}
}

func apply(s *ledger.State, c ledger.Command) error {
	_, err := s.Apply(c)
	return err
}
