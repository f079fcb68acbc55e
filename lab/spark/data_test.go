// Claims: a data set depends on its seed alone; the exact answers are right; topics drift;
// degrees follow a power law; the error of an answer is computed from its words.
package spark

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"headroom/internal/testkit"
)

func TestPostsDependOnTheirSeed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, seed uint64) []byte {
		path := filepath.Join(dir, name)
		n, err := Posts{Bytes: 60_000, Topical: 0.5, Seed: seed}.Write(path)
		text, rerr := os.ReadFile(path)
		if err != nil || rerr != nil || n != int64(len(text)) || n < 60_000 || n > 64_000 {
			t.Fatalf("%d bytes of %d, %v %v", n, len(text), err, rerr)
		}
		return text
	}
	one := write("a", 1)
	if !bytes.Equal(one, write("b", 1)) || bytes.Equal(one, write("c", 2)) {
		t.Error("the same seed gives other bytes, or another seed the same")
	}
}

func TestCountWords(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "Posts.xml")
	text := `<?xml version="1.0"?>
  <row Id="1" Body="&lt;p&gt;da du, da&#xA;9&lt;/p&gt;" Tags="du" />
  <row Id="2" Title="da" />
`
	testkit.WriteFile(t, path, text)
	counts, err := CountWords(path)
	if err != nil || len(counts) != 3 || counts["da"] != 2 || counts["du"] != 1 || counts["9"] != 1 {
		t.Errorf("%v, %v", counts, err)
	}
}

func TestTopicsDrift(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	if _, err := (Posts{Bytes: 1 << 20, Topical: 0.5, Seed: 4}).Write(whole); err != nil {
		t.Fatal(err)
	}
	text := testkit.Need(os.ReadFile(whole))(t)
	first := filepath.Join(dir, "first")
	testkit.WriteFile(t, first, text[:bytes.LastIndexByte(text[:len(text)/2], '\n')+1])
	all, err1 := CountWords(whole)
	half, err2 := CountWords(first)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	for w := range half {
		half[w] *= 2
	}
	// A random half of so many words would be wrong by some percents only.
	if e := MeanError(all, half, 100); e < 0.1 || e > 1 {
		t.Errorf("the first half alone is wrong by %.3f", e)
	}
}

func TestGraph(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "graph")
	if _, err := (Graph{Vertices: 400, Edges: 3000, Seed: 5}).Write(path); err != nil {
		t.Fatal(err)
	}
	var near [400][400]bool
	degrees := make([]int, 400)
	edges := 0
	for _, e := range (Graph{Vertices: 400, Edges: 3000, Seed: 5}).edges() {
		if e[0] >= e[1] || near[e[0]][e[1]] {
			t.Fatalf("edge %v", e)
		}
		near[e[0]][e[1]] = true
		edges++
		degrees[e[0]]++
		degrees[e[1]]++
	}
	want := 0.0
	for a := range near {
		for b := a + 1; b < 400; b++ {
			for c := b + 1; near[a][b] && c < 400; c++ {
				if near[a][c] && near[b][c] {
					want++
				}
			}
		}
	}
	got, err := CountTriangles(path)
	if err != nil || got != want || want < 100 || edges != 3000 {
		t.Errorf("%v triangles of %d edges, %v; counted one by one %v", got, edges, err, want)
	}
	slices.Sort(degrees)
	if degrees[399] < 5*degrees[200] {
		t.Errorf("the highest degree is %d, the median %d", degrees[399], degrees[200])
	}
}

func TestMeanError(t *testing.T) {
	t.Parallel()
	exact := map[string]float64{"a": 100, "b": 50, "c": 1}
	if e := MeanError(exact, map[string]float64{"a": 90, "c": 9}, 2); math.Abs(e-0.55) > 1e-12 {
		t.Errorf("%v; a is wrong by 0.1, b was not found", e)
	}
}
