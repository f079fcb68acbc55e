package originals

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"headroom/agent/statedir"
	"headroom/dvfs"
	"headroom/internal/durable"
)

const (
	// recordSize is the length of one record of written.log: small enough that a
	// record never crosses a page, so that a killed process leaves it whole.
	recordSize = 256
	// recordSizeOld is that of records without an identity, which stand in the order of
	// the journal.
	recordSizeOld = 128
	// recordsMost bounds the file: more than any machine has controls, with three for each of
	// its CPUs.
	recordsMost = 32768
	// noteWait is how long a turn waits for a record, once: a disk that answers takes
	// microseconds.
	noteWait = 50 * time.Millisecond
)

// errRecordLate reports a value that is not written, because the record of it is still
// on its way to a disk that does not answer.
var errRecordLate = errors.New("agent: write record not on disk yet")

// record is what was about to be written to a control, and what stood there.
type record struct {
	// Of is the identity of the control: neither the order of the journal nor a path
	// says whose record it is.
	Of         string `json:"of,omitempty"`
	Intent     int64  `json:"to"`
	Before     int64  `json:"from"`
	IntentText string `json:"to_text,omitempty"`
	BeforeText string `json:"from_text,omitempty"`
}

// identity names a control by what it is, whatever its path: labels carry package, die
// and constraint, or the policy.
func (c Saved) identity() string {
	sum := sha256.Sum256([]byte(string(c.Kind) + "\x00" + c.Label))
	return hex.EncodeToString(sum[:8])
}

// Trail is written.log: before each write of a control its record is replaced
// in place, so that after a kill at any point the control holds one of the two
// values of its record, or another program has written it. It needs no fsync:
// what could lose it (a power cut) resets the controls too.
//
// A lower value does not wait for a disk that does not answer, nor for one that
// refuses: its record follows as soon as it can. Whatever may raise power does.
type Trail struct {
	file  RecordFile
	slots map[string]slot // by path
	last  map[string]record
	turbo []string          // paths of the turbo switch
	at    map[string]int64  // by identity: where records stand, of controls that are gone too
	found map[string]record // by identity: as they were when the file was opened
	used  map[int64]bool    // offsets of them
	free  int64             // no offset below it is free
	old   bool              // the records that were found carry no identity

	batches chan map[int64][]byte
	done    chan error
	late    bool             // a batch is under way and was not waited for
	patient time.Duration    // what may be waited beyond noteWait, in all
	waiting map[int64][]byte // by offset: what follows it
	failed  error            // of the newest record
}

// RecordFile is written.log. Tests put a disk that hangs behind it.
type RecordFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// slot is where a control's record stands, and whose it is.
type slot struct {
	at   int64
	of   string
	kind Kind
}

// OpenTrail opens the records of the journal's controls. fresh throws the
// records of an earlier process away.
func OpenTrail(dir string, j *Journal, fresh bool) (*Trail, error) {
	flags := os.O_CREATE | os.O_RDWR
	if fresh {
		flags |= os.O_TRUNC
	}
	if err := durable.Regular(filepath.Join(dir, statedir.WrittenFile)); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, statedir.WrittenFile), flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("agent: open %s: %w", statedir.WrittenFile, err)
	}
	data, err := io.ReadAll(io.LimitReader(f, recordsMost*recordSize))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("agent: read %s: %w", statedir.WrittenFile, err), f.Close())
	}
	t := newTrail(f, j, data)
	if err := t.modernize(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Behind puts another file behind the records, such as one on a disk that hangs.
func (t *Trail) Behind(wrap func(RecordFile) RecordFile) { t.file = wrap(t.file) }

// newTrail finds the records of the journal's controls in what the file holds.
func newTrail(f RecordFile, j *Journal, data []byte) *Trail {
	t := &Trail{
		file: f, slots: map[string]slot{}, last: map[string]record{}, waiting: map[int64][]byte{},
		used: map[int64]bool{}, batches: make(chan map[int64][]byte, 1), done: make(chan error, 1),
	}
	found, at := recordsOf(j, data)
	t.old = len(found) > 0 && len(at) == 0
	for _, offset := range at {
		t.used[offset] = true
	}
	t.at, t.found = at, found
	t.Extend(j)
	go t.work()
	return t
}

// Extend takes in the controls that the journal has got since. It opens, reads and writes
// nothing: a control that was never written needs no record.
//
//headroom:control
func (t *Trail) Extend(j *Journal) {
	for _, c := range j.Controls {
		if t.Has(c.Path) {
			continue
		}
		of := c.identity()
		offset, ok := t.at[of]
		if !ok {
			for t.used[t.free] {
				t.free += recordSize
			}
			offset = t.free
			t.at[of], t.used[offset] = offset, true
		}
		t.slots[c.Path] = slot{at: offset, of: of, kind: c.Kind}
		if r, ok := t.found[of]; ok {
			t.last[c.Path] = r
		}
		if c.Kind.turbo() {
			t.turbo = append(t.turbo, c.Path)
		}
	}
}

// recordsOf are the records in the file, by identity, and where they stand. Those that
// carry none, of an earlier version, are the journal's in its order.
func recordsOf(j *Journal, data []byte) (found map[string]record, at map[string]int64) {
	found, at = map[string]record{}, map[string]int64{}
	for i := 0; i < len(data); i += recordSize {
		if r, ok := parseRecord(data[i:min(len(data), i+recordSize)]); ok && r.Of != "" {
			found[r.Of], at[r.Of] = r, int64(i)
		}
	}
	if len(found) > 0 {
		return found, at
	}
	for i, c := range j.Controls {
		from := i * recordSizeOld
		if from >= len(data) {
			break
		}
		if r, ok := parseRecord(data[from:min(len(data), from+recordSizeOld)]); ok && r.Of == "" {
			r.Of = c.identity()
			found[r.Of] = r
		}
	}
	return found, at
}

// parseRecord reads one record; a short or missing one is no record.
func parseRecord(line []byte) (r record, ok bool) {
	err := json.Unmarshal(bytes.TrimRight(line, " \n\x00"), &r)
	return r, err == nil
}

// modernize writes records of an earlier version as those of this one.
func (t *Trail) modernize() error {
	if !t.old {
		return nil
	}
	for path, s := range t.slots {
		line := blank()
		if r, ok := t.last[path]; ok {
			var err error
			if line, err = r.line(); err != nil {
				return fmt.Errorf("agent: record %s: %w", path, err)
			}
		}
		if _, err := t.file.WriteAt(line, s.at); err != nil {
			return fmt.Errorf("agent: record %s: %w", path, err)
		}
	}
	return nil
}

// Note records that value is about to be written where before stands.
func (t *Trail) Note(path string, to, before int64) error {
	return t.NoteValue(path, Value{Number: to}, Value{Number: before})
}

// NoteValue is note for any control.
//
//headroom:control
func (t *Trail) NoteValue(path string, to, before Value) error {
	s, ok := t.slots[path]
	if !ok {
		return fmt.Errorf("agent: %s is not in the journal", path)
	}
	r := record{Of: s.of, Intent: to.Number, Before: before.Number, IntentText: to.Text, BeforeText: before.Text}
	line, err := r.line()
	if err == nil {
		err = t.put(s.at, line, s.kind.lowers(to, before))
	}
	if err != nil {
		return fmt.Errorf("agent: record %s: %w", path, err)
	}
	t.last[path] = r
	return nil
}

// lowers reports whether writing to where before stands can only lower power.
func (k Kind) lowers(to, before Value) bool {
	switch k {
	case Power, Frequency:
		return to.Number <= before.Number
	case Switch, NoTurbo:
		return to.Number == 1
	case Boost:
		return to.Number == 0
	case Window, Preference, Bandwidth, BMC:
	}
	return false
}

// put writes one record. For a lower value it waits at most noteWait, once, and never
// fails.
func (t *Trail) put(at int64, line []byte, lowers bool) error {
	if !t.collect() && !t.await() {
		if !lowers {
			return errRecordLate
		}
		t.waiting[at] = line
		return nil
	}
	t.waiting[at] = line
	t.send()
	late := time.NewTimer(noteWait)
	defer late.Stop()
	select {
	case t.failed = <-t.done:
		t.late = false
	case <-late.C:
		if t.failed = errRecordLate; !lowers {
			t.await()
		}
	}
	if lowers {
		return nil
	}
	return t.failed
}

// await waits for the batch under way as long as patience lasts, and reports whether it
// has ended.
func (t *Trail) await() bool {
	began, late := time.Now(), time.NewTimer(t.patient)
	defer late.Stop()
	select {
	case t.failed = <-t.done:
		t.late = false
	case <-late.C:
	}
	t.patient = max(0, t.patient-time.Since(began))
	return !t.late
}

// send hands what waits to the goroutine that writes, which is idle.
func (t *Trail) send() {
	t.batches <- t.waiting // buffered, and there is only one
	t.late, t.waiting = true, map[int64][]byte{}
}

// collect reports whether the goroutine that writes is idle.
func (t *Trail) collect() bool {
	if !t.late {
		return true
	}
	select {
	case t.failed = <-t.done:
		t.late = false
	default:
	}
	return !t.late
}

// CatchUp writes what waited for the disk, without waiting for it, and returns what
// keeps the newest record from it.
//
//headroom:control
func (t *Trail) CatchUp() error {
	if t.collect() && len(t.waiting) > 0 {
		t.send()
	}
	return t.failed
}

func (t *Trail) work() {
	for batch := range t.batches {
		var errs []error
		for _, at := range slices.Sorted(maps.Keys(batch)) {
			_, err := t.file.WriteAt(batch[at], at)
			errs = append(errs, err)
		}
		t.done <- dvfs.Several(errs) // buffered, and there is only one
	}
}

// drop forgets the record of a control that is no longer powerd's.
func (t *Trail) drop(path string) {
	if s, ok := t.slots[path]; ok {
		_ = t.put(s.at, blank(), true)
		delete(t.found, s.of)
		delete(t.slots, path)
		delete(t.last, path)
	}
}

// blank is no record.
func blank() []byte { return append(bytes.Repeat([]byte{' '}, recordSize-1), '\n') }

// line is the record as it stands in the file.
func (r record) line() ([]byte, error) {
	line := blank()
	if r.IntentText == "" && r.BeforeText == "" {
		copy(line, fmt.Appendf(nil, `{"of":%q,"to":%d,"from":%d}`, r.Of, r.Intent, r.Before))
		return line, nil
	}
	data, err := json.Marshal(r)
	if err != nil || len(data) > recordSize-1 {
		return nil, errors.Join(err, fmt.Errorf("%d bytes do not fit a record", len(data)))
	}
	copy(line, data)
	return line, nil
}

// ours reports whether powerd itself may have left v in the control.
func (t *Trail) ours(c Saved, v Value) bool {
	if c.Kind.Same(v, c.Found()) {
		return true
	}
	r, ok := t.last[c.Path]
	return ok && (c.Kind.Same(v, Value{r.Intent, r.IntentText}) || c.Kind.Same(v, Value{r.Before, r.BeforeText}))
}

// Wrote is what powerd meant to write last, and false when it never wrote.
func (t *Trail) Wrote(path string) (Value, bool) {
	r, ok := t.last[path]
	return Value{r.Intent, r.IntentText}, ok
}

// switched reports whether powerd has written the turbo switch.
func (t *Trail) switched() bool {
	return slices.ContainsFunc(t.turbo, func(path string) bool { _, ever := t.last[path]; return ever })
}

// Has reports whether the control is in the journal that t belongs to.
func (t *Trail) Has(path string) bool { _, ok := t.slots[path]; return ok }

// Close writes what waited, and leaves a disk that does not answer to itself.
func (t *Trail) Close() error {
	var err error
	if t.settles() && len(t.waiting) > 0 {
		t.send()
		if t.settles() {
			err = t.failed
		}
	}
	close(t.batches)
	return errors.Join(err, t.file.Close())
}

// settles waits noteWait for the batch under way, and reports whether there is none.
func (t *Trail) settles() bool {
	if t.collect() {
		return true
	}
	late := time.NewTimer(noteWait)
	defer late.Stop()
	select {
	case t.failed = <-t.done:
		t.late = false
	case <-late.C:
	}
	return !t.late
}
