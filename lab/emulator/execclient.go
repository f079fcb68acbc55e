package emulator

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"headroom/internal/cli"
)

// Exec runs argv on the running node whose folder is dir/name, as the node's own
// process with this process's files, environment and folder, and returns its exit
// code (128 + the signal when one ended it). Signals that this process gets are
// passed on. The error is a *cli.Error: unreachable when the node does not run.
func Exec(ctx context.Context, dir, name string, argv []string) (int, error) {
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return 0, &cli.Error{
			Code: "program", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("program %q for node %s not found", argv[0], name),
			Hint: "use a full path, or correct PATH",
		}
	}
	if program, err = filepath.Abs(program); err != nil {
		return 0, err
	}
	cwd, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	conn, err := reach(ctx, dir, name)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	request := execRequest{Argv: append([]string{program}, argv[1:]...), Env: os.Environ(), Dir: cwd}
	result, err := converse(conn, request)
	if err == nil && result.Error != "" {
		err = fmt.Errorf("%s", result.Error)
	}
	if err != nil {
		return 0, &cli.Error{
			Code: "failed", Exit: cli.ExitFailed, Err: err,
			Message: fmt.Sprintf("node %s could not run %s: %v", name, argv[0], err), Hint: "see the messages of powerlab node",
		}
	}
	return result.ExitCode, nil
}

// reach opens a conversation with a running node.
func reach(ctx context.Context, dir, name string) (*net.UnixConn, error) {
	conn, err := dialNode(ctx, filepath.Join(dir, name, "run", "node.sock"))
	if err != nil {
		return nil, &cli.Error{
			Code: "unreachable", Exit: cli.ExitUnreachable, Err: err,
			Message: fmt.Sprintf("node %s is not running in %s", name, dir),
			Hint:    fmt.Sprintf("start it: powerlab node %s --dir %s", name, dir),
		}
	}
	return conn, nil
}

func dialNode(ctx context.Context, path string) (conn *net.UnixConn, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	err = shortPath(path, func(short string) error {
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", short)
		if err == nil {
			conn = c.(*net.UnixConn)
		}
		return err
	})
	return conn, err
}

// converse sends the request, passes signals on, and waits for the result.
func converse(conn *net.UnixConn, request execRequest) (execResult, error) {
	caught := make(chan os.Signal, 8)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	rights := unix.UnixRights(int(os.Stdin.Fd()), int(os.Stdout.Fd()), int(os.Stderr.Fd()))
	if _, _, err := conn.WriteMsgUnix([]byte{'\n'}, rights, nil); err != nil {
		return execResult{}, err
	}
	to := json.NewEncoder(conn)
	if err := to.Encode(request); err != nil {
		return execResult{}, err
	}
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		for s := range caught {
			if number, ok := s.(syscall.Signal); ok {
				_ = to.Encode(execSignal{int(number)})
			}
		}
	}()
	var result execResult
	err := json.NewDecoder(conn).Decode(&result)
	signal.Stop(caught)
	close(caught)
	<-passed
	return result, err
}
