package bmc

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"headroom/units"
)

// errFault is returned for a fault that cannot be read.
var errFault = errors.New("bmc: fault")

// Fault is the BMC's present fault; the zero value is a healthy BMC.
type Fault struct {
	// Update is the update interval of the reading; 0: Config.Update.
	Update time.Duration
	// Delay is how old the reading is when it appears; at most a minute.
	Delay time.Duration
	// Freeze keeps the present reading forever.
	Freeze bool
	// Factor multiplies the reading; 0 means 1. Offset is added after it.
	Factor float64
	Offset units.Power
	// Sentinel is answered in place of a reading.
	Sentinel Sentinel
	// Hang: no answer to anything.
	Hang bool
	// Slow delays every response.
	Slow time.Duration
	// Busy is answered as completion code of every power command and sensor; 0: none.
	Busy byte
	// NoDCMI: every DCMI command is unknown.
	NoDCMI bool
	// KeepAction: the BMC takes a limit, and keeps its own exception action.
	KeepAction bool
	// HideLimit: a limit that is not active is not shown.
	HideLimit bool
}

// Sentinel is an answer that means no reading.
type Sentinel string

// The sentinels that were seen on real BMCs.
const (
	SentinelNone     Sentinel = ""
	SentinelZero     Sentinel = "zero"     // 0 W
	SentinelMax      Sentinel = "max"      // 65535 W
	SentinelInactive Sentinel = "inactive" // measurement not active
	Sentinel1970     Sentinel = "1970"     // dated at the epoch
	SentinelEqual    Sentinel = "equal"    // no date, all four powers equal
)

// ParseFault reads a fault as people write it: words separated by commas, among
// update=2s, delay=3s, freeze, factor=0.5, offset=20W, sentinel=zero, hang, slow=1500ms,
// busy or busy=0xc3, no-dcmi, keep-action, hide-limit; empty or "none" is a healthy BMC.
func ParseFault(text string) (Fault, error) {
	var f Fault
	if text == "" || text == "none" {
		return f, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(word), "=")
		if err := f.set(key, value); err != nil {
			return Fault{}, fmt.Errorf("%w %q: %w", errFault, word, err)
		}
	}
	return f, nil
}

var errUnknown = errors.New("unknown setting: use update, delay, freeze, factor, offset, sentinel, hang, slow, busy, no-dcmi, keep-action, hide-limit")

func (f *Fault) set(key, value string) (err error) {
	switch key {
	case "update":
		f.Update, err = duration(value)
	case "delay":
		f.Delay, err = duration(value)
	case "slow":
		f.Slow, err = duration(value)
	case "factor":
		f.Factor, err = strconv.ParseFloat(value, 64)
	case "offset":
		f.Offset, err = units.ParsePower(value)
	case "sentinel":
		f.Sentinel, err = parseSentinel(value)
	case "busy":
		f.Busy, err = parseBusy(value)
	default:
		return f.flag(key, value)
	}
	return err
}

// flag sets a fault that has no value.
func (f *Fault) flag(key, value string) error {
	flags := map[string]*bool{
		"freeze": &f.Freeze, "hang": &f.Hang, "no-dcmi": &f.NoDCMI, "keep-action": &f.KeepAction, "hide-limit": &f.HideLimit,
	}
	to, ok := flags[key]
	if !ok || value != "" {
		return errUnknown
	}
	*to = true
	return nil
}

var errRange = errors.New("the duration must be from 0 to 1m")

func duration(value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err == nil && (d < 0 || d > history) {
		err = errRange
	}
	return d, err
}

var errSentinel = errors.New("unknown value: use zero, max, inactive, 1970 or equal")

func parseSentinel(value string) (Sentinel, error) {
	switch s := Sentinel(value); s {
	case SentinelZero, SentinelMax, SentinelInactive, Sentinel1970, SentinelEqual:
		return s, nil
	default:
		return SentinelNone, errSentinel
	}
}

// nodeBusy is the completion code of a BMC that has no time.
const nodeBusy = 0xc0

func parseBusy(value string) (byte, error) {
	if value == "" {
		return nodeBusy, nil
	}
	n, err := strconv.ParseUint(value, 0, 8)
	return byte(n), err
}
