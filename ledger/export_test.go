package ledger

import (
	"slices"
	"time"
)

// Taken carries out a command and takes it back again, whatever it answers.
func (s *State) Taken(c Command) error {
	t := begin(s)
	err := t.dispatch(c)
	t.rollback()
	return err
}

// Ahead are the next changes by the clock after now, at most one of each schedule, soonest first.
func Ahead(s *State, now time.Time) []Coming {
	var out []Coming
	for _, d := range s.Domains {
		if d.Back != nil {
			out = append(out, Coming{Domain: d.Name, Budget: d.Back.Budget, At: time.UnixMicro(d.Back.At)})
		}
	}
	for _, x := range s.Schedules {
		if at, ok := x.Next(now); ok {
			out = append(out, Coming{Domain: x.Domain, Budget: x.Budget, Schedule: x.Name, At: at, Beneath: s.Domains[x.Domain].Back != nil})
		}
	}
	slices.SortFunc(out, sooner)
	return out
}
