package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cgroup"
	"headroom/internal/rpc"
	"headroom/internal/secure"
)

const (
	// aliveEvery is the interval of the worker's messages; the scheduler reassigns its tasks after 5 s of silence.
	aliveEvery = time.Second
	// backoffMin and backoffMax bound the wait before the stream is reopened. A restarted scheduler waits 2 s for its
	// workers, so the maximum is below.
	backoffMin = 50 * time.Millisecond
	backoffMax = time.Second
	// repeatFor is how long a sent result is repeated on a new stream: a dead connection is noticed sooner than that.
	repeatFor = 10 * time.Second
	// ResultsKept bounds the results that are kept.
	ResultsKept = 4096
	// resultsAtOnce bounds the results of one message: with the ends of their standard errors they take half a
	// megabyte.
	resultsAtOnce = 256
	// stuckAfter is how long a task that was killed may take to end.
	stuckAfter = 10 * time.Second
	// goodbyeWait is how long the scheduler may take to acknowledge the end.
	goodbyeWait = time.Second
	// inboxMax bounds the scheduler's messages that wait to be handled.
	inboxMax = 16
)

// Config is the configuration of a worker. Users is optional.
type Config struct {
	// Node is the name of the node that the worker runs on.
	Node string
	// Schedulers are addresses, host:port: the scheduler's, or those of the masters of the node's group. While one is
	// lost or on standby, the next one is used.
	Schedulers []string
	// Peers connects to them; the zero value is without TLS.
	Peers rpc.Peers
	// Slots is the maximum of concurrent tasks, at least 1.
	Slots int
	// Dir is the worker's own folder; it contains the TMPDIR of tasks.
	Dir string
	// Users chooses the user of each task; the zero value is the worker's own.
	Users Users
	// Hold holds each task that the worker starts itself together with all that it starts. This process then adopts
	// orphans if there are no cgroups, and must start nothing else.
	Hold bool
	// Version is sent to the scheduler, for operators.
	Version string
	Logger  *slog.Logger
}

// Worker runs the tasks of one node. Run owns it.
type Worker struct {
	cfg     Config
	room    *cgroup.Room // nil if it holds no tasks
	clients []headroomv1connect.WorkerServiceClient
	at      int // the index in Schedulers of the one in use
	peers   rpc.Peers
	denials *secure.Denials
	// grants is the key with which masters prove grants of its slots.
	grants  []byte
	env     []string
	running map[ref]*attempt
	// stuck counts stopped tasks that hang, stuckAfter is for how long a stopped one is waited for.
	stuck      atomic.Int32
	stuckAfter time.Duration
	// epoch is the newest of a scheduler's lease that was seen; 0 for none.
	epoch   uint64
	ended   chan *headroomv1.TaskResult
	outbox  []sent
	batches bool // the stream is a master's, which accepts several results at once
	link    link // for one log line per change

	mu       sync.Mutex
	controls *headroomv1.TaskControls // as last told; the first trouble stays
}

// attempt is a running task.
type attempt struct {
	stop  context.CancelFunc
	proof string
	group *cgroup.Group                      // nil if a runner has it
	told  atomic.Pointer[headroomv1.TaskUse] // by the runner
}

// link is the last logged state of the stream.
type link uint8

const (
	linkUnknown link = iota
	linkUp
	linkDown
)

// ref is a task's attempt as a key.
type ref struct {
	job, phase     string
	index, attempt uint32
}

func keyOf(r *headroomv1.TaskRef) ref {
	return ref{r.GetJob(), r.GetPhase(), r.GetIndex(), r.GetAttempt()}
}

func (r ref) proto() *headroomv1.TaskRef {
	return &headroomv1.TaskRef{Job: r.job, Phase: r.phase, Index: r.index, Attempt: r.attempt}
}

// sent is a result that the scheduler may not have yet.
type sent struct {
	result *headroomv1.TaskResult
	at     time.Time // zero: not sent
}

// New returns a worker that does nothing until Run. It creates its folder.
func New(cfg Config) (*Worker, error) {
	if err := cfg.Users.Check(); err != nil {
		return nil, fmt.Errorf("worker %s: %w", cfg.Node, err)
	}
	tmp, err := filepath.Abs(filepath.Join(cfg.Dir, "tmp"))
	if err == nil {
		err = errors.Join(ownFolder(cfg.Dir), ownFolder(tmp))
	}
	if err != nil {
		return nil, fmt.Errorf("worker %s: its folder: %w", cfg.Node, err)
	}
	peers := cfg.Peers
	if peers.HTTP() == nil {
		peers = rpc.PlainPeers()
	}
	denials := secure.NewDenials()
	known, err := secure.ReadDenials(filepath.Join(cfg.Dir, deniedFile))
	if err != nil {
		return nil, fmt.Errorf("worker %s: read denied certificates: %w", cfg.Node, err)
	}
	denials.Add(known...)
	peers.Deny(denials)
	grants, err := secure.OpenKey(filepath.Join(cfg.Dir, grantsFile))
	if err != nil {
		return nil, fmt.Errorf("worker %s: %w", cfg.Node, err)
	}
	w := &Worker{
		cfg:        cfg,
		grants:     grants,
		denials:    denials,
		peers:      peers,
		env:        append(os.Environ(), "TMPDIR="+tmp, "HEADROOM_NODE="+cfg.Node),
		stuckAfter: stuckAfter,
		running:    make(map[ref]*attempt),
		ended:      make(chan *headroomv1.TaskResult),
	}
	if cfg.Hold && cfg.Users.Sockets == "" {
		if w.room, err = cgroup.Open(cgroup.Options{Record: filepath.Join(cfg.Dir, RecordFile)}); err != nil {
			cfg.Logger.Warn("processes of an earlier worker not ended", slog.Any("error", err))
		}
		w.note(w.room.Can())
	}
	for _, addr := range cfg.Schedulers {
		w.clients = append(w.clients, headroomv1connect.NewWorkerServiceClient(peers.HTTP(), peers.URL(addr), peers.Options()...))
	}
	return w, nil
}

// ownFolder creates a folder, or checks that nobody else can have put files into an existing one: which certificates are
// denied is read from there.
func ownFolder(path string) error {
	if path == "" {
		return errors.New("no folder is named")
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	switch st, ok := info.Sys().(*syscall.Stat_t); {
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", path)
	case !ok || int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user", path)
	case info.Mode()&0o022 != 0:
		return fmt.Errorf("%s can be written by other users (mode %04o)", path, info.Mode().Perm())
	}
	return nil
}

// Run works until ctx ends; then it kills its tasks with their process groups, says goodbye and returns nil. An
// unreachable scheduler is retried for ever.
func (w *Worker) Run(ctx context.Context) error {
	defer w.peers.Close()
	defer func() { _ = w.room.Close() }() // what it leaves is in the record
	defer w.stopAll()
	var asking sync.WaitGroup
	defer asking.Wait()
	for _, socket := range w.cfg.Users.sockets() {
		asking.Go(func() {
			_, _ = exchange(ctx, socket, &headroomv1.Task{Controlled: true}, func(s *headroomv1.TaskState) { w.note(s.GetControls()) })
		})
	}
	wait, moved := backoffMin, false
	for failed := 1; ; failed++ {
		began := time.Now()
		err := w.session(ctx)
		if ctx.Err() != nil {
			return nil
		}
		again := moved && time.Since(began) < backoffMax
		if moved = rpc.Moved(err); moved {
			failed = 0
			continue // at the same scheduler, with the renewed certificate
		}
		if again { // it may not have seen yet that the old stream is over
			if !w.pause(ctx, backoffMin) {
				return nil
			}
			continue
		}
		w.noteBroken(err)
		w.at = (w.at + 1) % len(w.clients)
		if time.Since(began) > backoffMax {
			wait, failed = backoffMin, 1
		}
		if failed%len(w.clients) != 0 {
			continue // another one may assign tasks at once
		}
		if !w.pause(ctx, wait) {
			return nil
		}
		wait = min(2*wait, backoffMax)
	}
}

func (w *Worker) noteBroken(err error) {
	if w.link != linkDown {
		w.cfg.Logger.Warn("scheduler unreachable", slog.String("node", w.cfg.Node), slog.String("scheduler", w.cfg.Schedulers[w.at]), slog.Any("error", err))
	}
	w.link = linkDown
}

// pause waits while tasks may end. It returns false when ctx ended.
func (w *Worker) pause(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case r := <-w.ended:
			w.collect(r)
		}
	}
}

// errReplaced ends the stream to a scheduler in whose place another is active.
var errReplaced = errors.New("another scheduler has taken its place")

// admit refuses a scheduler of an older epoch than one that was seen. Masters and older schedulers name none.
func (w *Worker) admit(epoch uint64) error {
	if epoch != 0 && epoch < w.epoch {
		return fmt.Errorf("scheduler of epoch %d after %d: %w", epoch, w.epoch, errReplaced)
	}
	w.epoch = max(w.epoch, epoch)
	return nil
}

type stream = connect.BidiStreamForClient[headroomv1.WorkerMessage, headroomv1.WorkMessage]

// session runs one stream.
func (w *Worker) session(ctx context.Context) error {
	// The stream outlives ctx by the goodbye.
	streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.batches = false
	st, err := w.open(streamCtx)
	if err != nil {
		cancel()
		return err
	}
	inbox, broken := rpc.Inbox(streamCtx, inboxMax, st.Receive)
	defer func() {
		cancel()
		_ = st.CloseResponse()
		for range inbox {
			continue // until the receiver has ended
		}
	}()
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for {
		select {
		case <-ctx.Done():
			w.goodbye(st, broken)
			return nil
		case err := <-broken:
			return err
		case m := <-inbox:
			if err := w.admit(rpc.SchedulerEpoch(st.ResponseHeader())); err != nil {
				return err
			}
			w.handle(ctx, m)
			err = w.flush(st)
		case r := <-w.ended:
			w.collect(r)
			w.collectReady()
			err = w.flush(st)
		case <-alive.C:
			err = st.Send(&headroomv1.WorkerMessage{Message: &headroomv1.WorkerMessage_Alive{Alive: w.alive()}})
		}
		if err != nil {
			return rpc.Reason(err, inbox, broken)
		}
	}
}

// open opens the stream, sends hello and repeats the results that may be lost.
func (w *Worker) open(ctx context.Context) (*stream, error) {
	st := w.clients[w.at].Work(ctx)
	rpc.SetSchedulerEpoch(st.RequestHeader(), w.epoch)
	hello := &headroomv1.WorkerHello{Node: w.cfg.Node, Slots: uint32(w.cfg.Slots), Version: w.cfg.Version, GrantKey: w.grants}
	for r, a := range w.running {
		p := r.proto()
		p.Proof = a.proof
		hello.Running = append(hello.Running, p)
	}
	w.prune(time.Now())
	for i := range w.outbox {
		w.outbox[i].at = time.Time{}
		hello.Running = append(hello.Running, w.outbox[i].result.GetRef())
	}
	err := st.Send(&headroomv1.WorkerMessage{Message: &headroomv1.WorkerMessage_Hello{Hello: hello}})
	if err == nil {
		err = w.flush(st)
	}
	if err == nil {
		return st, nil
	}
	if _, cause := st.Receive(); errors.Is(err, io.EOF) && cause != nil {
		err = cause // Send only reports that the stream is over
	}
	_ = st.CloseRequest()
	_ = st.CloseResponse()
	return nil, err
}

// handle handles one message.
func (w *Worker) handle(ctx context.Context, m *headroomv1.WorkMessage) {
	if w.link != linkUp && m != nil {
		w.link = linkUp
		w.cfg.Logger.Info("connected to the scheduler", slog.String("node", w.cfg.Node), slog.String("scheduler", w.cfg.Schedulers[w.at]))
	}
	switch m := m.GetMessage().(type) {
	case *headroomv1.WorkMessage_Task:
		w.start(ctx, m.Task)
	case *headroomv1.WorkMessage_Tasks:
		w.batches = true
		for _, t := range m.Tasks.GetTasks() {
			w.start(ctx, t)
		}
	case *headroomv1.WorkMessage_Denied:
		w.deny(m.Denied)
	case *headroomv1.WorkMessage_Kill:
		if a := w.running[keyOf(m.Kill)]; a != nil {
			a.stop()
		}
	}
}

// RecordFile names the cgroups of the tasks, in the worker's folder: the next worker ends what is left in them.
const RecordFile = "cgroups"

const (
	// deniedFile stores the denied certificates of schedulers and masters, in the worker's folder.
	deniedFile = "denied.json"
	// grantsFile is the key of the grants, beside it: a restarted worker's slots are still recognised.
	grantsFile = "grants.key"
)

// deny applies denials: such a scheduler is not obeyed, now or after a restart.
func (w *Worker) deny(m *headroomv1.Denials) {
	if !rpc.TakeDenials(w.denials, m, secure.Scheduler, secure.Master) {
		return
	}
	w.peers.Expel()
	w.cfg.Logger.Info("denied certificates updated", slog.Int("denials", len(w.denials.All())))
	if err := secure.WriteDenials(filepath.Join(w.cfg.Dir, deniedFile), w.denials.All()); err != nil {
		w.cfg.Logger.Error("denied certificates not stored; kept in memory until exit", slog.Any("error", err))
	}
}

// start runs a task on its own goroutine. The task outlives the stream, not the worker.
func (w *Worker) start(ctx context.Context, t *headroomv1.Task) {
	key := keyOf(t.GetRef())
	if w.running[key] != nil {
		return // already reported
	}
	if len(w.running) >= w.cfg.Slots {
		w.outbox = append(w.outbox, sent{result: &headroomv1.TaskResult{Ref: t.GetRef(), ExitCode: exitNotStarted, Error: NoSlot}})
		return
	}
	taskCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	a := &attempt{stop: stop, proof: t.GetRef().GetProof()}
	if w.cfg.Users.Sockets == "" {
		a.group = w.room.New()
	}
	w.running[key] = a
	go func() {
		over := make(chan *headroomv1.TaskResult, 1)
		go func() { over <- w.run(taskCtx, t, a) }()
		w.ended <- w.await(taskCtx, t, over)
		stop()
	}()
}

// await waits for a task, and for stuckAfter once it was told to stop: one whose file system does not answer cannot be
// ended until it does, but it will do nothing more. So it is reported as stopped and its slot is free, unless as many
// hang already as there are slots.
func (w *Worker) await(ctx context.Context, t *headroomv1.Task, over <-chan *headroomv1.TaskResult) *headroomv1.TaskResult {
	select {
	case r := <-over:
		return r
	case <-ctx.Done():
	}
	patience := time.NewTimer(w.stuckAfter)
	defer patience.Stop()
	select {
	case r := <-over:
		return r
	case <-patience.C:
	}
	if int(w.stuck.Add(1)) > w.cfg.Slots {
		w.stuck.Add(-1)
		return <-over
	}
	w.cfg.Logger.Warn("stopped task hangs in its file system; its slot is free", slog.String("job", t.GetRef().GetJob()), slog.String("output", t.GetOutput()))
	go func() {
		<-over
		w.stuck.Add(-1)
	}()
	return &headroomv1.TaskResult{Ref: t.GetRef(), ExitCode: exitNotStarted, Error: Stopped}
}

// run runs a task as its user.
func (w *Worker) run(ctx context.Context, t *headroomv1.Task, a *attempt) *headroomv1.TaskResult {
	if a.group != nil {
		return run(ctx, a.group, t, append(slices.Clip(w.env), t.GetEnv()...))
	}
	socket, err := w.cfg.Users.socket(t.GetSubmitter())
	if err != nil {
		return &headroomv1.TaskResult{Ref: t.GetRef(), ExitCode: exitNotStarted, Error: err.Error()}
	}
	handed, _ := proto.Clone(t).(*headroomv1.Task)
	handed.Env, handed.Controlled = append(slices.Clip(handed.GetEnv()), "HEADROOM_NODE="+w.cfg.Node), true
	return delegate(ctx, socket, handed, func(s *headroomv1.TaskState) {
		w.note(s.GetControls())
		a.told.Store(s.GetUse())
	})
}

// note records what can be done with tasks, by one of the runners, and returns what can be done with those of every user.
// That a runner has no cgroups is logged once.
func (w *Worker) note(c *headroomv1.TaskControls) *headroomv1.TaskControls {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.controls.GetTrouble() != "" || c == nil {
		return w.controls
	}
	if c.GetTrouble() != "" {
		w.cfg.Logger.Warn("tasks have no cgroup; of what they leave running, only marked and adopted processes are ended", slog.String("reason", c.GetTrouble()))
	}
	w.controls = c
	return c
}

// alive is the message of every second. A master needs no more of it than its arrival.
func (w *Worker) alive() *headroomv1.WorkerAlive {
	if w.batches {
		return &headroomv1.WorkerAlive{}
	}
	m := &headroomv1.WorkerAlive{Controls: w.note(nil)}
	if w.room != nil {
		m.Controls = w.note(w.room.Can())
	}
	for r, a := range w.running {
		use := a.told.Load()
		if a.group != nil {
			use = a.group.Use()
		}
		if use != nil {
			m.Running = append(m.Running, &headroomv1.TaskUse{Ref: r.proto(), CpuSeconds: use.GetCpuSeconds(), MemoryBytes: use.GetMemoryBytes(), Frozen: use.GetFrozen()})
			m.Running[len(m.Running)-1].Ref.Proof = a.proof
		}
	}
	return m
}

// collect records an ended task.
func (w *Worker) collect(r *headroomv1.TaskResult) {
	delete(w.running, keyOf(r.GetRef()))
	w.outbox = append(w.outbox, sent{result: r})
	if len(w.outbox) > ResultsKept {
		w.outbox = w.outbox[1:]
	}
}

// collectReady records the tasks that have ended meanwhile, so that their results are sent together.
func (w *Worker) collectReady() {
	for {
		select {
		case r := <-w.ended:
			w.collect(r)
		default:
			return
		}
	}
}

// flush sends the results that were not sent on this stream.
func (w *Worker) flush(st *stream) error {
	now := time.Now()
	w.prune(now)
	var unsent []*headroomv1.TaskResult
	for i := range w.outbox {
		if w.outbox[i].at.IsZero() {
			unsent = append(unsent, w.outbox[i].result)
			w.outbox[i].at = now // on a new stream all are sent again
		}
	}
	if w.batches {
		for part := range slices.Chunk(unsent, resultsAtOnce) {
			if err := st.Send(&headroomv1.WorkerMessage{Message: &headroomv1.WorkerMessage_Results{Results: &headroomv1.TaskResults{Results: part}}}); err != nil {
				return err
			}
		}
		return nil
	}
	for _, r := range unsent {
		if err := st.Send(&headroomv1.WorkerMessage{Message: &headroomv1.WorkerMessage_Result{Result: r}}); err != nil {
			return err
		}
	}
	return nil
}

// prune forgets the results that have certainly arrived.
func (w *Worker) prune(now time.Time) {
	kept := w.outbox[:0]
	for _, s := range w.outbox {
		if s.at.IsZero() || now.Sub(s.at) < repeatFor {
			kept = append(kept, s)
		}
	}
	clear(w.outbox[len(kept):])
	w.outbox = kept
}

// goodbye kills the tasks and closes the stream: the scheduler reassigns them at once.
func (w *Worker) goodbye(st *stream, broken <-chan error) {
	w.stopAll()
	if err := st.CloseRequest(); err != nil && !errors.Is(err, io.EOF) {
		return
	}
	timer := time.NewTimer(goodbyeWait)
	defer timer.Stop()
	select {
	case err := <-broken: // as expected
		w.cfg.Logger.Debug("stream closed", slog.String("node", w.cfg.Node), slog.Any("error", err))
	case <-timer.C:
	}
}

// stopAll kills every task and waits until they have ended.
func (w *Worker) stopAll() {
	for _, a := range w.running {
		a.stop()
	}
	for len(w.running) > 0 {
		w.collect(<-w.ended)
	}
}
