package spark

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// A run's folder:
//
//	run.json      how its driver is started; written before its supervisor is
//	lock          held by the supervisor as long as it lives, from before its start
//	driver.json   the supervisor's and the driver's process
//	exit.json     how the driver ended; complete when it exists
//	stdout stderr of the driver; older output is in stdout.1 and stderr.1
//	supervisor    what the supervisor has to say; usually nothing
//	token         of a driver that YARN runs, while it runs: it is handed to its container
const (
	runFile    = "run.json"
	lockFile   = "lock"
	driverFile = "driver.json"
	exitFile   = "exit.json"
	exitPart   = ".exit.json.part"
	stdoutFile = "stdout"
	stderrFile = "stderr"
	replaced   = ".1" // of an output that was full
	logFile    = "supervisor"
	tokenFile  = "token"
)

// Outputs are the files of a run's folder that hold what its driver has written, the older ones first.
func Outputs() []string {
	return []string{stderrFile + replaced, stderrFile, stdoutFile + replaced, stdoutFile}
}

// order is run.json: what the supervisor is to do.
type order struct {
	Job    string   `json:"job"`
	Number uint32   `json:"run"`
	Argv   []string `json:"argv"`
	// Mark is a variable, NAME=VALUE, that everything of the driver carries in its environment.
	Mark string `json:"mark"`
	// Tag marks its application in YARN.
	Tag string `json:"tag,omitempty"`
	// Managed reports that its driver runs in a container of YARN.
	Managed bool `json:"managed,omitempty"`
	// UI is the port that the driver's REST interface was given.
	UI int `json:"ui_port,omitempty"`
	// Env are further variables of the driver's environment.
	Env       []string      `json:"env"`
	KillAfter time.Duration `json:"kill_after_ns"`
	// What the scheduler needs to adopt the run.
	Token string  `json:"token"`
	Theta float64 `json:"theta"`
	Seed  uint64  `json:"seed"`
}

// process names a process for good: ids are used again, with another start.
type process struct {
	Pid int `json:"pid"`
	// Start is when it began, in the kernel's ticks since the machine's boot.
	Start uint64 `json:"start"`
}

// driver is driver.json.
type driver struct {
	Supervisor process   `json:"supervisor"`
	Driver     process   `json:"driver"`
	At         time.Time `json:"at"`
}

// exit is exit.json.
type exit struct {
	// Code is the driver's exit code, or 128 + the signal that ended it.
	Code int `json:"code"`
	// Signal is what ended it, 0 for none.
	Signal int `json:"signal"`
	// Killed reports whether it was asked to end.
	Killed bool `json:"killed"`
	// Error is why it did not start.
	Error string    `json:"error,omitempty"`
	At    time.Time `json:"at"`
}

func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, append(data, '\n'), 0o600)
}

// fileMost bounds what is read of one of the folder's files.
const fileMost = 16 << 20

func readJSON(path string, into any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, fileMost))
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return fmt.Errorf("spark: %s: %w", path, err)
	}
	return nil
}

// openLock opens the folder's lock without taking it.
func openLock(folder string) (*os.File, error) {
	return os.OpenFile(filepath.Join(folder, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
}

// lock takes the lock, false if a live process holds it.
func lock(f *os.File) (bool, error) {
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return false, nil
	default:
		return false, fmt.Errorf("spark: lock %s: %w", f.Name(), err)
	}
}

// letGo ends a lock that is held, and closes its file. Closing alone is not enough: a process
// that is being started elsewhere has a copy of the file until it begins its program.
func letGo(f *os.File) error {
	unlock(f)
	return f.Close()
}

func unlock(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// started returns the process of that id with its start; an error when there is none.
func started(pid int) (process, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return process{}, err
	}
	// The second field is the program's name in brackets, with whatever it holds.
	_, rest, ok := strings.Cut(string(text), ") ")
	if at := strings.LastIndex(string(text), ") "); at >= 0 {
		rest = string(text)[at+2:]
	}
	fields := strings.Fields(rest)
	const startField = 22 - 3 // counted from the third
	if !ok || len(fields) <= startField {
		return process{}, fmt.Errorf("spark: stat of process %d is malformed", pid)
	}
	start, err := strconv.ParseUint(fields[startField], 10, 64)
	if err != nil {
		return process{}, fmt.Errorf("spark: stat of process %d: %w", pid, err)
	}
	return process{pid, start}, nil
}

// signal sends a signal to this very process; an error when it is gone.
func (p process) signal(sig os.Signal) error {
	// The handle is taken first: what is read next is of that process or of none.
	handle, err := os.FindProcess(p.Pid)
	if err != nil {
		return err
	}
	defer func() { _ = handle.Release() }()
	now, err := started(p.Pid)
	if err != nil {
		return err
	}
	if now != p {
		return os.ErrProcessDone
	}
	return handle.Signal(sig)
}

// EndRuns ends the drivers of the runs in a folder of jobs, DIR/ID/run-N, because another scheduler, with a folder of
// its own, runs their jobs, and returns how many still run. What is left of such a run is put aside: if this scheduler
// becomes active again, it begins the run anew.
func EndRuns(dir string) (running int) {
	runs, _ := filepath.Glob(filepath.Join(dir, "*", "run-*", driverFile)) // its only error is a bad pattern
	for _, file := range runs {
		folder := filepath.Dir(file)
		var d driver
		if strings.HasSuffix(folder, putAside) || readJSON(file, &d) != nil {
			continue
		}
		if d.Supervisor.signal(unix.SIGTERM) == nil {
			running++
			continue
		}
		var x exit
		if err := readJSON(filepath.Join(folder, exitFile), &x); err != nil || x.Killed { // not what it has ended with by itself
			_ = os.RemoveAll(folder + putAside)
			_ = os.Rename(folder, folder+putAside) // it is tried again
		}
	}
	return running
}

// putAside ends the name of a run's folder that another scheduler has run anew.
const putAside = ".replaced"
