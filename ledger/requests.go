package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

const (
	// rulesRequests are the first rules under which an idempotency key belongs to its caller and its content.
	rulesRequests = 2
	// keptRequests is how many keys are remembered of each caller; under rules 1, of all together.
	keptRequests = 1000
	// keptRequestsFor is how long a key is remembered, in the ledger's own time.
	keptRequestsFor = 24 * time.Hour
	// keptRequestsAll bounds the keys of all callers, about 12 MB. Beyond it whoever has the
	// most loses its oldest, so that nobody can push out the keys of somebody who has few.
	keptRequestsAll = 50_000
)

// Requester is whose idempotency keys are told apart: those of two requesters never meet.
// A program's own keys are those without a User; what it asks for a person it asks as that one.
type Requester struct {
	// Caller is the proven identity of who asked, ROLE/NAME.
	Caller string `json:"caller,omitempty"`
	// User is for whom a program asked; empty where it asked for itself.
	User string `json:"user,omitempty"`
}

// Request is an idempotency key that was carried out, and the revision it made.
type Request struct {
	ID       string `json:"id"`
	Revision uint64 `json:"revision"`
	Requester
	// Content is the digest of what was asked, What the record of it; What is empty where it changed nothing.
	Content string `json:"content,omitempty"`
	What    string `json:"what,omitempty"`
	// At is when it was carried out, by State.Elapsed.
	At time.Duration `json:"at_ns,omitempty"`
	// Old is a key of rules 1: nobody knows whose it was, nor for what.
	Old bool `json:"old,omitempty"`
}

// RequestError refuses a key that was used before for something else.
type RequestError struct{ Request }

// Error says what the key was used for.
func (e *RequestError) Error() string {
	if e.Old {
		return fmt.Sprintf("request id %q was used at revision %d, before the upgrade to rules %d", e.ID, e.Revision, rulesRequests)
	}
	return fmt.Sprintf("request id %q was used before for another request, at revision %d: %s", e.ID, e.Revision, cmp.Or(e.What, "it changed nothing"))
}

// Asked is the first result of a request that was carried out before (Already), or the
// refusal of a key that its requester has used for something else.
func (s *State) Asked(c Command) (Result, error) {
	out := Result{Revision: s.Revision}
	if c.RequestID == "" {
		return out, nil
	}
	i := slices.IndexFunc(s.Requests, func(r Request) bool {
		return r.ID == c.RequestID && (s.Rules < rulesRequests || s.remembers(r) && (r.Old || r.Requester == c.Requester))
	})
	if i < 0 {
		return out, nil
	}
	if r := s.Requests[i]; s.Rules >= rulesRequests && (r.Old || r.Content != c.Content) {
		return out, &RequestError{r}
	}
	return Result{Revision: s.Requests[i].Revision, Already: true, What: s.Requests[i].What}, nil
}

func (s *State) remembers(r Request) bool { return s.Elapsed-r.At < keptRequestsFor }

// remember keeps the key of a command that was carried out.
func (s *State) remember(c Command, what string) {
	r := Request{ID: c.RequestID, Revision: s.Revision}
	if s.Rules < rulesRequests {
		s.Requests = bounded(append(s.Requests, r), keptRequests)
		return
	}
	r.Requester, r.Content, r.What, r.At = c.Requester, c.Content, what, s.Elapsed
	list := append(slices.Clip(s.Requests), r)
	list = slices.DeleteFunc(list, func(r Request) bool { return !s.remembers(r) })
	count := map[Requester]int{}
	for _, x := range list {
		count[x.Requester]++
	}
	most := r.Requester
	if len(list) > keptRequestsAll {
		for _, x := range list { // in their order: every server finds the same one
			if count[x.Requester] > count[most] {
				most = x.Requester
			}
		}
	}
	if count[most] > keptRequests || len(list) > keptRequestsAll {
		i := slices.IndexFunc(list, func(x Request) bool { return x.Requester == most })
		list = slices.Delete(list, i, i+1)
	}
	s.Requests = list
}

// ageRequests marks the keys of rules 1 when the rules that know whose a key is come into force.
func (s *State) ageRequests() {
	s.Requests = slices.Clone(s.Requests)
	for i := range s.Requests {
		s.Requests[i].Old, s.Requests[i].At = true, s.Elapsed
	}
}

// UnderRules strips from a command what its rules do not know yet: an older server could not read it.
func (c Command) UnderRules() Command {
	if c.Rules < rulesRequests {
		c.Requester, c.Content = Requester{}, ""
	}
	if c.Rules < RulesOfScheduler {
		c.SchedulerEpoch = 0
	}
	return c
}
