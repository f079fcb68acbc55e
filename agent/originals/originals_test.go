// Claims: a journal that is not exactly what was written is refused, whatever is wrong
// with it; records of an earlier version are taken over; the BMC's limit survives the
// journal's words; a ceiling goes back as far as today's range goes.
package originals

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"headroom/agent/statedir"
	"headroom/ipmi"
	"headroom/rapl/sysfs"
	"headroom/units"
)

func someJournal() *Journal {
	return &Journal{
		Version: JournalVersion, Node: "n01", BootID: "b", SavedUs: 1,
		Controls: []Saved{
			{Path: "sys/a", Label: "package-0 long_term limit", Kind: Power, Original: 185_000_000},
			{Path: "sys/b", Label: "package-0 long_term window", Kind: Window, Original: 999_424},
			{Path: "sys/c", Label: "package-0 limits switch", Kind: Switch, Original: 1},
		},
	}
}

func TestDamagedJournalIsRefused(t *testing.T) {
	t.Parallel()
	data, err := someJournal().Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeJournal(data); err != nil {
		t.Fatalf("an undamaged journal: %v", err)
	}
	for n := range len(data) - 2 { // the newline and the brace before it may be missing to JSON, not to us
		if _, err := decodeJournal(data[:n]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut after %d of %d bytes: %v, want ErrDamaged", n, len(data), err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		bad := bytes.Clone(data)
		at := rapid.IntRange(0, len(bad)-1).Draw(t, "at")
		bad[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		j, err := decodeJournal(bad)
		if err != nil {
			return
		}
		// What JSON reads alike (blanks, the case of a key) is no damage.
		if again, err := j.Encode(); err != nil || !bytes.Equal(again, data) {
			t.Fatalf("byte %d flipped and taken as %s", at, again)
		}
	})
}

func FuzzDecodeJournal(f *testing.F) {
	data, err := someJournal().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("{}"))
	f.Add([]byte(`{"version":1,"controls":[{"kind":"power"}],"sum":""}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := decodeJournal(data)
		if err != nil {
			return
		}
		again, err := j.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeJournal(again); err != nil {
			t.Fatalf("%q was taken, its own encoding was not: %v", data, err)
		}
	})
}

// Records that an earlier version wrote, without identity, are taken over.
func TestOldRecordsAreTakenOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := &Journal{Controls: []Saved{
		{Path: "a", Label: "package-0 long_term limit", Kind: Power},
		{Path: "b", Label: "package-0 limits switch", Kind: Switch},
		{Path: "c", Label: "package-1 long_term limit", Kind: Power},
	}}
	old := fmt.Sprintf("%-127s\n%-127s\n%-127s\n", `{"to":90000000,"from":150000000}`, "", `{"to":80000000,"from":140000000}`)
	if err := os.WriteFile(filepath.Join(dir, statedir.WrittenFile), []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // as they were, and as they are written anew
		trail, err := OpenTrail(dir, j, false)
		if err != nil {
			t.Fatal(err)
		}
		a, okA := trail.Wrote("a")
		_, okB := trail.Wrote("b")
		c, okC := trail.Wrote("c")
		if !okA || a.Number != 90000000 || okB || !okC || c.Number != 80000000 {
			t.Errorf("a %v %v, b %v, c %v %v", a, okA, okB, c, okC)
		}
		if err := trail.Close(); err != nil {
			t.Error(err)
		}
		slices.Reverse(j.Controls)
	}
}

// The BMC's saved limit survives the journal's words, whatever it was.
func TestSavedLimitReadsBack(t *testing.T) {
	t.Parallel()
	for _, l := range []ipmi.Limit{
		{},
		{Power: 250 * units.Watt, Active: true, Action: ipmi.ActionPowerOff, Correction: time.Second, Period: time.Minute},
		{Power: 65535 * units.Watt, Action: ipmi.ActionLog, Correction: 4294967295 * time.Millisecond, Period: 65535 * time.Second},
	} {
		got, err := DecodeLimit(EncodeLimit(l))
		if err != nil || got != l {
			t.Errorf("%+v came back as %+v, %v", l, got, err)
		}
		r := record{IntentText: EncodeLimit(l), BeforeText: EncodeLimit(l)}
		if line, err := r.line(); err != nil || len(line) != recordSize {
			t.Errorf("record of %d bytes, %v", len(line), err)
		}
	}
	for _, bad := range []string{"", "x", "1 true", "1 maybe 0 0 0"} {
		if _, err := DecodeLimit(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// Lesson 20: a ceiling that was saved above the range of today goes back as far as the
// range goes, and the node is done with it.
func TestCeilingGoesBackAsFarAsTheRange(t *testing.T) {
	t.Parallel()
	const policy = "sys/devices/system/cpu/cpufreq/policy0/"
	root := t.TempDir()
	for file, text := range map[string]string{
		policy + "cpuinfo_max_freq": "2400000", policy + "cpuinfo_min_freq": "1000000",
		policy + "scaling_max_freq": "1500000", policy + "scaling_min_freq": "1500000",
	} {
		at := filepath.Join(root, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := os.OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tree.Close() }()
	files, err := sysfs.NewFiles(tree)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = files.Close() }()
	ceiling := Saved{Path: policy + "scaling_max_freq", Label: "policy0 frequency ceiling", Kind: Frequency, Original: 3_400_000}
	floor := Saved{Path: policy + "scaling_min_freq", Label: "policy0 frequency floor", Kind: Frequency, Original: 800_000}
	limit := Saved{Path: "sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw", Kind: Power, Original: 3_400_000}
	for _, c := range []struct {
		control Saved
		reads   int64
		want    bool
	}{
		{ceiling, 2_400_000, true},
		{ceiling, 2_300_000, false},
		{ceiling, 3_400_000, false},
		{floor, 1_000_000, true},
		{floor, 1_200_000, false},
		{floor, 800_000, false},
		{limit, 2_400_000, false},
	} {
		if got := rangeMoved(files, c.control, c.reads); got != c.want {
			t.Errorf("%s reads %d: the range moved %v, want %v", c.control.Label, c.reads, got, c.want)
		}
	}
}

// slowRecords is written.log on a disk that takes its time.
type slowRecords struct {
	RecordFile

	takes time.Duration
}

func (r slowRecords) WriteAt(b []byte, at int64) (int, error) {
	time.Sleep(r.takes)
	return r.RecordFile.WriteAt(b, at)
}

// The way back waits for a slow disk, which the loop does not; one that hangs keeps
// it for a bounded time, and what could not be recorded stays saved.
func TestTheWayBackWaitsForASlowDisk(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		takes  time.Duration
		failed int
		most   time.Duration
	}{{0, 0, 0}, {200 * time.Millisecond, 0, 2 * time.Second}, {time.Minute, 3, 4 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = root.Close() }()
			files, err := sysfs.NewFiles(root)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = files.Close() }()
			j := &Journal{}
			for _, name := range []string{"a", "b", "c"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte("0\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				j.Controls = append(j.Controls, Saved{Path: name, Label: name, Kind: Switch, Original: 0})
			}
			trail, err := OpenTrail(dir, j, true)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range j.Controls {
				if err := errors.Join(trail.Note(c.Path, 1, 0), os.WriteFile(filepath.Join(dir, c.Path), []byte("1\n"), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			trail.Behind(func(f RecordFile) RecordFile { return slowRecords{f, c.takes} })
			began := time.Now()
			out := PutBack(files, j, trail, FilesOnly)
			if took := time.Since(began); out.Failed != c.failed || len(out.Restored) != 3-c.failed || took > c.most {
				t.Errorf("a disk that takes %v: %+v after %v", c.takes, out, took)
			}
			if err := trail.Close(); err != nil && c.failed == 0 {
				t.Error(err)
			}
			time.Sleep(5 * c.takes) // nothing is left under way
		})
	}
}

// A write that was recorded and never happened leaves what it was to replace, which powerd left too: a
// kill, or a stop, between the record and the write makes nobody else's value of it.
func TestPutBackAfterAWriteThatNeverHappened(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{BMC, Bandwidth} {
		for stands, restored := range map[int64]bool{40: true, 30: true, 77: false} { // written before, intended, another's
			c := Saved{Path: "far:" + string(kind), Label: "far", Kind: kind, Original: 90}
			j := &Journal{Controls: []Saved{c}}
			trail, err := OpenTrail(t.TempDir(), j, true)
			if err != nil {
				t.Fatal(err)
			}
			if err := trail.NoteValue(c.Path, Value{Number: 40}, Value{Number: 90}); err != nil {
				t.Fatal(err)
			}
			if err := trail.NoteValue(c.Path, Value{Number: 30}, Value{Number: 40}); err != nil {
				t.Fatal(err)
			}
			out := PutBack(nil, j, trail, func(_ Saved, wrote Value, _ bool) (string, bool, error) {
				if wrote.Number != stands {
					return "another writer has changed it", true, nil
				}
				stands = 90
				return "90", false, nil
			})
			if (len(out.Restored) == 1) != restored || (stands == 90) != restored {
				t.Errorf("%s: %+v, stands %d, want restored %v", kind, out, stands, restored)
			}
			if err := trail.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
