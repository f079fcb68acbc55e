package local

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cgroup"
)

const (
	// frameMax bounds a task or a result between worker and runner. A reduce task has every map output on its command
	// line.
	frameMax = 16 << 20
	// frameWait bounds how long either side waits for the other.
	frameWait = 30 * time.Second
	// runnerMax bounds the tasks of one user on one node; more than any worker has slots.
	runnerMax = 4096
	// DefaultUser runs the tasks of all jobs if no users are configured.
	DefaultUser = "headroom-task"
	// The orders of a worker about a running task.
	orderUse    = "use"
	orderFreeze = "freeze"
	orderThaw   = "thaw"
)

// userRule matches valid names of task users: the name becomes part of a path.
var userRule = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)

// errNoUser is returned for a task whose submitter has no user on this node.
var errNoUser = errors.New("no user is configured for the submitter")

// Users chooses the user that runs a task. The zero value runs tasks as the worker's own user, without separation: for
// trying the system without root.
type Users struct {
	// Sockets is the folder of the runners' sockets, USER.sock each; empty for none.
	Sockets string
	// BySubmitter maps submitters to users. If empty, DefaultUser runs every task.
	BySubmitter map[string]string
}

// Check returns why the users cannot be used.
func (u Users) Check() error {
	if u.Sockets == "" && len(u.BySubmitter) > 0 {
		return errors.New("users are configured, but no folder of sockets to run tasks as these users")
	}
	if u.Sockets != "" && !filepath.IsAbs(u.Sockets) {
		return fmt.Errorf("the folder of sockets %q is not an absolute path", u.Sockets)
	}
	for submitter, user := range u.BySubmitter {
		if submitter == "" || !userRule.MatchString(user) || user == "root" {
			return fmt.Errorf("%q=%q is not SUBMITTER=USER with an unprivileged user", submitter, user)
		}
	}
	return nil
}

// sockets returns the sockets of all runners.
func (u Users) sockets() (all []string) {
	if u.Sockets == "" {
		return nil
	}
	for _, user := range u.BySubmitter {
		all = append(all, filepath.Join(u.Sockets, user+".sock"))
	}
	if len(all) == 0 {
		all = append(all, filepath.Join(u.Sockets, DefaultUser+".sock"))
	}
	return all
}

// socket returns the socket of the runner of a submitter's tasks.
func (u Users) socket(submitter string) (string, error) {
	user := DefaultUser
	if len(u.BySubmitter) > 0 {
		var ok bool
		if user, ok = u.BySubmitter[submitter]; !ok {
			return "", fmt.Errorf("task of submitter %q: %w; add --task-user %s=USER to the worker's options", submitter, errNoUser, submitter)
		}
	}
	return filepath.Join(u.Sockets, user+".sock"), nil
}

// Serve runs a task for each connection to l, as the user of this process, until ctx ends. A task is killed when its
// connection closes, so it never outlives its worker. Tasks have this process's environment, not the worker's, and each
// has a group of the room.
func Serve(ctx context.Context, l net.Listener, room *cgroup.Room, logger *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	unhook := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer unhook()
	places := make(chan struct{}, runnerMax)
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept the worker's connection: %w", err)
		}
		select {
		case places <- struct{}{}:
		default:
			logger.Warn("connection refused: too many tasks", slog.Int("tasks", runnerMax))
			_ = conn.Close()
			continue
		}
		running.Go(func() {
			defer func() { <-places }()
			if err := serveTask(ctx, conn, room); err != nil {
				logger.Warn("result of task not sent", slog.Any("error", err))
			}
		})
	}
}

// serveTask runs the task of one connection. One without a name is a question for the state alone.
func serveTask(ctx context.Context, conn net.Conn, room *cgroup.Room) error {
	defer func() { _ = conn.Close() }()
	var t headroomv1.Task
	if err := readFrame(conn, &t); err != nil {
		return fmt.Errorf("read the task: %w", err)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g := room.New()
	var mu sync.Mutex
	send := func(r *headroomv1.TaskResult) error {
		mu.Lock()
		defer mu.Unlock()
		return writeFrame(conn, r)
	}
	state := func(trouble error) error {
		if !t.GetControlled() {
			return nil // an older worker accepts only the result
		}
		s := &headroomv1.TaskState{Controls: room.Can(), Use: g.Use()}
		if trouble != nil {
			s.Trouble = strings.ToValidUTF8(trouble.Error(), "?")
		}
		return send(&headroomv1.TaskResult{State: s})
	}
	if err := state(nil); err != nil || t.GetRef() == nil {
		_, left := g.End()
		return errors.Join(err, left)
	}
	go func() {
		defer cancel() // the worker has ended, or closes to kill the task
		var o headroomv1.TaskOrder
		for readBody(conn, &o) == nil {
			if state(carryOut(g, o.GetOrder())) != nil {
				return
			}
		}
	}()
	return send(run(ctx, g, &t, append(os.Environ(), t.GetEnv()...)))
}

// carryOut carries out an order.
func carryOut(g *cgroup.Group, order string) error {
	switch order {
	case orderUse:
		return nil
	case orderFreeze, orderThaw:
		return g.Freeze(order == orderFreeze)
	default:
		return fmt.Errorf("order %q: %w", order, errors.ErrUnsupported)
	}
}

// delegate runs a task behind a socket and returns its result. It returns after the task has ended, also when ctx ends
// first. It reports the states of the running task.
func delegate(ctx context.Context, socket string, t *headroomv1.Task, report func(*headroomv1.TaskState)) *headroomv1.TaskResult {
	began := time.Now()
	r, err := exchange(ctx, socket, t, func(s *headroomv1.TaskState) {
		if !possible(s.GetUse().GetCpuSeconds(), time.Since(began)) {
			s.Use = nil
		}
		report(s)
	})
	seconds := time.Since(began)
	switch {
	case err != nil && ctx.Err() != nil:
		r = &headroomv1.TaskResult{ExitCode: exitNotStarted, Error: Stopped}
	case err != nil:
		r = &headroomv1.TaskResult{ExitCode: exitNotStarted, Error: strings.ToValidUTF8(err.Error(), "?")}
	}
	// The runner belongs to the task's user: only its statements about the task are trusted.
	r.Ref, r.Seconds, r.State = t.GetRef(), seconds.Seconds(), nil
	if !possible(r.GetCpuSeconds(), seconds) {
		r.CpuSeconds = 0
	}
	return r
}

// possible reports whether this machine can have used that much CPU time.
func possible(cpu float64, in time.Duration) bool {
	return cpu >= 0 && cpu <= in.Seconds()*float64(runtime.NumCPU())
}

func exchange(ctx context.Context, socket string, t *headroomv1.Task, report func(*headroomv1.TaskState)) (*headroomv1.TaskResult, error) {
	dialer := net.Dialer{Timeout: frameWait}
	c, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		user := strings.TrimSuffix(filepath.Base(socket), ".sock")
		return nil, fmt.Errorf("start a task as %s: %w; see systemctl status headroom-task@%s.socket", user, err, user)
	}
	defer func() { _ = c.Close() }()
	if err := writeFrame(c, t); err != nil {
		return nil, fmt.Errorf("send the task to its process: %w", err)
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	// Half-closing the connection requests the task's end; its result still arrives.
	unhook := context.AfterFunc(ctx, func() {
		if u, ok := c.(*net.UnixConn); ok {
			_ = u.CloseWrite()
		}
		_ = c.SetReadDeadline(time.Now().Add(frameWait))
	})
	defer unhook()
	ask := time.AfterFunc(math.MaxInt64, func() { _ = writeFrame(c, &headroomv1.TaskOrder{Order: orderUse}) })
	defer ask.Stop()
	began := time.Now()
	for states := 0; ; states++ {
		var r headroomv1.TaskResult
		if err := readBody(c, &r); err != nil {
			return nil, fmt.Errorf("the task's process has ended: %w", err)
		}
		if r.GetState() == nil {
			return &r, nil
		}
		if states > 1+int(time.Since(began)/aliveEvery) {
			return nil, errors.New("the task's process sends states that were not asked for")
		}
		if report(r.GetState()); t.GetRef() == nil {
			return &r, nil
		}
		ask.Reset(aliveEvery)
	}
}

func writeFrame(c net.Conn, m proto.Message) error {
	body, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	if len(body) > frameMax {
		return fmt.Errorf("%d bytes; the maximum is %d", len(body), frameMax)
	}
	if err := c.SetWriteDeadline(time.Now().Add(frameWait)); err != nil {
		return err
	}
	_, err = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

// readFrame reads a message that must arrive now.
func readFrame(c net.Conn, into proto.Message) error {
	if err := c.SetReadDeadline(time.Now().Add(frameWait)); err != nil {
		return err
	}
	return readBody(c, into)
}

func readBody(c io.Reader, into proto.Message) error {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > frameMax {
		return fmt.Errorf("%d bytes; the maximum is %d", size, frameMax)
	}
	body, err := io.ReadAll(io.LimitReader(c, int64(size)))
	if err != nil {
		return err
	}
	if uint32(len(body)) < size {
		return io.ErrUnexpectedEOF
	}
	return proto.Unmarshal(body, into)
}
