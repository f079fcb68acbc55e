package kernel_test

import (
	"strconv"
	"testing"

	"headroom/lab/emulator/kernel"
)

// No text breaks the parsers, and what they accept is what the kernel accepts.
func FuzzKernelValues(f *testing.F) {
	for _, seed := range []string{"", "0", "+1", "-1", "abc", "1e6", " 12", "2000000x", "18446744073709551615", "on", "off", "o", "\x00", "９"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if v, err := kernel.ParseUint(text); err == nil {
			if v < 0 {
				t.Errorf("ParseUint(%q) = %d", text, v)
			}
			if again, err := kernel.ParseUint(strconv.FormatInt(v, 10)); err != nil || again != v {
				t.Errorf("ParseUint(%q) = %d, which parses as %d, %v", text, v, again, err)
			}
		}
		if v, err := kernel.ParseScan(text); err == nil && (v < 0 || v > 1<<32) {
			t.Errorf("ParseScan(%q) = %d", text, v)
		}
		if on, err := kernel.ParseBool(text); err != nil && on {
			t.Errorf("ParseBool(%q) refuses and says on", text)
		}
	})
}
