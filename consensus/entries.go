package consensus

import (
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// Entry is one entry of a log, as ReadEntries shows it.
type Entry struct {
	Index, Term uint64
	// Type is raft's word for what kind of entry it is: LogCommand, LogNoop,
	// LogBarrier, LogConfiguration.
	Type string
	// At is when the leader of that term took it in, by its wall clock; zero when
	// it does not say.
	At time.Time
	// Data is what the machine gets; nil for raft's own entries. An entry that landed
	// in another term than it was proposed in is never applied: then Stray is true.
	Data  []byte
	Stray bool
}

// ReadEntries calls each for the entries of a stopped server's log from index from
// on, in order, until it returns an error. Whether an entry at the end was
// committed the log of one server cannot tell.
func ReadEntries(cfg Config, from uint64, each func(Entry) error) error {
	cfg = cfg.withDefaults()
	return withLog(cfg, func(_ *raft.Config, stores *Stores) error {
		first, last, err := logRange(stores)
		if err != nil {
			return err
		}
		for i := max(first, from); i <= last; i++ {
			var e raft.Log
			if err := stores.Log.GetLog(i, &e); err != nil {
				return fmt.Errorf("consensus: read entry %d: %w", i, err)
			}
			if err := each(entryOf(&e)); err != nil {
				return err
			}
		}
		return nil
	})
}

// logRange are the first and the last index of a log; of an empty one the last is below the first.
func logRange(stores *Stores) (first, last uint64, err error) {
	if first, err = stores.Log.FirstIndex(); err == nil {
		last, err = stores.Log.LastIndex()
	}
	if err != nil {
		return 0, 0, fmt.Errorf("consensus: read the log: %w", err)
	}
	return max(first, 1), last, nil
}

func entryOf(e *raft.Log) Entry {
	out := Entry{Index: e.Index, Term: e.Term, Type: e.Type.String(), At: e.AppendedAt}
	if e.Type != raft.LogCommand {
		return out
	}
	term, data, err := unseal(e.Data)
	if err != nil {
		return out // a checkpoint of the log's own
	}
	out.Data, out.Stray = data, term != e.Term
	return out
}
