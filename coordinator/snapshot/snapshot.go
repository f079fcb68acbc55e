// Package snapshot reads and writes the file of "coordinator snapshot save": the committed
// state of a cluster, with a header that describes it.
//
// The one idea: a file is valid as a whole or not at all. The header has the length and SHA-256
// of the state, and must match the state that is restored from it.
//
// What it never does: use part of a damaged file, or change a running server.
package snapshot

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"headroom/consensus"
	"headroom/internal/cli"
	"headroom/ledger"
)

// A snapshot file is a line that says so, a header of one line of JSON, and the
// committed state as the ledger writes it.
const (
	magic  = "headroom snapshot\n"
	format = 1
	// longestHeader bounds the header's line, bytes; it has a few hundred.
	longestHeader = 64 << 10
)

// Header describes a snapshot file. Fields are only ever added.
type Header struct {
	// Format of the file.
	Format int `json:"format"`
	// Version of the coordinator that saved it, and Rules of the ledger then in force.
	Version string `json:"version"`
	Rules   int    `json:"rules"`
	// Cluster is the name of the root domain.
	Cluster string `json:"cluster"`
	// Server that saved it, and when.
	Server string    `json:"server"`
	Saved  time.Time `json:"saved"`
	// Incarnation and Term of the leadership in force, Revision of the ledger, and
	// Index of the last entry.
	Incarnation uint64 `json:"incarnation"`
	Term        uint64 `json:"term"`
	Revision    uint64 `json:"revision"`
	Index       uint64 `json:"index"`
	// Bytes and SHA256 of the state that follows.
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// errFile means that a file is no snapshot, or not all of one.
var errFile = errors.New("not a whole snapshot")

// HeaderOf is the header of a state.
func HeaderOf(st *ledger.State, state []byte) Header {
	sum := sha256.Sum256(state)
	h := Header{
		Format: format, Version: cli.Version, Rules: st.Rules, Incarnation: st.Epoch.Incarnation, Term: st.Epoch.Term,
		Revision: st.Revision, Bytes: len(state), SHA256: hex.EncodeToString(sum[:]),
	}
	if tree := st.Tree(); tree != nil {
		h.Cluster = tree.Root().Name
	}
	return h
}

// Write writes the file, whole or not at all, for its owner only.
func Write(path string, h Header, state []byte) error {
	head, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("coordinator: snapshot header: %w", err)
	}
	data := append([]byte(magic), head...)
	data = append(append(data, '\n'), state...)
	if err := renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(0o600)); err != nil {
		return &cli.Error{
			Exit: cli.ExitFailed, Message: fmt.Sprintf("cannot write %s: %v", path, err),
			Hint: "name a file in a folder that you can write to, on a disk with free space", Err: err,
		}
	}
	return nil
}

// read reads a whole file and checks it against its header.
func read(r io.Reader) (Header, *ledger.State, error) {
	h, in, err := readHeader(r)
	if err != nil {
		return h, nil, err
	}
	state, err := io.ReadAll(io.LimitReader(in, int64(h.Bytes)+1))
	if err != nil {
		return h, nil, fmt.Errorf("coordinator: read snapshot: %w", err)
	}
	sum := sha256.Sum256(state)
	switch {
	case len(state) < h.Bytes:
		return h, nil, fmt.Errorf("%w: it ends after %d of %d bytes", errFile, len(state), h.Bytes)
	case len(state) > h.Bytes:
		return h, nil, fmt.Errorf("%w: there is more than its %d bytes", errFile, h.Bytes)
	case hex.EncodeToString(sum[:]) != h.SHA256:
		return h, nil, fmt.Errorf("%w: its SHA-256 is %x, the header says %s", errFile, sum, h.SHA256)
	}
	st, err := ledger.Restore(state)
	if err != nil {
		return h, nil, fmt.Errorf("%w: %w", errFile, err)
	}
	same := HeaderOf(st, state)
	same.Version, same.Server, same.Saved, same.Index = h.Version, h.Server, h.Saved, h.Index
	if same != h {
		return h, nil, fmt.Errorf("%w: the header is not of this state", errFile)
	}
	return h, st, nil
}

func readHeader(r io.Reader) (Header, *bufio.Reader, error) {
	in := bufio.NewReaderSize(r, longestHeader)
	var h Header
	begins, err := in.Peek(len(magic))
	if err != nil || string(begins) != magic {
		return h, nil, fmt.Errorf("%w: it does not begin as one", errFile)
	}
	_, _ = in.Discard(len(magic)) // was just peeked at
	line, err := in.ReadSlice('\n')
	if err != nil {
		return h, nil, fmt.Errorf("%w: it ends within its header", errFile)
	}
	if err := json.Unmarshal(line, &h); err != nil {
		return h, nil, fmt.Errorf("%w: header: %w", errFile, err)
	}
	switch {
	case h.Format != format:
		return h, nil, fmt.Errorf("%w: it is of format %d, this version reads format %d", errFile, h.Format, format)
	case h.Bytes <= 0 || h.Bytes > consensus.MaxSnapshot:
		return h, nil, fmt.Errorf("%w: its header says %d bytes of state", errFile, h.Bytes)
	}
	return h, in, nil
}

// Load reads a snapshot file; errors are *cli.Error.
func Load(path string) (Header, *ledger.State, error) {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return Header{}, nil, &cli.Error{
			Code: "no-file", Exit: cli.ExitUsage, Message: fmt.Sprintf("cannot read %s: %v", path, errors.Unwrap(err)),
			Hint: "name a file written by coordinator snapshot save", Err: err,
		}
	}
	defer func() { _ = f.Close() }()
	h, st, err := read(f)
	if err != nil {
		return h, nil, &cli.Error{
			Code: "bad-snapshot", Exit: cli.ExitFailed, Message: fmt.Sprintf("%s: %v", path, err),
			Hint: "use another copy of the file, or an older snapshot", Err: err,
		}
	}
	return h, st, nil
}
