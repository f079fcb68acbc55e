package emulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"headroom/internal/cli"
)

// The conversation on run/node.sock: the client sends one byte with its three
// standard files attached, an execRequest, then an execSignal for every signal to
// pass on; the node answers once, with an execResult.

// execRequest requests that the node start a program, or inject a fault.
type execRequest struct {
	Fault []string `json:"fault,omitempty"` // a fault and its arguments; then nothing is started
	Argv  []string `json:"argv"`            // Argv[0] is a path
	Env   []string `json:"env"`
	Dir   string   `json:"dir"`
}

// execSignal is a signal for the program.
type execSignal struct {
	Signal int `json:"signal"`
}

// execResult is how the program ended.
type execResult struct {
	ExitCode int    `json:"exit_code"` // 0 to 255, or 128 + Signal
	Signal   int    `json:"signal"`    // what ended it, or 0
	Error    string `json:"error"`     // why it was not started or injected, or ""
	Hint     string `json:"hint,omitempty"`
}

// Bounds of a conversation.
const (
	execBytes = 8 << 20 // arguments and environment: the kernel takes 6 MB at most
	execFiles = 3
	// execSlots bounds the programs that run at once on one node.
	execSlots = 256
)

// execServer starts programs on the node for `powerlab node exec`.
type execServer struct {
	listener *net.UnixListener
	path     string
	family   *family
	inject   func(fault []string) error
	log      *slog.Logger
	slots    chan struct{}
	done     sync.WaitGroup

	mu      sync.Mutex
	closing bool
	running map[*exec.Cmd]bool
}

// listenExec opens the node's socket and serves it.
func listenExec(dir string, f *family, inject func([]string) error, log *slog.Logger) (*execServer, error) {
	path := filepath.Join(dir, "run", "node.sock")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("emulator: control socket: %w", err)
	}
	var listener *net.UnixListener
	err := shortPath(path, func(short string) (err error) {
		listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("emulator: control socket: %w", err)
	}
	listener.SetUnlinkOnClose(false) // the short path may be another by then
	s := &execServer{
		listener: listener, path: path, family: f, inject: inject, log: log,
		slots: make(chan struct{}, execSlots), running: make(map[*exec.Cmd]bool),
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	s.done.Go(s.accept)
	return s, nil
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

func (s *execServer) accept() {
	for {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			return
		}
		s.slots <- struct{}{}
		s.done.Go(func() {
			defer func() { <-s.slots }()
			defer func() { _ = conn.Close() }()
			s.serve(conn)
		})
	}
}

// serve is one conversation.
func (s *execServer) serve(conn *net.UnixConn) {
	_ = conn.SetReadDeadline(time.Now().Add(stopGrace)) // only until the request is there
	files, err := receiveFiles(conn)
	defer closeAll(files)
	var result execResult
	if err == nil {
		result, err = s.runProgram(conn, files)
	}
	if err != nil {
		result.Error = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(result) // a client that is gone needs no answer
}

func (s *execServer) runProgram(conn *net.UnixConn, files []*os.File) (execResult, error) {
	from := json.NewDecoder(io.LimitReader(conn, execBytes))
	var request execRequest
	if err := from.Decode(&request); err != nil {
		return execResult{}, fmt.Errorf("emulator: read request: %w", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	if len(request.Fault) > 0 {
		return s.runFault(request.Fault), nil
	}
	if len(request.Argv) == 0 {
		return execResult{}, errors.New("emulator: program name is missing")
	}
	cmd := &exec.Cmd{
		Path: request.Argv[0], Args: request.Argv, Env: request.Env, Dir: request.Dir,
		Stdin: files[0], Stdout: files[1], Stderr: files[2],
		// A session of its own: the caller's terminal does not stop it for reading.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := s.begin(cmd); err != nil {
		return execResult{}, err
	}
	closeAll(files) // the program has its own copies: readers see the end with it
	s.log.Info("program started", slog.Int("pid", cmd.Process.Pid), slog.String("program", request.Argv[0]))
	go passSignals(from, cmd.Process.Pid)
	_ = s.family.wait(cmd)
	s.mu.Lock()
	delete(s.running, cmd)
	s.mu.Unlock()
	s.log.Info("program ended", slog.Int("pid", cmd.Process.Pid), slog.String("state", cmd.ProcessState.String()))
	return resultOf(cmd.ProcessState), nil
}

// runFault injects a fault, and logs it once.
func (s *execServer) runFault(fault []string) execResult {
	if err := s.inject(fault); err != nil {
		if told, ok := errors.AsType[*cli.Error](err); ok {
			return execResult{ExitCode: told.Exit, Error: told.Message, Hint: told.Hint}
		}
		return execResult{ExitCode: cli.ExitFailed, Error: err.Error()}
	}
	s.log.Info("fault injected", slog.String("fault", strings.Join(fault, " ")))
	return execResult{}
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
		var s execSignal
		if err := from.Decode(&s); err != nil {
			_ = unix.Kill(-pid, unix.SIGHUP) // without effect when it has ended
			return
		}
		_ = unix.Kill(-pid, syscall.Signal(s.Signal))
	}
}

func resultOf(state *os.ProcessState) execResult {
	status, ok := state.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return execResult{ExitCode: 128 + int(status.Signal()), Signal: int(status.Signal())}
	}
	return execResult{ExitCode: state.ExitCode()}
}

// close ends all programs (SIGTERM, then SIGKILL) and the conversations.
func (s *execServer) close() {
	_ = s.listener.Close()
	_ = os.Remove(s.path)
	s.mu.Lock()
	s.closing = true
	s.signal(unix.SIGTERM)
	s.mu.Unlock()
	kill := time.AfterFunc(stopGrace, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.signal(unix.SIGKILL)
	})
	defer kill.Stop()
	s.done.Wait()
}

func (s *execServer) signal(sig syscall.Signal) {
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
	if err != nil {
		return nil, fmt.Errorf("emulator: read request: %w", err)
	}
	var files []*os.File
	for i := range messages {
		descriptors, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, d := range descriptors {
			unix.CloseOnExec(d)
			files = append(files, os.NewFile(uintptr(d), "passed"))
		}
	}
	if len(files) != execFiles {
		return files, fmt.Errorf("emulator: request has %d files, want %d", len(files), execFiles)
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
