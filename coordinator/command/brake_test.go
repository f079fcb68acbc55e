package command

// Claims: brake set is carried out by the first server that answers, however the
// others fail or hang; a hint of who leads is followed; and when nobody sets it,
// that is said with a way out.

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/rpc"
)

// fakeServer answers brake set as the test says.
type fakeServer struct {
	headroomv1connect.UnimplementedBrakeServiceHandler

	set   func(context.Context) (*headroomv1.SetBrakeResponse, error)
	asked atomic.Int32
}

// SetBrake counts and answers.
func (f *fakeServer) SetBrake(ctx context.Context, _ *connect.Request[headroomv1.SetBrakeRequest]) (*connect.Response[headroomv1.SetBrakeResponse], error) {
	f.asked.Add(1)
	r, err := f.set(ctx)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(r), nil
}

// serve starts a server and returns its address.
func serve(t *testing.T, set func(context.Context) (*headroomv1.SetBrakeResponse, error)) (string, *fakeServer) {
	t.Helper()
	l, err := rpc.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeServer{set: set}
	mux := http.NewServeMux()
	mux.Handle(headroomv1connect.NewBrakeServiceHandler(f, rpc.HandlerOptions()...))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = rpc.Serve(ctx, l, mux)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return l.Addr().String(), f
}

func sets(context.Context) (*headroomv1.SetBrakeResponse, error) {
	return &headroomv1.SetBrakeResponse{Server: "c3", Generation: 4, Members: 7}, nil
}

func refuses(context.Context) (*headroomv1.SetBrakeResponse, error) {
	return nil, rpc.Refuse(connect.CodeFailedPrecondition, "no-brake-key", cli.ExitRefused, "c1: no key", "ask another")
}

func hangs(ctx context.Context) (*headroomv1.SetBrakeResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// coordinator runs one command line.
func operate(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, problems bytes.Buffer
	code = cli.Run(t.Context(), New(), args, &out, &problems)
	return code, out.String(), problems.String()
}

func TestBrakeIsSetByTheFirstThatAnswers(t *testing.T) {
	t.Parallel()
	hung, _ := serve(t, hangs)
	keyless, _ := serve(t, refuses)
	good, g := serve(t, sets)
	last, l := serve(t, sets)
	began := time.Now()
	code, out, problems := operate(t, "brake", "set", "--wait", "0s", "--addr", strings.Join([]string{"127.0.0.1:1", hung, keyless, good, last}, ","))
	if code != 0 || !strings.Contains(out, "brake 4 set by c3") || !strings.Contains(out, "sent to    7 members") || g.asked.Load() != 1 || l.asked.Load() != 0 {
		t.Errorf("exit %d after %v: %s%s", code, time.Since(began), out, problems)
	}
	if strings.Count(problems, "asking the next server") != 3 {
		t.Errorf("notes: %s", problems)
	}
}

func TestBrakeFollowsTheHint(t *testing.T) {
	t.Parallel()
	leader, _ := serve(t, sets)
	follower, f := serve(t, func(context.Context) (*headroomv1.SetBrakeResponse, error) { return nil, rpc.NotLeader("c3", leader) })
	code, out, problems := operate(t, "brake", "set", "--wait", "0s", "--addr", follower)
	if code != 0 || !strings.Contains(out, "brake 4 set by c3") || f.asked.Load() != 1 {
		t.Errorf("exit %d: %s%s", code, out, problems)
	}
}

// set asks the servers in turn to set the brake, and gives each an hour: those of a test answer, or hang for ever.
func set(t *testing.T, addrs string) (stderr string, err error) {
	t.Helper()
	var problems bytes.Buffer
	o, cmd := &operator{addr: addrs, brakeWaits: [2]time.Duration{time.Hour, time.Hour}}, &cobra.Command{}
	cmd.SetErr(&problems)
	_, _, err = anyServer(t.Context(), o, cmd, "brake set", &headroomv1.SetBrakeRequest{}, headroomv1connect.BrakeServiceClient.SetBrake)
	return problems.String(), err
}

func TestBrakeThatNobodySets(t *testing.T) {
	t.Parallel()
	keyless, k := serve(t, refuses)
	notes, err := set(t, keyless+","+keyless)
	var refused *cli.Error
	if !errors.As(err, &refused) || refused.Exit != cli.ExitRefused || refused.Hint != "ask another" || k.asked.Load() != 2 {
		t.Errorf("refused by all, asked %d times: %#v, %s", k.asked.Load(), err, notes)
	}
	code, _, problems := operate(t, "brake", "set", "--addr", "127.0.0.1:1")
	if code != cli.ExitUnreachable || !strings.Contains(problems, "hint: ") {
		t.Errorf("nobody there, exit %d: %s", code, problems)
	}
	code, _, problems = operate(t, "brake", "set", "--addr", " , ")
	if code == 0 || !strings.Contains(problems, "hint: ") {
		t.Errorf("no address, exit %d: %s", code, problems)
	}
}
