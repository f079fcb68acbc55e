package ledger

import "fmt"

// Note is a line of the audit log about what changed nothing here: what somebody did at a scheduler, or was refused.
type Note struct {
	What string `json:"what"`
}

// maxNote bounds a note in bytes.
const maxNote = 400

// note records a line. It counts as a revision, because the lines of the audit log are told apart by theirs.
func (t *tx) note(c Command, n *Note) error {
	if n.What == "" || len(n.What) > maxNote {
		return fmt.Errorf("note of %d bytes; 1 to %d are taken: %w", len(n.What), maxNote, ErrText)
	}
	t.record(c, n.What)
	return nil
}
