package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Clean replaces what is no graphic character: control characters, and those that turn or
// hide text, such as U+202E. A name that came over the network must not move the cursor of
// whoever reads it, nor read as another.
func Clean(s string) string { return strings.Map(clean, s) }

func clean(r rune) rune {
	if hidden(r) || r == utf8.RuneError {
		return '?'
	}
	return r
}

func hidden(r rune) bool { return !unicode.IsGraphic(r) }

// screen is stdout or stderr of a program: whatever a command prints goes through Clean,
// line breaks and tabs aside. It is for any number of goroutines.
type screen struct {
	mu   sync.Mutex
	w    io.Writer
	torn []byte // the beginning of a character whose rest is still to come
}

// Raw returns what a program's stream writes to, for the program's own control sequences.
// Nothing that came from outside may be written there but for what Clean returned.
func Raw(w io.Writer) io.Writer {
	if s, ok := w.(*screen); ok {
		return s.w
	}
	return w
}

// Write implements io.Writer.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := append(s.torn, p...)
	whole := len(text)
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) && !utf8.FullRune(tail) {
			whole = len(text) - n
		}
	}
	shown := strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return clean(r)
	}, string(text[:whole]))
	s.torn = append([]byte(nil), text[whole:]...)
	if _, err := io.WriteString(s.w, shown); err != nil {
		return 0, err
	}
	return len(p), nil
}

// jsonOut keeps what Clean would replace, as JSON's own escapes.
type jsonOut struct{ w io.Writer }

// Write implements io.Writer for whole documents.
func (j jsonOut) Write(p []byte) (int, error) {
	var b strings.Builder
	for _, r := range string(p) {
		switch {
		case r == '\n' || !hidden(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	if _, err := io.WriteString(j.w, b.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}
