package bmc

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	gobmc "github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/handlers"
	"github.com/bougou/go-ipmi/pkg/types"

	"headroom/units"
)

// The completion codes in use; IPMI v2.0, table 5-2, and DCMI v1.5, 6.6.
const (
	codeOK          = 0x00
	codeInactive    = 0x80
	codeLimitRange  = 0x84
	codeLimitTime   = 0x85
	codeInvalid     = 0xc1
	codeLength      = 0xc7
	codeNotPresent  = 0xcb
	codeField       = 0xcc
	codePrivilege   = 0xd4
	groupDCMI       = 0xdc
	limitLeast      = 50
	limitMost       = 2000
	correctionLeast = 100 // ms
	measuring       = 0x40
	sensorOK        = 0xc0 // events and scanning enabled
	wattsPerCount   = 4
	asUser          = gobmc.PrivilegeLevelUser
	asOperator      = gobmc.PrivilegeLevelOperator
	asAdmin         = gobmc.PrivilegeLevelAdministrator
)

// command is one that the library has not: request in, answer and completion code out. The
// lock is held.
type command struct {
	at        types.Command
	least     int // bytes of the request
	privilege gobmc.PrivilegeLevel
	do        func(now time.Time, request []byte) ([]byte, byte)
}

func (b *BMC) commands() []command {
	return []command{
		{types.CommandSetBMCGlobalEnables, 1, asAdmin, b.setEnables},
		{types.CommandGetBMCGlobalEnables, 0, asUser, b.getEnables},
		// No message ever waits for the machine; IPMI v2.0, 22.3, 22.4.
		{types.CommandClearMessageFlags, 1, asAdmin, func(time.Time, []byte) ([]byte, byte) { return nil, codeOK }},
		{types.CommandGetMessageFlags, 0, asAdmin, func(time.Time, []byte) ([]byte, byte) { return []byte{0}, codeOK }},
		{types.CommandGetSensorReading, 1, asUser, b.sensorReading},
		{types.CommandGetDCMICapParam, 2, asUser, b.dcmi(capabilities)},
		{types.CommandGetDCMIPowerReading, 4, asUser, b.dcmi(b.powerReading)},
		{types.CommandGetDCMIPowerLimit, 3, asUser, b.dcmi(b.powerLimit)},
		{types.CommandSetDCMIPowerLimit, 15, asOperator, b.dcmi(b.setPowerLimit)},
		{types.CommandActivateDCMIPowerLimit, 4, asOperator, b.dcmi(b.activatePowerLimit)},
	}
}

// registry has the library's own commands and these.
func (b *BMC) registry() *handlers.Registry {
	r := handlers.NewRegistry()
	handlers.RegisterAllHandlers(r)
	for _, c := range b.commands() {
		r.RegisterFunc(c.at, func(_ context.Context, from *handlers.HandlerContext, request []byte) ([]byte, types.CompletionCode, error) {
			answer, code := b.answer(c, from, request)
			return answer, types.CompletionCode(code), nil
		})
	}
	return r
}

func (b *BMC) answer(c command, from *handlers.HandlerContext, request []byte) ([]byte, byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case c.at.NetFn == types.NetFnGroupExtensionRequest && b.fault.NoDCMI:
		return nil, codeInvalid
	// The library gives a session what it requested, not what its user has.
	case from.Session != nil && min(from.Session.PrivilegeLevel, b.cfg.privilege()) < c.privilege:
		return nil, codePrivilege
	case len(request) < c.least:
		return nil, codeLength
	}
	return c.do(time.Now(), request)
}

// dcmi takes the group byte off the request and puts it before the answer.
func (b *BMC) dcmi(do func(time.Time, []byte) ([]byte, byte)) func(time.Time, []byte) ([]byte, byte) {
	return func(now time.Time, request []byte) ([]byte, byte) {
		switch {
		case b.fault.Busy != 0:
			return []byte{groupDCMI}, b.fault.Busy
		case request[0] != groupDCMI:
			return nil, codeField
		}
		answer, code := do(now, request[1:])
		return append([]byte{groupDCMI}, answer...), code
	}
}

// capabilities reports that power management is supported; DCMI v1.5, 6.1.
func capabilities(_ time.Time, request []byte) ([]byte, byte) {
	head := []byte{1, 5, 2} // DCMI 1.5, parameter revision 2
	switch request[0] {
	case 1: // supported capabilities
		return append(head, 0, 1, 7), codeOK
	case 2: // mandatory platform attributes: a log of 64 entries
		return append(head, 64, 0x80, 0, 0, 1), codeOK
	case 3: // optional platform attributes: the address of the BMC
		return append(head, 0x20, 0), codeOK
	case 4: // channels
		return append(head, lanChannel, 0xff, 0xff), codeOK
	case 5: // rolling average periods: 5 s, 30 s, 1 min, 1 h
		return append(head, 4, 0x05, 0x1e, 0x41, 0x81), codeOK
	default:
		return nil, codeField
	}
}

func (b *BMC) powerReading(now time.Time, request []byte) ([]byte, byte) {
	if request[0] != 1 && request[0] != 2 {
		return nil, codeField
	}
	p := b.reading()
	out := make([]byte, 17)
	le := binary.LittleEndian
	le.PutUint16(out[0:], toWatts(p))
	le.PutUint16(out[2:], toWatts(min(b.meter.least, p)))
	le.PutUint16(out[4:], toWatts(max(b.meter.most, p)))
	le.PutUint16(out[6:], toWatts(b.meter.mean()))
	le.PutUint32(out[8:], uint32(now.Unix()))
	le.PutUint32(out[12:], uint32(b.cfg.Update/time.Millisecond))
	out[16] = measuring
	b.fault.Sentinel.apply(out)
	return out, codeOK
}

// apply replaces a reading by the sentinel.
func (s Sentinel) apply(out []byte) {
	le := binary.LittleEndian
	switch s {
	case SentinelNone:
	case SentinelZero:
		le.PutUint16(out[0:], 0)
	case SentinelMax:
		le.PutUint16(out[0:], 0xffff)
	case SentinelInactive:
		out[16] = 0
	case Sentinel1970:
		le.PutUint32(out[8:], 0)
	case SentinelEqual:
		for i := 2; i < 8; i += 2 {
			copy(out[i:], out[0:2])
		}
		le.PutUint32(out[8:], 600) // seconds since the BMC's own start
	}
}

func (b *BMC) powerLimit(time.Time, []byte) ([]byte, byte) {
	code := byte(codeInactive)
	if b.limit.active {
		code = codeOK
	} else if b.fault.HideLimit {
		return nil, code
	}
	out := make([]byte, 13)
	out[2] = b.limit.action
	le := binary.LittleEndian
	le.PutUint16(out[3:], b.limit.watts)
	le.PutUint32(out[5:], b.limit.correction)
	le.PutUint16(out[11:], b.limit.period)
	return out, code
}

func (b *BMC) setPowerLimit(_ time.Time, request []byte) ([]byte, byte) {
	le := binary.LittleEndian
	watts, correction := le.Uint16(request[4:]), le.Uint32(request[6:])
	switch {
	case watts < limitLeast || watts > limitMost:
		return nil, codeLimitRange
	case correction < correctionLeast:
		return nil, codeLimitTime
	}
	if !b.fault.KeepAction {
		b.limit.action = request[3]
	}
	b.limit.watts, b.limit.correction, b.limit.period, b.limit.set = watts, correction, le.Uint16(request[12:]), true
	return nil, codeOK
}

func (b *BMC) activatePowerLimit(_ time.Time, request []byte) ([]byte, byte) {
	if !b.limit.set {
		return nil, codeInactive
	}
	b.limit.active = request[0] == 1
	return nil, codeOK
}

// sensorReading is the reading of one watts sensor, in counts of 4 W.
func (b *BMC) sensorReading(_ time.Time, data []byte) ([]byte, byte) {
	sensors := max(b.cfg.Supplies, 1)
	switch {
	case b.fault.Busy != 0:
		return nil, b.fault.Busy
	case data[0] < 1 || int(data[0]) > sensors:
		return nil, codeNotPresent
	}
	count := toWatts(b.reading()/units.Power(sensors)) / wattsPerCount
	out := []byte{byte(min(count, 255)), sensorOK, sensorOK}
	switch b.fault.Sentinel {
	case SentinelNone:
	case SentinelZero:
		out[0] = 0
	case SentinelMax, SentinelInactive, Sentinel1970, SentinelEqual:
		out[1] |= 0x20 // reading unavailable
	}
	return out, codeOK
}

// records are the sensor data records: the watts sensors.
func records(supplies int) [][]byte {
	if supplies == 0 {
		return [][]byte{record(1, 0x07, "Pwr Consumption")}
	}
	out := make([][]byte, supplies)
	for i := range out {
		out[i] = record(byte(i+1), 0x0a, fmt.Sprintf("PS%d Input Power", i+1))
	}
	return out
}

// record is a full sensor record: 8 bits unsigned, 4 W a count; IPMI v2.0, table 43-1.
func record(number, entity byte, name string) []byte {
	body := []byte{
		0x20, 0, number, entity, number, 0x7f, 0x68, 0x0b, 0x01, 0, 0, 0, 0, 0x3f, 0x3f, 0, 0x06, 0, 0,
		wattsPerCount, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0, 0xfa, 0xf5, 0xf0, 0, 0, 0, 2, 2, 0, 0, 0, 0xc0 | byte(len(name)),
	}
	head := []byte{number, 0, 0x51, 0x01, byte(len(body) + len(name))}
	return append(append(head, body...), name...)
}

// setEnables and getEnables keep what a kernel's driver switches on at its start; 22.1, 22.2.
func (b *BMC) setEnables(_ time.Time, data []byte) ([]byte, byte) {
	b.enables = data[0]
	return nil, codeOK
}

func (b *BMC) getEnables(time.Time, []byte) ([]byte, byte) {
	return []byte{b.enables}, codeOK
}
