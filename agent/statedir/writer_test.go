// Claims: the writer carries out jobs in their order and reports each once; whoever waits
// for one waits no longer than it says, and the job is done all the same; a disk that hangs
// keeps neither from going on.
package statedir

import (
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"
)

// heldUp is a state directory that answers when the test lets it.
type heldUp struct {
	Disk

	answer chan error
}

func (d heldUp) Replace(name string, data []byte) error {
	if err := <-d.answer; err != nil {
		return err
	}
	return d.Disk.Replace(name, data)
}

func TestWriterReportsEachJobOnce(t *testing.T) {
	t.Parallel()
	d := OS{Dir: t.TempDir()}
	w := StartWriter(d)
	w.Do(Job{Kind: Memory, Name: MemoryFile, Data: []byte("one"), Durable: true})
	w.Do(Job{Kind: Held, Name: HeldFile, Data: []byte("two")})
	for _, want := range []Kind{Memory, Held} {
		if j := <-w.Done(); j.Kind != want || j.Err != nil {
			t.Errorf("job %v, %v, want %v", j.Kind, j.Err, want)
		}
	}
	if err := w.Now(Job{Remove: []string{MemoryFile, HeldFile, JournalFile}}, time.Minute); err != nil {
		t.Error(err)
	}
	for _, name := range []string{MemoryFile, HeldFile} {
		if _, err := d.Read(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
	w.Stop(time.Minute)
}

func TestNowWaitsNoLongerThanItSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := heldUp{OS{Dir: t.TempDir()}, make(chan error)}
		w := StartWriter(d)
		began := time.Now()
		if err := w.Now(Job{Kind: Held, Name: HeldFile, Data: []byte("late")}, 2*time.Second); !errors.Is(err, ErrLate) || time.Since(began) != 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		for range kinds + 1 { // more than wait in the queue: the rest is refused at once
			_ = w.Now(Job{Kind: Held, Name: HeldFile}, 0)
		}
		if err := w.Now(Job{Kind: Held, Name: HeldFile}, time.Hour); !errors.Is(err, ErrLate) || time.Since(began) > time.Minute {
			t.Errorf("%v after %v with a full queue", err, time.Since(began))
		}
		d.answer <- nil
		synctest.Wait()
		if data, err := d.Read(HeldFile); err != nil || string(data) != "late" {
			t.Errorf("%q, %v: a job is carried out once the disk answers", data, err)
		}
		close(d.answer)
		w.Stop(time.Minute)
	})
}

func TestStopLeavesADiskThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := heldUp{OS{Dir: t.TempDir()}, make(chan error)}
		w := StartWriter(d)
		w.Do(Job{Kind: Held, Name: HeldFile})
		began := time.Now()
		w.Stop(2 * time.Second)
		if waited := time.Since(began); waited != 2*time.Second {
			t.Errorf("stopped after %v", waited)
		}
		d.answer <- errors.New("a disk that is gone")
		<-w.ended
	})
}
