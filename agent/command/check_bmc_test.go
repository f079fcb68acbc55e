// Claims: a check asks the BMC itself where no agent runs, within its deadline whatever
// the BMC does, and says reading, cipher and the action of its limit, or why not and
// the way out; a running agent's word stands for it; nothing is set.
package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headroom/agent/config"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit/emulated"
	"headroom/ipmi"
	"headroom/units"
)

// bmcSite is a node with an emulated BMC and no running agent.
func bmcSite(t *testing.T, fault string, change func(*emulated.BMCOptions)) (*emulated.BMC, site) {
	t.Helper()
	cfg := emulated.BMCOptions{User: "op", Password: "secret", Update: 100 * time.Millisecond, Watts: 143 * units.Watt}
	if change != nil {
		change(&cfg)
	}
	b := emulated.StartBMC(t, cfg)
	b.SetFault(fault)
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := config.Defaults()
	c.Power.Rated = 245 * units.Watt
	c.IPMI = config.IPMI{Mode: "lan", Address: b.Addr(), User: "op", PasswordFile: password}
	return b, site{cfg: &c, root: "/"}
}

func TestCheckAsksTheBMC(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault  string
		server func(*emulated.BMCOptions)
		node   func(*config.Config)
		state  string
		words  []string // all of them are in the text
	}{
		"well": {state: checkOK, words: []string{"dcmi 143.0 W", "cipher suite 3", "no limit set"}},
		"suite 17 only": {
			server: func(c *emulated.BMCOptions) { c.CipherSuites = []byte{17} }, state: checkOK, words: []string{"cipher suite 17"},
		},
		"sensors only":       {fault: "no-dcmi", state: checkOK, words: []string{"sdr 140.0 W", "no limit of its own"}},
		"no limit to keep":   {fault: "no-dcmi", node: func(c *config.Config) { c.IPMI.Limit = true }, state: checkFail, words: []string{"no limit of its own"}},
		"reads 0 W":          {fault: "sentinel=zero", state: checkWarn, words: []string{"no wall power"}},
		"not measuring":      {fault: "sentinel=inactive", state: checkWarn, words: []string{"no wall power"}},
		"ten times too high": {fault: "factor=10", state: checkWarn, words: []string{"no wall power"}},
		"busy":               {fault: "busy", state: checkWarn, words: []string{"command refused by the BMC"}},
		"hangs":              {fault: "hang", state: checkFail, words: []string{"no answer within 3s"}},
		"too slow":           {fault: "slow=10s", state: checkFail, words: []string{"no answer within 3s"}},
		"wrong user":         {node: func(c *config.Config) { c.IPMI.User = "nobody" }, state: checkFail, words: []string{"user or password refused"}},
		"no password file":   {node: func(c *config.Config) { c.IPMI.PasswordFile += ".none" }, state: checkFail, words: []string{"no such file"}},
		"switched off":       {node: func(c *config.Config) { c.IPMI = config.IPMI{Mode: "off"} }, state: checkOK, words: []string{"ipmi.mode is off"}},
		"root is not /": {
			node: func(c *config.Config) { c.IPMI, c.Root = config.IPMI{Mode: "auto"}, "/somewhere" }, state: checkOK, words: []string{"root is not /"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, s := bmcSite(t, c.fault, c.server)
			if c.node != nil {
				c.node(s.cfg)
			}
			f := checkBMC(t.Context(), s)
			if f.Check != "bmc" || f.State != c.state || (f.State != checkOK) != (f.Hint != "") {
				t.Errorf("%+v, want %s with a way out where it is not ok", f, c.state)
			}
			for _, words := range c.words {
				if !strings.Contains(f.Text, words) {
					t.Errorf("%q does not say %q", f.Text, words)
				}
			}
			if strings.Contains(f.Text+f.Hint, "secret") {
				t.Errorf("%+v shows the password", f)
			}
			if p, on := b.Limit(); on {
				t.Errorf("a check set a limit of %v", p)
			}
		})
	}
}

// A limit in force is told with its action; one that switches the machine off is a failure.
func TestCheckTellsTheActionOfALimit(t *testing.T) {
	t.Parallel()
	for action, state := range map[ipmi.Action]string{
		ipmi.ActionNone: checkOK, ipmi.ActionLog: checkOK, ipmi.ActionPowerOff: checkFail, 0x02: checkWarn,
	} {
		found := ipmi.Found{Reading: ipmi.Reading{Power: 143 * units.Watt, Source: ipmi.SourceDCMI}, Limit: ipmi.Limit{Power: 200 * units.Watt, Active: true, Action: action}}
		f := foundBMC(found, false)
		if f.State != state || !strings.Contains(f.Text, "limit 200.0 W with exception action "+action.String()) || (state != checkOK) != (f.Hint != "") {
			t.Errorf("%v: %+v, want %s", action, f, state)
		}
		found.Limit.Active = false
		if f := foundBMC(found, false); f.State != checkOK {
			t.Errorf("%v in a limit that is not in force: %+v", action, f)
		}
	}
	_, s := bmcSite(t, "", nil)
	cfg, err := s.cfg.BMC()
	if err != nil {
		t.Fatal(err)
	}
	meter := ipmi.Start(cfg, nil)
	t.Cleanup(meter.Close)
	if _, err := meter.SetLimit(t.Context(), 200*units.Watt); err != nil {
		t.Fatal(err)
	}
	if f := checkBMC(t.Context(), s); f.State != checkOK || !strings.Contains(f.Text, "limit 200.0 W with exception action none") {
		t.Errorf("%+v", f)
	}
}

// Sessions are few: a running agent is asked instead, and the BMC is not.
func TestCheckTakesTheAgentsWordForTheBMC(t *testing.T) {
	t.Parallel()
	row := func(source, state, text string, p *int64) *headroomv1.SensorStatus {
		return &headroomv1.SensorStatus{Source: source, Name: "wall", State: state, Text: text, PowerUw: p}
	}
	lan := row("dcmi", "ok", "", new(int64(158_000_000)))
	lan.CipherSuite = new(uint32(17))
	for name, c := range map[string]struct {
		sensor      *headroomv1.SensorStatus
		limit       *headroomv1.RungStatus
		mode, state string
		words       string
	}{
		"well":       {lan, &headroomv1.RungStatus{Rung: "dcmi", State: "off", Text: "ipmi.limit is false"}, "lan", checkOK, "dcmi 158.0 W over LAN with cipher suite 17; limit: ipmi.limit is false"},
		"stale":      {row("dcmi", "stale", "no answer", nil), nil, "lan", checkWarn, "stale: no answer"},
		"none":       {row("dcmi", "absent", "there is no /dev/ipmi0", nil), nil, "auto", checkOK, "there is no /dev/ipmi0"},
		"asked for":  {row("dcmi", "absent", "there is no /dev/ipmi0", nil), nil, "in-band", checkWarn, "there is no /dev/ipmi0"},
		"refused":    {lan, &headroomv1.RungStatus{Rung: "dcmi", State: "refused", Text: "privilege"}, "lan", checkWarn, "limit refused: privilege"},
		"power off":  {lan, &headroomv1.RungStatus{Rung: "dcmi", State: "ready", Text: "holds 200 W with exception action hard power off"}, "lan", checkFail, "hard power off"},
		"no sensors": {nil, nil, "auto", checkOK, "reads no BMC"},
	} {
		s := &headroomv1.GetAgentStatusResponse{}
		if c.sensor != nil {
			s.Sensors = append(s.Sensors, c.sensor)
		}
		if c.limit != nil {
			s.Ladder = append(s.Ladder, c.limit)
		}
		f := checkBMC(t.Context(), site{cfg: &config.Config{IPMI: config.IPMI{Mode: c.mode, Address: "127.0.0.1:1"}}, status: s})
		if f.State != c.state || !strings.Contains(f.Text, c.words) || (c.state != checkOK) != (f.Hint != "") {
			t.Errorf("%s: %+v, want %s and %q", name, f, c.state, c.words)
		}
	}
}

// A BMC that answers without a power reading is told apart from one that does not answer, and the
// hint says how to select another reading.
func TestCheckOfABMCWithoutAReading(t *testing.T) {
	t.Parallel()
	lan := ipmi.Config{Mode: ipmi.ModeLAN, Source: ipmi.ChoiceAuto}
	if f := silentBMC(lan, fmt.Errorf("%w: no watt sensor", ipmi.ErrNoReading)); f.State != checkWarn || !strings.Contains(f.Hint, "ipmi.source") {
		t.Errorf("over LAN: %+v", f)
	}
	auto := ipmi.Config{Mode: ipmi.ModeAuto, Source: ipmi.ChoiceAuto}
	if f := silentBMC(auto, ipmi.ErrNoReading); f.State != checkOK {
		t.Errorf("not asked for: %+v", f)
	}
	auto.Source = "PSU9"
	if f := silentBMC(auto, ipmi.ErrNoReading); f.State != checkWarn {
		t.Errorf("a sensor that was asked for: %+v", f)
	}
	found := ipmi.Found{Reading: ipmi.Reading{Power: 120 * units.Watt, Source: ipmi.SourceSDR, Sensors: "total_power", Note: "DCMI not used: the BMC reads 0 W"}}
	if f := foundBMC(found, false); f.State != checkOK || !strings.Contains(f.Text, found.Note) {
		t.Errorf("another source: %+v", f)
	}
	found.Why, found.Note = "the BMC reads 0 W", ""
	if f := foundBMC(found, false); f.State != checkWarn || !strings.Contains(f.Hint, "ipmi.source") {
		t.Errorf("no good source: %+v", f)
	}
}

// Without a device an in-band BMC is a failure where it was asked for by name only.
func TestCheckOfAMissingBMC(t *testing.T) {
	t.Parallel()
	for mode, state := range map[ipmi.Mode]string{ipmi.ModeAuto: checkOK, ipmi.ModeInBand: checkFail} {
		f := silentBMC(ipmi.Config{Mode: mode}, errors.Join(ipmi.ErrAbsent, errors.New("there is no /dev/ipmi0")))
		if f.State != state || state != checkOK && f.Hint == "" {
			t.Errorf("%s: %+v, want %s", mode, f, state)
		}
	}
}
