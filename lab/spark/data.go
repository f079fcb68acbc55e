package spark

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"headroom/lab/vocabulary"
)

// Posts is a file of posts in the form of StackExchange's Posts.xml: a row per line, its
// text as escaped HTML.
//
// How often a word occurs follows Zipf's law. A part of the words is of a topic, and
// topics drift through the file: posts far apart are of other things. So the result of a job
// that has read only some of the file differs from the truth, the more the less it has read.
type Posts struct {
	// Bytes is about how long the file is.
	Bytes int64
	// Topical is the part of the words that are of the topic, 0 to 1.
	Topical float64
	// Seed decides everything else: the same seed, the same bytes.
	Seed uint64
}

// Graph is a file of edges, a line each, "FROM TO" with FROM below TO, in random order,
// each at most once. Few vertices have most of the edges: the degrees follow a power law.
type Graph struct {
	Vertices, Edges int
	Seed            uint64
}

// Write writes the file, whose folder is made, and returns how long it is.
func (p Posts) Write(path string) (int64, error) {
	if p.Bytes < 1 || !(p.Topical >= 0 && p.Topical <= 1) {
		return 0, fmt.Errorf("%w: posts of %d bytes, topical %g", errConfig, p.Bytes, p.Topical)
	}
	return writeLines(path, p.line)
}

// A post's length in words, its vocabulary, by Zipf's exponent skew, and the number of topics in a file.
const wordsLeast, wordsMost, vocabularySize, skew, topics = 20, 180, 20000, 1.1, 12

// line returns what appends the row that begins at an offset; false past the file's end.
func (p Posts) line() func(line []byte, at int64) ([]byte, bool) {
	r := rand.New(rand.NewPCG(p.Seed, 1))
	rank := rand.NewZipf(r, skew, 1, vocabularySize-1)
	id := 0
	return func(line []byte, at int64) ([]byte, bool) {
		if at >= p.Bytes {
			return line, false
		}
		id++
		line = fmt.Appendf(line, `  <row Id="%d" PostTypeId="%d" Score="%d" Body="&lt;p&gt;`, id, 1+id%2, r.IntN(40))
		topic := float64(at) / float64(p.Bytes) * topics
		for n := range wordsLeast + r.IntN(wordsMost-wordsLeast) {
			if n > 0 {
				line = append(line, ' ')
			}
			word := rank.Uint64()
			if r.Float64() < p.Topical {
				word = vocabulary.OfTopic(word, int(topic+r.Float64()), topics, vocabularySize)
			}
			line = vocabulary.Append(line, word)
		}
		return append(line, "&lt;/p&gt;&#xA;\" />\n"...), true
	}
}

// Write writes the file, whose folder is made, and returns how long it is.
func (g Graph) Write(path string) (int64, error) {
	if g.Vertices < 3 || g.Edges < 1 || g.Edges > g.Vertices*(g.Vertices-1)/4 {
		return 0, fmt.Errorf("%w: a graph of %d vertices and %d edges", errConfig, g.Vertices, g.Edges)
	}
	edges := g.edges()
	return writeLines(path, func() func([]byte, int64) ([]byte, bool) {
		return func(line []byte, _ int64) ([]byte, bool) {
			if len(edges) == 0 {
				return line, false
			}
			line = fmt.Appendf(line, "%d %d\n", edges[0][0], edges[0][1])
			edges = edges[1:]
			return line, true
		}
	})
}

// edges draws both ends of each by the vertices' weights (v+1)^-unequal, as Chung and Lu do.
func (g Graph) edges() [][2]int {
	r := rand.New(rand.NewPCG(g.Seed, 2))
	const unequal = 0.6  // 0: all degrees alike
	draw := func() int { // the inverse of the weights' sum, as an integral
		return min(g.Vertices-1, int(float64(g.Vertices)*math.Pow(r.Float64(), 1/(1-unequal))))
	}
	seen := make(map[[2]int]bool, g.Edges)
	var edges [][2]int
	for tries := 0; len(edges) < g.Edges && tries < 100*g.Edges; tries++ {
		a, b := draw(), draw()
		e := [2]int{min(a, b), max(a, b)}
		if a != b && !seen[e] {
			seen[e] = true
			edges = append(edges, e)
		}
	}
	return edges
}

// writeLines writes what next appends until it reports that it is done.
func writeLines(path string, begin func() func([]byte, int64) ([]byte, bool)) (written int64, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return 0, fmt.Errorf("spark: data: %w", err)
	}
	f, err := os.Create(path)
	if err != nil {
		return 0, fmt.Errorf("spark: data: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriterSize(f, 1<<16)
	next := begin()
	var line []byte
	for more := true; more; {
		if line, more = next(line[:0], written); !more {
			break
		}
		n, err := out.Write(line)
		if written += int64(n); err != nil {
			return written, fmt.Errorf("spark: data: %w", err)
		}
	}
	return written, out.Flush()
}

// lineMost is the longest line that a data set has.
const lineMost = 1 << 20

func eachLine(path string, read func(string) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("spark: data: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, lineMost)
	for lines.Scan() {
		if err := read(lines.Text()); err != nil {
			return fmt.Errorf("spark: %s: %w", path, err)
		}
	}
	return lines.Err()
}

// CountWords counts the words of a file of posts as the application WordPopularity does.
func CountWords(path string) (map[string]float64, error) {
	counts := map[string]float64{}
	plain := strings.NewReplacer("&lt;", "<", "&gt;", ">", "&#xA;", "\n")
	err := eachLine(path, func(line string) error {
		_, body, ok := strings.Cut(line, ` Body="`)
		if !ok {
			return nil
		}
		body, _, _ = strings.Cut(body, `"`)
		for word := range strings.FieldsFuncSeq(tag.ReplaceAllString(plain.Replace(body), " "), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			counts[word]++
		}
		return nil
	})
	return counts, err
}

// tag is one of HTML, cut short at the end or not.
var tag = regexp.MustCompile(`<[^>]*>?`)

// CountTriangles counts the triangles of a file of edges.
func CountTriangles(path string) (float64, error) {
	above := map[int][]int{} // neighbours with higher numbers
	err := eachLine(path, func(line string) error {
		a, b, _ := strings.Cut(line, " ")
		from, err := strconv.Atoi(a)
		to, err2 := strconv.Atoi(b)
		above[from] = append(above[from], to)
		return errors.Join(err, err2)
	})
	if err != nil {
		return 0, err
	}
	for _, list := range above {
		slices.Sort(list)
	}
	triangles := 0
	for _, list := range above {
		for _, v := range list {
			for _, w := range above[v] {
				if _, found := slices.BinarySearch(list, w); found {
					triangles++
				}
			}
		}
	}
	return float64(triangles), nil
}

// MeanError is the mean relative error of what was found of the most frequent words, top
// of them: one that was not found at all is wrong by 1.
func MeanError(exact, found map[string]float64, top int) float64 {
	words := slices.SortedFunc(maps.Keys(exact), func(a, b string) int { return cmp.Or(cmp.Compare(exact[b], exact[a]), cmp.Compare(a, b)) })
	words = words[:min(top, len(words))]
	sum := 0.0
	for _, w := range words {
		sum += math.Abs(found[w]-exact[w]) / exact[w]
	}
	return sum / float64(max(1, len(words)))
}
