// Claim: wherever the power is cut while the denials are stored, a restart knows all that were
// stored before, and the new ones once they were stored.
package denials

import (
	"log/slog"
	"os"
	"testing"

	"headroom/internal/durable"
	"headroom/internal/durable/durabletest"
	"headroom/internal/leaks"
	"headroom/internal/secure"
	"headroom/ledger"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m, os.Stderr)) }

func testStore(disk durable.FS) *Store {
	s := New(Config{Server: "c1", StateDir: "/state", Disk: disk, Denials: secure.NewDenials(), Tell: func() {}, Logger: slog.New(slog.DiscardHandler)})
	s.Recall()
	return s
}

func TestDenialsSurviveAPowerCut(t *testing.T) {
	t.Parallel()
	before := func() *durabletest.Disk {
		d := durabletest.New()
		s := testStore(d)
		s.Deny([]ledger.Denial{{Identity: "node/n1", At: 1}})
		if err := s.store(); err != nil {
			t.Fatal(err)
		}
		return d
	}
	durabletest.EachCut(before, func(d durable.FS) error {
		s := testStore(d)
		s.Deny([]ledger.Denial{{Serial: "ab", At: 2}})
		return s.store()
	}, func(after durable.FS, done bool) {
		if got := testStore(after).denials.All(); len(got) != 2 && (done || len(got) != 1) || got[len(got)-1].Identity != "node/n1" {
			t.Errorf("stored: %v; after the power cut: %v", done, got)
		}
	})
}
