package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"
)

// envelopeV1 marks an entry: the marker, the term it was proposed in as an
// unsigned varint, then the machine's own bytes.
const envelopeV1 = 1

// errEnvelope means that an entry is not one of ours.
var errEnvelope = errors.New("entry has no envelope")

// refused is the result of an entry that landed in another term than the one it
// was proposed in; the machine never sees it.
type refused struct{}

// seal puts data into its envelope.
func seal(term uint64, data []byte) []byte {
	out := make([]byte, 1, 1+binary.MaxVarintLen64+len(data))
	out[0] = envelopeV1
	out = binary.AppendUvarint(out, term)
	return append(out, data...)
}

// unseal takes data out of its envelope.
func unseal(entry []byte) (term uint64, data []byte, err error) {
	if len(entry) == 0 || entry[0] != envelopeV1 {
		return 0, nil, errEnvelope
	}
	term, n := binary.Uvarint(entry[1:])
	if n <= 0 {
		return 0, nil, errEnvelope
	}
	return term, entry[1+n:], nil
}

// adapter makes a Machine of ours a state machine of raft.
type adapter struct {
	machine Machine
	// unfit is told a state that the machine cannot read; nil where Restore's error is seen.
	unfit func(error)
}

// Apply hands one committed entry to the machine. An entry proposed by an
// earlier leadership of the same server is refused, alike on every server: what
// a deposed leader still had on its way never grants anything.
func (a adapter) Apply(l *raft.Log) any {
	term, data, err := unseal(l.Data)
	if err != nil {
		return fmt.Errorf("consensus: entry %d: %w", l.Index, err)
	}
	if term != l.Term {
		return refused{}
	}
	return a.machine.Apply(l.Index, data)
}

// Snapshot takes the machine's bytes at once; writing them happens later.
func (a adapter) Snapshot() (raft.FSMSnapshot, error) {
	data, err := a.machine.Snapshot()
	if err != nil {
		return nil, fmt.Errorf("consensus: snapshot: %w", err)
	}
	return snapshot(data), nil
}

// Restore reads a whole snapshot before the machine sees a byte of it.
func (a adapter) Restore(r io.ReadCloser) error {
	defer func() { _ = r.Close() }()
	data, err := io.ReadAll(io.LimitReader(r, MaxSnapshot+1))
	if err != nil {
		return fmt.Errorf("consensus: read snapshot: %w", err)
	}
	if len(data) > MaxSnapshot {
		return fmt.Errorf("consensus: restore: snapshot over %d bytes: %w", MaxSnapshot, ErrTooLarge)
	}
	if err := a.machine.Restore(data); err != nil {
		err = fmt.Errorf("consensus: restore: %w", err)
		if a.unfit != nil {
			a.unfit(err)
		}
		return err
	}
	return nil
}

// snapshot is a machine's state on its way to the disk.
type snapshot []byte

// Persist writes the state; a partial one is thrown away.
func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(s); err != nil {
		return errors.Join(fmt.Errorf("consensus: write snapshot %s: %w", sink.ID(), err), sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return fmt.Errorf("consensus: close snapshot %s: %w", sink.ID(), err)
	}
	return nil
}

// Release has nothing to give back.
func (snapshot) Release() {}

// blank stands in for the machine while the log is only looked at.
type blank struct{}

func (blank) Apply(*raft.Log) any                 { return nil }
func (blank) Snapshot() (raft.FSMSnapshot, error) { return nil, errEnvelope }
func (blank) Restore(r io.ReadCloser) error       { return r.Close() }
