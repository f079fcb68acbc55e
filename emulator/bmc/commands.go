package bmc

import (
	"encoding/binary"
	"fmt"
	"time"

	"headroom/ipmi/rmcp"
	"headroom/units"
)

// The completion codes in use; IPMI v2.0, table 5-2, and DCMI v1.5, 6.6.
const (
	codeOK          = 0x00
	codeInactive    = 0x80
	codeLimitRange  = 0x84
	codeLimitTime   = 0x85
	codeInvalid     = 0xc1
	codeCancelled   = 0xc5
	codeLength      = 0xc7
	codeTooMany     = 0xca
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
)

// command does one command: request in, answer and completion code out. The lock is held.
type command struct {
	least     int  // bytes of the request
	privilege byte // that it needs; 0: none, also before a session
	do        func(now time.Time, s *session, request []byte) ([]byte, byte)
}

const (
	netFnSensor  = 0x04
	netFnApp     = 0x06
	netFnStorage = 0x0a
	netFnGroup   = 0x2c
	asUser       = 2
	asOperator   = 3
	asAdmin      = 4
)

// commands are all that this BMC knows.
func (b *BMC) commands() map[rmcp.Command]command {
	return map[rmcp.Command]command{
		{NetFn: netFnApp, ID: 0x01}:     {0, asUser, deviceID},
		{NetFn: netFnApp, ID: 0x38}:     {2, 0, channelAuthentication},
		{NetFn: netFnApp, ID: 0x3b}:     {1, asUser, setPrivilege},
		{NetFn: netFnApp, ID: 0x3c}:     {4, asUser, closeSession},
		{NetFn: netFnApp, ID: 0x54}:     {3, 0, b.cipherSuites},
		{NetFn: netFnSensor, ID: 0x2d}:  {1, asUser, b.sensorReading},
		{NetFn: netFnStorage, ID: 0x20}: {0, asUser, b.recordsInfo},
		{NetFn: netFnStorage, ID: 0x22}: {0, asUser, b.reserveRecords},
		{NetFn: netFnStorage, ID: 0x23}: {6, asUser, b.getRecord},
		{NetFn: netFnGroup, ID: 0x01}:   {1, asUser, b.dcmi(capabilities)},
		{NetFn: netFnGroup, ID: 0x02}:   {4, asUser, b.dcmi(b.powerReading)},
		{NetFn: netFnGroup, ID: 0x03}:   {3, asUser, b.dcmi(b.powerLimit)},
		{NetFn: netFnGroup, ID: 0x04}:   {15, asOperator, b.dcmi(b.setPowerLimit)},
		{NetFn: netFnGroup, ID: 0x05}:   {4, asOperator, b.dcmi(b.activatePowerLimit)},
	}
}

// dispatch answers one message; s is nil before a session.
func (b *BMC) dispatch(now time.Time, s *session, msg []byte) ([]byte, bool) {
	cmd, sequence, data, err := rmcp.ParseRequest(msg)
	if err != nil {
		return nil, false
	}
	answer, code := b.answer(now, s, cmd, data)
	return rmcp.Answer(cmd, sequence, code, answer), true
}

func (b *BMC) answer(now time.Time, s *session, cmd rmcp.Command, data []byte) ([]byte, byte) {
	c, ok := b.commands()[cmd]
	switch {
	case !ok || (cmd.NetFn == netFnGroup && b.fault.NoDCMI):
		return nil, codeInvalid
	case c.privilege > 0 && (s == nil || s.privilege < c.privilege):
		return nil, codePrivilege
	case len(data) < c.least:
		return nil, codeLength
	}
	return c.do(now, s, data)
}

// dcmi takes the group byte off the request and puts it before the answer.
func (b *BMC) dcmi(do func(time.Time, []byte) ([]byte, byte)) func(time.Time, *session, []byte) ([]byte, byte) {
	return func(now time.Time, _ *session, request []byte) ([]byte, byte) {
		switch {
		case b.fault.Busy != 0:
			return []byte{groupDCMI}, b.fault.Busy
		case request[0] != groupDCMI || len(request) < 2:
			return nil, codeField
		}
		answer, code := do(now, request[1:])
		return append([]byte{groupDCMI}, answer...), code
	}
}

// capabilities says that power management is supported; DCMI v1.5, 6.1.
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
	p := b.reading(now)
	out := make([]byte, 17)
	le := binary.LittleEndian
	le.PutUint16(out[0:], toWatts(p))
	le.PutUint16(out[2:], toWatts(min(b.meter.least, p)))
	le.PutUint16(out[4:], toWatts(max(b.meter.most, p)))
	le.PutUint16(out[6:], toWatts(b.meter.mean()))
	le.PutUint32(out[8:], uint32(now.Unix()))
	le.PutUint32(out[12:], uint32(b.updateOf(b.fault)/time.Millisecond))
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
func (b *BMC) sensorReading(now time.Time, _ *session, data []byte) ([]byte, byte) {
	sensors := max(b.cfg.Supplies, 1)
	switch {
	case b.fault.Busy != 0:
		return nil, b.fault.Busy
	case data[0] < 1 || int(data[0]) > sensors:
		return nil, codeNotPresent
	}
	count := toWatts(b.reading(now)/units.Power(sensors)) / wattsPerCount
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
func (b *BMC) records() [][]byte {
	if b.cfg.Supplies == 0 {
		return [][]byte{record(1, 0x07, "Pwr Consumption")}
	}
	out := make([][]byte, b.cfg.Supplies)
	for i := range out {
		out[i] = record(byte(i+1), 0x0a, fmt.Sprintf("PS%d Input Power", i+1))
	}
	return out
}

func (b *BMC) recordsInfo(time.Time, *session, []byte) ([]byte, byte) {
	out := make([]byte, 14)
	out[0] = 0x51
	binary.LittleEndian.PutUint16(out[1:], uint16(len(b.records())))
	out[13] = 0x02 // reservation supported
	return out, codeOK
}

func (b *BMC) reserveRecords(time.Time, *session, []byte) ([]byte, byte) {
	b.reservation++
	return binary.LittleEndian.AppendUint16(nil, b.reservation), codeOK
}

// maxPiece is what the BMC gives of a record at a time, as many do.
const maxPiece = 32

func (b *BMC) getRecord(_ time.Time, _ *session, data []byte) ([]byte, byte) {
	le := binary.LittleEndian
	records, number := b.records(), int(max(le.Uint16(data[2:]), 1))
	offset, count := int(data[4]), int(data[5])
	if number > len(records) {
		return nil, codeNotPresent
	}
	rec := records[number-1]
	switch {
	case offset > 0 && le.Uint16(data) != b.reservation:
		return nil, codeCancelled
	case offset >= len(rec):
		return nil, codeField
	}
	count = min(count, len(rec)-offset)
	if count > maxPiece {
		return nil, codeTooMany
	}
	next := uint16(number + 1)
	if number == len(records) {
		next = 0xffff
	}
	return append(le.AppendUint16(nil, next), rec[offset:offset+count]...), codeOK
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
