// Claims: every sentinel seen on a BMC is unknown with its reason; no bytes make the
// decoders panic or give a number that cannot be one.
package ipmi

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"headroom/units"
)

// dcmiAnswer is a healthy Get Power Reading of 143 W.
func dcmiAnswer() []byte {
	out := make([]byte, powerAnswerLen)
	out[0], out[17] = groupDCMI, 0x40
	le := binary.LittleEndian
	for i, w := range []uint16{143, 80, 210, 139} {
		le.PutUint16(out[1+2*i:], w)
	}
	le.PutUint32(out[9:], 1_700_000_000)
	le.PutUint32(out[13:], 1000)
	return out
}

func TestDCMISentinels(t *testing.T) {
	t.Parallel()
	if obs := observeDCMI(dcmiAnswer()); obs.why != "" || obs.power != 143*units.Watt {
		t.Fatalf("healthy answer: %+v", obs)
	}
	le := binary.LittleEndian
	cases := map[string]func(b []byte) []byte{
		"zero":           func(b []byte) []byte { le.PutUint16(b[1:], 0); return b },
		"all ones":       func(b []byte) []byte { le.PutUint16(b[1:], 0xffff); return b },
		"not active":     func(b []byte) []byte { b[17] = 0; return b },
		"1970":           func(b []byte) []byte { le.PutUint32(b[9:], 0); return b },
		"least over top": func(b []byte) []byte { le.PutUint16(b[3:], 300); return b },
		"short":          func(b []byte) []byte { return b[:17] },
		"empty":          func([]byte) []byte { return nil },
		"other group":    func(b []byte) []byte { b[0] = 0; return b },
		// Lesson 11: an OpenBMC answered deactivated, 1970 and four equal powers at once.
		"no date and all equal": func(b []byte) []byte {
			for i := 3; i < 9; i += 2 {
				copy(b[i:], b[1:3])
			}
			le.PutUint32(b[9:], 600)
			return b
		},
	}
	for name, damage := range cases {
		if obs := observeDCMI(damage(dcmiAnswer())); obs.why == "" {
			t.Errorf("%s: taken for a number: %+v", name, obs)
		}
	}
	// A BMC without a clock counts from its own start; all equal happens after a restart.
	undated := dcmiAnswer()
	le.PutUint32(undated[9:], 600)
	equal := dcmiAnswer()
	for i := 3; i < 9; i += 2 {
		copy(equal[i:], equal[1:3])
	}
	for name, b := range map[string][]byte{"undated": undated, "equal": equal} {
		if obs := observeDCMI(b); obs.why != "" {
			t.Errorf("%s: refused: %s", name, obs.why)
		}
	}
}

func FuzzPowerAnswer(f *testing.F) {
	f.Add(dcmiAnswer())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		obs := observeDCMI(b)
		if obs.why == "" && (len(b) < powerAnswerLen || b[17]&0x40 == 0 || obs.power <= 0 || obs.power >= 0xffff*units.Watt) {
			t.Errorf("%x is taken for %v", b, obs.power)
		}
	})
}

// fullRecord is a full sensor record as vendors write it.
func fullRecord(number, entity byte, name string) []byte {
	body := []byte{
		0x20, 0, number, entity, number, 0x7f, 0x68, 0x0b, 0x01, 0, 0, 0, 0, 0x3f, 0x3f, 0, 0x06, 0, 0,
		4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0, 0xfa, 0xf5, 0xf0, 0, 0, 0, 2, 2, 0, 0, 0, 0xc0 | byte(len(name)),
	}
	return append(append([]byte{number, 0, 0x51, 0x01, byte(len(body) + len(name))}, body...), name...)
}

func FuzzSensorRecord(f *testing.F) {
	f.Add(fullRecord(1, entitySystemBoard, "Pwr Consumption"), []byte{36, 0xc0})
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, rec, data []byte) {
		s, ok := decodeSensor(rec)
		if !ok {
			return
		}
		watts, why := s.decodeReading(data)
		if why != "" {
			return
		}
		obs := observeSum(watts, []sensor{s})
		if obs.why == "" && (len(data) < 2 || data[1]&sensorUnavailable != 0 || obs.power == 0) {
			t.Errorf("%x is taken for %v", data, obs.power)
		}
	})
}

// limitAnswer is the answer to Get Power Limit, of the request that set it.
func limitAnswer(l Limit) []byte { return append([]byte{groupDCMI}, encodeLimit(l)[2:]...) }

func FuzzLimitAnswer(f *testing.F) {
	f.Add([]byte{groupDCMI, 0, 0, 1, 200, 0, 0xe8, 3, 0, 0, 0, 0, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := decodeLimit(b)
		if err != nil {
			return
		}
		if back, err := decodeLimit(limitAnswer(l)); err != nil || back != l || l.Power < 0 || l.Correction < 0 {
			t.Errorf("%x: %+v, back %+v, %v", b, l, back, err)
		}
		if safe, err := SafeLimit(l, 200*units.Watt, time.Second); err != nil || safe.Action != ActionNone || safe.Correction < time.Second {
			t.Errorf("%x: %+v, %v", b, safe, err)
		}
	})
}

func TestSensorConversion(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		change func(rec []byte)
		raw    byte
		want   float64
	}{
		{"4 W a count", func([]byte) {}, 36, 144},
		{"offset", func(rec []byte) { rec[26] = 10 }, 36, 154},
		{"offset times 10", func(rec []byte) { rec[26], rec[29] = 10, 0x01 }, 36, 244},
		{"tenths", func(rec []byte) { rec[29] = 0xf0 }, 36, 14.4},
		{"negative factor", func(rec []byte) { rec[24], rec[25], rec[26] = 0xff, 0xc0, 200 }, 100, 100},
		{"two's complement", func(rec []byte) { rec[20] = 0x80 }, 0xff, -4},
		{"ones' complement", func(rec []byte) { rec[20] = 0x40 }, 0xfe, -4},
	}
	for _, c := range cases {
		rec := fullRecord(1, entitySystemBoard, "Power")
		c.change(rec)
		s, ok := decodeSensor(rec)
		if got := s.convert(c.raw); !ok || got != c.want {
			t.Errorf("%s: %v W, %v; want %v", c.name, got, ok, c.want)
		}
	}
	for name, change := range map[string]func(rec []byte){
		"volts":     func(rec []byte) { rec[21] = 4 },
		"percent":   func(rec []byte) { rec[20] = 1 },
		"per hour":  func(rec []byte) { rec[20] = 0x28 },
		"no analog": func(rec []byte) { rec[20] = 0xc0 },
		"not ours":  func(rec []byte) { rec[5] = 0x2c },
		"compact":   func(rec []byte) { rec[3] = 2 },
		"not linear": func(rec []byte) {
			rec[23] = 0x70
		},
	} {
		rec := fullRecord(1, entitySystemBoard, "Power")
		change(rec)
		if s, ok := decodeSensor(rec); ok {
			t.Errorf("%s: taken for %+v", name, s)
		}
	}
}

func TestWhichSensorsStandForTheWall(t *testing.T) {
	t.Parallel()
	of := func(entity byte, name string) sensor { return sensor{entity: entity, name: name} }
	output := of(entityPowerSupply, "PS1 Power")
	output.output = true
	cases := []struct {
		name string
		have []sensor
		want []string
	}{
		{"nothing", nil, nil},
		{"only parts", []sensor{
			of(3, "P1 Power"), of(entitySystemBoard, "CPU Power"), of(entitySystemBoard, "Power Limit"), output,
		}, nil},
		{"the system before its supplies", []sensor{
			of(entityPowerSupply, "PS1 Input Power"), of(entitySystemBoard, "Pwr Consumption"),
		}, []string{"Pwr Consumption"}},
		{"the total before another", []sensor{of(entitySystemBoard, "Board Power"), of(entityChassis, "Total_Power")}, []string{"Total_Power"}},
		{"all supplies", []sensor{
			of(entityPowerSupply, "PS1 Input Power"), of(entityPowerSupply, "PS2 Input Power"), of(entityPowerSupply, "PS1 Pout"),
		}, []string{"PS1 Input Power", "PS2 Input Power"}},
	}
	for _, c := range cases {
		var got []string
		chosen := systemOf(c.have)
		if len(chosen) == 0 {
			chosen = suppliesOf(c.have)
		}
		for _, s := range chosen {
			got = append(got, s.name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
