package bmc

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"headroom/units"
)

// Fault is the BMC's present fault; the zero value is a healthy BMC.
type Fault struct {
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

// ParseFault reads a fault: freeze, factor=0.5, offset=20W, sentinel=zero, hang, slow=1500ms, busy,
// busy=0xc3 or no-dcmi; empty is a healthy BMC.
func ParseFault(text string) (f Fault, err error) {
	key, value, _ := strings.Cut(text, "=")
	switch key {
	case "":
	case "freeze":
		f.Freeze = true
	case "factor":
		f.Factor, err = strconv.ParseFloat(value, 64)
	case "offset":
		f.Offset, err = units.ParsePower(value)
	case "sentinel":
		f.Sentinel = Sentinel(value)
	case "hang":
		f.Hang = true
	case "slow":
		f.Slow, err = time.ParseDuration(value)
	case "busy":
		var code uint64
		code, err = strconv.ParseUint(cmp.Or(value, nodeBusy), 0, 8)
		f.Busy = byte(code)
	case "no-dcmi":
		f.NoDCMI = true
	default:
		err = errors.New("unknown fault")
	}
	if err != nil {
		return Fault{}, fmt.Errorf("bmc: fault %q: %w", text, err)
	}
	return f, nil
}

// nodeBusy is the completion code of a BMC that has no time.
const nodeBusy = "0xc0"
