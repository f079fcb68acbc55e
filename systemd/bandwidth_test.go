// Claims: a bandwidth is never read from what is not exactly the kernel's own form, and
// never becomes nothing by rounding; systemd's and the kernel's ways to say the same
// agree.
package systemd

import (
	"errors"
	"math"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseMax(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Bandwidth{
		"max 100000\n": Unlimited, "150000 100000\n": 1_500_000, "1000 100000": BandwidthMin, "50000 50000\n": CPU,
		"9223372036854775807 1\n": Unlimited,
		"":                        0, "max\n": 0, "0 100000\n": 0, "-1 100000\n": 0, "100000 0\n": 0, "1.5 100000\n": 0, "max max\n": 0, "1 2 3": 0,
		"max -5": 0, "99999999999999999999 100000": 0,
	} {
		got, err := parseMax(text)
		if got != want || (err == nil) != (want > 0) || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestParseUsed(t *testing.T) {
	t.Parallel()
	got, err := parseUsed("usage_usec 1234567\nuser_usec 1\n")
	if err != nil || got != 1234567*time.Microsecond {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "usage_usec -1\n", "usage_usec x", "usage_usec 9223372036854775807"} {
		if _, err := parseUsed(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestBandwidthWords(t *testing.T) {
	t.Parallel()
	for b, want := range map[Bandwidth]string{CPUs(1.5): "1.50 CPUs", Unlimited: "unlimited", CPUs(0): "0.01 CPUs", CPUs(math.Inf(1)): "unlimited", CPUs(math.NaN()): "0.01 CPUs"} {
		if b.String() != want {
			t.Errorf("%v, want %s", b, want)
		}
	}
	if !Unlimited.Same(Unlimited) || Unlimited.Same(CPU) || CPU.Same(Unlimited) || !CPU.Same(CPU+BandwidthGrain/2) || CPU.Same(2*CPU) {
		t.Error("Same is wrong")
	}
}

// Lesson 5: systemd keeps whole percents of a CPU in the files that it reads again on a
// reload; what is not a whole percent would change by itself.
func TestBoundsAreWholePercents(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Float64Range(-10, 20000).Draw(t, "cpus")
		b := CPUs(n)
		if b < BandwidthMin || b%BandwidthGrain != 0 {
			t.Fatalf("%v CPUs are %d", n, b)
		}
		if n > 0.01 && (b.CPUs() > n || b.CPUs() < n-0.0101) {
			t.Fatalf("%v CPUs became %v", n, b.CPUs())
		}
		if fromUsec(b.usec()) != b {
			t.Fatalf("%v does not survive systemd's form", b)
		}
		held, err := parseMax(strconv.FormatInt(int64(b)/10, 10) + " 100000\n")
		if err != nil || !held.Same(b) {
			t.Fatalf("%v reads back as %v: %v", b, held, err)
		}
	})
	if fromUsec(math.MaxUint64) != Unlimited || Unlimited.usec() != math.MaxUint64 {
		t.Error("infinity")
	}
}

func TestSliceGroup(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"batch.slice": "/batch.slice", "a-b.slice": "/a.slice/a-b.slice", "a-b-c.slice": "/a.slice/a-b.slice/a-b-c.slice",
	} {
		if got := sliceGroup(name); got != want {
			t.Errorf("%s is at %s", name, got)
		}
	}
}

func FuzzParseMax(f *testing.F) {
	f.Add("max 100000\n")
	f.Add("150000 100000\n")
	f.Fuzz(func(t *testing.T, text string) {
		b, err := parseMax(text)
		if (err == nil) != (b > 0) && b != 0 || err != nil && b != 0 || b < 0 {
			t.Errorf("%q: %d, %v", text, b, err)
		}
	})
}
