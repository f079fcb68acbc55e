// Claims: the same seed makes the same bytes, another seed others; lengths are those
// requested; a few words and films make up most; files far apart differ more than neighbours.
package hadoop

import (
	"bytes"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"headroom/internal/testkit"
)

// folder writes a data set and returns where.
func folder(t *testing.T, set interface{ Write(string) (int64, error) }) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	n := testkit.Need(set.Write(dir))(t)
	var size int64
	for _, content := range files(t, dir) {
		size += int64(len(content))
	}
	if n != size {
		t.Errorf("%d bytes said, %d written", n, size)
	}
	return dir
}

func files(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	contents := map[string][]byte{}
	for _, e := range entries {
		if contents[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return contents
}

func TestSameSeedSameBytes(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(seed uint64) interface{ Write(string) (int64, error) }{
		"text": func(s uint64) interface{ Write(string) (int64, error) } {
			return Text{Files: 3, Bytes: 5000, Spread: 0.5, Topical: 0.5, Seed: s}
		},
		"ratings": func(s uint64) interface{ Write(string) (int64, error) } {
			return Ratings{Files: 3, Bytes: 5000, Drift: 1, Seed: s}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, again, other := files(t, folder(t, make(1))), files(t, folder(t, make(1))), files(t, folder(t, make(2)))
			if !maps.EqualFunc(first, again, bytes.Equal) {
				t.Error("the same seed made other bytes")
			}
			for name := range first {
				if bytes.Equal(first[name], other[name]) {
					t.Errorf("%s is the same with another seed", name)
				}
			}
		})
	}
}

func TestLengthsAreAsAsked(t *testing.T) {
	t.Parallel()
	const each, slack = 20_000, 200 // a line at most too long
	for name, content := range files(t, folder(t, Text{Files: 4, Bytes: each, Seed: 1})) {
		if len(content) < each || len(content) > each+slack {
			t.Errorf("%s has %d bytes", name, len(content))
		}
	}
	shortest, longest, sum := math.MaxInt, 0, 0
	for _, content := range files(t, folder(t, Text{Files: 100, Bytes: each, Spread: 0.8, Seed: 1})) {
		shortest, longest, sum = min(shortest, len(content)), max(longest, len(content)), sum+len(content)
	}
	if mean := sum / 100; mean < each/2 || mean > each*2 || longest < 3*shortest {
		t.Errorf("spread lengths: shortest %d, mean %d, longest %d", shortest, mean, longest)
	}
}

func TestFewWordsAreMost(t *testing.T) {
	t.Parallel()
	counts := testkit.Need(CountWords(folder(t, Text{Files: 2, Bytes: 200_000, Seed: 1})))(t)
	sorted := slices.Sorted(maps.Values(counts))
	slices.Reverse(sorted)
	if top, all := total(sorted[:len(sorted)/10]), total(sorted); top*2 < all {
		t.Errorf("the tenth of the words that is most frequent is %d of %d", top, all)
	}
}

func total(numbers []int64) (sum int64) {
	for _, n := range numbers {
		sum += n
	}
	return sum
}

func TestTopicsDrift(t *testing.T) {
	t.Parallel()
	dir := folder(t, Text{Files: 40, Bytes: 100_000, Topical: 0.6, Seed: 1})
	var of []map[string]float64
	for _, name := range slices.Sorted(maps.Keys(files(t, dir))) {
		one := t.TempDir()
		testkit.Check(t, os.Symlink(filepath.Join(dir, name), filepath.Join(one, name)))
		counts := testkit.Need(CountWords(one))(t)
		all := float64(total(slices.Collect(maps.Values(counts))))
		shares := map[string]float64{}
		for word, n := range counts {
			shares[word] = float64(n) / all
		}
		of = append(of, shares)
	}
	near, far := distance(of[10], of[11]), distance(of[10], of[30])
	if far < 1.5*near {
		t.Errorf("files 10 and 11 differ by %.3f, 10 and 30 by %.3f", near, far)
	}
}

// distance is half the sum of the differences: 0 for equal shares, 1 for nothing in common.
func distance(a, b map[string]float64) (sum float64) {
	for word := range a {
		sum += math.Abs(a[word] - b[word])
	}
	for word := range b {
		if _, both := a[word]; !both {
			sum += b[word]
		}
	}
	return sum / 2
}

func TestRatingsAreWhatPUMAReads(t *testing.T) {
	t.Parallel()
	var means []float64
	many := []int64{}
	films := map[string]bool{}
	contents := files(t, folder(t, Ratings{Files: 3, Bytes: 100_000, Drift: 1, Seed: 1}))
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		sum, n := 0, 0
		for line := range strings.Lines(string(contents[name])) {
			film, ratings, ok := strings.Cut(strings.TrimSpace(line), ":")
			if !ok || films[film] {
				t.Fatalf("line %.40q: no film, or one twice", line)
			}
			films[film] = true
			count := int64(0)
			for rating := range strings.SplitSeq(ratings, ",") {
				user, stars, _ := strings.Cut(rating, "_")
				s, err := strconv.Atoi(stars)
				if _, wrong := strconv.Atoi(user); wrong != nil || err != nil || s < 1 || s > 5 {
					t.Fatalf("film %s: rating %q", film, rating)
				}
				sum, n, count = sum+s, n+1, count+1
			}
			many = append(many, count)
		}
		means = append(means, float64(sum)/float64(n))
	}
	slices.Sort(many)
	slices.Reverse(many)
	if top, all := total(many[:len(many)/10]), total(many); top*2 < all {
		t.Errorf("the tenth of the films with most ratings has %d of %d", top, all)
	}
	if means[2] < means[0]+0.2 {
		t.Errorf("mean ratings of the files %v do not rise", means)
	}
}
