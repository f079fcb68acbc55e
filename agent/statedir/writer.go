package statedir

import (
	"errors"
	"time"

	"headroom/internal/each"
)

// ErrLate reports a state directory that does not answer.
var ErrLate = errors.New("state directory not responding")

// Kind is the subject of a job.
type Kind int

// Kinds of job.
const (
	Memory Kind = iota
	Held
	Coordinators
	Controls // a longer journal
	Denied
)

// kinds is their number.
const kinds = int(Denied) + 1

// Job is one file to replace, or several to remove, and how that went.
type Job struct {
	Kind    Kind
	Name    string
	Data    []byte
	Durable bool
	Remove  []string // instead of Name, Data and Durable
	Err     error

	answer chan error // whoever waits for it; nil: it is reported
}

// CarryOut does the job here and now.
func (j Job) CarryOut(d Disk) error {
	switch {
	case len(j.Remove) > 0:
		return errors.Join(each.Of(j.Remove, d.Remove)...)
	case j.Durable:
		return d.Durable(j.Name, j.Data)
	}
	return d.Replace(j.Name, j.Data)
}

// Writer writes to the state directory for powerd's loop, which must never wait for a
// disk. It carries out one job after the other. The loop has at most one of each kind
// under way, and one that it waits for, so the queue is bounded by the number of kinds.
type Writer struct {
	disk  Disk
	jobs  chan Job
	done  chan Job
	ended chan struct{}
}

// StartWriter starts the goroutine that writes to d.
func StartWriter(d Disk) *Writer {
	w := &Writer{disk: d, jobs: make(chan Job, kinds+1), done: make(chan Job, kinds), ended: make(chan struct{})}
	go w.work()
	return w
}

// Do queues a job. It must not be called after Stop, nor while a job of the same kind is
// in progress.
//
//headroom:control
func (w *Writer) Do(j Job) { w.jobs <- j }

// Done reports the jobs that Do handed over, each once.
func (w *Writer) Done() <-chan Job { return w.done }

// Now carries out a job, after those under way, and returns how it went. After wait it
// returns ErrLate; the job is carried out all the same once the disk answers.
func (w *Writer) Now(j Job, wait time.Duration) error {
	j.answer = make(chan error, 1)
	select {
	case w.jobs <- j:
	default: // jobs that nobody waits for any more fill the queue
		return ErrLate
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case err := <-j.answer:
		return err
	case <-late.C:
		return ErrLate
	}
}

func (w *Writer) work() {
	defer close(w.ended)
	for j := range w.jobs {
		j.Err = j.CarryOut(w.disk)
		if j.answer != nil {
			j.answer <- j.Err // buffered
			continue
		}
		w.done <- j
	}
}

// Stop ends the writer once its jobs are done, or after wait leaves it to a disk that
// does not answer.
func (w *Writer) Stop(wait time.Duration) {
	close(w.jobs)
	late := time.NewTimer(wait)
	defer late.Stop()
	for {
		select {
		case <-w.done:
		case <-w.ended:
			return
		case <-late.C:
			return
		}
	}
}
