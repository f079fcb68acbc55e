// Claims: a limit is set with exception action none and a correction time of our loop or
// more, is verified before and after it comes into force, and is never left in force
// when the BMC shows something else.
package ipmi

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"headroom/units"
)

// limiter is a BMC's power limit, with its mistakes.
type limiter struct {
	lim    Limit
	change func(l *Limit)               // what the BMC makes of a limit that is set
	hide   bool                         // an inactive limit is not shown
	codes  map[command]completion       // answered in place of doing it
	log    []string                     // set, on, off
	during func(l *limiter, on command) // before each command
}

func (l *limiter) close() {}

func (l *limiter) ask(_ context.Context, cmd command, data []byte) (completion, []byte, error) {
	if l.during != nil {
		l.during(l, cmd)
	}
	if code := l.codes[cmd]; code != codeOK {
		return code, nil, nil
	}
	switch cmd {
	case limitGet():
		switch {
		case l.lim.Active:
			return codeOK, limitAnswer(l.lim), nil
		case l.hide:
			return codeLimitInactive, nil, nil
		}
		return codeLimitInactive, limitAnswer(l.lim), nil
	case limitSet():
		l.log = append(l.log, "set")
		set, err := decodeLimit(append([]byte{groupDCMI}, data[2:]...))
		if err != nil {
			return codeUnspecified, nil, err
		}
		set.Active = l.lim.Active
		l.lim = set
		if l.change != nil {
			l.change(&l.lim)
		}
	case limitActivate():
		l.lim.Active = data[1] == 1
		l.log = append(l.log, map[bool]string{true: "on", false: "off"}[l.lim.Active])
	default:
		return codeInvalid, nil, nil
	}
	return codeOK, nil, nil
}

func TestSetLimit(t *testing.T) {
	t.Parallel()
	// Lesson 12: the exception action that a BMC comes with may be "hard power off".
	dangerous := Limit{Power: 500 * units.Watt, Action: ActionPowerOff, Correction: 100 * time.Millisecond, Period: 5 * time.Second}
	slow := Limit{Power: 500 * units.Watt, Action: ActionLog, Correction: 9 * time.Second, Period: 5 * time.Second}
	cases := []struct {
		name string
		bmc  limiter
		want error
		log  []string
		then Limit // held by the BMC afterwards
	}{
		{
			"a dangerous default",
			limiter{lim: dangerous},
			nil,
			[]string{"set", "on"},
			Limit{201 * units.Watt, true, ActionNone, time.Second, 5 * time.Second},
		},
		{
			"a slow one is kept slow",
			limiter{lim: slow},
			nil,
			[]string{"set", "on"},
			Limit{201 * units.Watt, true, ActionNone, 9 * time.Second, 5 * time.Second},
		},
		{
			"one that is active already",
			limiter{lim: Limit{Power: 90 * units.Watt, Active: true, Action: ActionPowerOff}, hide: true},
			nil,
			[]string{"set", "on"},
			Limit{201 * units.Watt, true, ActionNone, time.Second, time.Second},
		},
		{
			"the BMC keeps its action",
			limiter{lim: dangerous, change: func(l *Limit) { l.Action = ActionPowerOff }},
			ErrLimitUnsafe,
			[]string{"set", "off"},
			Limit{201 * units.Watt, false, ActionPowerOff, time.Second, 5 * time.Second},
		},
		{
			"the BMC shortens the time",
			limiter{lim: dangerous, change: func(l *Limit) { l.Correction = time.Millisecond }},
			ErrLimitUnsafe,
			[]string{"set", "off"},
			Limit{201 * units.Watt, false, ActionNone, time.Millisecond, 5 * time.Second},
		},
		{
			"the BMC clamps",
			limiter{lim: dangerous, change: func(l *Limit) { l.Power = 150 * units.Watt }},
			ErrLimitUnsafe,
			[]string{"set", "off"},
			Limit{150 * units.Watt, false, ActionNone, time.Second, 5 * time.Second},
		},
		{
			"the BMC does not show it",
			limiter{hide: true},
			ErrLimitUnsafe,
			[]string{"set", "off"},
			Limit{201 * units.Watt, false, ActionNone, time.Second, time.Second},
		},
		{"out of range", limiter{lim: dangerous, codes: map[command]completion{limitSet(): codeLimitRange}}, ErrLimitRange, nil, dangerous},
		{"no DCMI", limiter{codes: map[command]completion{limitGet(): codeInvalid}}, ErrNoLimit, nil, Limit{}},
		{"may not", limiter{lim: dangerous, codes: map[command]completion{limitSet(): codePrivilege}}, ErrNoLimit, nil, dangerous},
		{"busy", limiter{lim: dangerous, codes: map[command]completion{limitSet(): codeBusy}}, ErrRefused, nil, dangerous},
		{
			"not activated",
			limiter{lim: dangerous, codes: map[command]completion{limitActivate(): codeBusy}},
			ErrRefused,
			[]string{"set"},
			Limit{201 * units.Watt, false, ActionNone, time.Second, 5 * time.Second},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			found, _ := getLimit(t.Context(), &c.bmc) // as powerd reads it before
			got, err := setLimit(t.Context(), &c.bmc, 200_100*units.Milliwatt, time.Second)
			if !errors.Is(err, c.want) || !slices.Equal(c.bmc.log, c.log) || c.bmc.lim != c.then {
				t.Errorf("%v, did %q, holds %+v; want %v, %q, %+v", err, c.bmc.log, c.bmc.lim, c.want, c.log, c.then)
			}
			if err == nil && got != c.then {
				t.Errorf("returned %+v, want %+v", got, c.then)
			}
			if safe, errSafe := SafeLimit(found, 200_100*units.Milliwatt, time.Second); err == nil {
				if safe.Active = true; errSafe != nil || safe != got {
					t.Errorf("foretold %+v, %v; it is %+v", safe, errSafe, got)
				}
			}
		})
	}
}

// Lesson 12: a limit that changes between its two verifications is taken out of
// force, even for a caller that has gone.
func TestLimitThatTurnsDangerousIsTakenOut(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	b := &limiter{during: func(l *limiter, on command) {
		if l.lim.Active && on == limitGet() {
			l.lim.Action = ActionPowerOff
			cancel()
		}
	}}
	if _, err := setLimit(ctx, b, 200*units.Watt, time.Second); !errors.Is(err, ErrLimitUnsafe) || b.lim.Active {
		t.Errorf("%v, holds %+v", err, b.lim)
	}
}

// Lesson 6: a BMC takes no limit of 0 W either.
func TestNoLimitOfZeroWatts(t *testing.T) {
	t.Parallel()
	for _, p := range []units.Power{0, -units.Watt, 65_535 * units.Watt} {
		b := &limiter{}
		if _, err := setLimit(t.Context(), b, p, time.Second); !errors.Is(err, ErrLimitRange) || b.log != nil {
			t.Errorf("%v: %v, did %q", p, err, b.log)
		}
	}
}

// A BMC that takes an original and holds something else has not been restored.
func TestRestoreLimitReadsBack(t *testing.T) {
	t.Parallel()
	found := Limit{Power: 500 * units.Watt, Active: true, Action: ActionLog, Correction: 2 * time.Second, Period: time.Second}
	b := &limiter{lim: found}
	wrote, err := setLimit(t.Context(), b, 200*units.Watt, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	b.change = func(l *Limit) { l.Power = wrote.Power }
	if back, err := restoreLimit(t.Context(), b, found, wrote); !errors.Is(err, ErrRefused) || back.Power != wrote.Power {
		t.Errorf("it holds %+v and %v is told; want %v", back, err, ErrRefused)
	}
}

func TestRestoreLimit(t *testing.T) {
	t.Parallel()
	found := Limit{Power: 500 * units.Watt, Active: true, Action: ActionPowerOff, Correction: 2 * time.Second, Period: time.Second}
	b := &limiter{lim: found}
	wrote, err := setLimit(t.Context(), b, 200*units.Watt, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := restoreLimit(t.Context(), b, found, wrote); err != nil || back != found || b.lim != found {
		t.Errorf("restored %+v, %v; want %+v", back, err, found)
	}
	// Lesson 14: another writer may have changed it since; only our own value is undone.
	if _, err := restoreLimit(t.Context(), b, Limit{}, wrote); !errors.Is(err, ErrLimitChanged) || b.lim != found {
		t.Errorf("another writer's limit: %v, holds %+v", err, b.lim)
	}
	if l, err := clearLimit(t.Context(), b); err != nil || l.Active {
		t.Errorf("cleared: %+v, %v", l, err)
	}
	if l, err := clearLimit(t.Context(), b); err != nil || l.Active {
		t.Errorf("cleared twice: %+v, %v", l, err)
	}
}
