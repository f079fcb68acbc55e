// Package ipmi reads the node's wall power from its BMC, and sets the BMC's own power limit
// as the last line of defence.
//
// The one idea: a BMC is slow, inconsistent and sometimes dead, so it has a goroutine of its
// own and its values are verified. A value is fresh if it changed, not because the BMC
// answered. An implausible value is unknown, with the reason.
//
// A Meter queries the BMC over /dev/ipmi0 or over LAN (RMCP+, cipher suite 3, then 17). Wall
// power comes from the first source that is plausible: DCMI, a sensor of the whole node, the
// sum of the supplies' inputs. Config.Source selects one. The Meter logs in again after a restart of
// the BMC, and every call has a deadline.
//
// Guarantees: Latest never waits for the BMC; Close returns within two seconds even if the
// BMC hangs; a limit is activated only after the BMC has confirmed that its exception action
// is none and its correction time is no shorter than the control loop.
//
// The package never powers anything off, never logs the password, and starts no program.
package ipmi

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"headroom/units"
)

// Mode says how the BMC is reached.
type Mode string

// The modes of Config.
const (
	ModeOff    Mode = "off"     // not at all
	ModeAuto   Mode = "auto"    // in-band where the device is, else off
	ModeInBand Mode = "in-band" // through the kernel's device
	ModeLAN    Mode = "lan"     // over the network
)

// The choices of Config.Source.
const (
	ChoiceAuto    = "auto"    // the first that is plausible
	ChoiceDCMI    = "dcmi"    // Get Power Reading, nothing else
	ChoiceSensors = "sensors" // watt sensors, even where some records cannot be read
)

// ValidSource reports whether text can be a Config.Source: a choice as it is written here, or
// what can be the name of a sensor.
func ValidSource(text string) bool {
	if slices.Contains([]string{"", ChoiceAuto, ChoiceDCMI, ChoiceSensors}, text) {
		return true
	}
	// What looks like a choice is a mistake, and no sensor has such a name.
	if slices.Contains([]string{ChoiceAuto, ChoiceDCMI, ChoiceSensors, "sensor", "sdr", "off", "none"}, strings.ToLower(text)) {
		return false
	}
	return len(text) <= maxSensorNameBytes && cleanName(text) == text
}

// Config says where the BMC is and what is plausible on this node.
type Config struct {
	// Mode empty means ModeAuto.
	Mode Mode
	// Address of the BMC for ModeLAN, host or host:port; the port is 623 when left out.
	Address string
	// User and Password for ModeLAN; the password is never logged.
	User, Password string
	// Source of wall power: one of the Choice constants, or the name of a watt sensor; empty means
	// ChoiceAuto.
	Source string
	// Device is /dev/ipmi0 when empty; one of the forms /dev/ipmiN, /dev/ipmi/N, /dev/ipmidev/N.
	Device string
	// Timeout bounds one call; 0: 2 s over LAN, 20 s in-band (the kernel gives up on a hung
	// BMC after about 8 s, and an earlier end would only queue more calls behind it).
	Timeout time.Duration
	// Period between two readings; 0: 1 s.
	Period time.Duration
	// Least and Most bound what this node can draw at the wall: a reading outside is insane.
	// 0: 5 W and 20 kW.
	Least, Most units.Power
	// LoopPeriod is the slowest that the caller corrects the power by itself: a limit's
	// correction time is never shorter. 0: 1 s.
	LoopPeriod time.Duration
}

const (
	defaultDevice  = "/dev/ipmi0"
	defaultPort    = "623"
	timeoutLAN     = 2 * time.Second
	timeoutInBand  = 20 * time.Second
	defaultPeriod  = time.Second
	defaultLoop    = time.Second
	plausibleLeast = 5 * units.Watt
	plausibleMost  = 20_000 * units.Watt
	maxUser        = 16 // IPMI v2.0, 13.20: RAKP message 1
	maxPassword    = 20 // IPMI v2.0, 22.30: Set User Password
)

// validate is nil when the configuration can be started; it names the wrong key otherwise.
func (c Config) validate() error {
	switch c.Mode {
	case "", ModeOff, ModeAuto:
	case ModeInBand:
		if _, err := deviceNumber(cmp.Or(c.Device, defaultDevice)); err != nil {
			return err
		}
	case ModeLAN:
		switch {
		case c.Address == "":
			return fmt.Errorf("%w: address is missing for mode lan", ErrConfig)
		case len(c.User) > maxUser:
			return fmt.Errorf("%w: user has more than %d characters", ErrConfig, maxUser)
		case len(c.Password) > maxPassword:
			return fmt.Errorf("%w: password has more than %d characters", ErrConfig, maxPassword)
		}
	default:
		return fmt.Errorf("%w: mode %q; have off, auto, in-band, lan", ErrConfig, c.Mode)
	}
	if !ValidSource(c.Source) {
		return fmt.Errorf("%w: source %q; have auto, dcmi, sensors or the name of a sensor", ErrConfig, c.Source)
	}
	if c.Timeout < 0 || c.Period < 0 || c.Least < 0 || c.Most < 0 || (c.Most > 0 && c.Most < c.Least) {
		return fmt.Errorf("%w: times and bounds must not be negative, nor most below least", ErrConfig)
	}
	return nil
}

// withDefaults fills in what was left out.
func (c Config) withDefaults() Config {
	c.Mode, c.Source = cmp.Or(c.Mode, ModeAuto), cmp.Or(c.Source, ChoiceAuto)
	c.Device = cmp.Or(c.Device, defaultDevice)
	if c.Address != "" {
		if _, _, err := net.SplitHostPort(c.Address); err != nil {
			c.Address = net.JoinHostPort(c.Address, defaultPort)
		}
	}
	if c.Timeout == 0 {
		c.Timeout = timeoutInBand
		if c.Mode == ModeLAN {
			c.Timeout = timeoutLAN
		}
	}
	c.Period = cmp.Or(c.Period, defaultPeriod)
	c.Least = cmp.Or(c.Least, plausibleLeast)
	c.Most = cmp.Or(c.Most, plausibleMost)
	c.LoopPeriod = cmp.Or(c.LoopPeriod, defaultLoop)
	return c
}

// LogValue shows the configuration without the password.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("mode", string(c.Mode)), slog.String("address", c.Address),
		slog.String("user", c.User), slog.String("device", c.Device))
}

// String returns a readable form without the password.
func (c Config) String() string {
	return fmt.Sprintf("mode=%s address=%s user=%s device=%s", c.Mode, c.Address, c.User, c.Device)
}

// GoString has no password either.
func (c Config) GoString() string { return "ipmi.Config{" + c.String() + "}" }

// State is the validity of a reading.
type State string

// The states of a Reading.
const (
	StateOK      State = "ok"      // a number that changes as it should
	StateStale   State = "stale"   // no answer, or the same value for too long
	StateAbsent  State = "absent"  // no BMC, or one without any power reading
	StateInsane  State = "insane"  // an answer that cannot be true
	StateUnknown State = "unknown" // no usable answer yet
)

// Source is what a reading came from.
type Source string

// The sources of a Reading.
const (
	SourceNone Source = ""
	SourceDCMI Source = "dcmi" // Get Power Reading
	SourceSDR  Source = "sdr"  // watts sensors of the sensor data records
)

// Reading is what the meter knows at one moment.
type Reading struct {
	// Power at the wall; 0 unless Known.
	Power units.Power
	// Known is true only in StateOK.
	Known bool
	// ChangedAt is when the present value was first seen, on CLOCK_BOOTTIME; it is at most
	// Interval plus the meter's period later than the change at the BMC's own sensor.
	ChangedAt time.Duration
	// AskedAt is when the latest answered question was sent, on CLOCK_BOOTTIME.
	AskedAt time.Duration
	// Source is dcmi or sdr; empty before the first answer.
	Source Source
	// Sensors names the sensors summed for SourceSDR, e.g. "PS1 Input Power + PS2 Input Power".
	Sensors string
	// Suite is the cipher suite of the session over LAN; 0 in-band, and before the first one.
	Suite byte
	// State, and Why it is not ok, in words; Why is empty when ok.
	State State
	Why   string
	// Note is what to know of a reading that is ok: why another source was not used, which
	// supply is absent, which sensor records could not be read. Usually empty.
	Note string
	// Serial counts changes of the value: a reading with a Serial seen before is no news.
	Serial uint64
	// Interval is how often the BMC renews its value, as learned; 0: not learned yet.
	Interval time.Duration
}

// Limit is the BMC's own power limit (DCMI v1.5, 6.6.2).
type Limit struct {
	// Power is what the platform is held at.
	Power units.Power
	// Active is false when the limit is stored but not in force.
	Active bool
	// Action is what the BMC does when the limit cannot be held for Correction.
	Action Action
	// Correction is how long the limit may be exceeded, in whole milliseconds.
	Correction time.Duration
	// Period of the BMC's power statistics, in whole seconds.
	Period time.Duration
}

// Action is a DCMI exception action.
type Action uint8

// The exception actions of DCMI v1.5, table 6-17. Headroom only ever sets ActionNone.
const (
	ActionNone     Action = 0x00
	ActionPowerOff Action = 0x01
	ActionLog      Action = 0x11
)

// String names the action.
func (a Action) String() string {
	switch a {
	case ActionNone:
		return "none"
	case ActionPowerOff:
		return "hard power off"
	case ActionLog:
		return "log"
	default:
		return fmt.Sprintf("vendor action %#02x", uint8(a))
	}
}
