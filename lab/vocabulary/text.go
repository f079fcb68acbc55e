package vocabulary

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Words returns what appends n words to a line. How often a word occurs follows Zipf's law. The part topical of them,
// 0 to 1, is of the topic at; between two topics a text has some of both.
func Words(r *rand.Rand, topical float64, topics int) func(line []byte, n int, at float64) []byte {
	const words, skew = 20000, 1.1
	rank := rand.NewZipf(r, skew, 1, words-1)
	return func(line []byte, n int, at float64) []byte {
		for i := range n {
			if i > 0 {
				line = append(line, ' ')
			}
			word := rank.Uint64()
			if r.Float64() < topical {
				word = OfTopic(word, int(at+r.Float64()), topics, words)
			}
			line = Append(line, word)
		}
		return line
	}
}

// WriteLines writes a file, whose folder is made, until next appends nothing, and returns how long it is. next gets
// an empty line, and how much is written before it.
func WriteLines(path string, next func(line []byte, written int64) []byte) (written int64, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("vocabulary: data: %w", err)
		}
	}()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return 0, err
	}
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriterSize(f, 1<<16)
	for line := next(nil, 0); len(line) > 0; line = next(line[:0], written) {
		n, err := out.Write(line)
		if written += int64(n); err != nil {
			return written, err
		}
	}
	return written, out.Flush()
}
