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
	"time"

	"headroom/rapl"
	"headroom/rapl/sysfs"
	"headroom/units"
)

// kind says what a control holds, and so how its values are compared and shown.
type kind string

// Kinds of control.
const (
	powerControl  kind = "power"  // microwatts, rounded to 1/8 W by hardware
	windowControl kind = "window" // microseconds, rounded to a coarse ladder
	switchControl kind = "switch" // 0 or 1
)

// windowSlack is how far a window may read back, as a part of it (rapl.SetWindow).
const windowSlack = 4

// same says whether two values are one but for what hardware rounds.
func (k kind) same(a, b int64) bool {
	switch k {
	case powerControl:
		return rapl.Same(units.Power(a), units.Power(b))
	case windowControl:
		return max(a-b, b-a) <= max(a, b)/windowSlack
	case switchControl:
	}
	return a == b
}

// text is a value for an operator.
func (k kind) text(v int64) string {
	switch k {
	case powerControl:
		return units.Power(v).String()
	case windowControl:
		return (time.Duration(v) * time.Microsecond).String()
	case switchControl:
	}
	if v == 0 {
		return "off"
	}
	return "on"
}

// saved is one control as it was found.
type saved struct {
	// Path below the root.
	Path string `json:"path"`
	// Label for operators: "package-0 long_term limit".
	Label string `json:"label"`
	Kind  kind   `json:"kind"`
	// Original value, in the unit of the file. What was last written is in
	// written.log, which changes too often to be fsynced.
	Original int64 `json:"original"`
}

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
		switch c.Kind {
		case powerControl, windowControl, switchControl:
		default:
			return nil, fmt.Errorf("%w: control of unknown kind %q", ErrDamaged, c.Kind)
		}
	}
	return &j, nil
}

// loadJournal is the journal of an earlier powerd, nil when there is none.
func loadJournal(d disk) (*journal, error) {
	data, err := d.Read(journalFile)
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
	return d.Durable(journalFile, data)
}

// newJournal reads what the controls hold now.
func newJournal(node, bootID string, controls []control) (*journal, error) {
	j := &journal{Version: journalVersion, Node: node, BootID: bootID, SavedUs: nowUs()}
	for _, c := range controls {
		v, err := c.file.Read()
		if err != nil {
			return nil, fmt.Errorf("agent: save %s: %w", c.label, err)
		}
		j.Controls = append(j.Controls, saved{Path: c.file.Path(), Label: c.label, Kind: c.kind, Original: v})
	}
	return j, nil
}

// recordSize is the length of one record of written.log: small enough that a
// record never crosses a page, so that a killed process leaves it whole.
const recordSize = 128

// record is what was about to be written to a control, and what stood there.
type record struct {
	Intent int64 `json:"to"`
	Before int64 `json:"from"`
}

// trail is written.log: before each write of a control its record is replaced
// in place, so that after a kill at any point the control holds one of the two
// values of its record, or another program has written it. It needs no fsync:
// what could lose it (a power cut) resets the controls too.
type trail struct {
	file  *os.File
	index map[string]int64
	last  map[string]record
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
	}
	return t, nil
}

// note records that value is about to be written where before stands.
func (t *trail) note(path string, value, before int64) error {
	at, ok := t.index[path]
	if !ok {
		return fmt.Errorf("agent: %s is not in the journal", path)
	}
	r := record{Intent: value, Before: before}
	line := fmt.Appendf(make([]byte, 0, recordSize), `{"to":%d,"from":%d}`, value, before)
	for len(line) < recordSize-1 {
		line = append(line, ' ')
	}
	if _, err := t.file.WriteAt(append(line, '\n'), at); err != nil {
		return fmt.Errorf("agent: record %s: %w", path, err)
	}
	t.last[path] = r
	return nil
}

// ours says whether powerd itself may have left value in the control.
func (t *trail) ours(c saved, value int64) bool {
	if c.Kind.same(value, c.Original) {
		return true
	}
	r, ok := t.last[c.Path]
	return ok && (c.Kind.same(value, r.Intent) || c.Kind.same(value, r.Before))
}

func (t *trail) close() error { return t.file.Close() }

// adopt brings the journal of an earlier process up to this boot. A reboot has
// reset the limits, so whatever stands in a control that powerd did not leave
// there is the new original. It returns whether the journal changed.
func (j *journal) adopt(root *os.Root, bootID string, t *trail) bool {
	if j.BootID == bootID {
		return false
	}
	for i, c := range j.Controls {
		if v, err := sysfs.ReadInt(root, c.Path); err == nil && !t.ours(c, v) {
			j.Controls[i].Original = v
		}
	}
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
		if known[c.file.Path()] {
			continue
		}
		v, err := c.file.Read()
		if err != nil {
			return changed, fmt.Errorf("agent: save %s: %w", c.label, err)
		}
		j.Controls = append(j.Controls, saved{Path: c.file.Path(), Label: c.label, Kind: c.kind, Original: v})
		changed = true
	}
	return changed, nil
}
