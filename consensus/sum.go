package consensus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"

	"headroom/internal/cli"
)

// sumMagic begins the sum that an entry carries in its Extensions, where raft
// leaves room for the layers below it. Servers that do not know it pass it on.
//
// The checkpoints (see checkedLog) find that a range differs from the leader's
// while the server runs; the sum finds it when an old entry is read again, after
// a restart too, and says which.
const sumMagic uint32 = 0x48527331 // "HRs1"

// sumBytes is the length of magic and sum.
const sumBytes = 8

// wantsSum is what a leader gives an entry whose index is not known yet.
func wantsSum() []byte { return binary.BigEndian.AppendUint32(nil, sumMagic) }

func hasMagic(e *raft.Log) bool {
	return len(e.Extensions) >= 4 && binary.BigEndian.Uint32(e.Extensions) == sumMagic
}

// sum is CRC-32C, which processors have an instruction for, over all that an
// entry means.
func sum(e *raft.Log) []byte {
	return binary.BigEndian.AppendUint32(wantsSum(), sumOf(e))
}

func sumOf(e *raft.Log) uint32 {
	head := binary.BigEndian.AppendUint64(nil, e.Index)
	head = binary.BigEndian.AppendUint64(head, e.Term)
	head = append(head, byte(e.Type))
	return crc(append(head, e.Data...))
}

// addSum gives an entry its sum before it is written: on the leader, which alone
// proposes entries that want one. On the way to a checkpoint the place is needed
// for the checkpoint's own checksum.
func addSum(e *raft.Log) {
	switch mark, _ := isCheckpoint(e); {
	case !hasMagic(e):
	case mark:
		e.Extensions = nil
	case len(e.Extensions) < sumBytes:
		e.Extensions = sum(e)
	}
}

// checkSum refuses an entry that is not what was written.
func checkSum(e *raft.Log) error {
	if !hasMagic(e) || bytes.Equal(e.Extensions, sum(e)) {
		return nil
	}
	return fmt.Errorf("consensus: entry %d of term %d: %w", e.Index, e.Term, errCorrupt)
}

// scan reads the whole log once before anything is made of it: applying a
// damaged entry would make this server differ from the others for good.
func scan(cfg Config, stores *Stores) error {
	if err := errors.Join(checkSegments(cfg.Dir), checkSnapshots(cfg, stores)); err != nil {
		return err
	}
	first, last, err := logRange(stores)
	if err != nil {
		return err
	}
	_, snapshot, err := newestSnapshot(stores.Snapshots)
	if err != nil {
		return err
	}
	if first > snapshot+1 {
		return damaged(cfg.Dir, fmt.Sprintf("its first entry is %d, and no snapshot that can be read reaches it", first), errCorrupt)
	}
	for i := first; i <= last; i++ {
		var e raft.Log
		err := stores.Log.GetLog(i, &e)
		switch {
		case err == nil && e.Index != i:
			err = fmt.Errorf("entry %d says that it is entry %d: %w", i, e.Index, errCorrupt)
		case err == nil:
			err = checkSum(&e)
		}
		if err == nil && i > snapshot && e.Type == raft.LogCommand && cfg.Check != nil {
			if _, data, bad := unseal(e.Data); bad == nil && cfg.Check(data) != nil {
				return cfg.unreadable(fmt.Errorf("entry %d: %w", i, cfg.Check(data)))
			}
		}
		if err != nil {
			return damaged(cfg.Dir, fmt.Sprintf("entry %d in %s", i, filepath.Join(cfg.Dir, "log", segmentOf(cfg.Dir, i))), err)
		}
	}
	return nil
}

// checkSnapshots refuses a log whose every snapshot is damaged; one that can be
// read is enough, because the log reaches back behind it.
func checkSnapshots(cfg Config, stores *Stores) error {
	all, err := stores.Snapshots.List()
	if err != nil {
		return fmt.Errorf("consensus: list the snapshots: %w", err)
	}
	var bad []error
	for _, s := range all {
		_, content, err := stores.Snapshots.Open(s.ID)
		if err == nil {
			return content.Close()
		}
		bad = append(bad, fmt.Errorf("snapshot %s: %w", s.ID, err))
	}
	if len(bad) == 0 {
		return nil
	}
	return damaged(cfg.Dir, "no snapshot can be read", errors.Join(bad...))
}

// unreadable is the refusal of a state of another version.
func (c Config) unreadable(err error) error {
	return &cli.Error{
		Code: "other-version", Exit: cli.ExitFailed, Message: fmt.Sprintf("this version cannot read the state in %s: %v", c.Dir, err),
		Hint: "start the version that wrote it, or a newer one (docs/upgrade.md)", Err: errors.Join(errUnreadable, err),
	}
}

// damaged is the refusal of a log that is not what was written.
func damaged(dir, where string, err error) error {
	return &cli.Error{
		Code: "damaged", Exit: cli.ExitFailed,
		Message: fmt.Sprintf("the log in %s is damaged: %s: %v", dir, where, err),
		Hint:    "the other servers are not affected: move the directory aside, remove this server from the group and add it again empty (docs/runbooks/lost-quorum.md tells what to do when no majority is left)",
		Err:     errors.Join(errCorrupt, err),
	}
}

// isDamage tells damage from a disk that is full or not writable.
func isDamage(err error) bool { return errors.Is(err, wal.ErrCorrupt) || errors.Is(err, errCorrupt) }

// segmentOf is the file that holds an entry: files are named by their first.
func segmentOf(dir string, index uint64) string {
	files, err := os.ReadDir(filepath.Join(dir, "log"))
	if err != nil {
		return "the log"
	}
	name := "the log"
	for _, f := range files { // sorted by name, and so by the first entry
		base, _, ok := strings.Cut(f.Name(), "-")
		if first, err := strconv.ParseUint(base, 10, 64); ok && err == nil && first <= index {
			name = f.Name()
		}
	}
	return name
}
