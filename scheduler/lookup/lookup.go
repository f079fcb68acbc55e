// Package lookup finds the files that a job names, with the rights of the job's user and not with the scheduler's.
//
// The one idea: the scheduler touches no path that a user chose. A process of the user does, the same program as the
// scheduler; it reads the job file, searches, prints what it found, and ends.
//
// Guarantees: a search ends with its caller and after Wait at the latest; what it may read, keep and print is bounded; a
// user whose file system hangs delays only their own searches. What the process says is not trusted: it speaks for
// nobody but its user.
package lookup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/scheduler/jobfile"
	"headroom/scheduler/local"
)

const (
	// Wait bounds one search; it is shorter than a submission may take.
	Wait = 5 * time.Second
	// perUser is how many searches of one submitter run at once.
	perUser = 4
	// fileEnv holds the question in the process's environment: a command line is readable by every user of the machine.
	fileEnv = "HEADROOM_LOOK_UP"
	// memoryMax bounds the memory of the process in bytes, cpuMax its processor time in seconds.
	memoryMax = 1 << 30
	cpuMax    = 10
)

// ErrNoUser is returned when no process of the submitter's user can be started. Nothing is known about the files then.
var ErrNoUser = errors.New("no process of the user of the tasks")

// question is a job file.
type question struct {
	File string `json:"file"`
	Spec []byte `json:"spec"`
}

// reply is what the process prints.
type reply struct {
	Found jobfile.Found `json:"found"`
	// Refused is the refusal of the job file; nil for none.
	Refused *refusal `json:"refused,omitempty"`
}

// refusal is a *cli.Error.
type refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

// Answer is the process: it answers the question in the environment.
func Answer(getenv func(string) string, out io.Writer) error {
	if err := errors.Join(unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: memoryMax, Max: memoryMax}), unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: cpuMax, Max: cpuMax})); err != nil {
		return fmt.Errorf("lookup: bound this process: %w", err)
	}
	var q question
	if err := json.Unmarshal([]byte(getenv(fileEnv)), &q); err != nil {
		return cli.Failed("the scheduler starts it", "the question in %s: %w", fileEnv, err)
	}
	f, err := jobfile.Parse(q.File, q.Spec, nil)
	var r reply
	if err == nil {
		r.Found, err = f.Find()
	}
	if e, ok := errors.AsType[*cli.Error](err); ok {
		r = reply{Refused: &refusal{e.Code, e.Error(), e.Hint}}
	} else if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r)
}

// Finder starts the processes. Its methods may be called from any goroutine.
type Finder struct {
	// Users chooses the user of each submitter; the zero value is this process's own.
	Users local.Users
	// Command calls Answer; nothing is added to it.
	Command []string

	mu    sync.Mutex
	users map[string]*places
}

// places are those of one submitter's searches.
type places struct {
	taken chan struct{}
	known int // searches that run or wait
}

// Find looks at the files of a job. An error that says what is wrong with the job file is a *cli.Error; it wraps
// ErrNoUser if nothing could be looked at.
func (f *Finder) Find(ctx context.Context, file *jobfile.File) (jobfile.Found, error) {
	ctx, cancel := context.WithTimeout(ctx, Wait)
	defer cancel()
	name, spec := file.Text()
	data, err := json.Marshal(question{name, spec})
	if err != nil {
		return jobfile.Found{}, fmt.Errorf("lookup: %w", err)
	}
	leave, err := f.enter(ctx, file.Submitter)
	if err != nil {
		return jobfile.Found{}, slow(file)
	}
	ended := make(chan *headroomv1.TaskResult, 1)
	task := &headroomv1.Task{Ref: &headroomv1.TaskRef{Job: file.Name}, Argv: f.Command, Env: []string{fileEnv + "=" + string(data)}, Dir: "/", Submitter: file.Submitter}
	go func() { // a file system may keep the process longer than the caller waits
		defer leave()
		ended <- f.Users.Ask(ctx, task, os.Environ())
	}()
	select {
	case <-ctx.Done():
		return jobfile.Found{}, slow(file)
	case r := <-ended:
		if ctx.Err() != nil {
			return jobfile.Found{}, slow(file)
		}
		return read(file, r)
	}
}

// read checks what the process printed.
func read(file *jobfile.File, r *headroomv1.TaskResult) (jobfile.Found, error) {
	if why := local.Failure(r); why != "" {
		return jobfile.Found{}, &cli.Error{
			Code: "lookup", Exit: cli.ExitRefused, Err: ErrNoUser, Message: fmt.Sprintf("cannot look at the files of job %s as the user of its tasks: %s", file.Name, why),
			Hint: "task_sockets and task_users of scheduler.yaml name the users; on the scheduler's machine, systemctl enable --now headroom-task@USER.socket starts a user's socket",
		}
	}
	var said reply
	if err := json.Unmarshal(r.GetAnswer(), &said); err != nil {
		return jobfile.Found{}, fmt.Errorf("lookup: what was found for job %s: %w", file.Name, err)
	}
	if e := said.Refused; e != nil {
		return jobfile.Found{}, &cli.Error{Code: "job-file", Exit: cli.ExitUsage, Message: clip(e.Message), Hint: clip(e.Hint)}
	}
	if file.Map.Input == "" {
		return file.Nameless()
	}
	return said.Found, file.Check(said.Found)
}

// textMax bounds a message of the process in bytes.
const textMax = 4 << 10

func clip(text string) string { return strings.ToValidUTF8(text[:min(len(text), textMax)], "?") }

// slow refuses a job whose files are not found in time.
func slow(file *jobfile.File) error {
	return &cli.Error{
		Code: "lookup", Exit: cli.ExitRefused, Message: fmt.Sprintf("the files of job %s were not found within %v", file.Name, Wait),
		Hint: "use a map.input that searches fewer folders; check that the file system answers",
	}
}

// enter waits for one of the submitter's places. Call leave once the search is over.
func (f *Finder) enter(ctx context.Context, submitter string) (leave func(), err error) {
	f.mu.Lock()
	if f.users == nil {
		f.users = make(map[string]*places)
	}
	p := f.users[submitter]
	if p == nil {
		p = &places{taken: make(chan struct{}, perUser)}
		f.users[submitter] = p
	}
	p.known++
	f.mu.Unlock()
	forget := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if p.known--; p.known == 0 {
			delete(f.users, submitter)
		}
	}
	select {
	case p.taken <- struct{}{}:
		return func() { <-p.taken; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	}
}
