package scheduler

// Submissions through the service, with coordinators that answer, refuse or are lost: no slot is promised twice, and none
// is lost.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/internal/testkit"
	"headroom/jobs/dispatch"
	"headroom/scheduler/access"
	"headroom/scheduler/jobfile"
	"headroom/scheduler/leader"
)

// log is a coordinators' log in this process: what happens to a commit, and the jobs that are committed.
type log struct {
	headroomv1connect.UnimplementedJobServiceHandler

	mu     sync.Mutex
	fails  error
	commit bool // although it fails
	jobs   map[string]*headroomv1.Job
	runs   []*headroomv1.RecordRunRequest
	ratios []*headroomv1.DeflateJobRequest
}

func (c *log) set(fails error, commit bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fails, c.commit = fails, commit
}

func (c *log) CommitJob(_ context.Context, r *connect.Request[headroomv1.CommitJobRequest]) (*connect.Response[headroomv1.CommitJobResponse], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fails == nil || c.commit {
		c.jobs[r.Msg.GetJob().GetId()] = r.Msg.GetJob()
	}
	return connect.NewResponse(&headroomv1.CommitJobResponse{Revision: uint64(len(c.jobs))}), c.fails
}

// Do calls the log as if over a network.
func (c *log) Do(r *http.Request) (*http.Response, error) {
	mux, w := http.NewServeMux(), httptest.NewRecorder()
	mux.Handle(headroomv1connect.NewJobServiceHandler(c, rpc.HandlerOptions()...))
	mux.ServeHTTP(w, r)
	return w.Result(), nil
}

// front is the service of a plant.
type front struct {
	*plant

	service *service
	log     *log
	dir     string
	looked  atomic.Int32 // for files of jobs
}

// newFront lets a plant with four slots serve submissions. Its loop takes events until the test ends.
func newFront(t *testing.T) *front {
	t.Helper()
	p := newPlant(t, "adaptive", "shared")
	f := &front{plant: p, service: &service{p.Server}, log: &log{jobs: make(map[string]*headroomv1.Job)}, dir: t.TempDir()}
	p.leader = leader.New([]string{"c1"}, rpc.PeersOver(f.log))
	p.restorer = &restorer{find: func(_ context.Context, file *jobfile.File) (jobfile.Found, error) {
		f.looked.Add(1)
		return file.Find()
	}}
	for i := range 10 {
		testkit.WriteFile(t, filepath.Join(f.dir, fmt.Sprintf("in%d", i)), "")
	}
	p.now = time.Now()
	p.core.HoldUntil(p.now)
	p.worker(4)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ctx.Done():
				return
			case e := <-p.inbox:
				e.apply(p.loop, time.Now())
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return f
}

// addInput puts a further file among the inputs.
func (f *front) addInput(name string) {
	f.t.Helper()
	testkit.WriteFile(f.t, filepath.Join(f.dir, name), "")
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// submit submits a job that can use so many slots.
func (f *front) submit(name string, slots int) (*headroomv1.Job, error) {
	ctx, cancel := context.WithTimeout(f.t.Context(), submitWait)
	defer cancel()
	resp, err := f.service.submit(ctx, &headroomv1.SubmitRequest{
		File: filepath.Join(f.dir, name+".yaml"), Change: &headroomv1.Change{RequestId: name},
		Spec: fmt.Appendf(nil, "name: %s\nclass: low\nslots: %d\ndeadline: 10m\nmap: {input: %s/in*, command: [/bin/cat]}\noutput: %s/out\n", name, slots, f.dir, f.dir),
	})
	return resp.GetJob(), err
}

// do has the loop do something between two events.
func (f *front) do(what func()) {
	f.t.Helper()
	done := make(chan struct{})
	testkit.Check(f.t, f.inbox.post(f.t.Context(), eventOf(func() { what(); close(done) })))
	<-done
}

type eventOf func()

func (e eventOf) apply(*loop, time.Time) { e() }

func exitOf(err error) int {
	if e, ok := errors.AsType[*cli.Error](err); ok {
		return e.Exit
	}
	return -1
}

// Of many submissions at once as many are admitted as there are slots; the others are refused, and nothing of them is left.
func TestConcurrentSubmissions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFront(t)
		const all = 16
		var wg sync.WaitGroup
		jobs, errs := make([]*headroomv1.Job, all), make([]error, all)
		for i := range all {
			wg.Go(func() { jobs[i], errs[i] = f.submit(fmt.Sprintf("j%d", i/2), 1) }) // each one twice
		}
		wg.Wait()
		f.do(func() {
			promised := 0
			for id := range f.admitter.promises {
				promised += f.promised(id)
			}
			if promised != 4 || len(f.admitter.promises) != 4 || len(f.log.jobs) != 4 || len(f.core.Jobs(time.Now())) != 4 {
				t.Errorf("%d slots are promised to %d jobs, %d committed, %d to run", promised, len(f.admitter.promises), len(f.log.jobs), len(f.core.Jobs(time.Now())))
			}
		})
		for i := range all {
			_, committed := f.log.jobs[jobID(fmt.Sprintf("j%d", i/2), &headroomv1.Change{RequestId: fmt.Sprintf("j%d", i/2)})]
			if (errs[i] == nil) != committed || errs[i] != nil && exitOf(errs[i]) != cli.ExitRefused || committed && jobs[i].GetAdmission().GetSlots() != 1 {
				t.Errorf("submission %d: %v, %v", i, jobs[i], errs[i])
			}
		}
	})
}

// Without a leader nothing was committed: the slots are free at once.
func TestLostLeaderGivesSlotsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFront(t)
		f.log.set(rpc.NotLeader("", ""), false)
		if _, err := f.submit("a", 4); exitOf(err) != cli.ExitUnreachable {
			t.Fatalf("%v", err)
		}
		f.do(func() {
			if n := len(f.admitter.promises); n != 0 {
				t.Errorf("%d promises are left", n)
			}
		})
		f.log.set(nil, false)
		if j, err := f.submit("b", 4); err != nil || j.GetAdmission().GetSlots() != 4 {
			t.Errorf("%v, %v", j, err)
		}
	})
}

// Where nobody knows whether a job was committed it keeps its slots, until a repetition or the log says so.
func TestUnknownCommitKeepsSlots(t *testing.T) {
	t.Parallel()
	for name, committed := range map[string]bool{"committed": true, "not committed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFront(t)
				f.log.set(connect.NewError(connect.CodeDeadlineExceeded, errors.New("lost")), committed)
				if _, err := f.submit("a", 4); exitOf(err) != cli.ExitUnknown {
					t.Fatalf("%v", err)
				}
				f.log.set(nil, false)
				if _, err := f.submit("b", 4); exitOf(err) != cli.ExitRefused {
					t.Errorf("its slots are promised to another: %v", err)
				}
				if committed {
					j, err := f.submit("a", 4)
					if err != nil || j.GetAdmission().GetSlots() != 4 {
						t.Errorf("repeated: %v, %v", j, err)
					}
				}
				f.do(func() {
					f.now = time.Now().Add(reservedFor + time.Second)
					readyEvent{}.apply(f.loop, f.now)
					f.core.Alive(f.now, "n01")
					f.attend(f.now)
					id := jobID("a", &headroomv1.Change{RequestId: "a"})
					if want := map[bool]int{true: 4}[committed]; f.promised(id) != want || f.core.Knows(id) != committed {
						t.Errorf("%d slots are promised, want %d", f.promised(id), want)
					}
				})
			})
		})
	}
}

// The committer tries until a leader takes it, and says the same each time.
func TestAdmissionIsCommittedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFront(t)
		c := newCommitter(identity{ID: "s1"}, f.leader, f.inbox, f.logger)
		f.log.set(rpc.NotLeader("", ""), false)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.admissions(ctx) }()
		c.admitted <- jobToProto(jobAndSpec{JobView: dispatch.JobView{Plan: dispatch.Plan{ID: "a"}}, admission: &headroomv1.Admission{Decision: "admitted", Slots: 3}})
		time.Sleep(time.Minute)
		f.log.set(nil, false)
		time.Sleep(time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if a := f.log.jobs["a"].GetAdmission(); a.GetSlots() != 3 {
			t.Errorf("committed %v", a)
		}
	})
}

// Nobody looks at the files of a job that its submitter may not submit now, nor at those of a job that is known.
func TestFilesAreLookedAtWithinTheQuota(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFront(t)
		f.service.cfg.MaxWaiting = 1
		who := access.Caller{Role: secure.Submitter, Name: "submitter/ann"}
		_, submitted := f.service.submitting.Begin(who.Name)
		ctx := access.WithCaller(t.Context(), who)
		for _, dry := range []bool{true, false} {
			_, err := f.service.submit(ctx, &headroomv1.SubmitRequest{
				File: filepath.Join(f.dir, "a.yaml"), Change: &headroomv1.Change{RequestId: "a"}, DryRun: dry,
				Spec: fmt.Appendf(nil, "name: a\nclass: low\nslots: 1\nmap: {input: %s/in*, command: [/bin/cat]}\noutput: %s/out\n", f.dir, f.dir),
			})
			if exitOf(err) != cli.ExitRefused || f.looked.Load() != 0 {
				t.Errorf("dry run %v: %v after %d looks", dry, err, f.looked.Load())
			}
		}
		submitted()
		for range 2 {
			if _, err := f.submit("b", 1); err != nil || f.looked.Load() != 1 {
				t.Errorf("%v after %d looks", err, f.looked.Load())
			}
		}
	})
}

// A job's outputs are not among the files of a program of ours.
func TestOutputsAreNotInOurFolders(t *testing.T) {
	t.Parallel()
	f := &service{newPlant(t, "off", "shared").Server}
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	testkit.Check(t, os.Symlink(f.cfg.Dir, link))
	for output, refused := range map[string]bool{
		f.cfg.Dir: true, f.cfg.Dir + "/jobs/x": true, "/var/lib/headroom/powerd": true, "/etc/headroom/scheduler": true, "/srv/../etc/headroom": true,
		link + "/jobs": true, "/var/lib/headroom-driver/x": true,
		"/var/lib/headroom-jobs/x": false, dir: false, f.cfg.Dir + "2": false,
	} {
		file := testkit.Need(jobfile.Parse("/j/a.yaml", []byte("name: a\nclass: low\nslots: 1\nmap: {tasks: 1, command: [cat]}\noutput: "+output), nil))(t)
		if err := f.checkPlace(file); (err != nil) != refused {
			t.Errorf("%s: %v", output, err)
		}
	}
}
