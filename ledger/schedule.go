package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/robfig/cron/v3"

	"headroom/budget"
	"headroom/units"
)

// Schedule changes a domain's budget by the clock, again and again.
type Schedule struct {
	Name   string `json:"name"`
	Domain string `json:"domain"`
	// Cron says when: minute, hour, day, month, weekday (crontab(5)).
	Cron string `json:"cron"`
	// Zone is the IANA time zone that Cron is read in; empty is UTC.
	Zone   string      `json:"zone,omitempty"`
	Budget units.Power `json:"budget_uw"`
	// Last is when it was last carried out, or added; microseconds since the Unix epoch.
	Last int64 `json:"last_us"`
}

// cronFields is what a schedule's Cron may say: five fields, no seconds, no @every.
const cronFields = cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow

// ParseCron reads a schedule's five fields.
func ParseCron(text string) (cron.Schedule, error) {
	s, err := cron.NewParser(cronFields).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrSchedule, text, err)
	}
	return s, nil
}

// Next is when the schedule is due after the moment t; false when it never is.
// The time zone is looked up on the machine that asks.
func (x Schedule) Next(t time.Time) (time.Time, bool) {
	c, err := ParseCron(x.Cron)
	if err != nil {
		return time.Time{}, false
	}
	zone, err := time.LoadLocation(cmp.Or(x.Zone, "UTC"))
	if err != nil {
		return time.Time{}, false
	}
	next := c.Next(t.In(zone))
	return next, !next.IsZero()
}

// SetSchedule adds a schedule, or replaces the one of its name.
type SetSchedule struct {
	Name   string      `json:"name"`
	Domain string      `json:"domain"`
	Cron   string      `json:"cron"`
	Zone   string      `json:"zone,omitempty"`
	Budget units.Power `json:"budget_uw"`
}

func (t *tx) setSchedule(c Command, x *SetSchedule) error {
	d, ok := t.Domains[x.Domain]
	_, known := t.Schedules[x.Name]
	switch {
	case x.Name == "":
		return fmt.Errorf("%w: it needs a name", ErrSchedule)
	case !ok:
		return fmt.Errorf("schedule %q: domain %q: %w", x.Name, x.Domain, ErrUnknownDomain)
	case !known && len(t.Schedules) >= maxNamed:
		return fmt.Errorf("schedule %q: %d schedules: %w", x.Name, len(t.Schedules), ErrFull)
	case x.Budget <= 0:
		return fmt.Errorf("schedule %q: %w", x.Name, budget.ErrAmount)
	case x.Budget > d.Usable():
		return &RatingError{Domain: d.Name, Budget: x.Budget, Rating: d.Rating, Usable: d.Usable()}
	}
	if _, err := ParseCron(x.Cron); err != nil {
		return err
	}
	put(t, t.Schedules, x.Name, Schedule{Name: x.Name, Domain: x.Domain, Cron: x.Cron, Zone: x.Zone, Budget: x.Budget, Last: c.At})
	t.record(c, fmt.Sprintf("schedule %s: %s to %v at %q %s", x.Name, x.Domain, x.Budget, x.Cron, cmp.Or(x.Zone, "UTC")))
	return nil
}

func (t *tx) removeSchedule(c Command, name string) error {
	if _, ok := t.Schedules[name]; !ok {
		return fmt.Errorf("schedule %q: %w", name, ErrUnknownSchedule)
	}
	drop(t, t.Schedules, name)
	t.record(c, "schedule "+name+" removed")
	return nil
}

// Clock is why a budget changes by itself, and the proof that the time has come:
// a leader whose clock is wrong must not raise a budget (promise P5).
type Clock struct {
	// Schedule by name; empty for the return of a budget that was set until a time.
	Schedule string `json:"schedule,omitempty"`
	// Due is when it was due, microseconds since the Unix epoch.
	Due int64 `json:"due_us"`
	// Servers are the wall clocks of the group's voters as the leader has just read them,
	// its own among them, microseconds since the Unix epoch.
	Servers map[string]int64 `json:"servers,omitempty"`
	// Voters is how many voters the group has.
	Voters int `json:"voters"`
}

// clockAgreement is how far the clocks of a quorum may be apart.
const clockAgreement = time.Minute

// Agreed tells whether a quorum's clocks agree with the moment at and with each other.
func (x Clock) Agreed(at int64) bool {
	near := 0
	for _, told := range x.Servers {
		if apart := time.Duration(max(told-at, at-told)) * time.Microsecond; apart <= clockAgreement/2 {
			near++
		}
	}
	return x.Voters > 0 && near > x.Voters/2 && near <= x.Voters
}

// dueBudget checks that a budget set by the clock is the one that is due.
func (t *tx) dueBudget(c Command, b *SetBudget) error {
	d := t.Domains[b.Domain]
	due, want := int64(0), units.Power(0)
	switch x, known := t.Schedules[b.Clock.Schedule]; {
	case b.Clock.Schedule == "" && d.Back != nil:
		due, want = d.Back.At, d.Back.Budget
	case known && x.Domain == b.Domain && x.Last < b.Clock.Due:
		due, want = b.Clock.Due, x.Budget
	}
	if want != b.Budget || due != b.Clock.Due || c.At < due {
		return fmt.Errorf("budget of %s by the clock: %w", b.Domain, ErrNotDue)
	}
	if b.Budget > d.Budget && !b.Clock.Agreed(c.At) {
		return fmt.Errorf("budget of %s by the clock, %v to %v: %d of %d clocks agree: %w",
			b.Domain, d.Budget, b.Budget, len(b.Clock.Servers), b.Clock.Voters, ErrClocks)
	}
	return nil
}

// carriedOut notes that a schedule was carried out.
func (t *tx) carriedOut(x *Clock) {
	if s, ok := t.Schedules[x.Schedule]; ok {
		s.Last = x.Due
		put(t, t.Schedules, s.Name, s)
	}
}

// Coming is a change of a budget by the clock.
type Coming struct {
	Domain string
	Budget units.Power
	// Schedule by name; empty for the return of a budget that was set until a time.
	Schedule string
	At       time.Time
	// Beneath: a temporary budget is in force, and this one waits below it.
	Beneath bool
}

// Due are the changes by the clock whose time has come, oldest first; of a
// schedule that was missed several times only the newest. Several for one domain
// are carried out in their order, so that the last one stays.
func Due(s *State, now time.Time) []Coming {
	var out []Coming
	for _, d := range s.Domains {
		if at := time.UnixMicro(backAt(d)); d.Back != nil && !at.After(now) {
			out = append(out, Coming{Domain: d.Name, Budget: d.Back.Budget, At: at})
		}
	}
	for _, x := range s.Schedules {
		if at, ok := x.lastDue(now); ok {
			out = append(out, Coming{Domain: x.Domain, Budget: x.Budget, Schedule: x.Name, At: at, Beneath: s.Domains[x.Domain].Back != nil})
		}
	}
	sortComing(out)
	return out
}

func backAt(d Domain) int64 {
	if d.Back == nil {
		return 0
	}
	return d.Back.At
}

// missedMost bounds how many missed times of a schedule are looked through; one that
// runs each minute is caught up over a week.
const missedMost = 7 * 24 * 60

// lastDue is the newest time up to now at which the schedule was due and not carried out.
func (x Schedule) lastDue(now time.Time) (time.Time, bool) {
	due, at := time.Time{}, time.UnixMicro(x.Last)
	if now.Sub(at) > missedMost*time.Minute {
		at = now.Add(-missedMost * time.Minute)
	}
	for range missedMost + 1 {
		next, ok := x.Next(at)
		if !ok || next.After(now) {
			break
		}
		due, at = next, next
	}
	return due, !due.IsZero()
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
	sortComing(out)
	return out
}

func sortComing(list []Coming) {
	slices.SortFunc(list, func(a, b Coming) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Schedule, b.Schedule))
	})
}

// SchedulesByName are the schedules sorted by name.
func (s *State) SchedulesByName() []Schedule {
	return slices.SortedFunc(maps.Values(s.Schedules), func(a, b Schedule) int { return cmp.Compare(a.Name, b.Name) })
}
