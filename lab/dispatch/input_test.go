// Claims: loads are those of the input; no input makes a run panic; with the published traces, the cells of the paper's Fig. 4.11 are met.
package dispatch

import (
	"math"
	"os"
	"strings"
	"testing"

	"headroom/internal/jsonfile"
	"headroom/internal/testkit"
	"headroom/lab/traces"
)

// trace is a small one: two short jobs and a long one.
const trace = "0 2 1 0.5 1.5\n1.5 1 30 30\n4 3 2 2 2 2\n"

// A load rescales the arrivals: 38 s of work on 4 workers are half of their time in 19 s.
func TestCommandScalesLoad(t *testing.T) {
	t.Parallel()
	in := &Input{Trace: "trace", Load: new(0.5)}
	stretch := testkit.Need(in.stretch(strings.NewReader(trace), 4))(t)
	if want := 38.0 / (4 * 4 * 0.5); math.Abs(stretch-want) > 1e-12 {
		t.Errorf("stretched by %v, want %v", stretch, want)
	}
}

// Whatever the file contains, reading it ends in a Setup that Run takes, or in an error.
func FuzzInput(f *testing.F) {
	f.Add(`{"policy":"pigeon","workers":4,"groups":2,"reserved":1,"w":3,"cutoff_s":5,"hop_s":0,"distributors":1,"seed":1,"trace":"t"}`)
	f.Add(`{"policy":"eagle","workers":40,"groups":4,"reserved":1,"cutoff_s":1e9,"srpt":true,"trace":"t","load":0.5}`)
	f.Add(`{"policy":"ours","workers":9,"groups":3,"cutoff_s":0,"trace":"t","caps":[{"at_s":1,"group":1,"speed":0.5,"usable":2}]}`)
	f.Add(`{"policy":"sparrow","workers":1e3}`)
	f.Fuzz(func(t *testing.T, text string) {
		var in Input
		if err := jsonfile.Read(strings.NewReader(text), "--input", "-", &in); err != nil {
			return
		}
		s, err := in.setup()
		if err != nil {
			return
		}
		if s.Workers > 500 || s.Distributors > 20 {
			return // it is valid, but slow to try
		}
		jobs := []traces.Job{{Times: []float64{0.5, 3}}, {Arrival: 1, Times: []float64{100}}}
		if _, err := Run(t.Context(), s, sequence(jobs)); err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
	})
}

// Fig. 4.11: 120 workers in 3 groups, 4 reserved each, strict priority. The reference is the mean of 40 seeds of the public simulators, with Pigeon's
// leak of reserved workers fixed. p50 and p90 are within 15 %, p99 of Pigeon's short jobs within three standard deviations of its seeds.
func TestFigure411(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("HEADROOM_TRACES")
	if dir == "" {
		testkit.NotRun(t, "HEADROOM_TRACES names no folder of published traces")
	}
	for _, x := range []struct {
		policy      Policy
		load        string
		short, long [3]float64
	}{
		{Pigeon, "50", [3]float64{0.350, 0.928, 2.52}, [3]float64{171, 212, 256}},
		{Pigeon, "70", [3]float64{0.393, 1.306, 4.32}, [3]float64{189, 240, 279}},
		{Pigeon, "90", [3]float64{0.481, 1.811, 3.76}, [3]float64{199, 256, 291}},
		{Eagle, "50", [3]float64{0.39, 1.88, 6.01}, [3]float64{}},
		{Eagle, "70", [3]float64{0.871, 29.6, 38.1}, [3]float64{}},
		{Eagle, "90", [3]float64{11.8, 52.6, 57.3}, [3]float64{}},
		{Sparrow, "50", [3]float64{0.729, 141, 175}, [3]float64{}},
		{Sparrow, "70", [3]float64{49.5, 170, 201}, [3]float64{}},
		{Sparrow, "90", [3]float64{101, 189, 216}, [3]float64{}},
	} {
		var short, long [3]float64
		const seeds = 5
		for seed := range uint64(seeds) {
			f := testkit.Need(traces.Open(dir, "pigeon-google"+x.load))(t)
			s := Setup{Policy: x.policy, Workers: 120, Groups: 3, Reserved: 4, Cutoff: 1, Hop: HopUsual, Distributors: DistributorsUsual, Seed: seed}
			r := testkit.Need(Run(t.Context(), s, traces.Tasks(f, f.Name())))(t)
			testkit.Check(t, f.Close())
			for i, p := range [3][2]float64{{r.Short.P50, r.Long.P50}, {r.Short.P90, r.Long.P90}, {r.Short.P99, r.Long.P99}} {
				short[i] += p[0] / seeds
				long[i] += p[1] / seeds
			}
		}
		t.Logf("%s %s: short %.3f, long %.1f", x.policy, x.load, short, long)
		for i := range 3 {
			for _, cell := range [2][2]float64{{short[i], x.short[i]}, {long[i], x.long[i]}} {
				if got, want := cell[0], cell[1]; want > 0 && math.Abs(got-want) > 0.15*want {
					t.Errorf("%s %s percentile %d: %v, want %v", x.policy, x.load, i, got, want)
				}
			}
		}
	}
}
