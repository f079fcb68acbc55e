package spark

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
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
	// Words is the size of the vocabulary; 0 means 20000.
	Words int
	// Skew is Zipf's exponent, above 1; 0 means 1.1.
	Skew float64
	// Topics is the number of topics in the file; 0 means 12.
	Topics int
	// Topical is the part of the words that are of the topic, 0 to 1.
	Topical float64
	// Seed decides everything else: the same seed, the same bytes.
	Seed uint64
}

// Graph is a file of edges, a line each, "FROM TO" with FROM below TO, in random order,
// each at most once. Few vertices have most of the edges: the degrees follow a power law.
type Graph struct {
	Vertices, Edges int
	// Skew is how unequal the degrees are, 0 (all alike) to below 1; 0 means 0.6.
	Skew float64
	Seed uint64
}

// Write writes the file, whose folder is made, and returns how long it is.
func (p Posts) Write(path string) (int64, error) {
	if p.Words == 0 {
		p.Words = 20000
	}
	if p.Skew == 0 {
		p.Skew = 1.1
	}
	if p.Topics == 0 {
		p.Topics = 12
	}
	if p.Bytes < 1 || p.Words < 1 || p.Topics < 1 || !(p.Skew > 1) || !(p.Topical >= 0 && p.Topical <= 1) {
		return 0, fmt.Errorf("%w: posts of %d bytes, %d words, %d topics, skew %g, topical %g", errConfig, p.Bytes, p.Words, p.Topics, p.Skew, p.Topical)
	}
	return writeLines(path, p.line)
}

// Bounds of a post's length, in words.
const wordsLeast, wordsMost = 20, 180

// line returns what appends the row that begins at an offset; false past the file's end.
func (p Posts) line() func(line []byte, at int64) ([]byte, bool) {
	r := rand.New(rand.NewPCG(p.Seed, 1))
	rank := rand.NewZipf(r, p.Skew, 1, uint64(p.Words-1))
	id := 0
	return func(line []byte, at int64) ([]byte, bool) {
		if at >= p.Bytes {
			return line, false
		}
		id++
		line = fmt.Appendf(line, `  <row Id="%d" PostTypeId="%d" Score="%d" Body="&lt;p&gt;`, id, 1+id%2, r.IntN(40))
		topic := float64(at) / float64(p.Bytes) * float64(p.Topics)
		for n := range wordsLeast + r.IntN(wordsMost-wordsLeast) {
			if n > 0 {
				line = append(line, ' ')
			}
			word := rank.Uint64()
			if r.Float64() < p.Topical {
				word = vocabulary.OfTopic(word, int(topic+r.Float64()), p.Topics, p.Words)
			}
			line = vocabulary.Append(line, word)
		}
		return append(line, "&lt;/p&gt;&#xA;\" />\n"...), true
	}
}

// Write writes the file, whose folder is made, and returns how long it is.
func (g Graph) Write(path string) (int64, error) {
	if g.Skew == 0 {
		g.Skew = 0.6
	}
	if g.Vertices < 3 || g.Edges < 1 || g.Edges > g.Vertices*(g.Vertices-1)/4 || !(g.Skew >= 0 && g.Skew < 1) {
		return 0, fmt.Errorf("%w: a graph of %d vertices and %d edges, skew %g", errConfig, g.Vertices, g.Edges, g.Skew)
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

// edges draws both ends of each by the vertices' weights (v+1)^-skew, as Chung and Lu do.
func (g Graph) edges() [][2]int {
	r := rand.New(rand.NewPCG(g.Seed, 2))
	draw := func() int { // the inverse of the weights' sum, as an integral
		return min(g.Vertices-1, int(float64(g.Vertices)*math.Pow(r.Float64(), 1/(1-g.Skew))))
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
	lines := bufio.NewScanner(io.Reader(f))
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
		for word := range strings.FieldsFuncSeq(withoutTags(plain.Replace(body)), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			counts[word]++
		}
		return nil
	})
	return counts, err
}

// withoutTags has a blank for each tag.
func withoutTags(html string) string {
	var b strings.Builder
	for {
		text, rest, tag := strings.Cut(html, "<")
		b.WriteString(text)
		if !tag {
			return b.String()
		}
		b.WriteByte(' ')
		_, html, _ = strings.Cut(rest, ">")
	}
}

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
			triangles += common(list, above[v])
		}
	}
	return float64(triangles), nil
}

// common is how many numbers two sorted lists share.
func common(a, b []int) (n int) {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			a = a[1:]
		case a[0] > b[0]:
			b = b[1:]
		default:
			n, a, b = n+1, a[1:], b[1:]
		}
	}
	return n
}

// MeanError is the mean relative error of what was found of the most frequent words, top
// of them: one that was not found at all is wrong by 1.
func MeanError(exact, found map[string]float64, top int) float64 {
	words := make([]string, 0, len(exact))
	for w := range exact {
		words = append(words, w)
	}
	slices.SortFunc(words, func(a, b string) int {
		if exact[a] != exact[b] {
			return int(math.Copysign(1, exact[b]-exact[a]))
		}
		return strings.Compare(a, b)
	})
	words = words[:min(top, len(words))]
	sum := 0.0
	for _, w := range words {
		sum += math.Abs(found[w]-exact[w]) / exact[w]
	}
	return sum / float64(max(1, len(words)))
}
