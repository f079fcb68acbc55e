package ipmi

import (
	"encoding/binary"
	"fmt"
	"time"

	"headroom/ipmi/rmcp"
	"headroom/units"
)

// command is an IPMI command, by network function and number.
type command = rmcp.Command

const (
	netFnSensor  = 0x04
	netFnApp     = 0x06
	netFnStorage = 0x0a
	netFnGroup   = 0x2c
	groupDCMI    = 0xdc // first byte of every DCMI request and answer
)

// completion is a completion code; 0 is success. IPMI v2.0, table 5-2.
type completion byte

const (
	codeOK            completion = 0x00
	codeLimitInactive completion = 0x80 // Get Power Limit; DCMI v1.5, table 6-18
	codeLimitRange    completion = 0x84 // Set Power Limit: power
	codeLimitTime     completion = 0x85 // Set Power Limit: correction time
	codeBusy          completion = 0xc0
	codeInvalid       completion = 0xc1
	codeInvalidLUN    completion = 0xc2
	codeTimeout       completion = 0xc3
	codeCancelled     completion = 0xc5 // reservation
	codeParameter     completion = 0xc9
	codeNoData        completion = 0xcb
	codeField         completion = 0xcc
	codeDestination   completion = 0xd3
	codePrivilege     completion = 0xd4
	codeState         completion = 0xd5
	codeDisabled      completion = 0xd6
	codeUnspecified   completion = 0xff
)

// String names the code in words that say what to do about it.
func (c completion) String() string {
	switch c {
	case codeOK:
		return "ok"
	case codeBusy, 0xcf, 0xd0, 0xd1, 0xd2:
		return fmt.Sprintf("busy (code %#02x)", byte(c))
	case codeInvalid, codeInvalidLUN:
		return fmt.Sprintf("no such command (code %#02x)", byte(c))
	case codeTimeout, codeDestination:
		return fmt.Sprintf("timeout behind the BMC (code %#02x)", byte(c))
	case codePrivilege:
		return "insufficient privilege (code 0xd4)"
	case codeState, codeDisabled:
		return fmt.Sprintf("not available now (code %#02x)", byte(c))
	default:
		return fmt.Sprintf("code %#02x", byte(c))
	}
}

// missing reports whether the BMC does not have this command at all.
func (c completion) missing() bool {
	switch c {
	case codeInvalid, codeInvalidLUN, codePrivilege, codeDisabled:
		return true
	default:
		return false
	}
}

// refused is the error of a completion code.
func refused(what string, c completion) error {
	return fmt.Errorf("%w: %s: %v", ErrRefused, what, c)
}

// The DCMI power commands; DCMI v1.5, 6.6.
func powerReading() command  { return command{NetFn: netFnGroup, ID: 0x02} }
func limitGet() command      { return command{NetFn: netFnGroup, ID: 0x03} }
func limitSet() command      { return command{NetFn: netFnGroup, ID: 0x04} }
func limitActivate() command { return command{NetFn: netFnGroup, ID: 0x05} }

// powerRequest asks for the system power statistics (mode 1).
func powerRequest() []byte { return []byte{groupDCMI, 0x01, 0x00, 0x00} }

// powerAnswer is the answer to Get Power Reading, as sent; DCMI v1.5, table 6-16.
type powerAnswer struct {
	now, least, most, mean uint16 // watts; the last three over the BMC's own period
	stamp                  uint32 // seconds since 1970 by the BMC's clock
	active                 bool   // the BMC measures at all
}

// statistics are least, most and mean power over the BMC's own period, in watts.
type statistics struct{ least, most, mean uint16 }

// powerAnswerLen is the group byte, four powers, time, period and state.
const powerAnswerLen = 18

func decodePower(data []byte) (powerAnswer, error) {
	if len(data) < powerAnswerLen || data[0] != groupDCMI {
		return powerAnswer{}, fmt.Errorf("%w: power reading of %d bytes", ErrMalformed, len(data))
	}
	le := binary.LittleEndian
	return powerAnswer{
		now: le.Uint16(data[1:]), least: le.Uint16(data[3:]), most: le.Uint16(data[5:]), mean: le.Uint16(data[7:]),
		stamp: le.Uint32(data[9:]), active: data[17]&0x40 != 0,
	}, nil
}

// unsetClock is the end of the range that IPMI keeps for clocks that count from the
// BMC's own start (IPMI v2.0, 37.1): a stamp below it names no date.
const unsetClock = 0x2000_0000

// strange is why the answer is no measurement; empty when it may be one.
//
// Lesson 11: one BMC answers "deactivated", at 1970, with all four powers
// equal; others fill in 0 or 0xFFFF.
func (a powerAnswer) strange() string {
	equal := a.now == a.least && a.now == a.most && a.now == a.mean
	switch {
	case !a.active:
		return "power measurement of the BMC is not active"
	case a.now == 0:
		return "the BMC reads 0 W"
	case a.now == 0xffff:
		return "the BMC reads 65535 W, which means no reading"
	case a.stamp == 0:
		return "the reading of the BMC is dated 1970: nothing was measured"
	case equal && a.stamp < unsetClock:
		return "the reading of the BMC has no date, and its current, minimum, maximum and mean are equal"
	case a.least != 0 && a.most != 0 && a.least > a.most:
		return "the minimum power of the BMC is above its maximum"
	default:
		return ""
	}
}

// limitRequest is Get Power Limit.
func limitRequest() []byte { return []byte{groupDCMI, 0x00, 0x00} }

// limitAnswerLen is the group byte, two reserved, action, power, correction time, two
// reserved, period; DCMI v1.5, table 6-18.
const limitAnswerLen = 14

func decodeLimit(data []byte) (Limit, error) {
	if len(data) < limitAnswerLen || data[0] != groupDCMI {
		return Limit{}, fmt.Errorf("%w: power limit of %d bytes", ErrMalformed, len(data))
	}
	le := binary.LittleEndian
	return Limit{
		Action:     Action(data[3]),
		Power:      units.Power(le.Uint16(data[4:])) * units.Watt,
		Correction: time.Duration(le.Uint32(data[6:])) * time.Millisecond,
		Period:     time.Duration(le.Uint16(data[12:])) * time.Second,
	}, nil
}

// encodeLimit is the request of Set Power Limit; DCMI v1.5, table 6-19.
func encodeLimit(l Limit) []byte {
	out := make([]byte, 15)
	out[0], out[4] = groupDCMI, byte(l.Action)
	le := binary.LittleEndian
	le.PutUint16(out[5:], uint16(l.Power/units.Watt))
	le.PutUint32(out[7:], uint32(l.Correction/time.Millisecond))
	le.PutUint16(out[13:], uint16(l.Period/time.Second))
	return out
}

func activateRequest(on bool) []byte {
	out := []byte{groupDCMI, 0, 0, 0}
	if on {
		out[1] = 1
	}
	return out
}
