package hadoop

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"headroom/lab/vocabulary"
)

// Text is a set of files of words, one map each where a file is no longer than a block. Topics drift from file to
// file, so the result of a job that has read only some of them differs from the truth, the more the fewer.
type Text struct {
	// Files is how many there are, Bytes how long each is on the average.
	Files int
	Bytes int64
	// Spread is the standard deviation of the logarithm of the files' lengths.
	Spread float64
	// Topical is the part of the words that are of the topic, 0 to 1.
	Topical float64
	// Seed decides everything else: the same seed, the same bytes.
	Seed uint64
}

// Ratings is a set of files of film ratings in the form that PUMA's HistogramMovies and
// HistogramRatings read: a line per film, "movieId:user_rating,user_rating,...". Films in later files are rated better.
type Ratings struct {
	// Files is how many there are, Bytes how long each is.
	Files int
	Bytes int64
	// Drift is by how many stars the mean rating rises from the first file to the last.
	Drift float64
	// Seed decides everything else: the same seed, the same bytes.
	Seed uint64
}

// Streams of random numbers, so that a file's length and its content do not depend on
// each other.
const (
	streamLength = 1 << 32 * (iota + 1)
	streamText
	streamRatings
)

// Write writes the files part-00000 and up into dir, which is made, and returns how many
// bytes they have together.
func (t Text) Write(dir string) (int64, error) {
	return writeFiles(dir, t.Files, t.Bytes, t.Spread, t.Seed, func(i int) func([]byte) []byte {
		const topics, wordsPerLine = 8, 12
		words := vocabulary.Words(rand.New(rand.NewPCG(t.Seed, uint64(streamText+i))), t.Topical, topics)
		at := float64(i) * topics / float64(t.Files)
		return func(line []byte) []byte { return append(words(line, wordsPerLine, at), '\n') }
	})
}

// Write writes the files part-00000 and up into dir, which is made, and returns how many
// bytes they have together.
func (s Ratings) Write(dir string) (int64, error) {
	return writeFiles(dir, s.Files, s.Bytes, 0, s.Seed, s.line)
}

// line returns what appends one line of file i.
func (s Ratings) line(i int) func(line []byte) []byte {
	const (
		filmsPerFile             = 1 << 24   // more than a file has: numbers show where a film stands
		filmSpread, ratingSpread = 0.6, 1.0  // between films and of one film's ratings, in stars
		ratingsMost, ratingsTail = 5000, 1.1 // and the exponent of the number of ratings: a few films have most
		users, ratingMean        = 100_000, 3.2
	)
	r := rand.New(rand.NewPCG(s.Seed, uint64(streamRatings+i)))
	drift := s.Drift * (float64(i)/float64(max(1, s.Files-1)) - 0.5)
	film := i * filmsPerFile
	return func(line []byte) []byte {
		film++
		line = append(strconv.AppendInt(line, int64(film), 10), ':')
		many := min(ratingsMost, int(math.Pow(1-r.Float64(), -1/ratingsTail)))
		mean := ratingMean + drift + filmSpread*r.NormFloat64()
		for n := range many {
			if n > 0 {
				line = append(line, ',')
			}
			line = append(strconv.AppendInt(line, int64(1+r.IntN(users)), 10), '_')
			stars := math.Round(mean + ratingSpread*r.NormFloat64())
			line = strconv.AppendInt(line, int64(min(5, max(1, stars))), 10)
		}
		return append(line, '\n')
	}
}

// writeFiles writes files of whole lines, each of at least its length and of one line.
func writeFiles(dir string, files int, length int64, spread float64, seed uint64, lines func(i int) func([]byte) []byte) (total int64, err error) {
	lengths := rand.New(rand.NewPCG(seed, streamLength))
	for i := range files {
		// The mean of a log-normal variable is exp(spread^2/2): divided out.
		most := float64(length) * math.Exp(spread*lengths.NormFloat64()-spread*spread/2)
		next := lines(i)
		n, err := vocabulary.WriteLines(filepath.Join(dir, fmt.Sprintf("part-%05d", i)), func(line []byte, written int64) []byte {
			if written > 0 && written >= int64(most) {
				return nil
			}
			return next(line)
		})
		if total += n; err != nil {
			return total, err
		}
	}
	return total, nil
}

// CountWords counts the words of the files in dir, as Hadoop's wordcount does, for
// comparison.
func CountWords(dir string) (map[string]int64, error) {
	counts := map[string]int64{}
	paths, _ := filepath.Glob(filepath.Join(dir, "*")) // the pattern is valid
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("hadoop: %w", err)
		}
		for word := range strings.FieldsSeq(string(text)) {
			counts[word]++
		}
	}
	return counts, nil
}
