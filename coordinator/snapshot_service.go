package coordinator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/leading"
	"headroom/coordinator/snapshot"
	"headroom/ledger"
)

// snapshotPiece bounds the part of the state in one message, in bytes.
const snapshotPiece = 1 << 20

// snapshotNow returns a snapshot of this server's present state.
func (m memberService) snapshotNow() (snapshot.Header, []byte, error) {
	applied := uint64(0)
	for _, x := range m.group.Members() {
		if x.Self {
			applied = x.AppliedIndex
		}
	}
	var h snapshot.Header
	var state []byte
	var err error
	m.machine.ViewAt(func(st *ledger.State, index uint64) {
		if state, err = st.Snapshot(); err == nil {
			h = snapshot.HeaderOf(st, state)
			h.Server, h.Saved, h.Index = m.cfg.ID, time.Now().UTC().Truncate(time.Millisecond), cmp.Or(index, applied)
		}
	})
	return h, state, err
}

// SaveSnapshot implements headroomv1connect.MemberServiceHandler.
func (m memberService) SaveSnapshot(
	ctx context.Context, r *connect.Request[headroomv1.SaveSnapshotRequest], out *connect.ServerStream[headroomv1.SaveSnapshotResponse],
) error {
	if _, err := m.requests.read(ctx, r.Msg.GetStale(), func(*ledger.State, *leading.Known) {}); err != nil {
		return err
	}
	h, state, err := m.snapshotNow()
	if err != nil {
		return err
	}
	if h.Cluster == "" {
		return m.requests.refuse(ledger.ErrNotFounded)
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
