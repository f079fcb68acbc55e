// Claim (P5): budgets change by the clock when they are due and not otherwise; a
// raise takes a quorum of clocks that agree within a minute, a lower takes none.
// A schedule means the wall clock of its zone, and what was missed is made up for
// once. Applying an entry needs no time zones.
package ledger_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // whatever the machine has

	"headroom/budget"
	"headroom/ledger"
	"headroom/units"
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

func micros(text string) int64 { return at(text).UnixMicro() }

// The five fields of crontab(5), and nothing else.
func TestParseCron(t *testing.T) {
	t.Parallel()
	from := at("2026-11-21T12:34:56Z") // a Saturday
	for text, want := range map[string]string{
		"* * * * *":          "2026-11-21T12:35:00Z",
		"0 18 * * 1-5":       "2026-11-23T18:00:00Z",
		"*/20 * * * *":       "2026-11-21T12:40:00Z",
		"30 6 1 * *":         "2026-12-01T06:30:00Z",
		"0 0 29 2 *":         "2028-02-29T00:00:00Z",
		"15,45 9-17/4 * * 0": "2026-11-22T09:15:00Z",
		"0 9 * jan mon":      "2027-01-04T09:00:00Z",
		"  5   5 * * *  ":    "2026-11-22T05:05:00Z",
		"0 0 13 * fri":       "2026-11-27T00:00:00Z", // either, as crontab(5) says
	} {
		x := ledger.Schedule{Cron: text}
		got, ok := x.Next(from)
		if !ok || !got.Equal(at(want)) {
			t.Errorf("%q is due at %v, want %s", text, got, want)
		}
	}
	for _, text := range []string{
		"", "*", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "5-1 * * * *", "*/0 * * * *",
		"1-2-3 * * * *", "x * * * *", ", * * * *", "99999999999999999999 * * * *", "-1 * * * *", "@daily", "@every 1s",
		"TZ=Europe/Berlin 0 18 * * *", "CRON_TZ=UTC 0 18 * * *", "TZ=0", "CRON_TZ=", strings.Repeat("1,", 200) + "1 * * * *",
	} {
		if _, err := ledger.ParseCron(text); !errors.Is(err, ledger.ErrSchedule) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, ok := (ledger.Schedule{Cron: "0 0 31 2 *"}).Next(from); ok {
		t.Error("the 31st of February is due")
	}
}

// A schedule is read on the wall clock of its zone: what the clock skips is due
// all the same, and what it shows twice is due once.
func TestScheduleFollowsTheWallClock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cron, zone string
		from       string
		want       []string
	}{
		"winter":                  {"0 18 * * *", "Europe/Berlin", "2026-01-10T00:00:00Z", []string{"2026-01-10T17:00:00Z", "2026-01-11T17:00:00Z"}},
		"summer":                  {"0 18 * * *", "Europe/Berlin", "2026-07-10T00:00:00Z", []string{"2026-07-10T16:00:00Z", "2026-07-11T16:00:00Z"}},
		"no zone is UTC":          {"0 18 * * *", "", "2026-07-10T00:00:00Z", []string{"2026-07-10T18:00:00Z"}},
		"across the change":       {"0 6 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T04:00:00Z", "2026-03-30T04:00:00Z"}},
		"a time that is skipped":  {"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"}},
		"a time that comes twice": {"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		"after the first of two":  {"30 2 * * *", "Europe/Berlin", "2026-10-25T00:40:00Z", []string{"2026-10-26T01:30:00Z"}},
		"each hour, back":         {"0 * * * *", "Europe/Berlin", "2026-10-24T23:30:00Z", []string{"2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"}},
		"each minute, back":       {"* * * * *", "Europe/Berlin", "2026-10-25T00:59:30Z", []string{"2026-10-25T02:00:00Z"}},
		"half an hour":            {"0 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", []string{"2026-10-03T15:30:00Z", "2026-10-04T15:00:00Z"}},
		"a midnight that is not":  {"0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", []string{"2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"}},
		"a day that is not":       {"0 12 * * *", "Pacific/Apia", "2011-12-30T00:00:00Z", []string{"2011-12-30T22:00:00Z"}},
	} {
		x := ledger.Schedule{Cron: c.cron, Zone: c.zone}
		from := at(c.from)
		for _, want := range c.want {
			got, ok := x.Next(from)
			if !ok || !got.Equal(at(want)) {
				t.Errorf("%s: %v, want %s", name, got.UTC(), want)
			}
			from = got
		}
	}
	if _, ok := (ledger.Schedule{Cron: "* * * * *", Zone: "Mars/Olympus"}).Next(at("2026-01-01T00:00:00Z")); ok {
		t.Error("a zone that nobody knows")
	}
}

const noon = "2026-11-21T12:00:00Z" // a Saturday

// schedule is one that is added at noon.
func schedule(name, cron string, watts units.Power) ledger.Command {
	return ledger.Command{At: micros(noon), Schedule: &ledger.SetSchedule{Name: name, Domain: "site/lab", Cron: cron, Budget: watts * watt}}
}

func TestSetScheduleRefuses(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	says(t, refusal(t, s, schedule("", "0 0 * * *", 500), ledger.ErrSchedule), "name")
	refused(t, s, schedule(strings.Repeat("x", 300), "0 0 * * *", 500), ledger.ErrSchedule)
	refused(t, s, schedule("x", "0 0 * *", 500), ledger.ErrSchedule)
	refused(t, s, schedule("x", "TZ=UTC 0 0 * * *", 500), ledger.ErrSchedule)
	refused(t, s, schedule("x", "0 0 * * *", 0), budget.ErrAmount)
}

// A schedule below the floor is refused as `budget set` is, with the missing watts, unless it
// is forced: whoever wrote it, but not in a log of the rules before. A floor that rises later
// stops no cut, and no schedule from being dated anew.
func TestScheduleBelowTheFloor(t *testing.T) {
	t.Parallel()
	low := schedule("night", "0 18 * * *", 80) // the node's fail-safe cap is 90 W
	s := admitted(t, 800, "n01")
	before := snapshot(t, s)
	low.Epoch = s.Epoch
	_, err := s.Apply(low)
	floor, ok := errors.AsType[*ledger.FloorError](err)
	if !ok || floor.Floor-floor.Budget != 10*watt {
		t.Errorf("%v", err)
	}
	says(t, err, `schedule "night"`, "10.0 W short")
	if snapshot(t, s) != before {
		t.Error("the refused schedule changed the state")
	}
	do(t, s, schedule("night", "0 18 * * *", 90))
	forced := schedule("night", "0 18 * * *", 80)
	forced.Schedule.Force = true
	do(t, s, forced)

	old := ledger.Known(ledger.RulesOfFloors - 1).New()
	must(t, old, ledger.Command{Rules: 1, Epoch: first(), Lead: &ledger.Lead{Server: "c1"}})
	must(t, old, ledger.Command{Rules: 1, Epoch: first(), Found: &ledger.Found{Domains: ledger.PlainDomains(site(800))}})
	must(t, old, ledger.Command{Rules: 1, Epoch: first(), Tick: &ledger.Tick{Seen: []ledger.Sighting{sighting("n01")}}})
	low.Rules = 1
	do(t, old, low)
	old = restored(t, old)
	do(t, old, ledger.Command{Rules: 1, Upgrade: &ledger.Upgrade{Rules: ledger.RulesOfFloors}})
	if due := carry(t, old, at("2026-11-21T18:00:00Z"), 0); len(due) != 1 {
		t.Errorf("of the old log: %+v", due)
	}
	wantBudget(t, old, 80, "an old schedule goes on")

	s = admitted(t, 800, "n01")
	do(t, s, schedule("night", "0 18 * * *", 200))
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{sighting("n02"), sighting("n03")}}) // 250 W each until they are heard
	if due := carry(t, s, at("2026-11-21T18:00:00Z"), 0); len(due) != 1 {
		t.Errorf("%+v", due)
	}
	wantBudget(t, s, 200, "the floor has risen, and the cut is made")
}

// An entry is applied alike on a server that knows no time zones: it looks none up.
func TestApplyLooksNoZoneUp(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	c := schedule("x", "0 0 * * *", 500)
	c.Schedule.Zone = "Mars/Olympus"
	do(t, s, c)
	if got := ledger.Due(s, at("2027-11-21T12:00:00Z")); len(got) != 0 {
		t.Errorf("due %+v", got)
	}
	if got := ledger.Ahead(s, at("2027-11-21T12:00:00Z")); len(got) != 0 {
		t.Errorf("ahead %+v", got)
	}
}

// byClock is the command that carries out what is due, with three voters' clocks.
func byClock(x ledger.Coming, now time.Time, clocks ...time.Duration) ledger.Command {
	servers := map[string]int64{}
	for i, off := range clocks {
		servers[fmt.Sprint("c", i)] = now.Add(off).UnixMicro()
	}
	return ledger.Command{At: now.UnixMicro(), Actor: "schedule:" + x.Schedule, Budget: &ledger.SetBudget{
		Domain: x.Domain, Budget: x.Budget, Clock: &ledger.Clock{Schedule: x.Schedule, Due: x.At.UnixMicro(), Servers: servers, Voters: 3},
	}}
}

// carry carries out all that is due, as a leader does.
func carry(t testing.TB, s *ledger.State, now time.Time, clocks ...time.Duration) []ledger.Coming {
	t.Helper()
	due := ledger.Due(s, now)
	for _, x := range due {
		do(t, s, byClock(x, now, clocks...))
	}
	return due
}

func wantBudget(t testing.TB, s *ledger.State, watts units.Power, why string) {
	t.Helper()
	if got := s.Domains["site/lab"].Budget; got != watts*watt {
		t.Errorf("budget %v, want %v: %s", got, watts*watt, why)
	}
}

// Day and night, over three days; each change once, at its time.
func TestSchedulesTakeTurns(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	do(t, s, schedule("day", "0 6 * * *", 900))
	do(t, s, schedule("night", "0 18 * * *", 500))
	var got []string
	for now := at(noon); now.Before(at("2026-11-24T12:00:00Z")); now = now.Add(10 * time.Minute) {
		for _, x := range carry(t, s, now, 0, 0, 0) {
			got = append(got, x.Schedule+" "+x.At.UTC().Format("02T15:04"))
		}
	}
	if want := "[night 21T18:00 day 22T06:00 night 22T18:00 day 23T06:00 night 23T18:00 day 24T06:00]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	wantBudget(t, s, 900, "by day")
	ahead := ledger.Ahead(s, at("2026-11-24T12:00:00Z"))
	if len(ahead) != 2 || ahead[0].Schedule != "night" || ahead[1].Schedule != "day" {
		t.Errorf("%+v", ahead)
	}
}

// Of what was missed only the newest of each schedule is carried out, in order,
// however long ago: an hour, a week, a month.
func TestOnlyTheNewestMissedTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cron, now, want string
	}{
		"a day":             {"0 6 * * *", "2026-11-24T12:00:00Z", "2026-11-24T06:00:00Z"},
		"minutes":           {"* * * * *", "2026-11-21T12:10:30Z", "2026-11-21T12:10:00Z"},
		"minutes of a year": {"* * * * *", "2027-11-21T12:10:30Z", "2027-11-21T12:10:00Z"},
		"a month":           {"0 0 1 * *", "2026-12-24T12:00:00Z", "2026-12-01T00:00:00Z"},
		"years":             {"0 0 29 2 *", "2029-12-24T12:00:00Z", "2028-02-29T00:00:00Z"},
		"a january":         {"* * * 1 *", "2027-11-21T12:00:00Z", "2027-01-31T23:59:00Z"},
		"this very moment":  {"0 6 * * *", "2026-11-22T06:00:00Z", "2026-11-22T06:00:00Z"},
		"not yet":           {"0 6 * * *", "2026-11-22T05:59:59Z", ""},
		"a clock put back":  {"0 6 * * *", "2020-11-22T12:00:00Z", ""},
	} {
		s := admitted(t, 800, "n01")
		do(t, s, schedule("x", c.cron, 500))
		due := ledger.Due(s, at(c.now))
		switch {
		case c.want == "" && len(due) != 0:
			t.Errorf("%s: due %+v", name, due)
		case c.want != "" && (len(due) != 1 || !due[0].At.Equal(at(c.want))):
			t.Errorf("%s: due %+v, want %s", name, due, c.want)
		}
	}
	s := admitted(t, 800, "n01")
	do(t, s, schedule("day", "0 6 * * *", 900))
	do(t, s, schedule("night", "0 18 * * *", 500))
	now := at("2026-12-21T12:00:00Z")
	if due := carry(t, s, now, 0, 0, 0); len(due) != 1 || due[0].Schedule != "day" {
		t.Errorf("%+v", due)
	}
	wantBudget(t, s, 900, "the newest of all stands for them")
	if due := ledger.Due(s, now); len(due) != 0 {
		t.Errorf("due again %+v", due)
	}
}

// A raise that waits for clocks holds up no lower, and does not come after
// anything newer: another schedule's time, or an operator's word.
func TestWaitingRaiseIsSuperseded(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	do(t, s, schedule("day", "0 6 * * *", 900))
	do(t, s, schedule("night", "0 18 * * *", 500))
	c := schedule("rack", "0 7 * * *", 700)
	c.Schedule.Domain = "rack/r1"
	do(t, s, c)
	carry(t, s, at("2026-11-21T18:00:00Z"), 0)
	now := at("2026-11-22T07:30:00Z") // nobody's clock agrees
	due := ledger.Due(s, now)
	if len(due) != 2 || due[0].Schedule != "rack" || due[0].Quorum || due[1].Schedule != "day" || !due[1].Quorum {
		t.Fatalf("%+v", due)
	}
	raise := byClock(due[1], now, 0, 0)
	do(t, s, byClock(due[0], now, 0))
	now = at("2026-11-22T18:00:00Z")
	if due = ledger.Due(s, now); len(due) != 1 || due[0].Schedule != "night" {
		t.Errorf("%+v", due)
	}
	carry(t, s, now, 0)
	raise.At = now.UnixMicro()
	refused(t, s, raise, ledger.ErrNotDue)

	due = ledger.Due(s, at("2026-11-23T06:10:00Z"))
	raise = byClock(due[0], at("2026-11-23T06:10:00Z"), 0, 0)
	do(t, s, ledger.Command{At: micros("2026-11-23T06:20:00Z"), Budget: set("site/lab", 400)})
	if due = ledger.Due(s, at("2026-11-23T10:00:00Z")); len(due) != 1 || due[0].Domain != "rack/r1" {
		t.Errorf("%+v: the operator has had the last word", due)
	}
	raise.At = micros("2026-11-23T10:00:00Z")
	refused(t, s, raise, ledger.ErrNotDue)
}

// A raise by the clock needs a quorum whose clocks agree; a lower needs none.
func TestRaiseByTheClockNeedsClocks(t *testing.T) {
	t.Parallel()
	now := at("2026-11-22T06:01:01Z")
	for name, c := range map[string]struct {
		clocks []time.Duration
		voters int
		agreed bool
	}{
		"all":                     {[]time.Duration{0, time.Second, -time.Second}, 3, true},
		"two of three":            {[]time.Duration{0, 20 * time.Second}, 3, true},
		"one of three":            {[]time.Duration{0}, 3, false},
		"one of one":              {[]time.Duration{0}, 1, true},
		"two of four":             {[]time.Duration{0, 0}, 4, false},
		"the leader alone apart":  {[]time.Duration{0, time.Hour, time.Hour}, 3, false},
		"a minute apart":          {[]time.Duration{0, 31 * time.Second, -31 * time.Second}, 3, false},
		"nobody":                  {nil, 0, false},
		"nobody of three":         {nil, 3, false},
		"more clocks than voters": {[]time.Duration{0, 0, 0}, 2, false},
	} {
		s := admitted(t, 800, "n01")
		do(t, s, schedule("day", "0 6 * * *", 900))
		do(t, s, schedule("night", "1 6 * * *", 500))
		x := ledger.Coming{Domain: "site/lab", Budget: 900 * watt, Schedule: "day", At: at("2026-11-22T06:00:00Z")}
		raise := byClock(x, now, c.clocks...)
		x.Budget, x.Schedule, x.At = 500*watt, "night", x.At.Add(time.Minute)
		lower := byClock(x, now, c.clocks...)
		raise.Budget.Clock.Voters, lower.Budget.Clock.Voters = c.voters, c.voters
		if c.agreed {
			do(t, s, raise)
			wantBudget(t, s, 900, name)
		} else {
			says(t, refusal(t, s, raise, ledger.ErrClocks), "900.0 W")
		}
		do(t, s, lower)
		wantBudget(t, s, 500, name)
	}
	if (ledger.Clock{Servers: map[string]int64{"c1": math.MinInt64, "c2": math.MaxInt64}, Voters: 1}).Agreed(now.UnixMicro()) {
		t.Error("absurd clocks agree")
	}
}

// Only what is due is carried out, as it is written, and once.
func TestNothingButWhatIsDue(t *testing.T) {
	t.Parallel()
	now := at("2026-11-22T06:00:01Z")
	for name, bend := range map[string]func(*ledger.Command){
		"another budget":        func(c *ledger.Command) { c.Budget.Budget++ },
		"another domain":        func(c *ledger.Command) { c.Budget.Domain = "rack/r1" },
		"an unknown schedule":   func(c *ledger.Command) { c.Budget.Clock.Schedule = "x" },
		"no schedule":           func(c *ledger.Command) { c.Budget.Clock.Schedule = "" },
		"a time to come":        func(c *ledger.Command) { c.Budget.Clock.Due = c.At + 1 },
		"the time it was added": func(c *ledger.Command) { c.Budget.Clock.Due = micros(noon) },
		"for a while":           func(c *ledger.Command) { c.Budget.Until = c.At + 1000 },
	} {
		s := admitted(t, 800, "n01")
		do(t, s, schedule("day", "0 6 * * *", 900))
		c := byClock(ledger.Due(s, now)[0], now, 0, 0, 0)
		bend(&c)
		refused(t, s, c, ledger.ErrNotDue)
		if t.Failed() {
			t.Fatal(name)
		}
	}
	s := admitted(t, 800, "n01")
	do(t, s, schedule("day", "0 6 * * *", 900))
	c := byClock(ledger.Due(s, now)[0], now, 0, 0, 0)
	do(t, s, c)
	refused(t, s, c, ledger.ErrNotDue)
}

// A schedule that a wrong clock has carried out far in the future comes back to life: its
// lowers by any clock, its raises with a quorum's.
func TestWrongClockDoesNotKillSchedule(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	do(t, s, schedule("night", "0 18 * * *", 500))
	do(t, s, schedule("day", "0 6 * * *", 800))
	carry(t, s, at("2030-01-01T18:00:00Z"), 0) // alone, by years: a lower, it is taken
	wantBudget(t, s, 500, "a lower needs no clocks")
	do(t, s, ledger.Command{At: micros("2030-01-01T18:30:00Z"), Budget: set("site/lab", 800)})
	if due := ledger.Due(s, at("2026-11-22T17:59:00Z")); len(due) != 0 {
		t.Errorf("due %+v", due)
	}
	now := at("2026-11-22T18:00:01Z")
	due := ledger.Due(s, now)
	if len(due) != 1 || due[0].Quorum {
		t.Fatalf("due %+v", due)
	}
	do(t, s, byClock(due[0], now))
	wantBudget(t, s, 500, "in its time")
	if due := ledger.Due(s, now); len(due) != 0 {
		t.Errorf("due again %+v", due)
	}
	do(t, s, ledger.Command{At: micros("2030-01-01T18:30:00Z"), Budget: set("site/lab", 500)})
	now = at("2026-11-23T06:00:01Z")
	if due = ledger.Due(s, now); len(due) != 1 || !due[0].Quorum {
		t.Fatalf("due %+v", due)
	}
	refused(t, s, byClock(due[0], now, 0), ledger.ErrNotDue)
	do(t, s, byClock(due[0], now, 0, 0, 0))
	wantBudget(t, s, 800, "in its time, by a quorum's clocks")
}

// A cut that falls due while nobody leads is made up by the next leader, though an
// operator spoke to a leader whose clock was hours ahead.
func TestCutDatedAheadIsMadeUp(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	do(t, s, schedule("evening", "0 18 * * *", 500))
	do(t, s, ledger.Command{At: micros("2026-11-22T20:00:00Z"), Budget: set("site/lab", 700)}) // at 17:00
	if dated := ledger.Misdated(s, at("2026-11-22T20:00:30Z")); len(dated) != 0 {
		t.Errorf("within a minute: %+v", dated)
	}
	dated := ledger.Misdated(s, at("2026-11-22T17:05:00Z"))
	if len(dated) != 1 || dated[0].Name != "evening" {
		t.Fatalf("misdated: %+v", dated)
	}
	x := dated[0]
	do(t, s, ledger.Command{At: micros("2026-11-22T17:05:00Z"), Schedule: &ledger.SetSchedule{Name: x.Name, Domain: x.Domain, Cron: x.Cron, Zone: x.Zone, Budget: x.Budget}})
	carry(t, s, at("2026-11-22T19:00:00Z"))
	wantBudget(t, s, 500, "an hour late")
}

func until(watts units.Power, now, back string) ledger.Command {
	return ledger.Command{At: micros(now), Budget: &ledger.SetBudget{Domain: "site/lab", Budget: watts * watt, Until: micros(back)}}
}

// A temporary budget goes back by itself to what was before it, once, whatever
// temporary budgets stood on it; a raise back needs clocks.
func TestBudgetUntil(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	refused(t, s, until(600, noon, noon), ledger.ErrPast)
	do(t, s, until(600, noon, "2026-11-21T14:00:00Z"))
	do(t, s, until(500, "2026-11-21T13:00:00Z", "2026-11-21T15:00:00Z"))
	if due := ledger.Due(s, at("2026-11-21T14:30:00Z")); len(due) != 0 {
		t.Errorf("due %+v", due)
	}
	wantBudget(t, s, 500, "for a while")
	now := at("2026-11-21T15:00:00Z")
	refused(t, s, byClock(ledger.Due(s, now)[0], now, 0), ledger.ErrClocks)
	carry(t, s, now, 0, 0)
	wantBudget(t, s, 800, "not what was temporary before")
	if due := ledger.Due(s, now); len(due) != 0 || s.Domains["site/lab"].Back != nil {
		t.Errorf("due again: %+v", due)
	}
	do(t, s, until(900, "2026-11-21T16:00:00Z", "2026-11-21T17:00:00Z"))
	carry(t, s, at("2026-11-21T17:00:00Z"), 0)
	wantBudget(t, s, 800, "a lower back needs no clocks")

	// An operator's word for good ends what was to come back.
	do(t, s, until(600, "2026-11-21T18:00:00Z", "2026-11-21T19:00:00Z"))
	do(t, s, ledger.Command{Budget: set("site/lab", 700)})
	if due := ledger.Due(s, at("2026-11-22T18:00:00Z")); len(due) != 0 {
		t.Errorf("due %+v", due)
	}
}

// A schedule runs on below a temporary budget, and is in force when that ends.
// What waits below it is a raise by the clock as well.
func TestScheduleBelowTemporaryBudget(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	do(t, s, schedule("day", "0 6 * * *", 900))
	do(t, s, schedule("night", "0 18 * * *", 500))
	do(t, s, until(1000, noon, "2026-11-22T12:00:00Z"))
	if due := carry(t, s, at("2026-11-21T18:00:00Z"), 0); len(due) != 1 || !due[0].Beneath {
		t.Errorf("%+v", due)
	}
	wantBudget(t, s, 1000, "for a while")
	now := at("2026-11-22T06:00:00Z")
	refused(t, s, byClock(ledger.Due(s, now)[0], now, 0), ledger.ErrClocks) // 500 W -> 900 W, below 1000 W
	carry(t, s, now, 0, 0)
	wantBudget(t, s, 1000, "for a while")
	carry(t, s, at("2026-11-22T12:00:00Z"), 0)
	wantBudget(t, s, 900, "what the schedule has come to")

	// Both late at once: the lower goes beneath, and comes back in place of the raise.
	do(t, s, until(600, "2026-11-22T13:00:00Z", "2026-11-22T17:00:00Z"))
	now = at("2026-11-22T20:00:00Z")
	due := ledger.Due(s, now)
	if len(due) != 2 || due[0].Schedule != "night" || due[0].Quorum || !due[1].Quorum {
		t.Errorf("%+v", due)
	}
	do(t, s, byClock(due[0], now, 0))
	carry(t, s, now, 0)
	wantBudget(t, s, 500, "night")
}

// A schedule goes, with its domain or by itself.
func TestRemoveSchedule(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	do(t, s, schedule("day", "0 6 * * *", 900))
	do(t, s, schedule("day", "0 7 * * *", 901)) // replaced
	if list := s.SchedulesByName(); len(list) != 1 || list[0].Budget != 901*watt {
		t.Errorf("%+v", list)
	}
	refused(t, s, ledger.Command{RemoveSchedule: &ledger.Named{Name: "night"}}, ledger.ErrUnknownSchedule)
	do(t, s, ledger.Command{RemoveSchedule: &ledger.Named{Name: "day"}})
	if due := ledger.Due(s, at("2026-12-21T12:00:00Z")); len(due) != 0 {
		t.Errorf("%+v", due)
	}
	for i := range 1000 {
		do(t, s, schedule(fmt.Sprint(i), "0 6 * * *", 900))
	}
	refused(t, s, schedule("one more", "0 6 * * *", 900), ledger.ErrFull)
}
