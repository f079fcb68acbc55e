package lookup

// A job's files are looked at by a process of its user: it ends with whoever asked, holds up nobody else, sees what the
// user sees, and is believed about nothing else.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/scheduler/jobfile"
	"headroom/scheduler/local"
)

// runnerEnv makes the test binary run the tasks of a user, behind the socket that is its descriptor 3.
const runnerEnv = "HEADROOM_TEST_RUNNER"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(fileEnv) != "":
		if err := Answer(os.Getenv, os.Stdout); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case os.Getenv(runnerEnv) != "":
		l, err := net.FileListener(os.NewFile(3, "socket"))
		if err == nil {
			err = local.Serve(context.Background(), l, nil, slog.New(slog.DiscardHandler))
		}
		_, _ = fmt.Fprintln(os.Stderr, err)
	default:
		goleak.VerifyTestMain(m)
	}
}

func job(t *testing.T, dir, submitter, rest string) *jobfile.File {
	t.Helper()
	f := testkit.Need(jobfile.Parse(filepath.Join(dir, "job.yaml"), []byte("name: j\nclass: low\nslots: 1\noutput: out\n"+rest), nil))(t)
	f.Submitter = submitter
	return f
}

func TestFindsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, "a.txt"), "12345")
	f := &Finder{Command: []string{os.Args[0]}}
	found, err := f.Find(t.Context(), job(t, dir, "", `map: {input: "*.txt", command: [cat]}`))
	if err != nil || !slices.Equal(found.Inputs, []string{filepath.Join(dir, "a.txt")}) || !slices.Equal(found.Sizes, []int64{5}) {
		t.Errorf("%+v, %v", found, err)
	}
	if found, err = f.Find(t.Context(), job(t, dir, "", "map: {tasks: 3, command: [cat]}")); err != nil || len(found.Inputs) != 3 {
		t.Errorf("%+v, %v", found, err)
	}
	_, err = f.Find(t.Context(), job(t, dir, "", `map: {input: "*.doc", command: [cat]}`))
	if e, ok := errors.AsType[*cli.Error](err); !ok || e.Exit != cli.ExitUsage || !strings.HasPrefix(e.Message, filepath.Join(dir, "job.yaml")+":5:") || e.Hint == "" {
		t.Errorf("%v", err)
	}
}

// The process of a search is gone when its caller is, and meanwhile others search.
func TestSearchEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hang := filepath.Join(dir, "hang.sh") // hangs, and writes down its process
	testkit.WriteFile(t, hang, "#!/bin/sh\nif [ -e "+dir+"/quiet ]; then echo '{}'; exit; fi\necho $$ >"+dir+"/$$.pid; exec sleep 1000\n")
	testkit.Check(t, os.Chmod(hang, 0o755))
	f := &Finder{Command: []string{hang}}
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, perUser+1)
	for range perUser + 1 { // one has no place
		go func() {
			_, err := f.Find(ctx, job(t, dir, "submitter/ann", "map: {tasks: 1, command: [cat]}"))
			ended <- err
		}()
	}
	var pids []string
	testkit.Eventually(t, 10*time.Second, "all places are taken", func() bool {
		pids, _ = filepath.Glob(filepath.Join(dir, "*.pid"))
		return len(pids) == perUser
	})
	testkit.WriteFile(t, filepath.Join(dir, "quiet"), "")
	if found, err := f.Find(t.Context(), job(t, dir, "submitter/bob", "map: {tasks: 1, command: [cat]}")); err != nil || len(found.Inputs) != 1 {
		t.Errorf("another submitter: %+v, %v", found, err)
	}
	leave()
	for range perUser + 1 {
		if err := <-ended; err == nil {
			t.Error("found something")
		}
	}
	for _, name := range pids {
		pid := 0
		if _, err := fmt.Sscan(string(testkit.Need(os.ReadFile(name))(t)), &pid); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 10*time.Second, "the process is gone", func() bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) })
	}
	testkit.Eventually(t, 10*time.Second, "nothing is kept of ended searches", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.users) == 0
	})
}

func TestLiesAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct{ says, want string }{
		"files of others": {`echo '{"found":{"inputs":["/etc/shadow"],"sizes":[1]}}'`, "does not match"},
		"nothing":         {`true`, "what was found"},
		"too much":        {`head -c 20000000 /dev/zero`, "as the user of its tasks"},
		"a long refusal":  {`printf '{"refused":{"message":"'; head -c 100000 /dev/zero | tr '\0' x; printf '"}}'`, "xxx"},
		"a failure":       {`echo no luck >&2; exit 1`, "no luck"},
	} {
		f := &Finder{Command: []string{"/bin/sh", "-c", c.says}}
		_, err := f.Find(t.Context(), job(t, dir, "", `map: {input: "*.txt", command: [cat]}`))
		if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > textMax {
			t.Errorf("%s: %.200v", name, err)
		}
	}
	f := &Finder{Users: local.Users{Sockets: dir}, Command: []string{os.Args[0]}}
	if _, err := f.Find(t.Context(), job(t, dir, "submitter/ann", "map: {tasks: 1, command: [/bin/cat]}")); !errors.Is(err, ErrNoUser) {
		t.Errorf("no socket: %v", err)
	}
}

// A user's search shows the names that the user may read, whoever runs the scheduler.
func TestSearchHasTheUsersRights(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		testkit.NotRun(t, "needs root")
	}
	dir := t.TempDir()
	testkit.Check(t, os.Chmod(filepath.Dir(dir), 0o755)) // only root may enter it otherwise
	const ann, bob = 64010, 64020
	program := filepath.Join(dir, "program")
	testkit.WriteFile(t, program, testkit.Need(os.ReadFile(os.Args[0]))(t))
	testkit.Check(t, errors.Join(os.Chmod(dir, 0o755), os.Chmod(program, 0o755)))
	for name, uid := range map[string]int{"ann": ann, "bob": bob} {
		own := filepath.Join(dir, name)
		testkit.Check(t, errors.Join(os.Mkdir(own, 0o700), os.Chown(own, uid, uid)))
		testkit.WriteFile(t, filepath.Join(own, "salaries.csv"), "1")
		testkit.Check(t, os.Chown(filepath.Join(own, "salaries.csv"), uid, uid))
		serve(t, program, filepath.Join(dir, name+".sock"), uint32(uid))
	}
	f := &Finder{Users: local.Users{Sockets: dir, BySubmitter: map[string]string{"submitter/ann": "ann", "submitter/bob": "bob"}}, Command: []string{program}}
	for _, who := range []string{"ann", "bob"} {
		found, err := f.Find(t.Context(), job(t, dir, "submitter/"+who, `map: {input: "*/salaries.csv", command: [cat]}`))
		if err != nil || !slices.Equal(found.Inputs, []string{filepath.Join(dir, who, "salaries.csv")}) {
			t.Errorf("%s: %+v, %v", who, found, err)
		}
	}
	if _, err := f.Find(t.Context(), job(t, dir, "submitter/eve", `map: {input: "*/*", command: [cat]}`)); !errors.Is(err, ErrNoUser) {
		t.Errorf("a submitter without a user: %v", err)
	}
}

// serve runs tasks as a user, as the user's unit does.
func serve(t *testing.T, program, socket string, uid uint32) {
	t.Helper()
	l := testkit.Need(net.Listen("unix", socket))(t)
	unixListener, _ := l.(*net.UnixListener)
	file := testkit.Need(unixListener.File())(t)
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env, cmd.ExtraFiles, cmd.Dir = []string{runnerEnv + "=1"}, []*os.File{file}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	testkit.Check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Wait() // killed at the end of the test's context
		_ = errors.Join(l.Close(), file.Close())
	})
}
