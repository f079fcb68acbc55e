package demo

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
)

// The two priority classes, highest first.
const (
	classHigh = "high"
	classLow  = "low"
)

// taskWall is how long one task should take on an uncapped node whose slots are
// all busy: short enough that a job of high priority does not wait long for a slot.
const taskWall = 1200 * time.Millisecond

// waves is how many tasks a job has for each slot of the cluster: few, as a job
// that runs is not interrupted for one of a higher class. A job of class high
// takes only highShare of the slots at once, so that even under a low cap the
// other class is not stopped altogether.
const (
	wavesLow  = 2.0
	wavesHigh = 1.0
	highShare = 0.25
	// tasksMost bounds a job: the reduce task has to read the results of them all,
	// on one slot. Larger clusters get more jobs, not larger ones.
	tasksMost = 48
)

// workload makes the jobs: word counts of class low, most frequent words of
// class high, over real text, their tasks of the length that the calibration found.
type workload struct {
	dir    string // job files, inputs and results
	lab    string // path of powerlab
	text   corpus
	slots  int // of all nodes together
	passes int
	next   int // next part of the text
	made   map[string]int
}

// calibrate times a word count over parts of the text on this machine now, and sizes the tasks: cpus
// is what one slot has of a CPU. One pass over a part and several passes separate the cost of a pass
// from that of a start.
func (w *workload) calibrate(ctx context.Context, cpus float64) error {
	const many = 6
	once, err := w.timed(ctx, 1)
	if err != nil {
		return err
	}
	more, err := w.timed(ctx, many)
	if err != nil {
		return err
	}
	pass := max((more-once)/(many-1), time.Millisecond)
	task := time.Duration(float64(taskWall) * min(1, cpus))
	w.passes = max(1, int(math.Round(float64(task-max(0, once-pass))/float64(pass))))
	return nil
}

// timed is the CPU time of one task with so many passes, the best of two.
func (w *workload) timed(ctx context.Context, passes int) (time.Duration, error) {
	best := time.Duration(math.MaxInt64)
	for _, part := range []int{0, len(w.text.parts) / 2} {
		cmd := exec.CommandContext(ctx, w.lab, "app", "wordcount", "--passes", strconv.Itoa(passes), w.text.parts[part])
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1") // a slot has about one CPU or less
		if err := cmd.Run(); err != nil {
			return 0, cmp.Or(ctx.Err(), fmt.Errorf("demo: calibrate: %s: %w", cmd, err))
		}
		best = min(best, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	}
	return best, nil
}

// wanted is how many unfinished tasks of a class keep the cluster busy.
func (w *workload) wanted(class string) int {
	waves := wavesLow
	if class == classHigh {
		waves = wavesHigh
	}
	return max(2, int(math.Round(waves*float64(w.slots))))
}

// tasks is how many tasks a job of this class has.
func (w *workload) tasks(class string) int { return min(w.wanted(class), tasksMost) }

// job writes the next job of a class: its inputs, links to the next parts of
// the text, and its file. It returns the file and its content.
func (w *workload) job(class string) (file string, spec []byte, err error) {
	name, slots := "words", w.slots
	mapper, reducer := []string{w.lab, "app", "wordcount"}, []string{w.lab, "app", "merge"}
	if class == classHigh {
		name, slots = "top", max(1, int(highShare*float64(w.slots)))
		mapper, reducer = []string{w.lab, "app", "topn", "-n", "200"}, []string{w.lab, "app", "mergetop", "-n", "20"}
	}
	w.made[name]++
	name += "-" + strconv.Itoa(w.made[name])
	input := filepath.Join(w.dir, name+".in")
	err = os.MkdirAll(input, 0o755)
	for i := 0; i < w.tasks(class) && err == nil; i++ {
		err = os.Symlink(w.text.parts[w.next%len(w.text.parts)], filepath.Join(input, fmt.Sprintf("%05d.txt", i)))
		w.next++
	}
	file = filepath.Join(w.dir, name+".yaml")
	spec = fmt.Appendf(nil, "name: %s\nclass: %s\nslots: %d\nmap:\n  input: %s\n  command: [%s]\nreduce:\n  command: [%s]\noutput: %s\n",
		name, class, slots, strconv.Quote(filepath.Join(input, "*.txt")), quoted(append(mapper, "--passes", strconv.Itoa(w.passes), "{input}")),
		quoted(reducer), strconv.Quote(filepath.Join(w.dir, "out")))
	if err == nil {
		err = os.WriteFile(file, spec, 0o644)
	}
	if err != nil {
		return "", nil, fmt.Errorf("demo: job %s: %w", name, err)
	}
	return file, spec, nil
}

func quoted(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = strconv.Quote(w)
	}
	return strings.Join(out, ", ")
}

// feeder keeps both classes busy while the budget moves, and lets the jobs run
// out in time. All its decisions are in want.
type feeder struct {
	tracker *tracker
	client  *client
	work    *workload
	// rush takes a class of which a job is needed now, whether it ends in time or not.
	rush chan string

	lastHigh time.Time
	rate     rateMeter
}

// Pace of the feeder.
const (
	feedEvery = 300 * time.Millisecond
	// highPause is the time between two jobs of class high.
	highPause = 9 * time.Second
	// drainSpare is left between the expected end of all jobs and the end of the run.
	drainSpare = 5 * time.Second
)

// run submits jobs until ctx ends or a job is refused.
func (f *feeder) run(ctx context.Context) error {
	return every(ctx, feedEvery, func() error {
		rush := ""
		select {
		case rush = <-f.rush:
		default:
		}
		jobs, now := f.tracker.jobList(), time.Now()
		f.rate.look(now, int(countJobs(jobs).done))
		for _, class := range f.want(jobs, now, rush) {
			if err := f.submit(ctx, class); err != nil {
				return err
			}
		}
		return nil
	})
}

// hurry requests a job of the class now when that is needed. It never waits.
func (f *feeder) hurry(needed bool, class string) {
	if needed {
		select {
		case f.rush <- class:
		default: // it is requested already
		}
	}
}

// want are the classes of which a job must be submitted now.
func (f *feeder) want(jobs []*headroomv1.Job, now time.Time, rush string) []string {
	high, low := loadOf(jobs, classHigh), loadOf(jobs, classLow)
	var classes []string
	if high.jobs == 0 && (rush == classHigh || now.Sub(f.lastHigh) >= highPause && f.fits(high, low, classHigh)) {
		classes = append(classes, classHigh)
	}
	if low.left == 0 && rush == classLow || low.left < f.work.wanted(classLow) && f.fits(high, low, classLow) {
		classes = append(classes, classLow)
	}
	return classes
}

// fits reports whether one more job of the class will probably have ended at the end.
func (f *feeder) fits(high, low load, class string) bool {
	rate := f.rate.perSecond()
	if rate == 0 {
		return true // the run has just begun
	}
	left := float64(high.left + low.left + f.work.tasks(class))
	return time.Duration(left/rate*float64(time.Second))+drainSpare < f.tracker.left()
}

func (f *feeder) submit(ctx context.Context, class string) error {
	file, spec, err := f.work.job(class)
	if err != nil {
		return err
	}
	if err := f.client.submit(ctx, file, spec); err != nil {
		return err
	}
	if class == classHigh {
		f.lastHigh = time.Now()
	}
	if jobs, err := f.client.jobs(ctx); err == nil {
		f.tracker.setJobs(jobs)
	}
	return nil
}

// rateMeter is tasks per second over the last rateSpan.
type rateMeter struct {
	at   []time.Time
	done []int
}

const rateSpan = 8 * time.Second

func (r *rateMeter) look(now time.Time, done int) {
	r.at, r.done = append(r.at, now), append(r.done, done)
	for len(r.at) > 2 && now.Sub(r.at[0]) > rateSpan {
		r.at, r.done = r.at[1:], r.done[1:]
	}
}

// perSecond is 0 while it is not known.
func (r *rateMeter) perSecond() float64 {
	n := len(r.at)
	if n < 2 || r.at[n-1].Sub(r.at[0]) < rateSpan/2 {
		return 0
	}
	return float64(r.done[n-1]-r.done[0]) / r.at[n-1].Sub(r.at[0]).Seconds()
}
