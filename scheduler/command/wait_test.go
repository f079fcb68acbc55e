package command

// A wait ends with the job and exits by its promise: done, failed, cancelled, deadline missed, still running. A scheduler that
// is killed and started again does not end it; one that hangs or answers nonsense before its first answer does.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/testkit"
)

func TestWaitExitsByThePromise(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.texts(4)
	config := filepath.Join(c.dir, "scheduler.yaml")
	text := string(testkit.Need(os.ReadFile(config))(t))
	testkit.WriteFile(t, config, strings.Replace(text, "classes: [high, low]", "classes: [{name: high}, {name: low}, {name: due, deadline: 1s}]", 1))
	s := c.scheduler()
	c.worker("n01", 2)
	c.ready(1)

	out, errs, exit := c.run("submit", c.write("job.yaml", wordsJob(1)), "--wait", "-o", "json")
	var doc struct {
		Kind     string
		Revision uint64
		Items    []jsonJob
	}
	if exit != cli.ExitOK || json.Unmarshal([]byte(out), &doc) != nil || doc.Kind != "Job" || doc.Revision == 0 || len(doc.Items) != 1 || doc.Items[0].State != "done" {
		t.Fatalf("submit --wait: exit %d, %q, %q", exit, out, errs)
	}
	good := doc.Items[0].ID

	failing := c.submit("name: bad\nclass: low\nslots: 2\nmax_attempts: 1\nmap: {input: text/*.txt, command: [sh, -c, 'exit 3']}\noutput: out\n")
	if out, errs, exit = c.run("job", "wait", good, failing); exit != cli.ExitFailed || !strings.Contains(out, "job "+good+" done: ") ||
		!strings.Contains(errs, "error: job "+failing+" failed: ") || !strings.Contains(errs, "\nhint: ") {
		t.Errorf("a failed job: exit %d, %q, %q", exit, out, errs)
	}
	if _, errs, exit = c.run("job", "wait", failing, "-o", "json"); exit != cli.ExitFailed || !strings.Contains(errs, `"code":"job-failed"`) {
		t.Errorf("a failed job as JSON: exit %d, %q", exit, errs)
	}
	if _, errs, exit = c.run("job", "wait", "none-00000000"); exit != cli.ExitUsage {
		t.Errorf("an unknown job: exit %d, %q", exit, errs)
	}

	sleep := "name: sleep\nclass: low\nslots: 2\nmap: {input: text/*.txt, command: [sh, -c, 'sleep 600']}\noutput: out\n"
	sleeper := c.submit(sleep)
	if _, errs, exit = c.run("job", "wait", sleeper, "--timeout", "300ms", "-o", "json"); exit != cli.ExitUnknown || !strings.Contains(errs, `"code":"timeout"`) {
		t.Errorf("a timeout: exit %d, %q", exit, errs)
	}
	watched := make(chan string, 1)
	go func() {
		out, errs, exit := c.run("job", "watch", sleeper)
		watched <- fmt.Sprint(exit, out, errs)
	}()
	testkit.Eventually(t, patience, "tasks running", func() bool { return c.show(sleeper).Running == 2 })
	s.end(syscall.SIGKILL)
	c.scheduler()
	testkit.Eventually(t, patience, "cancelled", func() bool {
		_, _, exit := c.run("job", "cancel", sleeper, "--reason", "enough")
		return exit == cli.ExitOK
	})
	if got := <-watched; !strings.HasPrefix(got, "1") || !strings.Contains(got, "running, 0 of 4 tasks done") ||
		!strings.Contains(got, "job "+sleeper+" cancelled: ") || !strings.Contains(got, "was cancelled: ") || strings.Count(got, "running, 0 of 4 tasks done") != 1 {
		t.Errorf("watch: %s", got)
	}

	c.ready(1)
	late := c.submit("name: late\nclass: due\nslots: 2\nmap: {input: text/*.txt, command: [sh, -c, 'sleep 0.8']}\noutput: out\n")
	if out, errs, exit = c.run("job", "wait", late); exit != cli.ExitDegraded || !strings.Contains(out, "; deadline missed by ") || !strings.Contains(errs, "missed its deadline by") {
		t.Errorf("a missed deadline: exit %d, %q, %q", exit, out, errs)
	}
}

// An interrupt leaves the job running and says so.
func TestInterruptedWaitLeavesTheJob(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.texts(1)
	c.scheduler()
	c.ready(0)
	id := c.submit(wordsJob(1))
	cmd := exec.CommandContext(t.Context(), os.Args[0], "job", "watch", id, "--addr", c.address)
	cmd.Env = append(os.Environ(), programEnv+"=1")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out := testkit.Need(cmd.StdoutPipe())(t)
	testkit.Check(t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, "queued, place 1") {
		t.Errorf("first line %q, %v", line, err)
	}
	testkit.Check(t, cmd.Process.Signal(syscall.SIGINT))
	_ = cmd.Wait() // the exit code tells
	if got := cmd.ProcessState.ExitCode(); got != cli.ExitInterrupted || !strings.Contains(errs.String(), "job "+id+" continues") {
		t.Errorf("exit %d, %q", got, errs.String())
	}
	if state := c.show(id).State; state != "queued" {
		t.Errorf("the job is %s", state)
	}
}

// A scheduler that answers half a document, or never, ends a wait with an error that names it; after an answer the wait goes on.
func TestWaitBearsBadAnswers(t *testing.T) {
	t.Parallel()
	calls := 0
	job := &headroomv1.ListResponse{Jobs: []*headroomv1.Job{{Id: "words-1", State: headroomv1.JobState_JOB_STATE_RUNNING}}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls++
		data := testkit.Need(proto.Marshal(job))(t)
		w.Header().Set("Content-Type", "application/proto")
		switch calls {
		case 2, 4:
			_, _ = w.Write(data[:len(data)-3])
		case 3:
			http.Error(w, `{"jobs":[{"id":`, http.StatusBadGateway)
		case 5:
			job.Jobs[0].State = headroomv1.JobState_JOB_STATE_DONE
			data = testkit.Need(proto.Marshal(job))(t)
			fallthrough
		default:
			_, _ = w.Write(data)
		}
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	var out, errs bytes.Buffer
	addr := strings.TrimPrefix(server.URL, "http://")
	if exit := cli.Run(context.Background(), New(), []string{"job", "wait", "words-1", "--addr", addr}, &out, &errs); exit != cli.ExitOK || calls != 5 ||
		!strings.Contains(errs.String(), "waiting for a scheduler") || out.String() != "job words-1 done\n" {
		t.Errorf("exit %d after %d calls, %q, %q", exit, calls, out.String(), errs.String())
	}
	calls = 1
	errs.Reset()
	if exit := cli.Run(context.Background(), New(), []string{"job", "wait", "words-1", "--addr", addr}, &out, &errs); calls != 2 || exit != cli.ExitUnreachable || !strings.HasPrefix(errs.String(), "error: list: the answer of "+addr+" cannot be read: ") {
		t.Errorf("half an answer first: exit %d after %d calls, %q", exit, calls, errs.String())
	}
	silent := testkit.Need(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer silent.Close() //nolint:errcheck // of a test
	errs.Reset()
	began := time.Now()
	exit := cli.Run(context.Background(), New(), []string{"job", "wait", "words-1", "--addr", silent.Addr().String(), "--timeout", "200ms"}, &out, &errs)
	if exit != cli.ExitUnknown || !strings.Contains(errs.String(), "has not ended after 200ms") {
		t.Errorf("a silent scheduler: exit %d after %v, %q", exit, time.Since(began), errs.String())
	}
}
