// Claims: the entries of a stopped server's log are read as they were written, from
// where they are asked for, and reading changes nothing; a running server's log is
// left alone.
package consensus

import (
	"errors"
	"fmt"
	"os"
	"testing"
)

func TestReadEntries(t *testing.T) {
	t.Parallel()
	cfg, _ := written(t, 5)
	before := copyDir(t, cfg.Dir)
	var all []Entry
	if err := ReadEntries(cfg, 0, func(e Entry) error { all = append(all, e); return nil }); err != nil {
		t.Fatal(err)
	}
	n := 0
	for i, e := range all {
		if e.Index != all[0].Index+uint64(i) || e.Term == 0 {
			t.Errorf("entry %d has index %d, term %d", i, e.Index, e.Term)
		}
		if e.Data != nil {
			if want := fmt.Sprintf("entry %d: ", n); string(e.Data[:len(want)]) != want || e.Stray || e.At.IsZero() {
				t.Errorf("entry %d is %q, stray %t, at %v", e.Index, e.Data, e.Stray, e.At)
			}
			n++
		}
	}
	if n != 5 {
		t.Errorf("%d entries of the machine, want 5", n)
	}
	enough := errors.New("enough")
	err := ReadEntries(cfg, all[2].Index, func(e Entry) error {
		if e.Index != all[2].Index {
			t.Errorf("began at %d, want %d", e.Index, all[2].Index)
		}
		return enough
	})
	if !errors.Is(err, enough) {
		t.Errorf("%v, want what the reader said", err)
	}
	cfg.Dir = before
	again := 0
	if err := ReadEntries(cfg, 0, func(Entry) error { again++; return nil }); err != nil || again != len(all) {
		t.Errorf("a copy from before the reading has %d entries, %v; want %d", again, err, len(all))
	}
}

func TestReadEntriesOfARunningServer(t *testing.T) {
	t.Parallel()
	cfg := diskConfig(t, 1)[0]
	cfg.Timing = quick()
	g := mustOpen(t, cfg, &tape{})
	defer func() { _ = g.Close() }()
	if err := ReadEntries(cfg, 0, func(Entry) error { return nil }); err == nil {
		t.Error("the log of a running server was read")
	}
	if err := os.RemoveAll(cfg.Dir + "-none"); err != nil {
		t.Fatal(err)
	}
	cfg.Dir += "-none"
	if err := ReadEntries(cfg, 0, func(Entry) error { return nil }); !errors.Is(err, errNoState) {
		t.Errorf("no log: %v", err)
	}
}
