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
	"headroom/lab/papers"
)

// Figs. 4 and 6 for real: the same word count at several drop ratios, one job after the
// other, each ratio with a class of its own.

// realRatios are the drop ratios, in percent; realRepeats is how many jobs there are of each.
func realRatios() []int { return []int{0, 20, 40, 60, 90} }

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
				return nil, 0, fmt.Errorf("dias: results: %s has the line %q", f, line)
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

// ratioTargets are L8 and L9.
func ratioTargets(points []ratioPoint) []papers.Target {
	exec := func(p ratioPoint) float64 { return p.exec }
	wrong := func(p ratioPoint) float64 { return p.error }
	ids := [2][2]string{{"L8", "Fig. 4: time of a word count with 90 % dropped against one with all tasks"}, {"L9", "Fig. 6: error of the counts with 20 % dropped"}}
	if len(points) == 0 {
		return []papers.Target{papers.Judge(ids[0][0], ids[0][1], "%", papers.Stat{}, false, ""), papers.Judge(ids[1][0], ids[1][1], "%", papers.Stat{}, false, "")}
	}
	const slack = 1.1 // of a time, for what else the machine does
	times, errs, falls, rises := []string{}, []string{}, true, true
	before, errorBefore := ratioPoint{exec: math.Inf(1)}, 0.0
	for _, percent := range realRatios() {
		at := ratioPoint{exec: meanAt(points, percent, exec), error: meanAt(points, percent, wrong)}
		falls, rises = falls && at.exec < slack*before.exec, rises && at.error >= errorBefore
		times, errs = append(times, fmt.Sprintf("%d %%: %.1f s", percent, at.exec)), append(errs, fmt.Sprintf("%d %%: %.1f %%", percent, at.error))
		before, errorBefore = at, before.error
	}
	all := meanAt(points, 0, exec)
	cut, wrong20 := (meanAt(points, 90, exec)/all-1)*100, meanAt(points, 20, wrong)
	return []papers.Target{
		papers.Judge(ids[0][0], ids[0][1], "%", papers.Once(cut), falls && cut < -30, strings.Join(times, ", ")+": to fall with the ratio, by 30 % or more in all"),
		papers.From(15, papers.Around(15, 5), papers.Judge(ids[1][0], ids[1][1], "%", papers.Once(wrong20), rises && meanAt(points, 0, wrong) == 0 && wrong20 > 0,
			strings.Join(errs, ", ")+": to be 0 at 0 %, and no less than two ratios before, as chance chooses what is dropped; made-up text, so the paper's numbers are not to be met")),
	}
}

// writeRatios is Figs. 4 and 6 of a real run.
func writeRatios(w io.Writer, points []ratioPoint) error {
	rows := [][]string{{"drop_percent", "map_tasks", "exec_s", "error_percent"}}
	for _, p := range points {
		rows = append(rows, []string{strconv.Itoa(p.percent), strconv.Itoa(p.kept), papers.Number(p.exec), papers.Number(p.error)})
	}
	return papers.WriteCSV(w, rows)
}
