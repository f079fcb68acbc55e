package dias

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"headroom/jobs/buffers"
	"headroom/lab/report"
)

// Figs. 4 and 6 for real: the same word count at several drop ratios, one job after the
// other, each ratio with a class of its own.

// realRatios are the drop ratios, in percent; realRepeats is how many jobs there are of each.
func realRatios() []int { return []int{0, 20, 40, 60, 90} }

// graphRatios are those of the graph program: the paper's of Fig. 10, and Table 2's.
func graphRatios() []int { return []int{0, 5, 10, 20} }

const realRepeats = 2

// ratioPoint is one job at a drop ratio.
type ratioPoint struct {
	percent int
	kept    int     // map tasks that ran
	exec    float64 // s
	error   float64 // mean absolute error of the most frequent words' counts, percent
}

// ratioConfiguration is the scheduler's: a class for each ratio.
func ratioConfiguration() string {
	var b strings.Builder
	fmt.Fprintf(&b, "discipline: %s\nwidth: 1\nclasses:\n", buffers.DA)
	for _, p := range realRatios() {
		fmt.Fprintf(&b, "  - {name: r%d, theta: %d%%}\n", p, p)
	}
	return b.String()
}

// ratios runs the jobs of all ratios on a fresh site.
func (r *realRun) ratios(ctx context.Context) (points []ratioPoint, err error) {
	err = r.onSite(ctx, "ratios", ratioConfiguration(), func(ctx context.Context) error {
		var exact map[string]float64
		for _, percent := range realRatios() {
			for range realRepeats {
				p, counts, err := r.ratio(ctx, percent)
				if err != nil {
					return err
				}
				if exact == nil {
					exact = counts
				}
				p.error = 100 * deviation(exact, counts, float64(realMaps)/float64(p.kept))
				points = append(points, *p)
			}
		}
		return nil
	})
	return points, err
}

// ratio runs one job and counts what its tasks have left.
func (r *realRun) ratio(ctx context.Context, percent int) (*ratioPoint, map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute+6*realJob)
	defer cancel()
	id, err := r.submit(ctx, r.spec(fmt.Sprintf("r%d", percent), 100-percent))
	if err != nil {
		return nil, nil, err
	}
	w := newWatch(buffers.DA, 1)
	w.index[id], w.submitted[0] = 0, time.Now()
	err = r.Await(ctx, "job "+id+" has not ended", func(ctx context.Context) bool {
		if answer, err := r.List(ctx); err == nil {
			w.look([]arrival{{id: id}}, answer)
		}
		return w.failed != nil || w.done == 1
	})
	if err := cmp.Or(w.failed, err); err != nil {
		return nil, nil, err
	}
	counts, kept, err := counted(r.Path("out", id))
	return &ratioPoint{percent: percent, kept: kept, exec: w.result.jobs[0].exec}, counts, err
}

// counted sums the counts of words over the results of a job's map tasks.
func counted(dir string) (counts map[string]float64, tasks int, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "map-*"))
	if err != nil || len(files) == 0 {
		return nil, 0, fmt.Errorf("dias: no results in %s: %w", dir, cmp.Or(err, os.ErrNotExist))
	}
	counts = map[string]float64{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return nil, 0, fmt.Errorf("dias: results: %w", err)
		}
		for line := range strings.Lines(string(data)) {
			word, number, ok := strings.Cut(strings.TrimSpace(line), "\t")
			n, err := strconv.ParseFloat(number, 64)
			if !ok || err != nil {
				return nil, 0, fmt.Errorf("dias: results: unexpected line in %s: %q", f, line)
			}
			counts[word] += n
		}
	}
	return counts, len(files), nil
}

// deviation is the mean absolute error of the counts of the most frequent words, each as a
// part of the true one, when what was counted is scaled up.
func deviation(exact, counts map[string]float64, scale float64) float64 {
	const top = 200
	var words []string
	for w := range exact {
		words = append(words, w)
	}
	slices.SortFunc(words, func(a, b string) int { return cmp.Or(cmp.Compare(exact[b], exact[a]), cmp.Compare(a, b)) })
	words = words[:min(top, len(words))]
	sum := 0.0
	for _, w := range words {
		sum += math.Abs(scale*counts[w]/exact[w] - 1)
	}
	return sum / float64(len(words))
}

// meanAt is the mean of a quantity over the jobs of a ratio.
func meanAt(points []ratioPoint, percent int, of func(ratioPoint) float64) float64 {
	sum, n := 0.0, 0
	for _, p := range points {
		if p.percent == percent {
			sum, n = sum+of(p), n+1
		}
	}
	return sum / float64(n)
}

// ratioCurve is what jobs of a program at several drop ratios show.
type ratioCurve struct {
	// ids begins the ids of the targets, program is what the jobs compute.
	ids, program string
	ratios       []int
	// saves is by how many percent the largest ratio is to shorten a job at least; errors
	// are judged at the ratio judged, where paper is the paper's, if it has one.
	saves  float64
	judged int
	paper  *float64
	points []ratioPoint
}

// targets are that times fall with the ratio and errors rise.
func (c ratioCurve) targets() []report.Target {
	exec := func(p ratioPoint) float64 { return p.exec }
	wrong := func(p ratioPoint) float64 { return p.error }
	largest := c.ratios[len(c.ratios)-1]
	time, fault := fmt.Sprintf("%s: time with %d %% dropped against all tasks (Fig. 4)", c.program, largest), fmt.Sprintf("%s: error of the result with %d %% dropped (Fig. 6)", c.program, c.judged)
	if len(c.points) == 0 {
		return []report.Target{report.Left(c.ids+"8", time, "%", "this run does not have it"), report.Left(c.ids+"9", fault, "%", "this run does not have it")}
	}
	const slack = 1.1 // of a time, for what else the machine does
	times, errs, falls, rises := []string{}, []string{}, true, true
	before, errorBefore := ratioPoint{exec: math.Inf(1)}, 0.0
	for _, percent := range c.ratios {
		at := ratioPoint{exec: meanAt(c.points, percent, exec), error: meanAt(c.points, percent, wrong)}
		falls, rises = falls && at.exec < slack*before.exec, rises && at.error >= errorBefore
		times, errs = append(times, fmt.Sprintf("%d %%: %.1f s", percent, at.exec)), append(errs, fmt.Sprintf("%d %%: %.1f %%", percent, at.error))
		before, errorBefore = at, before.error
	}
	cut, missed := (meanAt(c.points, largest, exec)/meanAt(c.points, 0, exec)-1)*100, meanAt(c.points, c.judged, wrong)
	errors := report.Judge(c.ids+"9", fault, "%", report.Once(missed), rises && meanAt(c.points, 0, wrong) <= exactError && missed > 0,
		strings.Join(errs, ", ")+": to be 0 at 0 %, and no less than two ratios before, as chance chooses what is dropped")
	if c.paper != nil {
		errors.Note += "; made-up text, so the paper's numbers are not to be met"
		errors = report.From(*c.paper, report.Around(*c.paper, 5), errors)
	}
	return []report.Target{
		report.Judge(c.ids+"8", time, "%", report.Once(cut), falls && cut < -c.saves, fmt.Sprintf("%s: to fall with the ratio, by %.0f %% or more in all", strings.Join(times, ", "), c.saves)),
		errors,
	}
}

// wordCurve is the curve of word counts, graphCurve that of triangle counts.
func wordCurve(points []ratioPoint) ratioCurve {
	return ratioCurve{ids: wordsIDs, program: wordsProgram, ratios: realRatios(), saves: 30, judged: 20, paper: new(15.), points: points}
}

func graphCurve(points []ratioPoint) ratioCurve {
	return ratioCurve{ids: graphIDs, program: graphProgram, ratios: graphRatios(), saves: 0, judged: 10, points: points}
}

// writeRatios is Figs. 4 and 6 of a real run.
func writeRatios(w io.Writer, curves ...ratioCurve) error {
	rows := [][]string{{"drop_percent", "map_tasks", "exec_s", "error_percent", "program"}}
	for _, c := range curves {
		for _, p := range c.points {
			rows = append(rows, []string{strconv.Itoa(p.percent), strconv.Itoa(p.kept), report.Number(p.exec), report.Number(p.error), c.program})
		}
	}
	return report.CSV(w, rows)
}
