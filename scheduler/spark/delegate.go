package spark

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"headroom/internal/cgroup"
	"headroom/scheduler/sparkapp"
)

const (
	// requestMax bounds a driver's command line with its environment; the kernel takes 2 MB.
	requestMax = 4 << 20
	// requestWait bounds how long either side waits for the other one's first bytes.
	requestWait = 30 * time.Second
	// endByte asks for the driver's end by SIGTERM.
	endByte = 'T'
)

// passedOn begin the names of the variables that a driver gets from the scheduler's
// side. All others are those of the driver's own unit.
func passedOn() []string {
	return []string{"SPARK_", "PYSPARK_", "JAVA_HOME=", "HADOOP_", "HEADROOM_", "PATH=", "LANG=", "LC_", "TZ="}
}

// request is what a driver's unit is handed, with its standard output and error as
// descriptors.
type request struct {
	Argv []string `json:"argv"`
	Env  []string `json:"env"`
}

// StartDriver runs a program behind the socket of the drivers' unit, as that unit's user,
// with this process's standard output and error, and returns its exit status. SIGTERM is
// passed on. When this process ends, however it does, so does the driver.
func StartDriver(ctx context.Context, socket string, argv, environ []string) (code int, err error) {
	dialer := net.Dialer{Timeout: requestWait}
	dialed, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, fmt.Errorf("connect to the unit of the drivers: %w; see systemctl status headroom-driver.socket", err)
	}
	c, ok := dialed.(*net.UnixConn)
	if !ok {
		return 0, errors.Join(fmt.Errorf("spark: %s is not a unix socket", socket), dialed.Close())
	}
	defer func() { _ = c.Close() }()
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	defer signal.Stop(told)
	if err := hand(c, request{Argv: argv, Env: forDriver(environ)}); err != nil {
		return 0, err
	}
	answered := make(chan struct{})
	defer close(answered)
	go func() {
		select {
		case <-told:
			_, _ = c.Write([]byte{endByte})
		case <-answered:
		}
	}()
	var x exit
	if err := json.NewDecoder(io.LimitReader(c, exitSize)).Decode(&x); err != nil {
		return 0, fmt.Errorf("the driver's unit ended without an exit status: %w", err)
	}
	if x.Error != "" {
		return 0, errors.New(x.Error)
	}
	return x.Code, nil
}

// forDriver returns what of an environment goes to a driver.
func forDriver(environ []string) (env []string) {
	for _, v := range environ {
		for _, prefix := range passedOn() {
			if strings.HasPrefix(v, prefix) {
				env = append(env, v)
				break
			}
		}
	}
	return env
}

// hand sends the request. The descriptors go with its first byte.
func hand(c *net.UnixConn, r request) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(data) >= requestMax {
		return fmt.Errorf("the driver's command line has %d bytes; the maximum is %d", len(data), requestMax)
	}
	if err := c.SetWriteDeadline(time.Now().Add(requestWait)); err != nil {
		return err
	}
	rights := unix.UnixRights(int(os.Stdout.Fd()), int(os.Stderr.Fd()))
	if _, _, err := c.WriteMsgUnix(data[:1], rights, nil); err != nil {
		return fmt.Errorf("send the driver to its unit: %w", err)
	}
	if _, err := c.Write(append(data[1:], '\n')); err != nil {
		return fmt.Errorf("send the driver to its unit: %w", err)
	}
	return c.SetWriteDeadline(time.Time{})
}

// RunDriver is the other end of StartDriver: the process of a driver's unit, with its one
// connection. It returns once the driver has ended with all that it has started.
func RunDriver(conn net.Conn, room *cgroup.Room) error {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return errors.New("spark: a driver must arrive over a unix socket")
	}
	defer func() { _ = c.Close() }()
	if err := c.SetReadDeadline(time.Now().Add(requestWait)); err != nil {
		return err
	}
	r, in, files, err := take(c)
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	if err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	data, err := json.Marshal(r.run(in, files, room.New()))
	if err == nil {
		_, err = c.Write(append(data, '\n'))
	}
	if errors.Is(err, syscall.EPIPE) {
		return nil // the caller no longer waits, which has ended the driver
	}
	return err
}

// take receives a request and its two descriptors.
func take(c *net.UnixConn) (r request, in *bufio.Reader, files []*os.File, err error) {
	first, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(2*4))
	n, oobn, _, _, err := c.ReadMsgUnix(first, oob)
	if err != nil {
		return r, nil, nil, fmt.Errorf("spark: receive a driver: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return r, nil, nil, fmt.Errorf("spark: descriptors of a driver: %w", err)
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return r, nil, files, fmt.Errorf("spark: descriptors of a driver: %w", err)
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "driver"))
		}
	}
	in = bufio.NewReaderSize(c, requestMax) // a longer line is refused, not stored
	line, err := in.ReadSlice('\n')
	switch {
	case err != nil:
		return r, nil, files, fmt.Errorf("spark: receive a driver: %w", err)
	case len(files) != 2:
		return r, nil, files, fmt.Errorf("spark: a driver with %d descriptors; want 2, standard output and error", len(files))
	}
	if err := json.Unmarshal(append(first[:n], line...), &r); err != nil {
		return r, nil, files, fmt.Errorf("spark: receive a driver: %w", err)
	}
	if len(r.Argv) == 0 {
		return r, nil, files, errors.New("spark: a driver without a program")
	}
	return r, in, files, nil
}

// run runs the driver to its end. It is told to end by a byte, and killed when the
// connection closes.
func (r request) run(in io.Reader, files []*os.File, g *cgroup.Group) exit {
	cmd := exec.Command(r.Argv[0], r.Argv[1:]...) //nolint:noctx // it lives until it ends or its connection closes; the scheduler names it
	cmd.Env = append(os.Environ(), forDriver(r.Env)...)
	cmd.Stdout, cmd.Stderr = files[0], files[1]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := g.Start(cmd); err != nil {
		_, left := g.End()
		return exit{Code: -1, Error: sparkapp.Clip("the driver was not started: " + errors.Join(err, left).Error()), At: time.Now()}
	}
	var mu sync.Mutex
	over := false
	send := func(sig syscall.Signal) {
		mu.Lock()
		defer mu.Unlock()
		if !over { // its id is not reused yet
			_ = syscall.Kill(-cmd.Process.Pid, sig)
		}
	}
	go func() {
		b := make([]byte, 1)
		for {
			if _, err := in.Read(b); err != nil {
				send(syscall.SIGKILL)
				g.Kill()
				return
			}
			if b[0] == endByte {
				send(syscall.SIGTERM)
			}
		}
	}()
	await(cmd.Process.Pid)
	send(syscall.SIGKILL) // what it has left of its group
	mu.Lock()
	over = true
	mu.Unlock()
	_ = cmd.Wait()
	_, _ = g.End() // the service manager ends what is left of the unit
	x := exit{At: time.Now()}
	x.Code, x.Signal = status(cmd.ProcessState)
	return x
}
