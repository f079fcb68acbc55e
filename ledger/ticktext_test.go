// Claim: the quick reading of ticks is encoding/json's, on every text: it takes none that
// encoding/json refuses, and reads from each what encoding/json reads.
package ledger

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/lease"
	"headroom/units"
)

func sameAsJSON(t interface{ Fatalf(string, ...any) }, data []byte) (read bool) {
	quick, ok := readTick(data)
	if !ok {
		return false
	}
	want, err := strict(data)
	if err != nil || !reflect.DeepEqual(quick, want) {
		t.Fatalf("%q\nis read as %+v, tick %+v,\nby encoding/json as %+v, tick %+v (%v)", data, quick, quick.Tick, want, want.Tick, err)
	}
	return true
}

// What a leader writes in a usual second is read quickly; what is more than that is not.
func TestReadTickIsJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := Command{Rules: Rules, Epoch: lease.Epoch{Incarnation: 3, Term: rapid.Uint64Max(1<<40).Draw(t, "term")}, At: 5, Actor: "coordinator/c1"}
		c.Tick = &Tick{Elapsed: time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "elapsed"))}
		name := rapid.StringMatching(`[a-z0-9.:-]{0,12}`)
		number := rapid.Uint64Max(1 << 59)
		for range rapid.IntRange(0, 4).Draw(t, "acks") {
			c.Tick.Acks = append(c.Tick.Acks, Ack{
				Node: name.Draw(t, "node"), Process: number.Draw(t, "process"), Number: number.Draw(t, "number"), Seq: number.Draw(t, "seq"),
				Effective: units.Power(number.Draw(t, "effective")), Stored: units.Power(number.Draw(t, "stored")),
			})
		}
		for range rapid.IntRange(0, 4).Draw(t, "targets") {
			c.Tick.Targets = append(c.Tick.Targets, Target{Node: name.Draw(t, "node"), Cap: units.Power(number.Draw(t, "cap"))})
		}
		more := rapid.Bool().Draw(t, "more")
		if more {
			c.Tick.Admit = []string{"n01"}
		}
		data, err := c.Encode()
		if err != nil {
			t.Fatalf("%v", err)
		}
		if read := sameAsJSON(t, data); read == more {
			t.Fatalf("%s: read quickly: %v", data, read)
		}
	})
}

// Texts that are nearly such a tick.
func TestReadTickRefuses(t *testing.T) {
	t.Parallel()
	const ack = `{"node":"n","process":1,"number":2,"seq":3,"effective_uw":4,"stored_uw":5}`
	full := fmt.Sprintf(`{"rules":1,"epoch":{"incarnation":1,"term":1},"tick":{"elapsed_ns":7,"acks":[%s,%s],"targets":[{"node":"n","cap_uw":9}]}}`, ack, ack)
	if !sameAsJSON(t, []byte(full)) {
		t.Fatal("the tick itself is not read")
	}
	for _, change := range [][2]string{
		{`{"rules":1,`, `{`}, // nothing before the tick
		{`{"rules":1,"epoch":{"incarnation":1,"term":1}`, `{`}, // a comma too much
		{`{"rules":1,"epoch":{"incarnation":1,"term":1}`, `{"rules":1}`},
		{`"rules":1`, `"rules":1,"tick":{"elapsed_ns":1}`}, // twice
		{`"rules":1`, `"rules":1,"lead":{"server":"c1"}`},
		{`"rules":1`, `"rules":1,"strange":1`},
		{`"term":1}`, `"term":1`},
		{`"node":"n"`, `"node":"\u006e"`},
		{`"node":"n"`, "\"node\":\"n\xff\""},
		{`"node":"n"`, `"node":"ü"`},
		{`"node":"n"`, "\"node\":\"n\n\""},
		{`"node":"n"`, `"node":n`},
		{`"seq":3`, `"seq":03`},
		{`"seq":3`, `"seq":-3`},
		{`"seq":3`, `"seq":3e1`},
		{`"seq":3`, `"seq":`},
		{`"seq":3`, `"seq":18446744073709551616`},
		{`"seq":3`, `"seq":1844674407370955161`},
		{`"stored_uw":5`, `"stored_uw":5,"sprinting":true`},
		{ack + "," + ack, ""},
		{ack + "," + ack, ack + ","},
		{ack + "," + ack, ack + " , " + ack},
		{`]}}`, `]}`},
		{`]}}`, `]}}}`},
		{`]}}`, `]}} {}`},
		{`]}}`, `]},"actor":"x"}`},
		{`]}}`, `],"admit":["n"]}}`},
	} {
		text := strings.ReplaceAll(full, change[0], change[1])
		if text == full || sameAsJSON(t, []byte(text)) {
			t.Errorf("read quickly: %s", text)
		}
	}
}

func FuzzReadTick(f *testing.F) {
	f.Add([]byte(`{"rules":1,"epoch":{"incarnation":1,"term":1},"at_us":5,"actor":"c1","tick":{"elapsed_ns":7,"acks":[{"node":"n","process":1,"number":2,"seq":3,"effective_uw":4,"stored_uw":5}],"targets":[{"node":"n","cap_uw":9}]}}`))
	f.Add([]byte(`{"rules":1,"tick":{"elapsed_ns":0}}`))
	f.Add([]byte(`{,"tick":{"elapsed_ns":0}}`))
	f.Fuzz(func(t *testing.T, data []byte) { sameAsJSON(t, data) })
}
