// Claims: an attempt of a task is as slow in every folder of the same name, the next attempt is drawn again, and factors
// are of the bounded Pareto distribution.
package apps

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"headroom/internal/testkit"
)

func TestSlowness(t *testing.T) {
	t.Setenv("HEADROOM_INDEX", "3")
	var draws [2][]float64
	for i := range draws {
		t.Setenv("HEADROOM_JOB", "words-"+strconv.Itoa(i))
		dir := filepath.Join(t.TempDir(), "run-7")
		testkit.Check(t, os.MkdirAll(dir, 0o755))
		for range 3 {
			draws[i] = append(draws[i], testkit.Need(slowness(dir))(t))
		}
	}
	if !slices.Equal(draws[0], draws[1]) || draws[0][0] == draws[0][1] {
		t.Errorf("%v", draws)
	}
	if _, err := slowness(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a folder that does not exist counted an attempt")
	}
}

func TestSlowDraws(t *testing.T) {
	t.Parallel()
	var all []float64
	for i := range 20_000 {
		all = append(all, Slow("run-1/"+strconv.Itoa(i)))
	}
	slices.Sort(all)
	if all[0] < 1 || all[len(all)-1] > slowMost {
		t.Errorf("from %v to %v", all[0], all[len(all)-1])
	}
	// The median of the distribution: half of what lies between 1 and slowMost.
	want := math.Pow(1-(1-math.Pow(slowMost, -slowBeta))/2, -1/slowBeta)
	if got := all[len(all)/2]; math.Abs(got-want) > 0.05 {
		t.Errorf("median %v, want %v", got, want)
	}
}
