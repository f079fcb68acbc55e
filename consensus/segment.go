package consensus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// raft-wal's files, as their package segment documents them: a header, then
// frames of eight bytes and their data, padded to eight. After each batch of
// entries stands a commit frame with the CRC-32C of all that follows the one
// before. At a start raft-wal reads up to the first frame that makes no sense
// and takes what follows for a write that a crash has torn. A flipped bit makes
// it drop good entries that way; so the files are read here once more.
const (
	walHeader      = 32
	walFrame       = 8
	walEntry  byte = 1
	walIndex  byte = 2
	walEnd    byte = 3 // the commit frame
)

// lookBack is how many places that look like commit frames are tried as the
// beginning of a batch: entries may contain such bytes.
const lookBack = 8

// checkSegments refuses a log that has good batches after a bad one, and one whose
// last batch has one wrong bit: no crash leaves either, because each batch is
// synced before the next is written.
func checkSegments(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "log", "*.wal"))
	if err != nil {
		return fmt.Errorf("consensus: list the log in %s: %w", dir, err)
	}
	for _, path := range files {
		data, err := readUsed(path)
		if err != nil {
			return fmt.Errorf("consensus: read the log: %w", err)
		}
		first, _, _ := strings.Cut(filepath.Base(path), "-")
		base, err := strconv.ParseUint(first, 10, 64)
		if err != nil {
			continue // no file of raft-wal's
		}
		if entries, at, ok := checkSegment(data); !ok {
			return damaged(dir, fmt.Sprintf("entry %d, or one near it, behind byte %d of %s", base+entries, at, path), errCorrupt)
		}
	}
	return nil
}

// checkSegment reads one file. Where it is not sound, entries and behind tell how
// many entries and bytes come before the batch with the damage.
func checkSegment(data []byte) (entries uint64, behind int, ok bool) {
	if len(data) < walHeader {
		return 0, 0, true // nothing was ever committed to it
	}
	at := walHeader
	for {
		end, found, whole := readBatch(data, behind, at)
		if !whole {
			return entries, behind, !goodBatch(data[behind:]) && !oneFlip(data, behind, at)
		}
		at, behind, entries = end, end, entries+found
	}
}

// readBatch reads the frames from at up to and with their commit frame, whose sum
// counts from begin. It is whole when the sum is right.
func readBatch(data []byte, begin, at int) (end int, entries uint64, whole bool) {
	for at+walFrame <= len(data) {
		kind, value := data[at], binary.LittleEndian.Uint32(data[at+4:])
		switch kind {
		case walEnd:
			return at + walFrame, entries, crc(data[begin:at]) == value
		case walEntry, walIndex:
			size := walFrame + (int(value)+7)/8*8
			if at+size > len(data) {
				return 0, 0, false
			}
			at += size
			if kind == walEntry {
				entries++
			}
		default:
			return 0, 0, false
		}
	}
	return 0, 0, false
}

// flipBytes bounds the last batch in which a flipped bit is looked for. Looking
// takes the square of it: 0.3 s for a batch of this size, which is the tick of some
// hundred nodes.
const flipBytes = 16 << 10

// oneFlip reports whether the bytes behind the last good batch are a good one with
// one bit wrong. That is no write that a crash has torn: those lack whole sectors,
// and the sum of 32 bits tells them apart but for one in 30,000 at worst.
func oneFlip(data []byte, begin, at int) bool {
	size := len(bytes.TrimRight(data[at:], "\x00"))
	if size == 0 || size > flipBytes {
		return false
	}
	// A commit frame's sum may end in zeros.
	batch := bytes.Clone(data[begin:min(len(data), at+size+walFrame)])
	for i := at - begin; i < len(batch); i++ {
		for bit := range 8 {
			batch[i] ^= 1 << bit
			_, _, whole := readBatch(batch, 0, at-begin)
			if batch[i] ^= 1 << bit; whole {
				return true
			}
		}
	}
	return false
}

// goodBatch reports whether a whole batch stands anywhere in data, after its begin.
func goodBatch(data []byte) bool {
	var ends []int // places that look like commit frames
	for at := 0; at+walFrame <= len(data); at += walFrame {
		if data[at] != walEnd || data[at+1]|data[at+2]|data[at+3] != 0 {
			continue
		}
		want := binary.LittleEndian.Uint32(data[at+4:])
		for _, end := range ends[max(0, len(ends)-lookBack):] {
			if begin := end + walFrame; begin < at && crc(data[begin:at]) == want {
				return true
			}
		}
		ends = append(ends, at)
	}
	return false
}

func crc(data []byte) uint32 { return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) }

// readUsed reads a file up to its last data: raft-wal reserves whole files, and
// most of the newest is a hole.
func readUsed(path string) ([]byte, error) {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	end := int64(0)
	for end < info.Size() {
		data, err := f.Seek(end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // nothing but a hole
		}
		if err == nil {
			end, err = f.Seek(data, unix.SEEK_HOLE)
		}
		if err != nil {
			end = info.Size() // a file system that knows no holes
		}
	}
	out := make([]byte, end)
	_, err = f.ReadAt(out, 0)
	return used(out), err
}

// used is data without the zeros at its end, up to a block of them.
func used(data []byte) []byte {
	const block = 4096
	zeros := make([]byte, block)
	for len(data) >= block && bytes.Equal(data[len(data)-block:], zeros) {
		data = data[:len(data)-block]
	}
	return data
}
