package scheduler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/durable"
	"headroom/jobs/dispatch"
	"headroom/scheduler/jobdir"
	"headroom/scheduler/jobfile"
)

const (
	// folderWait bounds one operation on a job's folder.
	folderWait = 5 * time.Second
	// probeEvery is how often the folder of a running job is asked for an answer; a job whose folder has not answered
	// for releaseAfter gives its slots back.
	probeEvery   = 10 * time.Second
	releaseAfter = time.Minute
	// operationsMax bounds the operations on folders in progress, operationsEach those of one user, and
	// operationsFolder those on one output folder: what hangs occupies its place until the kernel returns.
	operationsMax    = 256
	operationsEach   = 16
	operationsFolder = 2
)

// errNoAnswer is the result of an operation on a folder that takes too long.
var errNoAnswer = errors.New("the file system of the output folder does not answer")

// owner identifies whose operation it is.
type owner struct{ user, folder string }

// operations runs operations on users' folders, which may hang with their file systems for ever: each has a deadline,
// and those of one user or folder leave room for others.
type operations struct {
	folders, users, all bound
	// queue are operations of the loop.
	queue chan operation
	inbox inbox
}

// bound lets so many operations of each name run at the same time; the others wait.
type bound struct {
	most  int
	mu    sync.Mutex
	names map[string]*turns
}

// turns are the places of one name, and how many operations have or want one.
type turns struct {
	places chan struct{}
	users  int
}

// enter waits for a place; it returns false when ctx ends first. Call leave after use, and not otherwise.
func (b *bound) enter(ctx context.Context, name string) bool {
	b.mu.Lock()
	t := b.names[name]
	if t == nil {
		if b.names == nil {
			b.names = make(map[string]*turns)
		}
		t = &turns{places: make(chan struct{}, b.most)}
		b.names[name] = t
	}
	t.users++
	b.mu.Unlock()
	select {
	case t.places <- struct{}{}:
		return true
	case <-ctx.Done():
		b.forget(name, t)
		return false
	}
}

func (b *bound) leave(name string) {
	b.mu.Lock()
	t := b.names[name]
	b.mu.Unlock()
	<-t.places
	b.forget(name, t)
}

func (b *bound) forget(name string, t *turns) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(b.names, name)
	}
}

// operation is one of the loop; done is the event that follows.
type operation struct {
	at   owner
	do   func() error
	done func(err error) event
}

func newOperations(b inbox) *operations {
	return &operations{
		folders: bound{most: operationsFolder}, users: bound{most: operationsEach}, all: bound{most: operationsMax},
		queue: make(chan operation, 4*jobsMax), inbox: b,
	}
}

// do runs one operation. If it has not ended when ctx does, the error is errNoAnswer, and its end is ignored.
func (o *operations) do(parent context.Context, at owner, f func() error) error {
	ctx, cancel := context.WithTimeout(parent, folderWait)
	defer cancel()
	leave, ok := o.enter(ctx, at)
	if !ok {
		return errNoAnswer // earlier ones have not ended
	}
	done := make(chan error, 1)
	go func() {
		defer leave()
		done <- f()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errNoAnswer
	}
}

// enter waits for a place for an operation.
func (o *operations) enter(ctx context.Context, at owner) (leave func(), ok bool) {
	if !o.folders.enter(ctx, at.folder) {
		return nil, false
	}
	user := at.user
	if user == "" { // who submits is not known: the folder alone counts
		user = at.folder
	}
	if !o.users.enter(ctx, user) {
		o.folders.leave(at.folder)
		return nil, false
	}
	if !o.all.enter(ctx, "") {
		o.users.leave(user)
		o.folders.leave(at.folder)
		return nil, false
	}
	return func() { o.all.leave(""); o.users.leave(user); o.folders.leave(at.folder) }, true
}

// run runs the operations of the loop until ctx ends.
func (o *operations) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case x := <-o.queue:
			go func() {
				err := o.do(ctx, x.at, x.do)
				_ = o.inbox.post(ctx, x.done(err)) // it fails only when ctx ends
			}()
		}
	}
}

// inFolder does something in the job's folder, as a step: the loop itself never waits for a file of a user.
func (l *loop) inFolder(now time.Time, r *record, what string, do func(d *jobdir.Dir) error) {
	job, at := r.dir.ID, r.at
	if at == nil {
		return
	}
	l.then(now, job, step{do: func(time.Time) bool {
		l.operations.queue <- operation{r.owner(), func() error { return do(at) }, func(err error) event {
			return stepDone{job, func(l *loop, _ time.Time) {
				if err != nil {
					l.logger.Warn("folder of job failed", slog.String("what", what), slog.String("job", job), slog.Any("error", err))
				}
			}}
		}}
		return true
	}})
}

// owner returns whose operations those on the job's folder are.
func (r *record) owner() owner { return owner{r.file.Submitter, r.dir.Output} }

// probed reports that the folder of a job has answered, or why not.
type probed struct {
	record *record
	err    error
}

func (e probed) apply(l *loop, now time.Time) {
	r := e.record
	r.probing = false
	if e.err != nil && !errors.Is(e.err, errNoAnswer) {
		l.logger.Debug("folder of job", slog.String("job", r.dir.ID), slog.Any("error", e.err))
	}
	if errors.Is(e.err, errNoAnswer) {
		return
	}
	r.answered = now
	if r.released {
		r.released = false
		l.logger.Info("output folder answers again", slog.String("job", r.dir.ID))
		l.core.Resume(r.dir.ID)
	}
}

// probe asks the folders of the running jobs for an answer, and lets jobs give their slots back whose folders have not
// answered for long: their tasks wait for them, too.
func (l *loop) probe(now time.Time) {
	if now.Sub(l.probedAt) < probeEvery {
		return
	}
	l.probedAt = now
	for id, r := range l.records {
		if r.at == nil || !l.core.Active(id) {
			r.answered = time.Time{}
			continue
		}
		if r.answered.IsZero() {
			r.answered = now
		}
		if quiet := now.Sub(r.answered); quiet >= releaseAfter && !r.released {
			r.released = true
			why := fmt.Sprintf("its output folder %s has not answered for %v", r.dir.Output, quiet.Round(time.Second))
			l.logger.Warn("job gives its slots back", slog.String("job", id), slog.String("why", why))
			l.core.Release(now, id, why)
		}
		if !r.probing {
			r.probing = true
			at := r.at
			l.operations.queue <- operation{r.owner(), func() error { return at.Touch(now) }, func(err error) event { return probed{r, err} }}
		}
	}
}

// silence returns in words that the job's folder does not answer; empty if it does.
func (r *record) silence(now time.Time) string {
	quiet := now.Sub(r.answered)
	switch {
	case r.answered.IsZero() || quiet < 2*probeEvery+folderWait: // a probe is answered or has failed by then
		return ""
	case r.released:
		return fmt.Sprintf("output folder has not answered for %v; its slots are released until it does", quiet.Round(time.Second))
	}
	return fmt.Sprintf("output folder has not answered for %v", quiet.Round(time.Second))
}

// The folders of Spark's jobs, DIR/jobs/ID, contain the output of their drivers, and DIR/inputs/ID.json is the list of
// the inputs of a job of our workers. They are kept while the job is listed: until endedMax others have ended after it.
// What an earlier scheduler process has left is removed at the start, once it has not changed for a day, because a
// submission whose answer was lost may be retried until then.
const leftFor = 24 * time.Hour

// jobFolders are the folders of jobs.
type jobFolders struct {
	// spark is the folder of Spark's jobs, lists are the lists of inputs of the others.
	spark  string
	lists  jobdir.Lists
	logger *slog.Logger
}

func openFolders(dir string, logger *slog.Logger) (jobFolders, error) {
	f := jobFolders{filepath.Join(dir, "jobs"), jobdir.Lists{Dir: filepath.Join(dir, "inputs"), FS: durable.OS{}}, logger}
	return f, os.MkdirAll(f.lists.Dir, 0o700)
}

// of returns the folder of a job's files: a Spark application has no output folder of its own.
func (f jobFolders) of(file *jobfile.File, id string) jobdir.Folder {
	if file.Spark != nil {
		return jobdir.Folder{Output: f.spark, ID: id}
	}
	return jobdir.Folder{Output: file.Output, ID: id}
}

// forget removes the records and folders of jobs that the core has forgotten.
func (l *loop) forget() {
	for id := range l.records {
		if !l.core.Knows(id) {
			delete(l.records, id)
			l.folders.remove(id)
		}
	}
}

// remove removes the scheduler's own files of a job that is no longer listed.
func (f jobFolders) remove(id string) {
	err := f.lists.Remove(id)
	if filepath.IsLocal(id) && filepath.Base(id) == id {
		err = errors.Join(err, os.RemoveAll(filepath.Join(f.spark, id)))
	}
	if err != nil {
		f.logger.Warn("folder of an old job not removed", slog.String("job", id), slog.Any("error", err))
	}
}

// removeLeft removes old folders of jobs that are not among known.
func (f jobFolders) removeLeft(now time.Time, known func(id string) bool) {
	old, err := f.lists.Old(now.Add(-leftFor))
	entries, failed := os.ReadDir(f.spark)
	if err = errors.Join(err, failed); err != nil && !errors.Is(err, os.ErrNotExist) {
		f.logger.Warn("folders of old jobs not removed", slog.Any("error", err))
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && e.IsDir() && now.Sub(info.ModTime()) > leftFor {
			old = append(old, e.Name())
		}
	}
	for _, id := range old {
		if !known(id) {
			f.remove(id)
		}
	}
}

// close gives the handles of an ended job's folder back.
func (l *loop) close(now time.Time, r *record) {
	l.inFolder(now, r, "closing", func(d *jobdir.Dir) error { return d.Close() })
	r.at = nil
}

// takeIn creates the job's folder and stores the list of its inputs, or finds what an earlier attempt of the same request
// has stored: then its inputs count, because that attempt may have been committed.
func (f jobFolders) takeIn(r *record) (takeBack func() error, err error) {
	if r.file.Spark != nil {
		return func() error { return nil }, os.MkdirAll(r.dir.Path(""), 0o770)
	}
	d, err := jobdir.Make(r.dir)
	if err != nil {
		return nil, err
	}
	takeBack = func() error { return errors.Join(d.TakeBack(), d.Close()) }
	if r.file.Map.Tasks == 0 {
		if known, missing := f.lists.Read(r.dir.ID); missing == nil {
			r.inputs = known
		} else {
			err = f.keep(r.dir.ID, r.inputs)
			takeBack = func() error { return errors.Join(f.lists.Remove(r.dir.ID), d.TakeBack(), d.Close()) }
		}
		if err == nil {
			err = d.WriteList(r.inputs)
		}
	}
	if err != nil {
		return nil, errors.Join(err, takeBack())
	}
	r.at = d
	return takeBack, nil
}

// keep stores a list of inputs in the scheduler's own folder.
func (f jobFolders) keep(id string, x jobdir.Inputs) error {
	if err := f.lists.Write(id, x); err != nil {
		return &cli.Error{
			Code: "state", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("cannot store the list of the job's inputs: %v", err),
			Hint: "dir in scheduler.yaml must be writable and have free disk space",
		}
	}
	return nil
}

// errNoList is a job whose list of inputs is nowhere.
var errNoList = errors.New("the list of its inputs, which the scheduler keeps in its own folder and in the job's, is in neither; cancel the job and submit it again")

// resume opens the folder of a committed job and finds what there is of the run.
func (f jobFolders) resume(r *record, committed *headroomv1.JobInputs) (past dispatch.Past, err error) {
	d, err := jobdir.Make(r.dir)
	if err != nil {
		return past, err
	}
	if r.inputs, err = f.list(d, r, committed); err != nil {
		return past, errors.Join(err, d.Close())
	}
	if r.run.Number > 0 && !r.run.Over { // before the first run nothing can be an output
		past.Done, past.ReduceDone = d.Finished(r.run.Number, len(r.inputs.Names))
	}
	r.at = d
	return past, nil
}

// list returns the list of a job's inputs: from the scheduler's own folder or, with the digest that is committed, from
// the job's.
func (f jobFolders) list(d *jobdir.Dir, r *record, committed *headroomv1.JobInputs) (jobdir.Inputs, error) {
	if committed == nil {
		return jobdir.Inputs{}, errors.New("an older version accepted it, which did not record its inputs and runs; cancel the job and submit it again")
	}
	if n := r.file.Map.Tasks; n > 0 {
		return jobdir.Inputs{Names: make([]string, n), Sizes: make([]int64, n)}, nil
	}
	own, err := f.lists.Read(r.dir.ID)
	if err == nil && bytes.Equal(own.Digest(), committed.GetDigest()) {
		return own, nil
	}
	theirs, err := d.ReadList(committed.GetDigest())
	if err != nil {
		return theirs, fmt.Errorf("%w (%w)", errNoList, err)
	}
	return theirs, f.keep(r.dir.ID, theirs)
}
