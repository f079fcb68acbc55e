package scheduler

// A scheduler survives its jobs: whatever stands in the log and in the folders of jobs, it starts, lists what it cannot
// restore with the reason, and runs the others.

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/durable/durabletest"
	"headroom/internal/testkit"
	"headroom/jobs/dispatch"
	"headroom/scheduler/jobdir"
)

// restored compares a plant with a log of these jobs, as a starting scheduler does.
func (p *plant) restored(jobs ...*headroomv1.Job) {
	p.t.Helper()
	t := &restorer{engines: p.engines, folders: p.folders, operations: p.operations, logger: p.logger, inbox: p.inbox}
	for _, e := range t.eventsOf(p.t.Context(), jobs, true, nil) {
		e.apply(p.loop, p.now)
	}
	readyEvent{}.apply(p.loop, p.now)
	p.pass(time.Second)
}

// committed is a job of the log, with three tasks that need no files.
func (p *plant) committed(id string, state headroomv1.JobState) *headroomv1.Job {
	return &headroomv1.Job{
		Id: id, Name: id, Class: "low", State: state, Engine: "local", Floor: 1, Inputs: &headroomv1.JobInputs{Tasks: 3},
		Spec: []byte("name: " + id + "\nclass: low\nslots: 1\nmap: {tasks: 3, command: [/bin/true]}\noutput: " + filepath.Join(p.cfg.Dir, "out", id) + "\n"),
	}
}

// A job that was cancelled while it ran, and whose folder is gone, is listed as cancelled; it gets no folder again. The
// coordinators call the engine of our workers by a name, job files do not.
func TestCancelledJobAfterARestart(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "off", "shared")
	j := p.committed("c", headroomv1.JobState_JOB_STATE_CANCELLED)
	j.Run = &headroomv1.JobRun{Number: 1, BeganUs: 1, StartedUs: 1, Decided: true}
	p.restored(j, p.committed("d", headroomv1.JobState_JOB_STATE_QUEUED))
	if p.state("c") != "cancelled" || there(filepath.Join(p.cfg.Dir, "out", "c")) {
		t.Errorf("c is %s, its folder is there: %v", p.state("c"), there(filepath.Join(p.cfg.Dir, "out", "c")))
	}
	if p.state("d") == "unknown" || p.state("d") == "waits" {
		t.Errorf("the other job is %s", p.state("d"))
	}
}

// A driver of a cancelled Spark job is looked for only where there is Spark.
func TestCancelledSparkJobWithoutSpark(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "off", "shared")
	j := &headroomv1.Job{
		Id: "s", Class: "low", State: headroomv1.JobState_JOB_STATE_CANCELLED, Engine: "spark", Run: &headroomv1.JobRun{Number: 1},
		Spec: []byte("name: s\nclass: low\nslots: 1\nspark: {application: /a.py}\n"),
	}
	live := &headroomv1.Job{Id: "l", Class: "low", State: headroomv1.JobState_JOB_STATE_QUEUED, Engine: "spark", Spec: j.GetSpec()}
	p.restored(j, live)
	if p.state("s") != "cancelled" || !strings.Contains(p.waiting["l"].GetOutcome(), `engine "spark"`) {
		t.Errorf("s is %s, l waits: %q", p.state("s"), p.waiting["l"].GetOutcome())
	}
}

// FuzzStart starts with random jobs in the log and random things in their folders.
func FuzzStart(f *testing.F) {
	for seed := range uint64(24) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 34))
		p := newPlant(t, "off", []string{"shared", "p", "np", "da(20)"}[r.IntN(3)])
		p.worker(2)
		jobs := []*headroomv1.Job{p.committed("innocent", headroomv1.JobState_JOB_STATE_QUEUED)}
		for _, id := range []string{"a", "b", "c"} {
			j := p.committed(id, headroomv1.JobState(r.IntN(7)))
			j.Engine = []string{"", "local", "spark", "pigeon", "yarn", "other"}[r.IntN(6)]
			switch r.IntN(6) {
			case 0:
				j.Spec = []byte("name: s\nclass: low\nslots: 1\nspark: {application: /a.py}\n")
			case 1:
				j.Spec = []byte("\x00: [")
			case 2:
				j.Inputs = nil
			case 3:
				j.Spec = []byte(strings.Replace(string(j.GetSpec()), "tasks: 3", "input: /no/such/*", 1))
			}
			if r.IntN(2) == 0 {
				j.Run = &headroomv1.JobRun{Number: uint32(r.IntN(3)), BeganUs: r.Int64(), StartedUs: int64(r.IntN(2)), Theta: r.Float64(), Decided: r.IntN(2) == 0, Stopping: []string{"", "high"}[r.IntN(2)], Over: r.IntN(3) == 0, Dropped: []byte{byte(r.IntN(256)), 255}}
			}
			jobs = append(jobs, j)
			p.disturb(r, id)
		}
		p.restored(jobs...)
		p.pass(time.Second)
		if got := p.state("innocent"); got != "running" && got != "queued" {
			t.Errorf("the innocent job is %s", got)
		}
		for _, j := range p.waiting {
			if !strings.HasPrefix(j.GetOutcome(), "not restored yet: ") {
				t.Errorf("%s waits: %q", j.GetId(), j.GetOutcome())
			}
		}
	})
}

// disturb puts something random in the place of a job's folder, or into it.
func (p *plant) disturb(r *rand.Rand, id string) {
	f := jobdir.Folder{Output: filepath.Join(p.cfg.Dir, "out", id), ID: id}
	at := filepath.Dir(f.Path(""))
	testkit.Check(p.t, os.MkdirAll(filepath.Dir(at), 0o750))
	switch r.IntN(8) {
	case 0:
		testkit.Check(p.t, syscall.Mkfifo(at, 0o600))
		return
	case 1:
		testkit.Check(p.t, os.Symlink("/", at))
		return
	case 2:
		testkit.WriteFile(p.t, at, "file")
		return
	case 3:
		return
	}
	testkit.Check(p.t, os.MkdirAll(f.Path(""), 0o750))
	for _, name := range []string{"job.json", "dropped", "map-00000", "result", "run-2"} {
		switch r.IntN(5) {
		case 0:
			testkit.Check(p.t, syscall.Mkfifo(f.Path(name), 0o600))
		case 1:
			testkit.Check(p.t, os.Symlink("/dev/zero", f.Path(name)))
		case 2:
			testkit.WriteFile(p.t, f.Path(name), `{"id":"`)
		case 3:
			testkit.Check(p.t, os.Mkdir(f.Path(name), 0o750))
		}
	}
}

// What a task writes into its folder changes nothing that the scheduler believes: the run, its drops and its inputs are
// those of the log.
func TestFolderIsNotBelieved(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "off", "shared")
	inputs := jobdir.Inputs{Names: []string{"/in/a", "/in/b", "/in/c"}, Sizes: []int64{1, 2, 3}}
	j := p.committed("j", headroomv1.JobState_JOB_STATE_QUEUED)
	j.Spec = []byte(strings.Replace(string(j.GetSpec()), "tasks: 3", "input: /in/*", 1))
	j.Inputs.Digest, j.Run = inputs.Digest(), &headroomv1.JobRun{Number: 1, BeganUs: 1, StartedUs: 1, Decided: true, Dropped: []byte{4}}
	dir := jobdir.Folder{Output: filepath.Join(p.cfg.Dir, "out", "j"), ID: "j"}
	d := testkit.Need(jobdir.Make(dir))(t)
	testkit.Check(t, d.WriteList(jobdir.Inputs{Names: []string{"/etc/shadow", "/in/b", "/in/c"}, Sizes: []int64{1, 2, 3}}))
	testkit.WriteFile(t, dir.Path("dropped"), `{"index":0}`+"\n"+`{"index":1}`+"\n")
	testkit.WriteFile(t, dir.Path("map-00001"), "out")
	p.restored(j)
	if why := p.waiting["j"].GetOutcome(); !strings.Contains(why, "list of its inputs") {
		t.Fatalf("waits: %q", why)
	}
	testkit.Check(t, p.folders.lists.Write("j", inputs))
	p.restored(j)
	v := p.core.Jobs(p.now)[0]
	if v.State != dispatch.Running || v.Done != 1 || v.Dropped != 1 || v.Tasks != 3 || p.records["j"].inputs.Names[0] != "/in/a" {
		t.Errorf("%+v, inputs %q", v, p.records["j"].inputs.Names)
	}
	testkit.Check(t, p.folders.lists.Remove("j"))
	testkit.Check(t, d.WriteList(inputs)) // as it is after a takeover by a scheduler with another folder
	q := newPlant(t, "off", "shared")
	q.restored(j)
	if got := testkit.Need(q.folders.lists.Read("j"))(t); got.Names[0] != "/in/a" || q.state("j") != "running" {
		t.Errorf("after a takeover j is %s with %q", q.state("j"), got.Names)
	}
}

// One folder that does not answer delays its own jobs, in a start and in everything else.
func TestOneFolderHangs(t *testing.T) {
	t.Parallel()
	o := newOperations(make(inbox, 1))
	free := make(chan struct{})
	t.Cleanup(func() { close(free) })
	hangs := func() error { <-free; return os.ErrDeadlineExceeded }
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 3 * operationsEach {
		go func() { _ = o.do(ctx, owner{"submitter/ann", "/nfs/" + strconv.Itoa(i)}, hangs) }()
	}
	cancel()
	for _, at := range []owner{{"submitter/bob", "/out"}, {"", "/out"}, {"submitter/bob", "/other"}} {
		if err := o.do(t.Context(), at, func() error { return nil }); err != nil {
			t.Errorf("%v: %v", at, err)
		}
	}
}

// A job that could not be restored and is cancelled stays listed, as cancelled.
func TestCancelOfAJobThatIsNotRestored(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "off", "shared")
	p.restorer = &restorer{engines: p.engines, folders: p.folders}
	j := p.committed("j", headroomv1.JobState_JOB_STATE_QUEUED)
	j.Inputs = nil
	p.restored(j)
	if p.state("j") != "waits" {
		t.Fatalf("j is %s", p.state("j"))
	}
	cancelEvent{"j", "cancelled by ann"}.apply(p.loop, p.now)
	if v := p.core.Jobs(p.now)[0]; v.State != dispatch.Cancelled || v.Outcome != "cancelled by ann" || p.waiting["j"] != nil {
		t.Errorf("%v: %q", v.State, v.Outcome)
	}
}

// A full disk of the scheduler's own is not blamed on the job's output folder.
func TestListOfInputsCannotBeStored(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "off", "shared")
	r := p.record("j", "low", "")
	p.folders.lists.FS = durabletest.New()
	disk, _ := p.folders.lists.FS.(*durabletest.Disk)
	disk.CutAfter(0)
	_, err := p.folders.takeIn(r)
	if e := outputError(r.file, err); !strings.Contains(e.Error(), "list of the job's inputs") || !strings.Contains(e.Hint, "dir in scheduler.yaml") {
		t.Errorf("%v; %s", e, e.Hint)
	}
}
