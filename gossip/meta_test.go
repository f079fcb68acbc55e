package gossip

import (
	"testing"

	"pgregory.net/rapid"
)

// What a member says of itself comes out as it went in.
func TestMetaRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := meta{
			role:    rapid.SampledFrom([]string{RoleCoordinator, RoleNode}).Draw(t, "role"),
			name:    rapid.StringMatching(`[a-zA-Z0-9._-]{1,128}`).Draw(t, "name"),
			rpc:     rapid.StringMatching(`[a-z0-9.]{1,200}:[0-9]{1,5}`).Draw(t, "rpc"),
			started: rapid.Uint64().Draw(t, "started"),
		}
		b := m.encode()
		if len(b) > 512 {
			t.Fatalf("%d bytes are more than memberlist carries", len(b))
		}
		got, err := decodeMeta(b)
		if err != nil || got != m {
			t.Fatalf("%+v became %+v, %v", m, got, err)
		}
	})
}

// Whatever a peer sends, it is refused or is a description that passes our own
// check and says the same again.
func FuzzMeta(f *testing.F) {
	f.Add(meta{role: RoleCoordinator, name: "c1", rpc: "10.0.0.1:7400", started: 1}.encode())
	f.Add(meta{role: RoleNode, name: "n"}.encode())
	f.Add([]byte{metaV1, 'n', 0x80})
	f.Add([]byte{2, 'n', 0, 1, 'x', 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b)
		if err != nil {
			return
		}
		if err := m.check(); err != nil {
			t.Fatalf("accepted %+v: %v", m, err)
		}
		again, err := decodeMeta(m.encode())
		if err != nil || again != m {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
	})
}
