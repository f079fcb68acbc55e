// Claims: a snapshot file holds the whole state and says what it holds; one that is cut,
// lengthened or has a bit flipped is refused, and its form is fixed.
package snapshot

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headroom/budget"
	"headroom/consensus"
	"headroom/coordinator/statemachine"
	"headroom/internal/cli"
	"headroom/ledger"
	"headroom/units"
)

// stateWithHeader is a state with a power tree and a node, and its header.
func stateWithHeader(t *testing.T) (Header, *ledger.State) {
	t.Helper()
	m := statemachine.New()
	for _, c := range []ledger.Command{
		{Lead: &ledger.Lead{Server: "c1"}},
		{Found: &ledger.Found{Domains: ledger.PlainDomains([]budget.Domain{
			{Name: "site/lab", Budget: 900 * units.Watt}, {Name: "rack/r1", Parent: "site/lab", Budget: 800 * units.Watt},
		})}},
		{Tick: &ledger.Tick{Seen: []ledger.Sighting{{
			Node: "n1", MachineID: "m1", Process: 1, Domain: "rack/r1", Rated: 250 * units.Watt, Floor: 60 * units.Watt, Max: 200 * units.Watt, FailSafe: 80 * units.Watt, Weight: 1, Controlled: true,
		}}}},
		{Tick: &ledger.Tick{Admit: []string{"n1"}}},
	} {
		c.Epoch.Incarnation, c.Epoch.Term = 1, 3
		data, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if a, ok := m.Apply(7, data).(statemachine.Applied); !ok || a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	state, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var st *ledger.State
	m.View(func(s *ledger.State) { st = s })
	h := HeaderOf(st, state)
	h.Version, h.Server, h.Index, h.Saved = "1.2.3", "c1", 7, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return h, st
}

// A snapshot comes out of its file as it went in; whatever is cut off, added or
// flipped is found, and the file is for its owner only.
func TestSnapshotFile(t *testing.T) {
	t.Parallel()
	h, st := stateWithHeader(t)
	state, err := st.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "a.snap")
	if err := Write(path, h, state); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, again, err := read(bytes.NewReader(data))
	if err != nil || got != h {
		t.Fatalf("%+v, %v", got, err)
	}
	if same, err := again.Snapshot(); err != nil || !bytes.Equal(same, state) {
		t.Errorf("another state came out: %v", err)
	}
	head, _, _ := bytes.Cut(data[len(magic):], []byte("\n"))
	golden(t, "snapshot-header.json", append(head, '\n'))
	for n := range len(data) {
		if _, _, err := read(bytes.NewReader(data[:n])); !errors.Is(err, errFile) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	if _, _, err := read(bytes.NewReader(append(bytes.Clone(data), 'x'))); !errors.Is(err, errFile) {
		t.Errorf("a byte more: %v", err)
	}
	for at := range data { // a bit of each byte
		bad := bytes.Clone(data)
		bad[at] ^= 1 << (at % 8)
		head, other, err := read(bytes.NewReader(bad))
		if errors.Is(err, errFile) {
			continue
		}
		if err != nil || at >= len(data)-len(state) {
			t.Fatalf("bit %d of byte %d flipped: %v", at%8, at, err)
		}
		// What can pass is a note: who saved it, when, behind which entry.
		head.Version, head.Server, head.Saved, head.Index = h.Version, h.Server, h.Saved, h.Index
		if same, err := other.Snapshot(); err != nil || !bytes.Equal(same, state) || head != h {
			t.Fatalf("bit %d of byte %d flipped: another state, %v", at%8, at, err)
		}
	}
	broken := statemachine.New() // a server that is handed a damaged state keeps its own, whole
	if err := broken.Restore(state); err != nil {
		t.Fatal(err)
	}
	for n := range len(state) {
		if err := broken.Restore(state[:n]); err == nil {
			t.Fatalf("%d of %d bytes were restored", n, len(state))
		}
	}
	if kept, err := broken.Snapshot(); err != nil || !bytes.Equal(kept, state) {
		t.Errorf("a state that was refused has left something: %v", err)
	}
	lie := h
	lie.Revision++
	if err := Write(path, lie, state); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(path); exitCode(err) != cli.ExitFailed || !strings.Contains(err.Error(), "not of this state") {
		t.Errorf("a header of another state: %v", err)
	}
	if _, _, err := Load(path + ".none"); exitCode(err) != cli.ExitUsage {
		t.Errorf("no file: %v", err)
	}
}

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file of testdata, or writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s (%v; go test ./coordinator -update writes it):\n%s\nwant\n%s", name, err, got, want)
	}
}

// Whatever is in a file, reading it neither panics nor takes what does not add up.
func FuzzSnapshot(f *testing.F) {
	f.Add([]byte(magic + "{}\n"))
	f.Add([]byte(magic + `{"format":1,"bytes":2,"sha256":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}` + "\n{}"))
	f.Add(fmt.Appendf(nil, "%s{\"format\":1,\"bytes\":%d}\n", magic, consensus.MaxSnapshot))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, st, err := read(bytes.NewReader(data))
		if err == nil && (st == nil || h.Bytes <= 0 || h.Format != format) {
			t.Fatalf("took %+v", h)
		}
		if err != nil && !errors.Is(err, errFile) {
			t.Fatalf("%v", err)
		}
	})
}

func exitCode(err error) int {
	if e, ok := errors.AsType[*cli.Error](err); ok {
		return e.Exit
	}
	return -1
}
