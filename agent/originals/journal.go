// Package originals saves the original values of controls, records what powerd writes, and
// restores them.
//
// A Journal holds the original values and is on disk before any of its controls is written.
// A Trail records each write before it happens. After a kill at any point, a control
// therefore holds its original value, a recorded value, or a value of another program, which
// is kept. PutBack restores the originals with both. A control is a file below a root, or a
// setting of another program (CPU bandwidth of a slice, limit of the BMC), which is reached
// through a Remote. The package does not decide what is written; powerd's loop does.
package originals

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"headroom/agent/statedir"
	"headroom/internal/durable"
	"headroom/rapl"
	"headroom/rapl/msr"
	"headroom/rapl/sysfs"
)

// ErrDamaged reports a journal that cannot be trusted.
var ErrDamaged = errors.New("journal damaged")

// Saved is one control as it was found.
type Saved struct {
	// Path below the root; of what is no file, "systemd:batch.slice" or "bmc:limit".
	Path string `json:"path"`
	// Label for operators: "package-0 long_term limit".
	Label string `json:"label"`
	Kind  Kind   `json:"kind"`
	// Original value, in the unit of the file. What was last written is in
	// written.log, which changes too often to be fsynced.
	Original int64 `json:"original"`
	// Text is the original of a control that holds words.
	Text string `json:"text,omitempty"`
	// Top: it is a ceiling that was met at the end of its range, while powerd had turbo
	// off. It had no bound of its own, so the end of the range with turbo goes back.
	Top bool `json:"top,omitempty"`
}

// Found is the original as a value.
func (c Saved) Found() Value { return Value{c.Original, c.Text} }

// Journal is every control that powerd may write, as it was before the first
// write. Invariant: it is on disk before any of its controls is written.
type Journal struct {
	Version int    `json:"version"`
	Node    string `json:"node"`
	// BootID of the boot in which the originals were read: a reboot resets limits.
	BootID string `json:"boot_id"`
	// SavedUs is when, in microseconds since the Unix epoch.
	SavedUs  int64   `json:"saved_us"`
	Controls []Saved `json:"controls"`
	// Sum is the SHA-256 of the journal with an empty Sum.
	Sum string `json:"sum"`
}

// JournalVersion is the form of the file; another one is refused.
const JournalVersion = 1

// Encode is the journal as its file, with its checksum.
func (j *Journal) Encode() ([]byte, error) {
	sum, err := j.sum()
	if err != nil {
		return nil, err
	}
	whole := *j
	whole.Sum = sum
	data, err := json.MarshalIndent(whole, "", "  ")
	return append(data, '\n'), err
}

func (j *Journal) sum() (string, error) {
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
func decodeJournal(data []byte) (*Journal, error) {
	var j Journal
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&j); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	sum, err := j.sum()
	switch {
	case err != nil:
		return nil, err
	case j.Version != JournalVersion:
		return nil, fmt.Errorf("%w: version %d, this powerd supports %d", ErrDamaged, j.Version, JournalVersion)
	case sum != j.Sum:
		return nil, fmt.Errorf("%w: checksum mismatch", ErrDamaged)
	}
	for _, c := range j.Controls {
		if !c.Kind.known() {
			return nil, fmt.Errorf("%w: control of unknown kind %q", ErrDamaged, c.Kind)
		}
	}
	return &j, nil
}

// Load is the journal of an earlier powerd, nil when there is none.
func Load(d statedir.Disk) (*Journal, error) {
	data, err := d.Read(statedir.JournalFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if errors.Is(err, durable.ErrNotRegular) {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return nil, err
	}
	return decodeJournal(data)
}

// Store makes the journal durable.
func (j *Journal) Store(d statedir.Disk) error {
	data, err := j.Encode()
	if err != nil {
		return err
	}
	return d.Durable(statedir.JournalFile, data)
}

// Clone is a copy that can be extended while the original is in use.
func (j *Journal) Clone() *Journal {
	c := *j
	c.Controls = slices.Clone(j.Controls)
	return &c
}

// New reads what the controls hold now.
func New(node, bootID string, controls []Control) (*Journal, error) {
	j := &Journal{Version: JournalVersion, Node: node, BootID: bootID, SavedUs: time.Now().UnixMicro()}
	for _, c := range controls {
		s, err := c.save()
		if err != nil && c.Optional {
			continue
		}
		if err != nil {
			return nil, err
		}
		j.Controls = append(j.Controls, s)
	}
	return j, nil
}

// Adopt brings the journal of an earlier process up to this boot. A reboot has
// reset the limits, so whatever stands in a control that powerd did not leave
// there is the new original. Bounds of slices ended with that boot; the BMC's
// limit did not. It returns whether the journal changed.
func (j *Journal) Adopt(files *sysfs.Files, bootID string, t *Trail) bool {
	if j.BootID == bootID {
		return false
	}
	for i, c := range j.Controls {
		if v, err := c.read(files); err == nil && !t.ours(c, v) {
			j.Controls[i].Original, j.Controls[i].Text = v.Number, v.Text
		}
		if c.Kind == Bandwidth {
			t.drop(c.Path)
		}
	}
	j.Controls = slices.DeleteFunc(j.Controls, func(c Saved) bool { return c.Kind == Bandwidth })
	j.BootID = bootID
	return true
}

// goneDir stands before the path of a limit whose zone is not there: nothing is below it.
const goneDir = "gone/"

// Relocate follows the zones of a journal that an earlier boot wrote. The numbers in
// their paths follow the order of registration, so a limit belongs to the zone that its
// label names, and the path is only where that zone was.
func (j *Journal) Relocate(t *rapl.Tree) {
	if t == nil {
		return
	}
	dirs, labels := map[string]string{}, map[string]string{}
	for _, z := range t.Zones() {
		dirs[z.Label], labels[z.Dir] = z.Dir, z.Label
	}
	for i, c := range j.Controls {
		if c.Kind != Power && c.Kind != Window && c.Kind != Switch || msr.Owns(strings.TrimPrefix(c.Path, goneDir)) {
			continue
		}
		label, _, _ := strings.Cut(c.Label, " ")
		at := path.Dir(c.Path)
		dir, there := dirs[label]
		switch other, taken := labels[at]; {
		case there && dir != at:
			j.Controls[i].Path = path.Join(dir, path.Base(c.Path))
		case !there && taken && other != label:
			j.Controls[i].Path = goneDir + c.Path
		}
	}
}

// Extend adds controls that an earlier process did not know. It returns whether
// the journal changed.
func (j *Journal) Extend(files *sysfs.Files, controls []Control) (bool, error) {
	known := map[string]bool{}
	for _, c := range j.Controls {
		known[c.Path] = true
	}
	changed, tookTurbo := false, slices.ContainsFunc(j.Controls, Saved.tookTurbo)
	for _, c := range controls {
		if known[c.Path] {
			continue
		}
		s, err := c.save()
		if err != nil && c.Optional {
			continue
		}
		if err != nil {
			return changed, err
		}
		s.Top = tookTurbo && s.atTop(files, s.Original) && turboIsOff(files)
		j.Controls = append(j.Controls, s)
		changed, tookTurbo = true, tookTurbo || s.tookTurbo()
	}
	return changed, nil
}

// tookTurbo reports whether it is a turbo switch that was on when powerd started, so that powerd
// has switched it off where it is off.
func (c Saved) tookTurbo() bool {
	return c.Kind == NoTurbo && c.Original == 0 || c.Kind == Boost && c.Original == 1
}
