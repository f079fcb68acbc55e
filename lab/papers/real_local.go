package papers

import (
	"context"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
)

// WriteWords makes a folder with files of words, 00.txt and up, for word counts of one map task each. Frequencies are
// as in real text; a third of the words are of one of several topics, as files of real data differ.
func WriteWords(dir string, files int, seed uint64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("papers: input: %w", err)
	}
	const words, vocabulary, skew, topics, topical = 20_000, 5000, 1.1, 5, 3
	zipf := mathrand.NewZipf(mathrand.New(mathrand.NewPCG(seed, 7)), skew, 1, vocabulary-1)
	for i := range files {
		var b strings.Builder
		for k := range words {
			topic := 0
			if k%topical == 0 {
				topic = 1 + i%topics
			}
			fmt.Fprintf(&b, "t%dw%d ", topic, zipf.Uint64())
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.txt", i)), []byte(b.String()), 0o644); err != nil {
			return fmt.Errorf("papers: input: %w", err)
		}
	}
	return nil
}

// Passes finds how often a word count must go through a file, so that its task takes so much CPU time.
func (r *Real) Passes(ctx context.Context, file string, task time.Duration) (int, error) {
	const many = 40
	once, err := r.timed(ctx, file, 1)
	if err != nil {
		return 0, err
	}
	more, err := r.timed(ctx, file, many)
	if err != nil {
		return 0, err
	}
	pass := max((more-once)/(many-1), 10*time.Microsecond)
	passes := max(1, int(math.Round(float64(task-once)/float64(pass))))
	r.Note("a task counts its words %d times: %.2f s of a CPU", passes, task.Seconds())
	return passes, nil
}

// timed is the CPU time of one task with so many passes, the best of three.
func (r *Real) timed(ctx context.Context, file string, passes int) (time.Duration, error) {
	best := time.Duration(math.MaxInt64)
	for range 3 {
		cmd := exec.CommandContext(ctx, r.Program("powerlab"), "app", "wordcount", fmt.Sprintf("--passes=%d", passes), file)
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
		if _, err := cmd.Output(); err != nil {
			return 0, fmt.Errorf("%s: time a task: %w", r.paper, err)
		}
		best = min(best, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	}
	return best, nil
}

func (r *Real) scheduler() headroomv1connect.SchedulerServiceClient {
	return headroomv1connect.NewSchedulerServiceClient(r.Via, rpc.BaseURL(r.Site.Scheduler()), rpc.ClientOptions()...)
}

// List is the scheduler's list of jobs and workers.
func (r *Real) List(ctx context.Context) (*headroomv1.ListResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer, err := r.scheduler().List(ctx, connect.NewRequest(&headroomv1.ListRequest{}))
	if err != nil {
		return nil, err
	}
	return answer.Msg, nil
}

// Submit submits a job file and gives back the job's id; file is the name by which relative paths and errors go.
func (r *Real) Submit(ctx context.Context, reason, file string, spec []byte) (string, error) {
	return r.submit(ctx, &headroomv1.SubmitRequest{Spec: spec, File: file, Change: r.Signed(reason)})
}

// SubmitWaiting is Submit for a job that waits where too few slots are free for its deadline.
func (r *Real) SubmitWaiting(ctx context.Context, reason, file string, spec []byte) (string, error) {
	return r.submit(ctx, &headroomv1.SubmitRequest{Spec: spec, File: file, Change: r.Signed(reason), Queue: true})
}

func (r *Real) submit(ctx context.Context, req *headroomv1.SubmitRequest) (string, error) {
	answer, err := r.scheduler().Submit(ctx, connect.NewRequest(req))
	if err != nil {
		return "", fmt.Errorf("%s: submit: %w", r.paper, err)
	}
	return answer.Msg.GetJob().GetId(), nil
}

// Workers returns the number of the scheduler's workers; -1 while it is unreachable.
func (r *Real) Workers(ctx context.Context) int {
	answer, err := r.List(ctx)
	if err != nil {
		return -1
	}
	n := 0
	for _, w := range answer.GetWorkers() {
		if w.GetConnected() {
			n++
		}
	}
	return n
}
