package ipmi

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"headroom/internal/each"
	"headroom/units"
)

// sensor is a watts sensor that a full sensor record describes (IPMI v2.0, table 43-1).
type sensor struct {
	number   byte
	entity   byte
	instance byte // of the entity
	output   bool // measures what a supply gives, not what it takes
	name     string

	format           byte // 0 unsigned, 1 ones' complement, 2 two's complement
	m, b             int
	exponentR, expoB int
}

// The entities that can stand for the node or for one of its supplies; table 43-13.
const (
	entitySystemBoard  = 0x07
	entityPowerSupply  = 0x0a
	entityPowerUnit    = 0x13
	entityPowerMgmt    = 0x14
	entityChassis      = 0x17
	entityDCMIBoard    = 0x42
	recordFull         = 0x01
	unitWatts          = 0x06
	ownerBMC           = 0x20
	recordHeaderLen    = 5
	recordFullLen      = 48
	maxRecordLen       = 255 + recordHeaderLen
	linear             = 0x00
	directionOutput    = 0x02
	analogNone         = 0x03
	sensorUnavailable  = 0x20
	sensorScanning     = 0x40
	maxSensorNameBytes = 16
)

// decodeSensor reads a record; ok is false when it is no linear analog sensor in watts
// that the BMC itself owns.
func decodeSensor(rec []byte) (s sensor, ok bool) {
	if len(rec) < recordFullLen || rec[3] != recordFull || rec[5] != ownerBMC || rec[6]&0x03 != 0 {
		return sensor{}, false
	}
	units1 := rec[20]
	rated, modified, percent := units1&0x38 != 0, units1&0x06 != 0, units1&0x01 != 0
	if units1>>6 == analogNone || rated || modified || percent || rec[21] != unitWatts || rec[23]&0x7f != linear {
		return sensor{}, false
	}
	return sensor{
		number: rec[7], entity: rec[8], instance: rec[9], format: units1 >> 6, name: sensorName(rec),
		output:    rec[28]&0x03 == directionOutput,
		m:         signed(int(rec[24])|int(rec[25]&0xc0)<<2, 10),
		b:         signed(int(rec[26])|int(rec[27]&0xc0)<<2, 10),
		exponentR: signed(int(rec[29]>>4), 4),
		expoB:     signed(int(rec[29]&0x0f), 4),
	}, true
}

func sensorName(rec []byte) string {
	n := min(int(rec[47]&0x1f), len(rec)-recordFullLen, maxSensorNameBytes)
	return cleanName(string(rec[recordFullLen : recordFullLen+n]))
}

// cleanName is a name without what is not printable ASCII, and without blanks around it.
func cleanName(name string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, name))
}

// signed reads the lowest bits of v as two's complement.
func signed(v, bits int) int {
	if v >= 1<<(bits-1) {
		return v - 1<<bits
	}
	return v
}

// convert is y = (M x + B 10^K1) 10^K2 (36.3), in watts.
func (s sensor) convert(raw byte) float64 {
	x := int(raw)
	switch s.format {
	case 1:
		if x = signed(x, 8); x < 0 {
			x++
		}
	case 2:
		x = signed(x, 8)
	}
	return (float64(s.m)*float64(x) + float64(s.b)*math.Pow10(s.expoB)) * math.Pow10(s.exponentR)
}

// decodeReading is the answer to Get Sensor Reading (35.14): ok is false, with the
// reason, when the sensor does not measure now.
func (s sensor) decodeReading(data []byte) (watts float64, why string) {
	switch {
	case len(data) < 2:
		return 0, fmt.Sprintf("sensor %q: answer of %d bytes", s.name, len(data))
	case data[1]&sensorUnavailable != 0:
		return 0, fmt.Sprintf("sensor %q is unavailable", s.name)
	case data[1]&sensorScanning == 0:
		return 0, fmt.Sprintf("sensor %q is not scanned by the BMC", s.name)
	}
	return s.convert(data[0]), ""
}

// systemOf is the sensor of the whole node, none where there is none. Sensors of parts
// (processors, memory, fans) and of supply outputs never count.
func systemOf(all []sensor) []sensor {
	var system []sensor
	for _, s := range all {
		if !s.output && !partial(s.name) &&
			slices.Contains([]byte{entitySystemBoard, entityDCMIBoard, entityPowerUnit, entityPowerMgmt, entityChassis}, s.entity) {
			system = append(system, s)
		}
	}
	slices.SortStableFunc(system, func(a, b sensor) int { return wholeness(b.name) - wholeness(a.name) })
	return system[:min(1, len(system))]
}

// suppliesOf is one input sensor of each supply. Some BMCs have two for one supply; others give all
// supplies the same instance, so names that say more than what is measured tell them apart:
// a supply that counts twice only makes the cap stricter.
func suppliesOf(all []sensor) []sensor {
	var supplies []sensor
	for _, s := range all {
		if s.output || partial(s.name) || s.entity != entityPowerSupply {
			continue
		}
		at := slices.IndexFunc(supplies, func(o sensor) bool { return o.instance == s.instance && supplyName(o.name) == supplyName(s.name) })
		switch {
		case at < 0:
			supplies = append(supplies, s)
		case hasAny(s.name, "input") && !hasAny(supplies[at].name, "input"):
			supplies[at] = s
		}
	}
	return supplies
}

// supplyName is a sensor's name without the words for what it measures.
func supplyName(name string) string {
	lower := strings.ToLower(name)
	for _, word := range []string{"input", "power", "pwr", "watts", "pin", " ", "_", "-", "."} {
		lower = strings.ReplaceAll(lower, word, "")
	}
	return lower
}

// partial tells by its name that a sensor measures less, or something else, than what
// its entity draws.
func partial(name string) bool {
	return hasAny(name, "cpu", "proc", "dimm", "mem", "fan", "hdd", "disk", "gpu", "pcie", "out", "limit", "cap", "budget", "max", "peak", "avg")
}

// wholeness ranks the names that vendors give to the sensor of the whole node.
func wholeness(name string) int {
	switch {
	case hasAny(name, "total", "sys", "node", "consumption", "wall", "input"):
		return 1
	default:
		return 0
	}
}

func hasAny(name string, words ...string) bool {
	lower := strings.ToLower(name)
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(lower, w) })
}

// names of the sensors, for people.
func names(sensors []sensor) string {
	out := each.List(sensors, func(s sensor) string { return s.name })
	return strings.Join(out, " + ")
}

// toPower makes a power of watts; ok is false for what is no number.
func toPower(watts float64) (units.Power, bool) {
	if math.IsNaN(watts) || math.IsInf(watts, 0) || math.Abs(watts) > 1e9 {
		return 0, false
	}
	return units.FromWatts(watts), true
}

// recordRequest asks for count bytes of a record; 33.12.
func recordRequest(reservation, record uint16, offset, count int) []byte {
	out := binary.LittleEndian.AppendUint16(nil, reservation)
	out = binary.LittleEndian.AppendUint16(out, record)
	return append(out, byte(offset), byte(count))
}

// decodeRecord is the piece asked for and the id of the next record; ok is false for an answer
// that is too short.
func decodeRecord(data []byte, count int) (next uint16, piece []byte, ok bool) {
	if len(data) < 2+count {
		return 0, nil, false
	}
	return binary.LittleEndian.Uint16(data), data[2 : 2+count], true
}
