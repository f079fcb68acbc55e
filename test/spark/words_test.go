// Claims, for word popularity over a file of posts whose topics drift: at theta 0 the
// counts are exact; at theta ceil(n (1 - theta)) of the n partitions are read, as tasks and
// as bytes, and no more; the observed error grows with the ratio, and the work falls.
package spark

import (
	"math"
	"path/filepath"
	"testing"

	"headroom/spark"
)

// kept is how many of n partitions are computed at theta.
func kept(n int, theta float64) int { return max(1, int(math.Ceil(float64(n)*(1-theta)-1e-9))) }

// ofMap is the stage that reads the input: the first that has ended.
func ofMap(l spark.EventLog) spark.StageRecord {
	for _, s := range l.Stages {
		if s.ID == 0 {
			return s
		}
	}
	return spark.StageRecord{}
}

func TestWordPopularity(t *testing.T) {
	l, ctx := shared(t), within(t)
	in := filepath.Join(t.TempDir(), "Posts.xml")
	bytes, err := spark.Posts{Bytes: 12 << 20, Topical: 0.3, Seed: 3}.Write(in)
	if err != nil {
		t.Fatal(err)
	}
	exact, err := spark.CountWords(in)
	if err != nil {
		t.Fatal(err)
	}
	const partitions, top = 30, 100
	var errorsSeen, work []float64
	thetas := []float64{0, 0.2, 0.4, 0.9}
	for _, theta := range thetas {
		a, r, err := l.Ask(ctx, spark.WordPopularity(l.apps, in, partitions, 400, spark.Drop{Theta: theta, Seed: 11}))
		if err != nil {
			t.Fatal(err)
		}
		seen := spark.MeanError(exact, a.Counts(), top)
		errorsSeen, work = append(errorsSeen, seen), append(work, r.Log.TaskSeconds)
		n := a.Total
		t.Logf("theta %.1f: %d of %d partitions, mean error %.1f %%, %.1f task seconds, %d bytes, actions %v, all %v", theta, a.Kept, n, 100*seen, r.Log.TaskSeconds, r.Log.InputBytes, r.Log.Jobs, r.Elapsed)
		if n < partitions || a.Kept != kept(n, theta) || ofMap(r.Log).Tasks != a.Kept {
			t.Errorf("theta %v: kept %d of %d, the stage had %d tasks", theta, a.Kept, n, ofMap(r.Log).Tasks)
		}
		// Partitions are of one size but for a line at each end, and every reader reads ahead.
		part, read := float64(bytes)/float64(n), float64(r.Log.InputBytes)
		if read < float64(a.Kept-1)*part || read > float64(a.Kept+1)*(part+128<<10) {
			t.Errorf("theta %v: %.0f bytes were read, the %d partitions kept have %.0f", theta, read, a.Kept, float64(a.Kept)*part)
		}
	}
	if errorsSeen[0] != 0 {
		t.Errorf("at theta 0 the error is %v", errorsSeen[0])
	}
	for i := 1; i < len(thetas); i++ {
		if errorsSeen[i] <= errorsSeen[i-1] || errorsSeen[i] > 1 {
			t.Errorf("the error at theta %v is %v, at %v it is %v", thetas[i], errorsSeen[i], thetas[i-1], errorsSeen[i-1])
		}
	}
	if last := len(work) - 1; work[last] >= work[0] {
		t.Errorf("%.1f task seconds at theta %v, %.1f at 0", work[last], thetas[last], work[0])
	}
}
