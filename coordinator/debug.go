package coordinator

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"time"

	"connectrpc.com/connect"
	"github.com/goccy/go-yaml"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/diagnostics"
	"headroom/coordinator/view"
	"headroom/internal/cli"
	"headroom/internal/rpc"
)

// debugService collects what a bug report needs.
type debugService struct{ *server }

const (
	// recordMost bounds a recording on demand.
	recordMost = 30 * time.Second
	// bundlePiece bounds the part of a file in one message, in bytes.
	bundlePiece = 256 << 10
	// bundleEvents is the number of newest events in a bundle.
	bundleEvents = 500
	// bundleWait bounds each request to the cluster.
	bundleWait = 5 * time.Second
)

// bundleFile is one file of a bundle, and the function that makes it.
type bundleFile struct {
	name string
	make func(ctx context.Context) ([]byte, error)
}

// CollectBundle implements headroomv1connect.DebugServiceHandler.
func (s debugService) CollectBundle(
	ctx context.Context, _ *connect.Request[headroomv1.CollectBundleRequest], out *connect.ServerStream[headroomv1.CollectBundleResponse],
) error {
	for _, f := range s.bundle() {
		name, data := f.collect(ctx)
		for first := true; first || len(data) > 0; first = false {
			n := min(len(data), bundlePiece)
			if err := out.Send(&headroomv1.CollectBundleResponse{Name: name, Piece: data[:n]}); err != nil {
				return err
			}
			data = data[n:]
		}
	}
	return nil
}

// collect makes the file. If that fails, the file holds the error: the others are needed
// all the more.
func (f bundleFile) collect(ctx context.Context) (name string, data []byte) {
	ctx, cancel := context.WithTimeout(ctx, bundleWait)
	defer cancel()
	data, err := f.make(ctx)
	if err != nil {
		return f.name + ".error.txt", []byte(view.Plain(err) + "\n")
	}
	return f.name, data
}

// bundle returns the files, first those that need no other server. None holds a secret:
// the configuration only names the files that do, and tokens are omitted, hashes included.
func (s debugService) bundle() []bundleFile {
	cluster, members := clusterService(s), memberService(s)
	return []bundleFile{
		{"build.txt", s.build},
		{"goroutines.txt", goroutines},
		{"coordinator.yaml", func(context.Context) ([]byte, error) { return yaml.Marshal(s.cfg) }},
		{"log.txt", func(context.Context) ([]byte, error) { return []byte(s.lines.Text()), nil }},
		{"metrics.txt", s.metricsText},
		{"recording" + diagnostics.Suffix, s.lastRecording},
		{"members.json", answer(cluster.ListMembers, &headroomv1.ListMembersRequest{})},
		{"status.json", answer(cluster.GetStatus, &headroomv1.GetStatusRequest{Stale: true})},
		{"domains.json", answer(cluster.ListDomains, &headroomv1.ListDomainsRequest{Stale: true})},
		{"nodes.json", answer(cluster.ListNodes, &headroomv1.ListNodesRequest{Stale: true})},
		{"alarms.json", answer(cluster.ListAlarms, &headroomv1.ListAlarmsRequest{Stale: true})},
		{"events.json", answer(cluster.ListEvents, &headroomv1.ListEventsRequest{Stale: true, Limit: bundleEvents})},
		{"health.json", answer(members.GetMemberHealth, &headroomv1.GetMemberHealthRequest{})},
	}
}

// answer returns this server's answer to a request, as JSON.
func answer[Req any, Res any, M interface {
	*Res
	proto.Message
}](
	method func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req,
) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		res, err := method(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		return protojson.MarshalOptions{Multiline: true, UseProtoNames: true}.Marshal(M(res.Msg))
	}
}

func (s debugService) build(context.Context) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "coordinator %s, server %s, %s %s/%s, %d processors\n", Version, s.cfg.ID, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	if info, ok := debug.ReadBuildInfo(); ok {
		b.WriteString(info.String())
	}
	return b.Bytes(), nil
}

// goroutines returns all stacks: where each goroutine waits, and for how long.
func goroutines(context.Context) ([]byte, error) {
	var b bytes.Buffer
	err := pprof.Lookup("goroutine").WriteTo(&b, 2)
	return b.Bytes(), err
}

func (s debugService) metricsText(context.Context) ([]byte, error) {
	families, err := s.told.Gather()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			return nil, fmt.Errorf("coordinator: metrics: %w", err)
		}
	}
	return b.Bytes(), nil
}

// lastRecording returns the newest recording of the flight recorder.
func (s debugService) lastRecording(context.Context) ([]byte, error) {
	dir := diagnostics.Dir(s.cfg.StateDir)
	names, err := diagnostics.Recordings(dir)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no tick was missed, or debug.flight_recorder is off")
	}
	return os.ReadFile(filepath.Join(dir, names[len(names)-1]))
}

// CollectTrace implements headroomv1connect.DebugServiceHandler.
func (s debugService) CollectTrace(
	ctx context.Context, r *connect.Request[headroomv1.CollectTraceRequest], out *connect.ServerStream[headroomv1.CollectTraceResponse],
) error {
	d := time.Duration(r.Msg.GetDurationMs()) * time.Millisecond
	if d <= 0 || d > recordMost {
		return rpc.Refuse(connect.CodeInvalidArgument, "usage", cli.ExitUsage, fmt.Sprintf("recording of %v: must be between 1ms and %v", d, recordMost), "use a shorter time, e.g. --for 5s")
	}
	data, err := s.record(ctx, d)
	if err != nil {
		return rpc.Refuse(connect.CodeFailedPrecondition, "recording", cli.ExitRefused, view.Plain(err), "another recording may be in progress; retry when it has finished")
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
