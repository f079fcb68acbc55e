// Claims, for word popularity over a file of posts whose topics drift: at theta 0 the
// counts are exact; at theta ceil(n (1 - theta)) of the n partitions are read, as tasks and
// as bytes, and no more; the observed error grows with the ratio, and the work falls. An
// executor that is killed in the middle of it changes nothing of the answer.
package spark

import (
	"math"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/lab/spark"
)

// kept is how many of n partitions are computed at theta.
func kept(n int, theta float64) int { return max(1, int(math.Ceil(float64(n)*(1-theta)-1e-9))) }

// ofInput is the stage that reads the input: the first.
func ofInput(l spark.EventLog) spark.StageRecord {
	for _, s := range l.Stages {
		if s.ID == 0 {
			return s
		}
	}
	return spark.StageRecord{}
}

const (
	partitions = 24
	// top is how many words are compared, asked how many are requested: a word that is
	// frequent may seem less so.
	top, asked = 100, 400
	seed       = 11
)

// posts writes a file of posts and returns its length too.
func posts(t *testing.T) (in string, bytes int64) {
	t.Helper()
	in = filepath.Join(t.TempDir(), "Posts.xml")
	bytes = testkit.Need(spark.Posts{Bytes: 9 << 20, Topical: 0.3, Seed: 3}.Write(in))(t)
	return in, bytes
}

// measure is one run of the sweep.
type measure struct {
	theta, wrong float64
	answer       spark.Answer
	log          spark.EventLog
}

func TestWordPopularity(t *testing.T) {
	testkit.Engines(t, "spark "+spark.Version)
	l, ctx := shared(t), within(t)
	in, bytes := posts(t)
	exact := testkit.Need(spark.CountWords(in))(t)
	var seen []measure
	for _, theta := range []float64{0, 0.4, 0.9} {
		a, r, err := l.Ask(ctx, spark.WordPopularity(l.apps, in, partitions, asked, spark.Drop{Theta: theta, Seed: seed}))
		if err != nil {
			t.Fatal(err)
		}
		m := measure{theta, spark.MeanError(exact, a.Counts(), top), a, r.Log}
		t.Logf("theta %.1f: %d of %d partitions, mean error %.1f %%, %.1f task seconds, %d bytes, actions %v, all %v",
			theta, a.Kept, a.Total, 100*m.wrong, m.log.TaskSeconds, m.log.InputBytes, m.log.Jobs, r.Elapsed)
		m.judge(t, bytes)
		seen = append(seen, m)
	}
	for i, m := range seen {
		if i == 0 && m.wrong != 0 {
			t.Errorf("at theta 0 the error is %v", m.wrong)
		}
		if i > 0 && (m.wrong <= seen[i-1].wrong || m.wrong > 1 || m.log.InputBytes >= seen[i-1].log.InputBytes) {
			t.Errorf("theta %v: error %v and %d bytes; theta %v: error %v and %d bytes", m.theta, m.wrong, m.log.InputBytes, seen[i-1].theta, seen[i-1].wrong, seen[i-1].log.InputBytes)
		}
	}
	if first, last := seen[0].log, seen[len(seen)-1].log; last.TaskSeconds >= first.TaskSeconds {
		t.Errorf("%.1f task seconds at the highest ratio, %.1f at 0", last.TaskSeconds, first.TaskSeconds)
	}
	killedMeanwhile(t, l, in, seen[1].answer)
}

// judge holds a run against what its ratio promises.
func (m measure) judge(t *testing.T, bytes int64) {
	t.Helper()
	n := m.answer.Total
	if n < partitions || m.answer.Kept != kept(n, m.theta) || ofInput(m.log).Tasks != m.answer.Kept {
		t.Errorf("theta %v: kept %d of %d, the stage had %d tasks", m.theta, m.answer.Kept, n, ofInput(m.log).Tasks)
	}
	// Partitions are of one size but for a line at each end, and every reader reads ahead.
	const ahead = 128 << 10
	part, read, many := float64(bytes)/float64(n), float64(m.log.InputBytes), float64(m.answer.Kept)
	if read < (many-1)*part || read > many*(part+ahead) {
		t.Errorf("theta %v: %.0f bytes were read, the %d partitions kept have %.0f", m.theta, read, m.answer.Kept, many*part)
	}
	for _, w := range m.answer.Words {
		if m.theta > 0 && (w.Low == nil || w.High == nil || *w.Low > w.Count || *w.High < w.Count) {
			t.Fatalf("theta %v: %+v has no bounds", m.theta, w)
		}
	}
}

// killedMeanwhile kills a node's executor while the input is read.
func killedMeanwhile(t *testing.T, l *lab, in string, want spark.Answer) {
	ctx := within(t)
	job := testkit.Need(l.Submit(spark.WordPopularity(l.apps, in, partitions, asked, spark.Drop{Theta: 0.4, Seed: seed})))(t)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for done := 0; done < 3; { // tasks of the stage that reads
		select {
		case <-tick.C:
			log, err := job.Log()
			if err != nil {
				continue // not written yet
			}
			done = log.Succeeded
		case <-ctx.Done():
			t.Fatal("the job does not begin")
		}
	}
	killed := l.KillExecutors("n1")
	r := testkit.Need(job.Wait(ctx))(t)
	got, err := spark.ReadAnswer(r.Output)
	if err != nil || killed != 1 {
		t.Fatalf("%v; %d executors were killed", err, killed)
	}
	t.Logf("%d attempts of tasks, %d succeeded, %d partitions are kept", r.Log.Attempts, r.Log.Succeeded, got.Kept)
	if r.Log.Attempts <= got.Kept+4 { // and the 4 of the second stage
		t.Errorf("only %d attempts of tasks: the kill came too late to show anything", r.Log.Attempts)
	}
	if got.Kept != want.Kept || !reflect.DeepEqual(got.Words, want.Words) {
		t.Errorf("the answer differs: kept %d and %d, first words %+v and %+v", got.Kept, want.Kept, got.Words[0], want.Words[0])
	}
}
