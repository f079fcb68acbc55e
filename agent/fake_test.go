package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"headroom/agent/config"
	"headroom/agent/metrics"
	"headroom/agent/records"
	"headroom/agent/statedir"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/leaks"
	"headroom/internal/rpc"
	"headroom/internal/testkit"
	"headroom/internal/testkit/emulated"
	"headroom/lease"
	"headroom/rapl/sysfs"
	"headroom/units"
)

func TestMain(m *testing.M) {
	if os.Getenv(childConfig) != "" {
		os.Exit(childMain())
	}
	if dir := os.Getenv(wideRoot); dir != "" {
		os.Exit(wideMain(dir))
	}
	os.Exit(leaks.Main(m, os.Stderr))
}

// childConfig names the configuration of a test binary that plays powerd.
const childConfig = "HEADROOM_TEST_POWERD_CONFIG"

// childMain is powerd inside the test binary, so that a kill -9 hits the same code
// without a build step.
func childMain() int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg, err := config.Load(os.Getenv(childConfig))
	if err == nil {
		err = Run(context.Background(), cfg, log)
	}
	if err != nil {
		log.Error("powerd ended", slog.Any("error", err))
		return cli.ExitFailed
	}
	return cli.ExitOK
}

// lab is one emulated node whose plant runs in real time while the test does.
type lab struct {
	t    *testing.T
	node *emulated.Machine
	dir  string
	spec emulated.Spec
	util chan float64
}

// newLab is one of the default shape, its tree plain files.
func newLab(t *testing.T) *lab {
	t.Helper()
	return labOf(t, emulated.Options{})
}

// mountedLab is one whose tree answers as the kernel does, error numbers included.
func mountedLab(t *testing.T, shapeName string) *lab {
	t.Helper()
	return labOf(t, emulated.Options{Shape: shapeName, Mount: true})
}

func labOf(t *testing.T, opts emulated.Options) *lab {
	t.Helper()
	opts.Dir = t.TempDir()
	node := emulated.Start(t, opts)
	l := &lab{t: t, node: node, dir: opts.Dir, spec: node.Spec, util: make(chan float64, 1)}
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { l.step(stop) })
	t.Cleanup(func() {
		close(stop)
		running.Wait()
	})
	return l
}

func (l *lab) step(stop <-chan struct{}) {
	const every = 10 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	load, last := 1.0, time.Now()
	for {
		select {
		case <-stop:
			return
		case load = <-l.util:
		case now := <-tick.C:
			if err := l.node.Step(now.Sub(last), load); err != nil && !errors.Is(err, os.ErrNotExist) {
				l.t.Errorf("plant: %v", err)
			}
			last = now
		}
	}
}

func (l *lab) config(coordinators ...string) config.Config {
	cfg := config.Defaults()
	cfg.Node, cfg.Domain, cfg.Enforce = "n01", "rack/r1", true
	cfg.Root, cfg.StateDir = filepath.Join(l.dir, "root"), filepath.Join(l.dir, "state")
	cfg.Power = config.Power{
		Rated: 245 * units.Watt, Floor: 70 * units.Watt, Max: 240 * units.Watt, FailSafe: 95 * units.Watt,
		Other: l.spec.Other, SupplyEfficiency: l.spec.Efficiency,
	}
	if !l.spec.Default {
		memory := l.spec.Memory // not every shape counts it
		cfg.Power.Rated, cfg.Power.Floor, cfg.Power.Max = l.spec.Rated, l.spec.Floor+memory, l.spec.Rated
		cfg.Power.FailSafe, cfg.Power.Other = l.spec.FailSafe+memory, l.spec.Other+memory
	}
	cfg.Coordinators = coordinators
	l.remember(cfg)
	return cfg
}

// remember gives the node the memory of an earlier powerd: its fail-safe cap.
func (l *lab) remember(cfg config.Config) {
	l.t.Helper()
	if _, err := os.Stat(l.state(statedir.MemoryFile)); err == nil {
		return
	}
	data, err := records.EncodeState(records.State{Memory: lease.Memory{FailSafe: cfg.Power.FailSafe}})
	if err == nil {
		err = errors.Join(os.MkdirAll(cfg.StateDir, 0o750), os.WriteFile(l.state(statedir.MemoryFile), data, 0o600))
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// remove takes parts of the machine away.
func (l *lab) remove(paths ...string) {
	l.t.Helper()
	for _, p := range paths {
		if err := os.RemoveAll(filepath.Join(l.dir, "root", p)); err != nil {
			l.t.Fatal(err)
		}
	}
}

// write puts a value into a file of the machine, as another program would.
func (l *lab) write(path, text string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, "root", path), []byte(text+"\n"), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// number reads a file of the machine.
func (l *lab) number(path string) int64 {
	l.t.Helper()
	data, err := os.ReadFile(filepath.Join(l.dir, "root", path))
	if err != nil {
		l.t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	v, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		l.t.Fatalf("%s holds %q", path, data)
	}
	return v
}

// forget makes the node's next start its first one.
func (l *lab) forget() {
	l.t.Helper()
	if err := os.Remove(l.state(statedir.MemoryFile)); err != nil {
		l.t.Fatal(err)
	}
}

// control is what a control file of the package zone holds now.
func (l *lab) control(name string) int64 {
	l.t.Helper()
	return l.controls()[name]
}

// controls are the values of every control that powerd may write.
func (l *lab) controls() map[string]int64 {
	l.t.Helper()
	all := map[string]int64{}
	for _, name := range []string{
		"constraint_0_power_limit_uw", "constraint_1_power_limit_uw",
		"constraint_0_time_window_us", "constraint_1_time_window_us", "enabled",
	} {
		data, err := os.ReadFile(l.zone(name))
		if err != nil {
			l.t.Fatal(err)
		}
		line, _, _ := strings.Cut(string(data), "\n")
		var v int64
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			l.t.Fatalf("%s holds %q", name, data)
		}
		all[name] = v
	}
	return all
}

func (l *lab) zone(name string) string {
	return filepath.Join(l.dir, "root/sys/class/powercap/intel-rapl:0", name)
}

func (l *lab) long() units.Power { return units.Power(l.control("constraint_0_power_limit_uw")) }

func (l *lab) state(name string) string { return filepath.Join(l.dir, "state", name) }

// held reads held.json.
func (l *lab) held() records.HeldFile {
	l.t.Helper()
	var h records.HeldFile
	data, err := os.ReadFile(l.state(statedir.HeldFile))
	if err == nil {
		err = json.Unmarshal(data, &h)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return h
}

// running is a powerd inside this process.
type running struct {
	t      *testing.T
	cancel context.CancelFunc
	ended  chan error
}

func run(t *testing.T, cfg config.Config) *running {
	t.Helper()
	return runLog(t, cfg, testLog(t))
}

// runLogged is run with the log where the test can read it.
func runLogged(t *testing.T, cfg config.Config, to io.Writer) *running {
	t.Helper()
	return runLog(t, cfg, slog.New(slog.NewTextHandler(to, nil)))
}

func runLog(t *testing.T, cfg config.Config, log *slog.Logger) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, cancel: cancel, ended: make(chan error, 1)}
	go func() {
		err := Run(ctx, cfg, log)
		log.Debug("powerd ended", slog.Any("error", err))
		r.ended <- err
	}()
	t.Cleanup(func() { _ = r.stop() })
	return r
}

// stop asks powerd to stop and returns how it ended.
func (r *running) stop() error {
	r.cancel()
	err := <-r.ended
	r.ended <- err
	return err
}

// testLog shows powerd's log lines when a test fails, or runs with -v.
func testLog(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// waitFor polls until ok, and fails the test when it never is.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never came about: %s", what)
		}
		<-tick.C
	}
}

// coordinator is a NodeService that grants what the test says.
type coordinator struct {
	headroomv1connect.UnimplementedNodeServiceHandler
	addr string
	stop context.CancelFunc

	mu       sync.Mutex
	leads    bool
	granted  units.Power
	failSafe units.Power
	duration time.Duration
	seq      uint64
	sprint   *headroomv1.Sprint
	lifted   uint64 // brake generation
	silent   bool   // receives heartbeats, answers none
	taken    bool   // the name belongs to another machine
	refuse   error  // answer to Release
	released int
	hellos   []*headroomv1.Hello
	beats    []*headroomv1.Heartbeat
	send     func(*headroomv1.CoordinatorMessage) error
	process  uint64
}

func newCoordinator(t *testing.T) *coordinator {
	t.Helper()
	c := &coordinator{leads: true, granted: 190 * units.Watt, failSafe: 95 * units.Watt, duration: 10 * time.Second, seq: 1}
	l, err := rpc.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.serve(t, l)
	return c
}

func (c *coordinator) serve(t *testing.T, l net.Listener) {
	t.Helper()
	c.addr = l.Addr().String()
	mux := http.NewServeMux()
	mux.Handle(headroomv1connect.NewNodeServiceHandler(c, rpc.HandlerOptions()...))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := rpc.Serve(ctx, l, mux); err != nil {
			t.Errorf("coordinator: %v", err)
		}
	}()
	c.stop = func() { cancel(); <-ended }
	t.Cleanup(c.stop)
}

func (c *coordinator) Exchange(ctx context.Context, s *connect.BidiStream[headroomv1.NodeMessage, headroomv1.CoordinatorMessage]) error {
	var sending sync.Mutex
	ended := false
	send := func(m *headroomv1.CoordinatorMessage) error {
		sending.Lock()
		defer sending.Unlock()
		if ended {
			return io.EOF
		}
		return s.Send(m)
	}
	defer func() {
		sending.Lock()
		defer sending.Unlock()
		ended = true
	}()
	for {
		m, err := s.Receive()
		if err != nil {
			if errors.Is(err, io.EOF) || ctx.Err() != nil {
				return nil
			}
			return err
		}
		if err := c.message(m, send); err != nil {
			return err
		}
	}
}

func (c *coordinator) message(m *headroomv1.NodeMessage, send func(*headroomv1.CoordinatorMessage) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := m.GetHello(); h != nil {
		if c.taken {
			return rpc.Refuse(connect.CodeAlreadyExists, "conflict", cli.ExitConflict, "n01 is machine abc", "rename it")
		}
		c.hellos, c.send, c.process = append(c.hellos, h), send, h.GetProcessId()
		leader := &headroomv1.Leader{Id: "c1", Address: c.addr, Self: c.leads, Epoch: &headroomv1.Epoch{Incarnation: 1, Term: 7}}
		return send(&headroomv1.CoordinatorMessage{Message: &headroomv1.CoordinatorMessage_Leader{Leader: leader}})
	}
	c.beats = append(c.beats, m.GetHeartbeat())
	if c.silent {
		return nil
	}
	return send(c.lease())
}

// lease is the grant that answers the newest heartbeat.
func (c *coordinator) lease() *headroomv1.CoordinatorMessage {
	return &headroomv1.CoordinatorMessage{Message: &headroomv1.CoordinatorMessage_Lease{Lease: &headroomv1.Lease{
		Stamp: &headroomv1.Stamp{Epoch: &headroomv1.Epoch{Incarnation: 1, Term: 7}, Seq: c.seq},
		CapUw: int64(c.granted), FailSafeUw: int64(c.failSafe), DurationMs: c.duration.Milliseconds(),
		Heartbeat: c.beats[len(c.beats)-1].GetNumber(), ProcessId: c.process, Sprint: c.sprint, BrakeLifted: c.lifted,
	}}}
}

// grant pushes a new cap, as the leader does outside its tick. It returns its sequence number.
func (c *coordinator) grant(t *testing.T, to units.Power) uint64 {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.granted = to
	c.seq++
	if c.send != nil && len(c.beats) > 0 && !c.silent {
		_ = c.send(c.lease()) // a stream that just ended gets it with its next heartbeat
	}
	return c.seq
}

func (c *coordinator) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// last is the newest heartbeat, an empty one before the first.
func (c *coordinator) last() *headroomv1.Heartbeat {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.beats) == 0 {
		return &headroomv1.Heartbeat{}
	}
	return c.beats[len(c.beats)-1]
}

// acknowledged reports whether the newest grant is in force and read back.
func (c *coordinator) acknowledged() bool {
	h := c.last().GetHolding()
	c.mu.Lock()
	defer c.mu.Unlock()
	return h.GetState() == headroomv1.LeaseState_LEASE_STATE_HELD && h.GetApplied().GetSeq() == c.seq
}

func (c *coordinator) lastHello() *headroomv1.Hello {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.hellos) == 0 {
		return &headroomv1.Hello{}
	}
	return c.hellos[len(c.hellos)-1]
}

func (c *coordinator) Release(_ context.Context, req *connect.Request[headroomv1.ReleaseRequest]) (*connect.Response[headroomv1.ReleaseResponse], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse != nil {
		return nil, c.refuse
	}
	if req.Msg.GetNode() != "n01" || req.Msg.GetChange().GetRequestId() == "" {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("no node or no request id"))
	}
	c.released++
	return connect.NewResponse(&headroomv1.ReleaseResponse{Revision: 5, ChargeUw: int64(245 * units.Watt)}), nil
}

// exposed is what a scrape shows of a status.
func exposed(t *testing.T, s *headroomv1.GetAgentStatusResponse) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics.New(Version, func() *headroomv1.GetAgentStatusResponse { return s }, metrics.NewLoop()))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}

// filesOf opens the files of a root.
func filesOf(t *testing.T, root *os.Root) *sysfs.Files {
	t.Helper()
	files := testkit.Need(sysfs.NewFiles(root))(t)
	t.Cleanup(func() { _ = files.Close() })
	return files
}
