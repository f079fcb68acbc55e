package spark

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"headroom/lab/vocabulary"
)

// Posts is a file of posts in the form of StackExchange's Posts.xml: a row per line, its
// text as escaped HTML. Topics drift through the file, so the result of a job that has read only some of it differs
// from the truth, the more the less it has read.
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
	const wordsLeast, wordsMost, topics = 20, 180, 12
	r := rand.New(rand.NewPCG(p.Seed, 1))
	words := vocabulary.Words(r, p.Topical, topics)
	id := 0
	return vocabulary.WriteLines(path, func(line []byte, at int64) []byte {
		if at >= p.Bytes {
			return nil
		}
		id++
		line = fmt.Appendf(line, `  <row Id="%d" PostTypeId="%d" Score="%d" Body="&lt;p&gt;`, id, 1+id%2, r.IntN(40))
		line = words(line, wordsLeast+r.IntN(wordsMost-wordsLeast), float64(at)/float64(p.Bytes)*topics)
		return append(line, "&lt;/p&gt;&#xA;\" />\n"...)
	})
}

// Write writes the file, whose folder is made, and returns how long it is.
func (g Graph) Write(path string) (int64, error) {
	edges := g.edges()
	return vocabulary.WriteLines(path, func(line []byte, _ int64) []byte {
		if len(edges) == 0 {
			return nil
		}
		line = fmt.Appendf(line, "%d %d\n", edges[0][0], edges[0][1])
		edges = edges[1:]
		return line
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

// CountWords counts the words of a file of posts as the application WordPopularity does.
func CountWords(path string) (map[string]float64, error) {
	counts := map[string]float64{}
	plain := strings.NewReplacer("&lt;", "<", "&gt;", ">", "&#xA;", "\n")
	text, err := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		_, body, ok := strings.Cut(line, ` Body="`)
		if !ok {
			continue
		}
		body, _, _ = strings.Cut(body, `"`)
		for word := range strings.FieldsFuncSeq(tag.ReplaceAllString(plain.Replace(body), " "), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			counts[word]++
		}
	}
	return counts, err
}

// tag is one of HTML, cut short at the end or not.
var tag = regexp.MustCompile(`<[^>]*>?`)

// CountTriangles counts the triangles of a file of edges.
func CountTriangles(path string) (float64, error) {
	above := map[int][]int{} // neighbours with higher numbers
	text, err := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		var from, to int
		_, errLine := fmt.Sscan(line, &from, &to)
		above[from], err = append(above[from], to), errors.Join(err, errLine)
	}
	if err != nil {
		return 0, fmt.Errorf("spark: %s: %w", path, err)
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
