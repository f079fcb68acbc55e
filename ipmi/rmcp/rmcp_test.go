// Claims: what one end packs the other opens; a packet that was changed on its way is
// refused before anything in it counts; no bytes make the frames panic.
package rmcp

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

func TestPacketsSurviveTheWay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := DeriveKeys(rapid.SampledFrom(Suites()).Draw(t, "suite"), rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(t, "sik"))
		p := Packet{
			Kind: PayloadIPMI, Session: rapid.Uint32().Draw(t, "session"), Sequence: rapid.Uint32().Draw(t, "sequence"),
			Payload: rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "payload"),
		}
		b, err := p.Pack(&k)
		if err != nil {
			t.Fatal(err)
		}
		if id, ok := protected(b); !ok || id != p.Session {
			t.Fatalf("session %d, %v", id, ok)
		}
		got, err := Unpack(b, &k)
		if err != nil || got.Session != p.Session || got.Sequence != p.Sequence || !bytes.Equal(got.Payload, p.Payload) {
			t.Fatalf("%+v, %v; want %+v", got, err, p)
		}
		at := rapid.IntRange(4, len(b)-1).Draw(t, "at")
		b[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, err := Unpack(b, &k); err == nil {
			t.Fatalf("byte %d was changed and the packet is taken", at)
		}
		if _, err := Unpack(b, nil); err == nil && b[5]&(flagEncrypted|flagSigned) != 0 {
			t.Fatal("a protected packet is taken without keys")
		}
	})
}

func TestMessages(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cmd := Command{NetFn: rapid.ByteRange(0, 31).Draw(t, "netfn") << 1, ID: rapid.Byte().Draw(t, "id")}
		sequence, data := rapid.ByteRange(0, 63).Draw(t, "sequence"), rapid.SliceOf(rapid.Byte()).Draw(t, "data")
		c, s, d, err := parseRequest(Request(cmd, sequence, data))
		if err != nil || c != cmd || s != sequence || !bytes.Equal(d, data) {
			t.Fatalf("%v %d %x %v", c, s, d, err)
		}
		answer := answerTo(cmd, sequence, 0xc0, data)
		code, d, err := ParseAnswer(answer, cmd, sequence)
		if err != nil || code != 0xc0 || !bytes.Equal(d, data) {
			t.Fatalf("%#x %x %v", code, d, err)
		}
		if _, _, err := ParseAnswer(answer, cmd, sequence^1); err == nil {
			t.Fatal("the answer to another request is taken")
		}
	})
}

// Nothing that was packed under other keys is taken.
func FuzzUnpack(f *testing.F) {
	other := DeriveKeys(Suites()[0], []byte("the other end's"))
	b, err := Packet{Session: 7, Sequence: 1, Payload: Request(Command{NetFn: 6, ID: 1}, 1, nil)}.Pack(&other)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	k := DeriveKeys(Suites()[0], []byte("ours"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = protected(b)
		if _, err := Unpack(b, &k); err == nil {
			t.Errorf("%x is taken without the keys", b)
		}
		if p, err := Unpack(b, nil); err == nil {
			_, _, _, _ = parseRequest(p.Payload)
		}
		if plain, err := unseal(b, k.k2); err == nil {
			_, _, _ = ParseAnswer(plain, Command{NetFn: 6, ID: 1}, 1)
		}
	})
}
