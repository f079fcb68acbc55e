// Claims: the applications of the paper, all at once in the queues of one cluster, return what
// Go computes from the same data: pi, wordcount, topn, wordmean, histmovies. The nodes of the
// cluster are listed, each job runs in its queue, and a job's history has every map.
package hadoop

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"headroom/internal/testkit"
	"headroom/lab/hadoop"
)

// application is one of the paper's, and what must come out of it.
type application struct {
	job  hadoop.Job
	out  string // folder of its output
	want string // the lines of its output, in their order
}

func TestApplicationsAreRight(t *testing.T) {
	testkit.Engines(t, "hadoop "+release())
	const files = 2 // a map each
	c := shared(t)
	all := applications(t, c.apps, files)
	ctx := within(t) // from here on: what is built takes its own time
	nodes, err := c.States(ctx)
	if err != nil || len(nodes) != 2 || nodes[0].Name != "n1" || nodes[0].State != "RUNNING" || nodes[1].Name != "n2" {
		t.Fatalf("nodes %+v, %v", nodes, err)
	}
	running := map[string]*hadoop.RunningJob{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if running[name], err = c.Submit(ctx, all[name].job); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for name, a := range all {
		r, err := running[name].Wait(ctx)
		if err != nil || !r.Succeeded() || r.Queue != "root."+a.job.Queue || r.History == nil {
			t.Fatalf("%s: %+v, %v", name, r, err)
		}
		if n := len(r.History.Of("MAP", "SUCCEEDED")); n != files {
			t.Errorf("%s: %d maps in the history, want %d", name, n, files)
		}
		if got := output(t, a.out); got != a.want {
			t.Errorf("%s: got %.200q, want %.200q", name, got, a.want)
		}
	}
}

// applications writes the data and computes what is right.
func applications(t *testing.T, own string, files int) map[string]application {
	t.Helper()
	const points, top = 2000, 10
	text, out, counts := words(t, hadoop.Text{Files: files, Bytes: 50_000, Topical: 0.5, Seed: 1})
	ratings := filepath.Join(t.TempDir(), "ratings")
	if _, err := (hadoop.Ratings{Files: files, Bytes: 50_000, Drift: 1, Seed: 1}).Write(ratings); err != nil {
		t.Fatal(err)
	}
	to := func(name string) string { return filepath.Join(out, name) }
	testkit.Check(t, os.Mkdir(out, 0o755))
	all := map[string]application{
		"wordcount": {hadoop.Job{Queue: "q1", Args: []string{text, to("wordcount")}}, to("wordcount"), lines(counts, cmp.Compare[string])},
		"wordmean":  {hadoop.Job{Queue: "q2", Args: []string{text, to("wordmean")}}, to("wordmean"), lengths(counts)},
		"topn": {
			hadoop.Job{Jar: own, Queue: "q2", Args: []string{text, to("topn"), strconv.Itoa(top)}},
			to("topn"),
			head(lines(counts, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) }), top),
		},
		"histmovies": {hadoop.Job{Jar: own, Queue: "q3", Args: []string{ratings, to("histmovies")}}, to("histmovies"), histogram(t, ratings)},
		"pi": {
			hadoop.Job{Jar: own, Queue: "q1", Args: []string{strconv.Itoa(files), strconv.Itoa(points), to("pi")}},
			filepath.Join(to("pi"), "out"),
			fmt.Sprintf("%v from %d points\n", 4*float64(inCircle(files*points))/float64(files*points), files*points),
		},
	}
	for name, a := range all {
		a.job.Program = name
		if name != "wordcount" { // maps and reduce in their master's own JVM: most of the work would be starting theirs
			a.job.Properties = map[string]string{"mapreduce.job.ubertask.enable": "true"}
		}
		all[name] = a
	}
	return all
}

// output is what a job's reduces wrote, one after the other.
func output(t *testing.T, dir string) string {
	t.Helper()
	parts, err := filepath.Glob(filepath.Join(dir, "part-r-*"))
	if err != nil || len(parts) == 0 {
		t.Fatalf("no output in %s, %v", dir, err)
	}
	var whole strings.Builder
	for _, part := range parts {
		text := testkit.Need(os.ReadFile(part))(t)
		whole.Write(text)
	}
	return whole.String()
}

// lines are counts as jobs write them, in the order that compare makes of their keys.
func lines(counts map[string]int64, compare func(a, b string) int) string {
	var text strings.Builder
	for _, key := range slices.SortedFunc(maps.Keys(counts), compare) {
		fmt.Fprintf(&text, "%s\t%d\n", key, counts[key])
	}
	return text.String()
}

// head are the first n lines.
func head(text string, n int) string {
	return strings.Join(slices.Collect(strings.Lines(text))[:n], "")
}

// lengths is what wordmean divides: how many words there are and how many letters.
func lengths(counts map[string]int64) string {
	var words, letters int64
	for word, n := range counts {
		words, letters = words+n, letters+n*int64(len(word))
	}
	return fmt.Sprintf("count\t%d\nlength\t%d\n", words, letters)
}

// histogram is how many films have which mean rating, to the nearest half star.
func histogram(t *testing.T, dir string) string {
	t.Helper()
	counts := map[string]int64{}
	for _, name := range []string{"part-00000", "part-00001"} {
		text := testkit.Need(os.ReadFile(filepath.Join(dir, name)))(t)
		for line := range strings.Lines(string(text)) {
			_, ratings, _ := strings.Cut(strings.TrimSpace(line), ":")
			sum, n := 0, 0
			for rating := range strings.SplitSeq(ratings, ",") {
				_, stars, _ := strings.Cut(rating, "_")
				s := testkit.Need(strconv.Atoi(stars))(t)
				sum, n = sum+s, n+1
			}
			counts[strconv.FormatFloat(math.Floor(2*float64(sum)/float64(n)+0.5)/2, 'f', 1, 64)]++
		}
	}
	return lines(counts, cmp.Compare[string])
}

// inCircle is how many of the first n points of the Halton sequence in bases 2 and 3 lie
// within the circle of diameter 1.
func inCircle(n int) (inside int) {
	inverse := func(n, base int) (x float64) {
		for digit := 1 / float64(base); n > 0; n, digit = n/base, digit/float64(base) {
			x += digit * float64(n%base)
		}
		return x
	}
	for i := 1; i <= n; i++ {
		x, y := inverse(i, 2)-0.5, inverse(i, 3)-0.5
		if x*x+y*y <= 0.25 {
			inside++
		}
	}
	return inside
}
