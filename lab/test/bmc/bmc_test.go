// Claims: package ipmi reads and limits a BMC that shares no code with it (OpenIPMI's
// ipmi_sim), through its faults; and ipmitool, which shares no code with us, reads and
// limits the emulated BMC.
package bmc_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/ipmi"
	"headroom/lab/emulator/bmc"
	"headroom/units"
)

func meter(t *testing.T, s *sim, change func(*ipmi.Config)) *ipmi.Meter {
	t.Helper()
	cfg := ipmi.Config{
		Mode: ipmi.ModeLAN, Address: s.addr, User: user, Password: password,
		Timeout: 2 * time.Second, Period: 100 * time.Millisecond,
	}
	if change != nil {
		change(&cfg)
	}
	m := ipmi.Start(cfg, nil)
	t.Cleanup(m.Close)
	return m
}

// await polls the meter until a reading is as expected.
func await(t *testing.T, m *ipmi.Meter, what string, ok func(ipmi.Reading) bool) ipmi.Reading {
	t.Helper()
	var got ipmi.Reading
	if !testkit.Within(patience, func() bool { got = m.Latest(); return ok(got) }) {
		t.Fatalf("%s: have %+v", what, got)
	}
	return got
}

func reads(p units.Power) func(ipmi.Reading) bool {
	return func(r ipmi.Reading) bool { return r.Known && r.Power == p }
}

func in(state ipmi.State, why string) func(ipmi.Reading) bool {
	return func(r ipmi.Reading) bool {
		return r.State == state && !r.Known && r.Power == 0 && strings.Contains(r.Why, why)
	}
}

func TestReadsAnotherBMCsPower(t *testing.T) {
	t.Parallel()
	s := newSim(t, true)
	m := meter(t, s, nil)
	first := await(t, m, "143 W", reads(143*units.Watt))
	if first.Source != ipmi.SourceDCMI {
		t.Errorf("source %q, want dcmi", first.Source)
	}
	s.put(t, "watts", "188")
	if r := await(t, m, "188 W", reads(188*units.Watt)); r.Serial <= first.Serial || r.ChangedAt <= first.ChangedAt {
		t.Errorf("a new value is no news: %+v after %+v", r, first)
	}

	// Lesson 11: a BMC that reports "not active" still fills in numbers.
	s.remove(t, "watts")
	await(t, m, "inactive measurement", in(ipmi.StateInsane, "not active"))
	s.put(t, "watts", "150")
	await(t, m, "150 W again", reads(150*units.Watt))

	s.put(t, "cc_02", "0xc0")
	await(t, m, "busy for long", in(ipmi.StateStale, "busy"))
	s.remove(t, "cc_02")
	await(t, m, "150 W after busy", reads(150*units.Watt))

	// Lesson 11: a session does not outlive a restart of the BMC, and the client gets no notice.
	s.stop()
	await(t, m, "dead BMC", in(ipmi.StateStale, "no answer"))
	s.put(t, "watts", "160")
	s.start(t)
	await(t, m, "160 W after a new login", reads(160*units.Watt))
}

func TestLimitsAnotherBMC(t *testing.T) {
	t.Parallel()
	s := newSim(t, true)
	m := meter(t, s, nil)
	await(t, m, "143 W", reads(143*units.Watt))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	found, err := m.Limit(ctx)
	if err != nil || found.Active || found.Action != ipmi.ActionPowerOff {
		t.Fatalf("limit %+v, %v; want an inactive one that would switch off", found, err)
	}
	// Lesson 12: the default exception action of a limit may switch the server off.
	set, err := m.SetLimit(ctx, 180_400*units.Milliwatt)
	if err != nil || !set.Active || set.Action != ipmi.ActionNone || set.Power != 181*units.Watt || set.Correction != time.Second {
		t.Fatalf("limit %+v, %v; want 181 W, active, no action", set, err)
	}
	if b, err := os.ReadFile(s.path("limit")); err != nil || !strings.HasPrefix(string(b), "watts=181 active=1 action=0 correction_ms=1000") {
		t.Errorf("the BMC holds %q, %v", b, err)
	}
	if _, err := m.SetLimit(ctx, 20*units.Watt); !errors.Is(err, ipmi.ErrLimitRange) {
		t.Errorf("20 W: %v, want out of range", err)
	}
	if l, err := m.Limit(ctx); err != nil || l != set {
		t.Errorf("after a refused limit: %+v, %v; want %+v", l, err, set)
	}
	if l, err := m.ClearLimit(ctx); err != nil || l.Active {
		t.Errorf("cleared: %+v, %v", l, err)
	}
}

// Where there is no DCMI, the sensor in watts is found among the sensor records.
func TestReadsAnotherBMCsSensor(t *testing.T) {
	t.Parallel()
	s := newSim(t, false)
	m := meter(t, s, nil)
	// 8 bits of 4 W each: ipmi_sim rounds 143 W to a count as it likes.
	r := await(t, m, "143 W by sensor", func(r ipmi.Reading) bool { return r.Power == 140*units.Watt || r.Power == 144*units.Watt })
	if r.Source != ipmi.SourceSDR || r.Sensors != "Pwr Consumption" {
		t.Errorf("source %q of %q, want the sensor", r.Source, r.Sensors)
	}
	s.put(t, "watts", "200")
	await(t, m, "200 W by sensor", reads(200*units.Watt))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := m.SetLimit(ctx, 100*units.Watt); !errors.Is(err, ipmi.ErrNoLimit) {
		t.Errorf("limit without DCMI: %v", err)
	}
}

func TestWrongPasswordIsSaid(t *testing.T) {
	t.Parallel()
	s := newSim(t, false)
	good := meter(t, s, nil)
	await(t, good, "a reading", func(r ipmi.Reading) bool { return r.Known })
	bad := meter(t, s, func(c *ipmi.Config) { c.Password = "wrong-one" })
	r := await(t, bad, "refused", in(ipmi.StateAbsent, "user or password refused by the BMC"))
	if strings.Contains(r.Why, "wrong-one") {
		t.Errorf("the password is shown: %q", r.Why)
	}
}

// ipmitool runs it against an emulated BMC.
func ipmitool(t *testing.T, b *bmc.BMC, suite string, args ...string) string {
	t.Helper()
	need(t, "ipmitool")
	host, port, err := net.SplitHostPort(b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	base := []string{"-I", "lanplus", "-C", suite, "-H", host, "-p", port, "-U", user, "-P", password}
	out, err := exec.CommandContext(ctx, "ipmitool", append(base, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ipmitool %v: %v\n%s", args, err, out)
	}
	return strings.Join(strings.Fields(string(out)), " ")
}

func TestIpmitoolReadsTheEmulatedBMC(t *testing.T) {
	t.Parallel()
	need(t, "ipmitool")
	b := testkit.Need(bmc.Start(bmc.Config{Listen: "127.0.0.1:0", User: user, Password: password, Watts: func() units.Power { return 143 * units.Watt }}))(t)
	t.Cleanup(b.Close)
	for _, suite := range []string{"3", "17"} {
		has(t, ipmitool(t, b, suite, "dcmi", "power", "reading"), "Instantaneous power reading: 143 Watts", "Power reading state is: activated")
	}
	has(t, ipmitool(t, b, "3", "mc", "info"), "IPMI Version : 2.0")
	has(t, ipmitool(t, b, "3", "sdr", "elist", "full"), "Pwr Consumption", "140 Watts")
	has(t, ipmitool(t, b, "3", "dcmi", "discover"), "Power management available")

	ipmitool(t, b, "3", "dcmi", "power", "set_limit", "limit", "190")
	ipmitool(t, b, "3", "dcmi", "power", "set_limit", "action", "no_action")
	ipmitool(t, b, "3", "dcmi", "power", "activate")
	if p, active := b.Limit(); p != 190*units.Watt || !active {
		t.Errorf("limit %v, active %v; want 190 W", p, active)
	}
	has(t, ipmitool(t, b, "3", "dcmi", "power", "get_limit"), "Power Limit Active", "Power Limit: 190 Watts")
}

func has(t *testing.T, out string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}
