// Claims: a goroutine that stays is found, one that ends soon is not; tests that
// failed stay failed.
package leaks

import (
	"strings"
	"testing"
	"time"
)

type tests func() int

func (f tests) Run() int { return f() }

func TestMainFindsWhatStays(t *testing.T) { //nolint:paralleltest // other tests' goroutines would be found
	stay := make(chan struct{})
	var said strings.Builder
	if code := Main(tests(func() int { go func() { <-stay }(); return 0 }), &said); code != 1 || !strings.Contains(said.String(), "left behind") {
		t.Errorf("a goroutine that stays: code %d, %q", code, said.String())
	}
	close(stay)
	said.Reset()
	if code := Main(tests(func() int { go func() { <-time.After(1500 * time.Millisecond) }(); return 0 }), &said); code != 0 || said.Len() > 0 {
		t.Errorf("one that ends by itself: code %d, %q", code, said.String())
	}
	if code := Main(tests(func() int { return 3 }), &said); code != 3 {
		t.Errorf("tests that failed: code %d", code)
	}
}
