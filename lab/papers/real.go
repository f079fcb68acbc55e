package papers

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/pause"
	"headroom/internal/rpc"
	"headroom/lab/cluster"
)

// RealWeight keeps for the nodes of a real run the CPUs that they own, whatever else the
// host does.
const RealWeight = 50

// awaitEvery is how often a real run looks whether what it waits for is there.
const awaitEvery = 200 * time.Millisecond

// Real is a real run in progress: Headroom's own programs, on emulated nodes of this machine.
type Real struct {
	*Options
	// Dir is the run's folder, Folder the one of the programs.
	Dir, Folder string
	// Via is the connection to the servers.
	Via connect.HTTPClient
	// Site is the present site; nil before there is one.
	Site *cluster.Site

	paper, engine string
	progress      io.Writer
}

// NewReal makes the folder of a real run of a paper's study, once the files that it needs
// are found beside the programs; hint says what makes them.
func NewReal(paper string, o *Options, progress io.Writer, engine, hint string, files ...string) (*Real, error) {
	r := &Real{Options: o, Via: rpc.NewClient(), paper: paper, engine: engine, progress: progress, Folder: o.Bin}
	if r.Folder == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("%s: own program: %w", paper, err)
		}
		r.Folder = filepath.Dir(self)
	}
	for _, name := range files {
		if _, err := os.Stat(r.Program(name)); err != nil {
			return nil, cli.Failed(hint+", or set their folder with --bin", "--engine %s needs %s in %s: %w", engine, name, r.Folder, err)
		}
	}
	var err error
	if r.Dir, err = os.MkdirTemp("", "headroom-"+paper+"-"); err != nil {
		return nil, fmt.Errorf("%s: %w", paper, err)
	}
	return r, nil
}

// Remove removes the run's folder.
func (r *Real) Remove() { _ = os.RemoveAll(r.Dir) }

// Note says how far the run is.
func (r *Real) Note(format string, args ...any) { cli.Notef(r.progress, format, args...) }

// Path is a path below the run's folder, Program one below that of the programs.
func (r *Real) Path(parts ...string) string {
	return filepath.Join(append([]string{r.Dir}, parts...)...)
}

// Program is the path of a program or a jar.
func (r *Real) Program(name string) string { return filepath.Join(r.Folder, name) }

// KeepLogs copies a folder of logs into the output folder, if one is named.
func (r *Real) KeepLogs(name, from string) error {
	if r.Out == "" {
		return nil
	}
	to := filepath.Join(r.Out, "logs", name)
	err := os.RemoveAll(to)
	if err == nil {
		err = os.CopyFS(to, os.DirFS(from))
	}
	if err != nil {
		return fmt.Errorf("%s: keep the logs: %w", r.paper, err)
	}
	return nil
}

// Await looks until done, the time is over, or a program has ended.
func (r *Real) Await(ctx context.Context, not string, done func(context.Context) bool) error {
	for !done(ctx) {
		if err := r.Site.Running(); err != nil {
			return err
		}
		if !pause.For(ctx, awaitEvery) {
			return fmt.Errorf("%s: %s: %w", r.paper, not, ctx.Err())
		}
	}
	return nil
}

// Leader asks the leading coordinator.
func (r *Real) Leader(ctx context.Context, f func(ctx context.Context, base string) error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := rpc.ToLeader(ctx, r.Site.Addresses(), 5*time.Second, func(addr string) error { return f(ctx, rpc.BaseURL(addr)) })
	return err
}

// Operators is the coordinators' interface for operators at base.
func (r *Real) Operators(base string) headroomv1connect.ClusterServiceClient {
	return headroomv1connect.NewClusterServiceClient(r.Via, base, rpc.ClientOptions()...)
}

// Nodes are the nodes that the coordinators know; none where they do not answer.
func (r *Real) Nodes(ctx context.Context) (nodes []*headroomv1.Node) {
	_ = r.Leader(ctx, func(ctx context.Context, base string) error { // the next look is near
		answer, err := r.Operators(base).ListNodes(ctx, connect.NewRequest(&headroomv1.ListNodesRequest{}))
		if err == nil {
			nodes = answer.Msg.GetNodes()
		}
		return err
	})
	return nodes
}

// Jobs are the jobs of the coordinators' log.
func (r *Real) Jobs(ctx context.Context) (jobs []*headroomv1.Job, err error) {
	err = r.Leader(ctx, func(ctx context.Context, base string) error {
		client := headroomv1connect.NewJobServiceClient(r.Via, base, rpc.ClientOptions()...)
		answer, err := client.ListJobs(ctx, connect.NewRequest(&headroomv1.ListJobsRequest{WithoutSpecs: true}))
		if err == nil {
			jobs = answer.Msg.GetJobs()
		}
		return err
	})
	return jobs, err
}

// Sprints are the sprints of the coordinators' log, those that are over included.
func (r *Real) Sprints(ctx context.Context) (sprints []*headroomv1.SprintRecord, err error) {
	err = r.Leader(ctx, func(ctx context.Context, base string) error {
		answer, err := r.Operators(base).ListSprints(ctx, connect.NewRequest(&headroomv1.ListSprintsRequest{All: true}))
		if err == nil {
			sprints = answer.Msg.GetSprints()
		}
		return err
	})
	return sprints, err
}

// Signed is what the log has of a change that the run makes, and why it makes it.
func (r *Real) Signed(reason string) *headroomv1.Change {
	return &headroomv1.Change{Actor: r.paper, Reason: reason, RequestId: rand.Text()}
}

// Change makes a change at the leading coordinator.
func (r *Real) Change(ctx context.Context, reason string, req *headroomv1.ChangeRequest) error {
	req.Change = r.Signed(reason)
	return r.Leader(ctx, func(ctx context.Context, base string) error {
		_, err := r.Operators(base).Change(ctx, connect.NewRequest(req))
		return err
	})
}
