package coordinator

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"connectrpc.com/connect"
	"github.com/google/renameio/v2"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/consensus"
	"headroom/internal/cli"
	"headroom/ledger"
)

// A snapshot file is a line that says so, a header of one line of JSON, and the
// committed state as the ledger writes it.
const (
	snapshotMagic  = "headroom snapshot\n"
	snapshotFormat = 1
	// longestHeader bounds the header's line, bytes; it has a few hundred.
	longestHeader = 64 << 10
	// snapshotPiece is how much of the state goes into one message, bytes.
	snapshotPiece = 1 << 20
)

// SnapshotHeader says what a snapshot file holds. Fields are only ever added.
type SnapshotHeader struct {
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

// errSnapshotFile means that a file is no snapshot, or not all of one.
var errSnapshotFile = errors.New("not a whole snapshot")

// headerOf is the header of a state.
func headerOf(st *ledger.State, state []byte) SnapshotHeader {
	sum := sha256.Sum256(state)
	h := SnapshotHeader{
		Format: snapshotFormat, Version: Version, Rules: st.Rules, Incarnation: st.Epoch.Incarnation, Term: st.Epoch.Term,
		Revision: st.Revision, Bytes: len(state), SHA256: hex.EncodeToString(sum[:]),
	}
	if tree := st.Tree(); tree != nil {
		h.Cluster = tree.Root().Name
	}
	return h
}

// snapshotNow is the state of this server as of now.
func (s *server) snapshotNow() (SnapshotHeader, []byte, error) {
	applied := uint64(0)
	for _, m := range s.group.Members() {
		if m.Self {
			applied = m.AppliedIndex
		}
	}
	m := s.machine
	m.mu.RLock()
	defer m.mu.RUnlock()
	state, err := m.state.Snapshot()
	if err != nil {
		return SnapshotHeader{}, nil, err
	}
	h := headerOf(m.state, state)
	h.Server, h.Saved, h.Index = s.cfg.ID, time.Now().UTC().Truncate(time.Millisecond), cmp.Or(m.index, applied)
	return h, state, nil
}

// SaveSnapshot implements headroomv1connect.MemberServiceHandler.
func (m memberService) SaveSnapshot(
	ctx context.Context, r *connect.Request[headroomv1.SaveSnapshotRequest], out *connect.ServerStream[headroomv1.SaveSnapshotResponse],
) error {
	if _, err := m.read(ctx, r.Msg.GetStale(), func(*ledger.State, *desk) {}); err != nil {
		return err
	}
	h, state, err := m.snapshotNow()
	if err != nil {
		return err
	}
	if h.Cluster == "" {
		return m.refuse(ledger.ErrNotFounded)
	}
	head, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("coordinator: snapshot header: %w", err)
	}
	if err := out.Send(&headroomv1.SaveSnapshotResponse{Part: &headroomv1.SaveSnapshotResponse_Header{Header: head}}); err != nil {
		return err
	}
	for len(state) > 0 {
		n := min(len(state), snapshotPiece)
		if err := out.Send(&headroomv1.SaveSnapshotResponse{Part: &headroomv1.SaveSnapshotResponse_Piece{Piece: state[:n]}}); err != nil {
			return err
		}
		state = state[n:]
	}
	return nil
}

// WriteSnapshot writes the file, whole or not at all, for its owner only.
func WriteSnapshot(path string, h SnapshotHeader, state []byte) error {
	head, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("coordinator: snapshot header: %w", err)
	}
	data := append([]byte(snapshotMagic), head...)
	data = append(append(data, '\n'), state...)
	if err := renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(0o600)); err != nil {
		return &cli.Error{
			Exit: cli.ExitFailed, Message: fmt.Sprintf("cannot write %s: %v", path, err),
			Hint: "choose a file on a disk with room, in a folder that this user may write", Err: err,
		}
	}
	return nil
}

// readSnapshot reads a whole file and checks it against its header.
func readSnapshot(r io.Reader) (SnapshotHeader, *ledger.State, error) {
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
		return h, nil, fmt.Errorf("%w: it ends after %d of %d bytes", errSnapshotFile, len(state), h.Bytes)
	case len(state) > h.Bytes:
		return h, nil, fmt.Errorf("%w: there is more than its %d bytes", errSnapshotFile, h.Bytes)
	case hex.EncodeToString(sum[:]) != h.SHA256:
		return h, nil, fmt.Errorf("%w: its SHA-256 is %x, the header says %s", errSnapshotFile, sum, h.SHA256)
	}
	st, err := ledger.Restore(state)
	if err != nil {
		return h, nil, fmt.Errorf("%w: %w", errSnapshotFile, err)
	}
	same := headerOf(st, state)
	same.Version, same.Server, same.Saved, same.Index = h.Version, h.Server, h.Saved, h.Index
	if same != h {
		return h, nil, fmt.Errorf("%w: the header is not of this state", errSnapshotFile)
	}
	return h, st, nil
}

func readHeader(r io.Reader) (SnapshotHeader, *bufio.Reader, error) {
	in := bufio.NewReaderSize(r, longestHeader)
	var h SnapshotHeader
	magic, err := in.Peek(len(snapshotMagic))
	if err != nil || string(magic) != snapshotMagic {
		return h, nil, fmt.Errorf("%w: it does not begin as one", errSnapshotFile)
	}
	_, _ = in.Discard(len(snapshotMagic)) // was just peeked at
	line, err := in.ReadSlice('\n')
	if err != nil {
		return h, nil, fmt.Errorf("%w: it ends within its header", errSnapshotFile)
	}
	if err := json.Unmarshal(line, &h); err != nil {
		return h, nil, fmt.Errorf("%w: header: %w", errSnapshotFile, err)
	}
	switch {
	case h.Format != snapshotFormat:
		return h, nil, fmt.Errorf("%w: it is of format %d, this version reads format %d", errSnapshotFile, h.Format, snapshotFormat)
	case h.Bytes <= 0 || h.Bytes > consensus.MaxSnapshot:
		return h, nil, fmt.Errorf("%w: its header says %d bytes of state", errSnapshotFile, h.Bytes)
	}
	return h, in, nil
}

// LoadSnapshot reads a snapshot file; errors are *cli.Error.
func LoadSnapshot(path string) (SnapshotHeader, *ledger.State, error) {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return SnapshotHeader{}, nil, &cli.Error{
			Code: "no-file", Exit: cli.ExitUsage, Message: fmt.Sprintf("cannot read %s: %v", path, errors.Unwrap(err)),
			Hint: "name a file that coordinator snapshot save has written", Err: err,
		}
	}
	defer func() { _ = f.Close() }()
	h, st, err := readSnapshot(f)
	if err != nil {
		return h, nil, &cli.Error{
			Code: "bad-snapshot", Exit: cli.ExitFailed, Message: fmt.Sprintf("%s: %v", path, err),
			Hint: "take another copy of it, or an older snapshot", Err: err,
		}
	}
	return h, st, nil
}
