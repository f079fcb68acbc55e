package emulator

import (
	"strconv"
	"testing"
)

// No text breaks the parsers, and what they accept is what the kernel accepts.
func FuzzKernelValues(f *testing.F) {
	for _, seed := range []string{"", "0", "+1", "-1", "abc", "1e6", " 12", "2000000x", "18446744073709551615", "on", "off", "o", "\x00", "９"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if v, err := parseUint(text); err == nil {
			if v < 0 {
				t.Errorf("parseUint(%q) = %d", text, v)
			}
			if again, err := parseUint(strconv.FormatInt(v, 10)); err != nil || again != v {
				t.Errorf("parseUint(%q) = %d, which parses as %d, %v", text, v, again, err)
			}
		}
		if v, err := parseScan(text); err == nil && (v < 0 || v > 1<<32) {
			t.Errorf("parseScan(%q) = %d", text, v)
		}
		if on, err := parseBool(text); err != nil && on {
			t.Errorf("parseBool(%q) refuses and says on", text)
		}
	})
}

// Names that cannot be a folder, a host or a log field are refused.
func TestNodeNames(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{"n01": true, "rack-2.node-7": true, "": false, "../x": false, "a b": false, "-x": false, "a/b": false} {
		if nodeName.MatchString(name) != good {
			t.Errorf("name %q: good is %v", name, !good)
		}
	}
}
