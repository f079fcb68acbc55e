package apps

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
)

const (
	// readSize is how much of a file is read at a time: large enough that the
	// system calls do not show, small enough to stay in the processor's cache.
	readSize = 256 << 10
	// wordMax bounds the memory that one word may take: a longer run of letters
	// counts as several words. No text comes near it; a binary file might.
	wordMax = 64 << 10
)

// entry is one line of a result.
type entry struct {
	word  string
	count uint64
}

// counts is how often each word was seen.
type counts map[string]*uint64

// add counts word n times. Only a word seen for the first time is copied; one without letters is none.
func (c counts) add(word []byte, n uint64) {
	if p, ok := c[string(word)]; ok {
		*p += n
	} else if len(word) > 0 {
		c[string(word)] = &n
	}
}

// letters maps a byte to itself in lower case when it belongs to a word, and to
// 0 when it separates words. Bytes of 0x80 and above are parts of UTF-8 letters
// for the purpose of word counting.
var letters = func() (table [256]byte) {
	for b := range 256 {
		switch {
		case 'a' <= b && b <= 'z', '0' <= b && b <= '9', b >= 0x80:
			table[b] = byte(b)
		case 'A' <= b && b <= 'Z':
			table[b] = byte(b) + 'a' - 'A'
		}
	}
	return table
}()

// countWords adds the words of r: runs of letters and digits, in lower case.
func (c counts) countWords(r io.Reader) error {
	buf := make([]byte, readSize)
	word := make([]byte, 0, 64)
	for {
		n, err := r.Read(buf)
		for _, b := range buf[:n] {
			low := letters[b]
			if low == 0 || len(word) >= wordMax {
				c.add(word, 1)
				word = word[:0]
			}
			if low != 0 {
				word = append(word, low)
			}
		}
		if err == io.EOF {
			c.add(word, 1)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// countLines adds the lines of r, each "word<TAB>count".
func (c counts) countLines(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, readSize), readSize)
	for number := 1; lines.Scan(); number++ {
		word, text, ok := bytes.Cut(lines.Bytes(), []byte{'\t'})
		n, err := strconv.ParseUint(string(text), 10, 64)
		if !ok || err != nil || len(word) == 0 {
			return fmt.Errorf("line %d: %.60q: want word<TAB>count", number, lines.Text())
		}
		c.add(word, n)
	}
	return lines.Err()
}

// reader adds what one file has.
type reader func(counts, io.Reader) error

// countFiles counts all files from the beginning.
func countFiles(files []string, read reader) (counts, error) {
	c := make(counts)
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		err = read(c, f)
		_ = f.Close() // only read
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return c, nil
}

// sorted is all entries in the order of their words.
func (c counts) sorted() []entry {
	all := c.entries()
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.word, b.word) })
	return all
}

// top is the n most frequent words, the most frequent first; words seen equally
// often stand in the order of the alphabet.
func (c counts) top(n int) []entry {
	all := c.entries()
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.word, b.word))
	})
	return all[:min(n, len(all))]
}

func (c counts) entries() []entry {
	all := make([]entry, 0, len(c))
	for word, n := range c {
		all = append(all, entry{word, *n})
	}
	return all
}

// write prints one line an entry.
func write(w io.Writer, all []entry) error {
	out := bufio.NewWriterSize(w, readSize)
	for _, e := range all {
		if _, err := fmt.Fprintf(out, "%s\t%d\n", e.word, e.count); err != nil {
			return err
		}
	}
	return out.Flush()
}
