package apps

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A slow process takes a Pareto distributed number of times as long, with the exponent that GRASS found for the tasks of
// real clusters, and at most slowMost times: a longer one would be most of a short run.
const (
	slowBeta = 1.259
	slowMost = 10
	// attemptsMost bounds the attempts of one task that are counted.
	attemptsMost = 1000
)

// slowness returns how many times as long this attempt of a task takes. The folder counts the attempts: the same one of the
// same task is as slow in every folder of that name, and a second attempt is drawn again. The task is the one of the
// environment that the scheduler gives it; the random end of the job's id does not count.
func slowness(dir string) (float64, error) {
	job := os.Getenv("HEADROOM_JOB")
	if at := strings.LastIndexByte(job, '-'); at > 0 {
		job = job[:at]
	}
	task := job + "-" + os.Getenv("HEADROOM_INDEX")
	for attempt := range attemptsMost {
		name := fmt.Sprintf("%s.%d", task, attempt)
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("count the attempts of a slow task: %w", err)
		}
		return Slow(filepath.Base(dir) + "/" + name), f.Close()
	}
	return 0, fmt.Errorf("%d attempts of task %s", attemptsMost, task)
}

// Slow draws how many times as long a slow process takes from the bounded Pareto distribution, the same for the same key.
func Slow(key string) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // never fails
	u := rand.New(rand.NewPCG(h.Sum64(), 1)).Float64()
	return math.Pow(1-u*(1-math.Pow(slowMost, -slowBeta)), -1/slowBeta)
}

// slowly returns what to do after each pass: a pause that makes the pass take as many times as long as this attempt
// does, by the folder of attempts; none without a folder.
func slowly(dir string) (func(), error) {
	if dir == "" {
		return func() {}, nil
	}
	times, err := slowness(dir)
	began := time.Now()
	return func() {
		time.Sleep(time.Duration((times - 1) * float64(time.Since(began))))
		began = time.Now()
	}, err
}
