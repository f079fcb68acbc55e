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
	"path"
	"slices"
	"strings"

	"headroom/rapl"
	"headroom/rapl/msr"
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
	// Top: it is a ceiling that was met at the end of its range, while powerd had turbo
	// off. It had no bound of its own, so the end of the range with turbo goes back.
	Top bool `json:"top,omitempty"`
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
		if c.Kind == bandwidthControl {
			t.drop(c.Path)
		}
	}
	j.Controls = slices.DeleteFunc(j.Controls, func(c saved) bool { return c.Kind == bandwidthControl })
	j.BootID = bootID
	return true
}

// goneDir stands before the path of a limit whose zone is not there: nothing is below it.
const goneDir = "gone/"

// relocate follows the zones of a journal that an earlier boot wrote. The numbers in
// their paths follow the order of registration, so a limit belongs to the zone that its
// label names, and the path is only where that zone was.
func (j *journal) relocate(t *rapl.Tree) {
	if t == nil {
		return
	}
	dirs, labels := map[string]string{}, map[string]string{}
	for _, z := range t.Zones() {
		dirs[z.Label], labels[z.Dir] = z.Dir, z.Label
	}
	for i, c := range j.Controls {
		if c.Kind != powerControl && c.Kind != windowControl && c.Kind != switchControl || msr.Owns(strings.TrimPrefix(c.Path, goneDir)) {
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

// extend adds controls that an earlier process did not know. It returns whether
// the journal changed.
func (j *journal) extend(root *os.Root, controls []control) (bool, error) {
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
		s.Top = j.tookTurbo() && s.atTop(root, s.Original) && turboIsOff(root)
		j.Controls = append(j.Controls, s)
		changed = true
	}
	return changed, nil
}

// tookTurbo says that turbo was on when powerd began, so that powerd has it off where it is off.
func (j *journal) tookTurbo() bool {
	return slices.ContainsFunc(j.Controls, func(c saved) bool {
		return c.Kind == noTurboControl && c.Original == 0 || c.Kind == boostControl && c.Original == 1
	})
}
