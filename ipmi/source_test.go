// Claims: wall power comes from the first source that is plausible, or the one that was selected,
// and stays with it; sensor records that loop, repeat, are missing or unreadable, or belong to
// another sensor never make the sum of the supplies wrong; an empty bay draws nothing, a
// supply that vanishes makes power unknown.
package ipmi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"headroom/units"
)

// fakeRecord is a record of a plant: what is answered for an id.
type fakeRecord struct {
	id, next uint16 // next 0: the id of the record behind it
	body     []byte
	code     completion
}

// plant is a BMC with DCMI, records and sensors.
type plant struct {
	dcmi    func() (completion, []byte) // nil: no DCMI
	records []fakeRecord
	any     func(id uint16) fakeRecord // in place of records
	total   uint16                     // as Get SDR Repository Info tells; 0: refused
	raw     map[byte]byte              // readings by sensor; none: not present
	asked   int
}

func (p *plant) close() {}

func (p *plant) ask(_ context.Context, cmd command, data []byte) (completion, []byte, error) {
	p.asked++
	le := binary.LittleEndian
	switch {
	case cmd == powerReading() && p.dcmi != nil:
		code, data := p.dcmi()
		return code, data, nil
	case cmd == command{NetFn: netFnStorage, ID: 0x22}:
		return codeOK, []byte{1, 0}, nil
	case cmd == command{NetFn: netFnStorage, ID: 0x20} && p.total > 0:
		return codeOK, append([]byte{0x51}, le.AppendUint16(nil, p.total)...), nil
	case cmd == command{NetFn: netFnStorage, ID: 0x23}:
		rec := p.find(le.Uint16(data[2:]))
		if rec.code != codeOK {
			return rec.code, nil, nil
		}
		from := min(int(data[4]), len(rec.body))
		return codeOK, append(le.AppendUint16(nil, rec.next), rec.body[from:min(from+int(data[5]), len(rec.body))]...), nil
	case cmd == command{NetFn: netFnSensor, ID: 0x2d}:
		if raw, ok := p.raw[data[0]]; ok {
			return codeOK, []byte{raw, 0xc0, 0xc0}, nil
		}
		return codeNoData, nil, nil
	}
	return codeInvalid, nil, nil
}

func (p *plant) find(id uint16) fakeRecord {
	if p.any != nil {
		return p.any(id)
	}
	for i, rec := range p.records {
		if rec.id != id && (id != 0 || i != 0) {
			continue
		}
		if rec.next == 0 {
			rec.next = lastRecord
			if i+1 < len(p.records) {
				rec.next = p.records[i+1].id
			}
		}
		return rec
	}
	return fakeRecord{code: codeNoData}
}

// supply is the record of a supply's input, id and number the same.
func supply(id byte, name string) fakeRecord {
	return fakeRecord{id: uint16(id), body: fullRecord(id, entityPowerSupply, name)}
}

// lookAt is a reader of the plant whose clock the test moves.
func lookAt(p link, source string, now *time.Duration) *reader {
	cfg := Config{Mode: ModeInBand, Source: source}.withDefaults()
	m := &Meter{
		cfg: cfg, open: func(context.Context) (link, error) { return p, nil }, now: func() time.Duration { return *now },
		track: newTracker(limits{least: cfg.Least, most: cfg.Most, period: cfg.Period, timeout: cfg.Timeout}),
	}
	return newReader(m)
}

func TestSumOfTheSupplies(t *testing.T) {
	t.Parallel()
	both := []fakeRecord{supply(1, "PS1 Input Power"), supply(2, "PS2 Input Power")}
	with := func(more ...fakeRecord) []fakeRecord { return append(append([]fakeRecord{}, both...), more...) }
	renamed := supply(9, "PS1 Input Power")
	renamed.body[7] = 1 // another record, the same sensor
	bare := supply(7, "PS1 Power")
	bare.body[9] = 1 // of the same supply as PS1 Input Power
	cases := []struct {
		name  string
		bmc   plant
		watts units.Power // 0: unknown
		says  string
	}{
		{"as it should be", plant{records: both, total: 2}, 200 * units.Watt, ""},
		{"an unreadable record", plant{records: with(fakeRecord{id: 4, code: codeField}), total: 3}, 200 * units.Watt, "record 4 code 0xcc"},
		{
			"an unreadable record before",
			plant{records: append([]fakeRecord{{id: 5, next: 6, body: fullRecord(5, 3, "CPU")}, {id: 6, code: codeTimeout}, {id: 8, next: 1, body: fullRecord(8, 3, "CPU2")}}, both...)},
			200 * units.Watt,
			"record 6 timeout",
		},
		{"a record that does not exist", plant{records: []fakeRecord{both[0], {id: 2, next: 77, body: both[1].body}}, total: 2}, 200 * units.Watt, "record 77"},
		{"a loop over all records", plant{records: with(fakeRecord{id: 3, next: 1, body: fullRecord(3, 3, "CPU")}), total: 3}, 200 * units.Watt, ""},
		{"a loop over some records", plant{records: []fakeRecord{{id: 1, next: 1, body: both[0].body}, both[1]}, total: 2}, 0, "only 1 of 2"},
		{"a loop of unknown size", plant{records: []fakeRecord{{id: 1, next: 1, body: both[0].body}, both[1]}}, 0, "has no end"},
		{"a sensor twice", plant{records: with(renamed), total: 3}, 200 * units.Watt, ""},
		{"two sensors of a supply", plant{records: append([]fakeRecord{bare}, both...), total: 3}, 200 * units.Watt, ""},
		{"another sensor's record", plant{records: []fakeRecord{both[0], {id: 2, body: both[0].body}}, total: 2}, 0, "another sensor record"},
		{"a later sensor's record", plant{records: []fakeRecord{both[0], {id: 2, body: supply(3, "PS3").body}, supply(3, "PS3")}, total: 3}, 0, "another sensor record"},
		{"records left out", plant{records: both, total: 3}, 0, "only 2 of 3"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.bmc.raw = map[byte]byte{1: 25, 2: 25, 3: 25, 7: 25}
			now := time.Hour
			obs, err := lookAt(&c.bmc, ChoiceAuto, &now).observe(t.Context())
			if got := obs.power; err != nil || (obs.why == "") != (c.watts > 0) || c.watts > 0 && got != c.watts || !strings.Contains(obs.why+obs.note, c.says) {
				t.Errorf("%v (%s; %s), %v; want %v %q", got, obs.why, obs.note, err, c.watts, c.says)
			}
			if c.watts > 0 {
				return
			}
			// The operator may know better.
			if obs, err := lookAt(&c.bmc, ChoiceSensors, &now).observe(t.Context()); err != nil || obs.why != "" {
				t.Errorf("source sensors: %s, %v", obs.why, err)
			}
		})
	}
}

// A BMC with more records than any has is asked a bounded number of times, and its supplies are
// not summed: one may be among those that were not read.
func TestEndlessRecords(t *testing.T) {
	t.Parallel()
	p := &plant{any: func(id uint16) fakeRecord {
		name := fmt.Sprintf("PS%d", id)
		body := fullRecord(byte(id), entityPowerSupply, name)
		binary.LittleEndian.PutUint16(body, id)
		return fakeRecord{next: id + 1, body: body}
	}}
	now := time.Hour
	obs, err := lookAt(p, ChoiceAuto, &now).observe(t.Context())
	if err != nil || !strings.Contains(obs.why, "has no end") || p.asked > 6*maxRecords {
		t.Errorf("%+v, %v after %d questions", obs, err, p.asked)
	}
}

func TestEmptySupplyBay(t *testing.T) {
	t.Parallel()
	p := &plant{records: []fakeRecord{supply(1, "PS1 Input Power"), supply(2, "PS2 Input Power")}, raw: map[byte]byte{1: 30}}
	now := time.Hour
	r := lookAt(p, ChoiceAuto, &now)
	look := func() observation {
		t.Helper()
		now += time.Second
		obs, err := r.observe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return obs
	}
	if obs := look(); obs.why != "" || obs.power != 120*units.Watt || !strings.Contains(obs.note, "PS2 Input Power counts as 0 W") || obs.sensors != "PS1 Input Power" {
		t.Errorf("an empty bay: %+v", obs)
	}
	p.raw[2] = 30
	if obs := look(); obs.why != "" || obs.power != 240*units.Watt || obs.note != "" {
		t.Errorf("a supply was plugged in: %+v", obs)
	}
	delete(p.raw, 2)
	r.hangUp() // a new login forgets nothing
	if obs := look(); !strings.Contains(obs.why, `"PS2 Input Power" is not present`) {
		t.Errorf("a supply vanished: %+v", obs)
	}
	delete(p.raw, 1)
	r = lookAt(p, ChoiceAuto, &now)
	if obs := look(); obs.why == "" {
		t.Errorf("no supply at all: %+v", obs)
	}
}

func TestSourceIsChosen(t *testing.T) {
	t.Parallel()
	zero := func() (completion, []byte) {
		b := dcmiAnswer()
		copy(b[1:], []byte{0, 0, 0, 0, 0, 0, 0, 0})
		return codeOK, b
	}
	answers := func(b []byte) func() (completion, []byte) {
		return func() (completion, []byte) { return codeOK, b }
	}
	huge := dcmiAnswer()
	binary.LittleEndian.PutUint16(huge[1:], 60_000)
	board := fakeRecord{id: 3, body: fullRecord(3, entitySystemBoard, "total_power")}
	all := []fakeRecord{supply(1, "PS1 Input Power"), supply(2, "PS2 Input Power"), board}
	cases := []struct {
		name   string
		source string
		bmc    plant
		watts  units.Power // 0: unknown
		says   string      // note, reason or error
		err    error
	}{
		{"DCMI first", "", plant{dcmi: answers(dcmiAnswer()), records: all}, 143 * units.Watt, "", nil},
		{"DCMI reads 0 W", "", plant{dcmi: zero, records: all}, 120 * units.Watt, "DCMI not used: the BMC reads 0 W", nil},
		{"DCMI answers nothing", "", plant{dcmi: answers(nil), records: all}, 120 * units.Watt, "DCMI not used", nil},
		{"DCMI reads what the node cannot draw", "", plant{dcmi: answers(huge), records: all}, 120 * units.Watt, "above the maximum", nil},
		{"the node's sensor is absent", "", plant{records: all[:2]}, 200 * units.Watt, "", nil},
		{"DCMI selected", ChoiceDCMI, plant{dcmi: zero, records: all}, 0, "the BMC reads 0 W", nil},
		{"DCMI selected and missing", ChoiceDCMI, plant{records: all}, 0, "no DCMI power reading", ErrNoReading},
		{"sensors selected", ChoiceSensors, plant{dcmi: answers(dcmiAnswer()), records: all}, 120 * units.Watt, "", nil},
		{"a sensor selected", "PS2 Input Power", plant{dcmi: answers(dcmiAnswer()), records: all}, 100 * units.Watt, "", nil},
		{"no such sensor", "PSU9", plant{records: all}, 0, `no watt sensor "PSU9"; the BMC has PS1 Input Power + PS2 Input Power + total_power`, ErrNoReading},
		{"nothing at all", "", plant{}, 0, "no DCMI power reading (no such command (code 0xc1)), no watt sensor of the node", ErrNoReading},
		{"all bad", "", plant{dcmi: zero, records: []fakeRecord{{id: 9, body: fullRecord(9, entitySystemBoard, "wall")}}}, 0, "DCMI not used: the BMC reads 0 W; sensor of the node not used", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.bmc.raw = map[byte]byte{1: 25, 2: 25, 3: 30}
			now := time.Hour
			obs, err := lookAt(&c.bmc, c.source, &now).observe(t.Context())
			said := obs.why + obs.note
			if err != nil {
				said = err.Error()
			}
			if !errors.Is(err, c.err) || (err == nil && obs.why == "") != (c.watts > 0) || obs.power != c.watts && c.watts > 0 || !strings.Contains(said, c.says) {
				t.Errorf("%v %q, %v; want %v %q", obs.power, said, err, c.watts, c.says)
			}
		})
	}
}

// A source that was good keeps its place through a moment of nonsense, and so does DCMI on a BMC
// that is busy when powerd starts: each change of source is a step in the value.
func TestSourceStays(t *testing.T) {
	t.Parallel()
	code, good := codeBusy, dcmiAnswer()
	p := &plant{
		dcmi: func() (completion, []byte) { return code, good }, raw: map[byte]byte{3: 30},
		records: []fakeRecord{{id: 3, body: fullRecord(3, entitySystemBoard, "total_power")}},
	}
	now := time.Hour
	r := lookAt(p, ChoiceAuto, &now)
	look := func() observation {
		now += time.Second
		obs, err := r.observe(t.Context())
		if err != nil {
			obs.why = err.Error()
		}
		return obs
	}
	if obs := look(); !strings.Contains(obs.why, "busy") {
		t.Errorf("busy once: %+v", obs)
	}
	code = codeOK
	if obs := look(); obs.source != SourceDCMI || obs.why != "" {
		t.Errorf("no longer busy: %+v", obs)
	}
	good = nil
	for range int(switchAfter / time.Second) {
		if obs := look(); obs.why == "" {
			t.Fatalf("another source within %v: %+v", switchAfter, obs)
		}
	}
	if obs := look(); obs.source != SourceSDR || obs.power != 120*units.Watt || !strings.Contains(obs.note, "DCMI not used") {
		t.Errorf("DCMI is gone for good: %+v", obs)
	}
	good = dcmiAnswer()
	if obs := look(); obs.source != SourceSDR || !strings.Contains(obs.note, "DCMI not used") {
		t.Errorf("it stays with the sensor: %+v", obs)
	}
}

func TestSourceIsRefusedInWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"": true, "auto": true, "dcmi": true, "sensors": true, "PSU0_PIN": true, "PS1 Input Power": true,
		"DCMI": false, "sensor": false, "Sensors": false, "sdr": false, "off": false, " PS1": false, "a\x01b": false, "PSÜ": false,
		"longer than sixteen": false,
	} {
		if got := ValidSource(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	m := Start(Config{Mode: ModeLAN, Address: "192.0.2.1", Source: "DCMI"}, nil)
	defer m.Close()
	if r := m.Latest(); r.State != StateAbsent || !strings.Contains(r.Why, `source "DCMI"; have auto, dcmi, sensors`) {
		t.Errorf("%+v", r)
	}
}

// FuzzRecords lets bytes answer the walk through the records.
func FuzzRecords(f *testing.F) {
	f.Add(append([]byte{0, 0xff, 0xff}, fullRecord(1, entityPowerSupply, "PS1 Input Power")...))
	f.Add([]byte{0xcc, 0, 0, 0, 2, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		p := &plant{any: func(id uint16) fakeRecord {
			if len(b) < 3 {
				return fakeRecord{code: codeNoData}
			}
			from := b[int(id)%len(b):]
			if len(from) < 3 {
				return fakeRecord{code: codeField}
			}
			return fakeRecord{code: completion(from[0] & from[1]), next: binary.LittleEndian.Uint16(from[1:]), body: from[3:]}
		}}
		recs, err := listSensors(t.Context(), p)
		if p.asked > reserveTries*maxRecords*20 {
			t.Fatalf("%d questions", p.asked)
		}
		if err != nil {
			return
		}
		numbers := map[byte]bool{}
		for _, s := range recs.watts {
			if numbers[s.number] {
				t.Fatalf("sensor %d twice", s.number)
			}
			numbers[s.number] = true
		}
		if len(suppliesOf(recs.watts)) > len(recs.watts) || len(systemOf(recs.watts)) > 1 {
			t.Fatalf("more sources than sensors: %+v", recs)
		}
	})
}
