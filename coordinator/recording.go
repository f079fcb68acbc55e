package coordinator

import (
	"bytes"
	"context"
	"fmt"
	"runtime/trace"
	"sync"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
)

const (
	// traceMost bounds how long a recording on demand runs.
	traceMost = 30 * time.Second
	// traceBytes ends one that grows beyond what a bug report can carry.
	traceBytes = 64 << 20
	// tracePoll is how often its size is looked at.
	tracePoll = 50 * time.Millisecond
)

// CollectTrace implements headroomv1connect.DebugServiceHandler.
func (s debugService) CollectTrace(
	ctx context.Context, r *connect.Request[headroomv1.CollectTraceRequest], out *connect.ServerStream[headroomv1.CollectTraceResponse],
) error {
	d := time.Duration(r.Msg.GetDurationMs()) * time.Millisecond
	if d <= 0 || d > traceMost {
		return rpc.Refuse(connect.CodeInvalidArgument, "usage", cli.ExitUsage, fmt.Sprintf("a recording of %v: it runs 1ms at least and %v at most", d, traceMost), "name another time, e.g. --for 5s")
	}
	data, err := s.record(ctx, d)
	if err != nil {
		return rpc.Refuse(connect.CodeFailedPrecondition, "recording", cli.ExitRefused, plain(err), "another recording may run; try again when it has ended")
	}
	for len(data) > 0 {
		n := min(len(data), bundlePiece)
		if err := out.Send(&headroomv1.CollectTraceResponse{Piece: data[:n]}); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// recordTrace records this process until the time is over, ctx ends or it has
// grown too large. The process has one recording on demand at a time, beside the
// flight recorder's.
func recordTrace(ctx context.Context, d time.Duration) ([]byte, error) {
	var b lockedBuffer
	if err := trace.Start(&b); err != nil {
		return nil, fmt.Errorf("coordinator: recording: %w", err)
	}
	end, look := time.NewTimer(d), time.NewTicker(tracePoll)
	defer end.Stop()
	defer look.Stop()
	for running := true; running; {
		select {
		case <-ctx.Done():
			running = false
		case <-end.C:
			running = false
		case <-look.C:
			running = b.size() < traceBytes
		}
	}
	trace.Stop()
	return b.bytes(), ctx.Err()
}

// lockedBuffer is written by the runtime and looked at by us.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Len()
}

func (l *lockedBuffer) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Bytes()
}
