package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// maxCron bounds a schedule's Cron, bytes: every minute of an hour, one by one, and more.
const maxCron = 256

// ParseCron reads a schedule's five fields. It needs nothing of the machine it
// runs on: Apply uses it. (The library would take a time zone in front of the
// fields, and look that up.)
func ParseCron(text string) (cron.Schedule, error) {
	if len(text) > maxCron || strings.ContainsAny(text, "=@") {
		return nil, fmt.Errorf("%w: %.40q: it has five fields: minute, hour, day, month, weekday", ErrSchedule, text)
	}
	s, err := cron.NewParser(cronFields).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrSchedule, text, err)
	}
	if x, ok := s.(*cron.SpecSchedule); !ok || x.Minute == 0 || x.Hour == 0 || x.Dom == 0 || x.Month == 0 || x.Dow == 0 {
		return nil, fmt.Errorf("%w: %q: a field is empty", ErrSchedule, text)
	}
	return s, nil
}

// clock is a schedule's cron in its time zone.
type clock struct {
	cron cron.Schedule
	zone *time.Location
}

// clock looks the time zone up on the machine that asks: it is for the leader, not for Apply.
func (x Schedule) clock() (clock, error) {
	c, err := ParseCron(x.Cron)
	if err != nil {
		return clock{}, err
	}
	zone, err := time.LoadLocation(cmp.Or(x.Zone, "UTC"))
	if err != nil {
		return clock{}, fmt.Errorf("%w: %s: %w", ErrSchedule, x.Name, err)
	}
	return clock{c, zone}, nil
}

// next is when the clock is due after the moment t; the zero time when it never
// is. It counts on the wall clock of its zone: a time that the zone skips is due
// in the hour that stands for it, one that comes twice is due once. A budget that
// should fall at 2:30 falls on that day too.
func (c clock) next(t time.Time) time.Time {
	local := t.In(c.zone)
	wall := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), local.Nanosecond(), time.UTC)
	for range wallSteps {
		if wall = c.cron.Next(wall); wall.IsZero() {
			return wall
		}
		if due := c.shows(wall); due.After(t) {
			return due
		}
	}
	return time.Time{}
}

// shows is when the zone's clock shows what the wall, written as UTC, says: the
// first time, if it does twice, and if never, by the clock as it was before the
// change. (time.Date leaves open which.)
func (c clock) shows(wall time.Time) time.Time {
	const day = 24 * time.Hour // more than any zone is from UTC
	_, before := wall.Add(-day).In(c.zone).Zone()
	_, after := wall.Add(day).In(c.zone).Zone()
	first, second := wall.Add(-time.Duration(before)*time.Second), wall.Add(-time.Duration(after)*time.Second)
	first, second = first.In(c.zone), second.In(c.zone)
	_, atFirst := first.Zone()
	_, atSecond := second.Zone()
	if atFirst != before && atSecond == after {
		return second
	}
	return first
}

// wallSteps are the minutes that a wall clock can be put back by at once: a day,
// where a country changed sides of the date line.
const wallSteps = 25 * 60

// Next is when the schedule is due after the moment t; false when it never is,
// or the machine that asks does not know its time zone.
func (x Schedule) Next(t time.Time) (time.Time, bool) {
	c, err := x.clock()
	if err != nil {
		return time.Time{}, false
	}
	next := c.next(t)
	return next, !next.IsZero()
}

// SetSchedule adds a schedule, or replaces the one of its name.
type SetSchedule struct {
	Name   string      `json:"name"`
	Domain string      `json:"domain"`
	Cron   string      `json:"cron"`
	Zone   string      `json:"zone,omitempty"`
	Budget units.Power `json:"budget_uw"`
	// Force accepts a budget below the domain's floor.
	Force bool `json:"force,omitempty"`
}

// setSchedule adds a schedule. Whether its budget is below the floor is looked at here and
// not when it is due: a floor that has risen since stops no cut (P5).
func (t *tx) setSchedule(c Command, x *SetSchedule) error {
	d, ok := t.Domains[x.Domain]
	_, known := t.Schedules[x.Name]
	switch {
	case x.Name == "" || len(x.Name) > maxName || len(x.Zone) > maxName:
		return fmt.Errorf("%w: its name and its zone have %d and %d bytes; it needs a name, and both have at most %d", ErrSchedule, len(x.Name), len(x.Zone), maxName)
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
	if err := t.floorError(x.Domain, x.Budget); err != nil && !x.Force && t.Rules >= RulesOfFloors {
		return fmt.Errorf("schedule %q: %w", x.Name, err)
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

// Agreed reports whether a quorum's clocks agree with the moment at, and so with each other.
func (x Clock) Agreed(at int64) bool {
	const near = int64(clockAgreement / 2 / time.Microsecond)
	agreeing := 0
	for _, told := range x.Servers {
		if at > near && told >= at-near && told <= at+near {
			agreeing++
		}
	}
	return x.Voters > 0 && agreeing > x.Voters/2 && agreeing <= x.Voters
}

// dueBudget checks that a budget set by the clock is the one that is due.
func (t *tx) dueBudget(c Command, b *SetBudget) error {
	d := t.Domains[b.Domain]
	due, want, replaced := int64(0), units.Power(0), d.Budget
	if b.Clock.Schedule != "" && d.Back != nil {
		replaced = d.Back.Budget // it waits beneath the temporary budget
	}
	lower := b.Budget <= replaced
	switch x, known := t.Schedules[b.Clock.Schedule]; {
	case b.Clock.Schedule == "" && d.Back != nil:
		due, want = d.Back.At, d.Back.Budget
	case known && x.Domain == b.Domain && x.follows(b.Clock.Due, c.At, lower || b.Clock.Agreed(c.At)):
		due, want = b.Clock.Due, x.Budget
	}
	if want != b.Budget || due != b.Clock.Due || c.At < due || b.Until != 0 {
		return fmt.Errorf("scheduled budget of %s: %w", b.Domain, ErrNotDue)
	}
	if b.Budget > replaced && !b.Clock.Agreed(c.At) {
		return fmt.Errorf("scheduled budget of %s, %v to %v: of %d voters, %d reported their clocks: %w",
			b.Domain, replaced, b.Budget, b.Clock.Voters, len(b.Clock.Servers), ErrClocks)
	}
	return nil
}

// follows reports whether the schedule may be carried out for the time due. It was
// carried out for an earlier one before; or for one that is still to come, by a clock that
// was wrong. That may be overruled by a quorum's clocks, and by anybody where it lowers.
func (x Schedule) follows(due, at int64, overruled bool) bool {
	return x.Last < due || x.Last > at && overruled
}

// carriedOut notes that a schedule was carried out.
func (t *tx) carriedOut(x *Clock) {
	if s, ok := t.Schedules[x.Schedule]; ok {
		s.Last = x.Due
		put(t, t.Schedules, s.Name, s)
		t.supersede(s.Domain, x.Due)
	}
}

// supersede notes that what any schedule of the domain missed up to a moment is
// over: somebody or something newer has had its say.
func (t *tx) supersede(domain string, at int64) {
	for _, x := range t.SchedulesByName() {
		if x.Domain == domain && x.Last < at {
			x.Last = at
			put(t, t.Schedules, x.Name, x)
		}
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
	// Quorum: a quorum's clocks have to agree to it. It is a raise.
	Quorum bool
}

// Due are the changes by the clock whose time has come, those that need no quorum
// first, then the oldest first. Of what schedules have missed for a domain only
// the newest is left: it stands for all of them.
func Due(s *State, now time.Time) []Coming {
	var out []Coming
	for _, d := range s.Domains {
		if d.Back != nil && d.Back.At <= now.UnixMicro() {
			out = append(out, Coming{Domain: d.Name, Budget: d.Back.Budget, At: time.UnixMicro(d.Back.At), Quorum: d.Back.Budget > d.Budget})
		}
	}
	newest := map[string]Coming{}
	for _, x := range s.SchedulesByName() {
		at, ok := x.lastDue(now)
		if !ok || newest[x.Domain].At.After(at) {
			continue
		}
		c := Coming{Domain: x.Domain, Budget: x.Budget, Schedule: x.Name, At: at}
		replaced := s.Domains[x.Domain].Budget
		if back := s.Domains[x.Domain].Back; back != nil {
			c.Beneath, replaced = true, back.Budget
		}
		c.Quorum = c.Budget > replaced
		newest[x.Domain] = c
	}
	out = slices.AppendSeq(out, maps.Values(newest))
	slices.SortFunc(out, func(a, b Coming) int {
		if a.Quorum != b.Quorum {
			if b.Quorum {
				return -1
			}
			return 1
		}
		return sooner(a, b)
	})
	return out
}

// Misdated are the schedules that were last carried out, or overruled by an operator,
// for a time that is still to come, by a clock that was wrong. What they miss until then
// would be lost. The leader sets each anew, which lets it count from now; by the leader's
// own clock alone, because a schedule that counts from too early can only lower by itself.
func Misdated(s *State, now time.Time) []Schedule {
	var out []Schedule
	for _, x := range s.SchedulesByName() {
		if time.UnixMicro(x.Last).Sub(now) > clockAgreement {
			out = append(out, x)
		}
	}
	return out
}

// missedMost is how far back a missed time is looked for; the calendar of a
// schedule repeats within it.
const missedMost = 5 * 366 * 24 * time.Hour

// lastDue is the newest time up to now at which the schedule was due and not
// carried out. One that was last carried out in the future, by a clock that was
// wrong, begins anew from now. What was missed is looked for from now back, in
// spans that double, so that a year of minutes costs no more than one.
func (x Schedule) lastDue(now time.Time) (time.Time, bool) {
	c, err := x.clock()
	if err != nil {
		return time.Time{}, false
	}
	last := time.UnixMicro(x.Last)
	switch {
	case now.Sub(last) > missedMost:
		last = now.Add(-missedMost)
	case last.Sub(now) > clockAgreement:
		last = now.Add(-clockAgreement)
	}
	due := c.next(last)
	if due.IsZero() || due.After(now) {
		return time.Time{}, false
	}
	for span := time.Hour; ; span *= 2 {
		from := now.Add(-span)
		if from.Before(last) {
			from = last
		}
		if due = c.next(from); !due.IsZero() && !due.After(now) {
			break
		}
	}
	for next := c.next(due); !next.IsZero() && !next.After(now); next = c.next(next) {
		due = next
	}
	return due, true
}

func sooner(a, b Coming) int {
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Schedule, b.Schedule))
}

// SchedulesByName are the schedules sorted by name.
func (s *State) SchedulesByName() []Schedule {
	return slices.SortedFunc(maps.Values(s.Schedules), func(a, b Schedule) int { return cmp.Compare(a.Name, b.Name) })
}
