package agent

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// saved is one control as it was found.
type saved struct {
	// Path below the root; of what is no file, "systemd:batch.slice" or "bmc:limit".
	Path string `json:"path"`
	// Label for operators: "package-0 long_term limit".
	Label string `json:"label"`
	Kind  kind   `json:"kind"`
	// Original value, in the unit of the file. What was last written is in
	// written.log, which changes too often to be fsynced.
	Original int64 `json:"original"`
	// Text is the original of a control that holds words.
	Text string `json:"text,omitempty"`
}

// found is the original as a value.
func (c saved) found() value { return value{c.Original, c.Text} }

// journal is every control that powerd may write, as it was before the first
// write. Invariant: it is on disk before any of its controls is written.
type journal struct {
	Version int    `json:"version"`
	Node    string `json:"node"`
	// BootID of the boot in which the originals were read: a reboot resets limits.
	BootID string `json:"boot_id"`
	// SavedUs is when, in microseconds since the Unix epoch.
	SavedUs  int64   `json:"saved_us"`
	Controls []saved `json:"controls"`
	// Sum is the SHA-256 of the journal with an empty Sum.
	Sum string `json:"sum"`
}

// journalVersion is the form of the file; another one is refused.
const journalVersion = 1

func (j *journal) encode() ([]byte, error) {
	sum, err := j.sum()
	if err != nil {
		return nil, err
	}
	whole := *j
	whole.Sum = sum
	data, err := json.MarshalIndent(whole, "", "  ")
	return append(data, '\n'), err
}

func (j *journal) sum() (string, error) {
	bare := *j
	bare.Sum = ""
	data, err := json.Marshal(bare)
	if err != nil {
		return "", fmt.Errorf("agent: journal: %w", err)
	}
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:]), nil
}

// decodeJournal refuses everything that encode did not write.
func decodeJournal(data []byte) (*journal, error) {
	var j journal
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&j); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	sum, err := j.sum()
	switch {
	case err != nil:
		return nil, err
	case j.Version != journalVersion:
		return nil, fmt.Errorf("%w: version %d, this powerd knows %d", ErrDamaged, j.Version, journalVersion)
	case sum != j.Sum:
		return nil, fmt.Errorf("%w: its checksum does not match", ErrDamaged)
	}
	for _, c := range j.Controls {
		if !c.Kind.known() {
			return nil, fmt.Errorf("%w: control of unknown kind %q", ErrDamaged, c.Kind)
		}
	}
	return &j, nil
}

// loadJournal is the journal of an earlier powerd, nil when there is none.
func loadJournal(d disk) (*journal, error) {
	data, err := d.Read(JournalFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeJournal(data)
}

func (j *journal) store(d disk) error {
	data, err := j.encode()
	if err != nil {
		return err
	}
	return d.Durable(JournalFile, data)
}

// clone is a copy that can be extended while the original is in use.
func (j *journal) clone() *journal {
	c := *j
	c.Controls = slices.Clone(j.Controls)
	return &c
}

// newJournal reads what the controls hold now.
func newJournal(node, bootID string, controls []control) (*journal, error) {
	j := &journal{Version: journalVersion, Node: node, BootID: bootID, SavedUs: nowUs()}
	for _, c := range controls {
		s, err := c.save()
		if err != nil {
			return nil, err
		}
		j.Controls = append(j.Controls, s)
	}
	return j, nil
}

// recordSize is the length of one record of written.log: small enough that a
// record never crosses a page, so that a killed process leaves it whole.
const recordSize = 128

// record is what was about to be written to a control, and what stood there.
type record struct {
	Intent     int64  `json:"to"`
	Before     int64  `json:"from"`
	IntentText string `json:"to_text,omitempty"`
	BeforeText string `json:"from_text,omitempty"`
}

// trail is written.log: before each write of a control its record is replaced
// in place, so that after a kill at any point the control holds one of the two
// values of its record, or another program has written it. It needs no fsync:
// what could lose it (a power cut) resets the controls too.
type trail struct {
	file  *os.File
	index map[string]int64
	last  map[string]record
	turbo []string // paths of the turbo switch
}

// openTrail opens the records of the journal's controls. fresh throws the
// records of an earlier process away.
func openTrail(dir string, j *journal, fresh bool) (*trail, error) {
	flags := os.O_CREATE | os.O_RDWR
	if fresh {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(filepath.Join(dir, writtenFile), flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("agent: open %s: %w", writtenFile, err)
	}
	t := &trail{file: f, index: map[string]int64{}, last: map[string]record{}}
	buf := make([]byte, recordSize)
	for i, c := range j.Controls {
		t.index[c.Path] = int64(i) * recordSize
		n, _ := f.ReadAt(buf, int64(i)*recordSize) // a short or missing record is no record
		var r record
		if json.Unmarshal(bytes.TrimRight(buf[:n], " \n\x00"), &r) == nil {
			t.last[c.Path] = r
		}
		if c.Kind.turbo() {
			t.turbo = append(t.turbo, c.Path)
		}
	}
	return t, nil
}

// note records that value is about to be written where before stands.
func (t *trail) note(path string, to, before int64) error {
	return t.noteValue(path, value{number: to}, value{number: before})
}

// noteValue is note for any control.
func (t *trail) noteValue(path string, to, before value) error {
	at, ok := t.index[path]
	if !ok {
		return fmt.Errorf("agent: %s is not in the journal", path)
	}
	r := record{Intent: to.number, Before: before.number, IntentText: to.text, BeforeText: before.text}
	line, err := r.line()
	if err != nil {
		return fmt.Errorf("agent: record %s: %w", path, err)
	}
	if _, err := t.file.WriteAt(line, at); err != nil {
		return fmt.Errorf("agent: record %s: %w", path, err)
	}
	t.last[path] = r
	return nil
}

// line is the record as it stands in the file.
func (r record) line() ([]byte, error) {
	line := make([]byte, 0, recordSize)
	if r.IntentText == "" && r.BeforeText == "" {
		line = fmt.Appendf(line, `{"to":%d,"from":%d}`, r.Intent, r.Before)
	} else {
		data, err := json.Marshal(r)
		if err != nil || len(data) > recordSize-1 {
			return nil, errors.Join(err, fmt.Errorf("%d bytes do not fit a record", len(data)))
		}
		line = append(line, data...)
	}
	for len(line) < recordSize-1 {
		line = append(line, ' ')
	}
	return append(line, '\n'), nil
}

// ours says whether powerd itself may have left v in the control.
func (t *trail) ours(c saved, v value) bool {
	if c.Kind.same(v, c.found()) {
		return true
	}
	r, ok := t.last[c.Path]
	return ok && (c.Kind.same(v, value{r.Intent, r.IntentText}) || c.Kind.same(v, value{r.Before, r.BeforeText}))
}

// wrote is what powerd meant to write last, and false when it never wrote.
func (t *trail) wrote(path string) (value, bool) {
	r, ok := t.last[path]
	return value{r.Intent, r.IntentText}, ok
}

// switched says that powerd has written the turbo switch.
func (t *trail) switched() bool {
	return slices.ContainsFunc(t.turbo, func(path string) bool { _, ever := t.last[path]; return ever })
}

// has says that the control is in the journal that t belongs to.
func (t *trail) has(path string) bool { _, ok := t.index[path]; return ok }

func (t *trail) close() error { return t.file.Close() }

// adopt brings the journal of an earlier process up to this boot. A reboot has
// reset the limits, so whatever stands in a control that powerd did not leave
// there is the new original. Bounds of slices ended with that boot; the BMC's
// limit did not. It returns whether the journal changed.
func (j *journal) adopt(root *os.Root, bootID string, t *trail) bool {
	if j.BootID == bootID {
		return false
	}
	for i, c := range j.Controls {
		if v, err := c.read(root); err == nil && !t.ours(c, v) {
			j.Controls[i].Original, j.Controls[i].Text = v.number, v.text
		}
	}
	j.Controls = slices.DeleteFunc(j.Controls, func(c saved) bool { return c.Kind == bandwidthControl })
	j.BootID = bootID
	return true
}

// extend adds controls that an earlier process did not know. It returns whether
// the journal changed.
func (j *journal) extend(controls []control) (bool, error) {
	known := map[string]bool{}
	for _, c := range j.Controls {
		known[c.Path] = true
	}
	changed := false
	for _, c := range controls {
		if known[c.path] {
			continue
		}
		s, err := c.save()
		if err != nil {
			return changed, err
		}
		j.Controls = append(j.Controls, s)
		changed = true
	}
	return changed, nil
}
