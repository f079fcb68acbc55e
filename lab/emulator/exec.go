package emulator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"headroom/internal/cli"
)

// The conversation on run/node.sock: the client sends one byte with its three
// standard files attached, an execRequest, then the number of every signal to
// pass on; the node answers once, with an execResult.

// execRequest requests that the node start a program.
type execRequest struct {
	Argv []string `json:"argv"` // Argv[0] is a path
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`
}

// execResult is how the program ended.
type execResult struct {
	ExitCode int    `json:"exit_code"` // 0 to 255, or 128 + the signal that ended it
	Error    string `json:"error"`     // why it was not started, or ""
}

// Bounds of a conversation.
const (
	execBytes = 8 << 20 // arguments and environment: the kernel takes 6 MB at most
	execFiles = 3
)

// execute runs argv on the running node whose folder is dir/name, as the node's own
// process with this process's files, environment and folder, and returns its exit
// code (128 + the signal when one ended it). Signals that this process gets are
// passed on.
func execute(ctx context.Context, dir, name string, argv []string) (int, error) {
	program, err := exec.LookPath(argv[0])
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		return 0, cli.Failed("use a full path, or correct PATH", "program %q for node %s not found", argv[0], name)
	}
	cwd, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	conn, err := dialNode(ctx, filepath.Join(dir, name, "run", "node.sock"))
	if err != nil {
		return 0, &cli.Error{
			Code: "unreachable", Exit: cli.ExitUnreachable, Err: err,
			Message: fmt.Sprintf("node %s is not running in %s", name, dir),
			Hint:    fmt.Sprintf("start it: powerlab node %s --dir %s", name, dir),
		}
	}
	defer func() { _ = conn.Close() }()
	result, err := converse(conn, execRequest{Argv: append([]string{program}, argv[1:]...), Env: os.Environ(), Dir: cwd})
	if err == nil && result.Error != "" {
		err = errors.New(result.Error)
	}
	if err != nil {
		return 0, cli.Failed("see the messages of powerlab node", "node %s could not run %s: %w", name, argv[0], err)
	}
	return result.ExitCode, nil
}

func dialNode(ctx context.Context, path string) (conn *net.UnixConn, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	err = shortPath(path, func(short string) error {
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", short)
		conn, _ = c.(*net.UnixConn)
		return err
	})
	return conn, err
}

// converse sends the request, passes signals on, and waits for the result.
func converse(conn *net.UnixConn, request execRequest) (result execResult, err error) {
	caught := make(chan os.Signal, 8)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	rights := unix.UnixRights(int(os.Stdin.Fd()), int(os.Stdout.Fd()), int(os.Stderr.Fd()))
	if _, _, err := conn.WriteMsgUnix([]byte{'\n'}, rights, nil); err != nil {
		return result, err
	}
	to := json.NewEncoder(conn)
	if err := to.Encode(request); err != nil {
		return result, err
	}
	go func() { // until this process ends
		for s := range caught {
			_ = to.Encode(s)
		}
	}()
	err = json.NewDecoder(conn).Decode(&result)
	return result, err
}

// shortPath calls use with a name of the socket that fits into the 108 bytes of
// a socket address, whatever the length of its folder's.
func shortPath(path string, use func(short string) error) error {
	const most = 100
	if len(path) <= most {
		return use(path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return use(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}

// execServer starts programs on the node for `powerlab node exec`.
type execServer struct {
	listener *net.UnixListener
	path     string
	family   *family
	log      *slog.Logger
	done     sync.WaitGroup

	mu      sync.Mutex
	closing bool
	running map[*exec.Cmd]bool
}

// listenExec opens the node's socket and serves it.
func listenExec(dir string, f *family, log *slog.Logger) (*execServer, error) {
	s := &execServer{path: filepath.Join(dir, "run", "node.sock"), family: f, log: log, running: make(map[*exec.Cmd]bool)}
	_ = os.Remove(s.path)
	err := shortPath(s.path, func(short string) (err error) {
		s.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("emulator: control socket: %w", err)
	}
	s.listener.SetUnlinkOnClose(false) // the short path may be another by then
	if err := os.Chmod(s.path, 0o600); err != nil {
		return nil, errors.Join(err, s.listener.Close())
	}
	s.done.Go(func() {
		for {
			conn, err := s.listener.AcceptUnix()
			if err != nil {
				return
			}
			s.done.Go(func() { s.serve(conn) })
		}
	})
	return s, nil
}

// serve is one conversation.
func (s *execServer) serve(conn *net.UnixConn) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(stopGrace)) // only until the request is there
	files, err := receiveFiles(conn)
	defer closeAll(files)
	var result execResult
	if err == nil {
		result.ExitCode, err = s.runProgram(conn, files)
	}
	if err != nil {
		result.Error = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(result) // a client that is gone needs no answer
}

func (s *execServer) runProgram(conn *net.UnixConn, files []*os.File) (int, error) {
	from := json.NewDecoder(io.LimitReader(conn, execBytes))
	var request execRequest
	if err := from.Decode(&request); err != nil {
		return 0, fmt.Errorf("emulator: read request: %w", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	cmd := &exec.Cmd{
		Path: request.Argv[0], Args: request.Argv, Env: request.Env, Dir: request.Dir,
		Stdin: files[0], Stdout: files[1], Stderr: files[2],
		// A session of its own: the caller's terminal does not stop it for reading.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := s.begin(cmd); err != nil {
		return 0, err
	}
	closeAll(files) // the program has its own copies: readers see the end with it
	s.log.Info("program started", slog.Int("pid", cmd.Process.Pid), slog.String("program", request.Argv[0]))
	go passSignals(from, cmd.Process.Pid)
	_ = s.family.wait(cmd)
	s.mu.Lock()
	delete(s.running, cmd)
	s.mu.Unlock()
	s.log.Info("program ended", slog.Int("pid", cmd.Process.Pid), slog.String("state", cmd.ProcessState.String()))
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// begin starts the program unless the node stops already.
func (s *execServer) begin(cmd *exec.Cmd) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return errors.New("emulator: node is stopping")
	}
	if err := s.family.start(cmd, roleProgram); err != nil {
		return err
	}
	s.running[cmd] = true
	return nil
}

// passSignals hands signals on until the conversation ends; a client that is
// gone without a word hangs up its program, as a closed terminal would.
func passSignals(from *json.Decoder, pid int) {
	for {
		var number syscall.Signal
		if err := from.Decode(&number); err != nil {
			_ = unix.Kill(-pid, unix.SIGHUP) // without effect when it has ended
			return
		}
		_ = unix.Kill(-pid, number)
	}
}

// close ends all programs (SIGTERM, then SIGKILL) and the conversations.
func (s *execServer) close() {
	_ = s.listener.Close()
	_ = os.Remove(s.path)
	s.signal(unix.SIGTERM)
	kill := time.AfterFunc(stopGrace, func() { s.signal(unix.SIGKILL) })
	defer kill.Stop()
	s.done.Wait()
}

func (s *execServer) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	for cmd := range s.running {
		_ = cmd.Process.Signal(sig)
	}
}

// receiveFiles takes the client's standard files off the first byte.
func receiveFiles(conn *net.UnixConn) ([]*os.File, error) {
	one, control := make([]byte, 1), make([]byte, unix.CmsgSpace(4*execFiles))
	_, n, _, _, err := conn.ReadMsgUnix(one, control)
	if err != nil {
		return nil, fmt.Errorf("emulator: read request: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	var files []*os.File
	for i := range messages {
		descriptors, _ := unix.ParseUnixRights(&messages[i])
		for _, d := range descriptors {
			unix.CloseOnExec(d)
			files = append(files, os.NewFile(uintptr(d), "passed"))
		}
	}
	if err == nil && len(files) != execFiles {
		err = fmt.Errorf("emulator: request has %d files, want %d", len(files), execFiles)
	}
	return files, err
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
