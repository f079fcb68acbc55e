// Claims: values look as ux says; a folded node set names exactly the nodes that
// went in, in any order; request ids sort by time and do not repeat.
package cli_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/internal/cli"
	"headroom/units"
)

func TestValues(t *testing.T) {
	t.Parallel()
	p := 190 * units.Watt
	for got, want := range map[string]string{
		cli.Age(4100 * time.Millisecond):           "4.1s",
		cli.Age(-time.Second):                      "0.0s",
		cli.Age(59949 * time.Millisecond):          "59.9s",
		cli.Age(59970 * time.Millisecond):          "1m00s",
		cli.Age(245 * time.Second):                 "4m05s",
		cli.Age(3*time.Hour + 4*time.Minute):       "3h04m",
		cli.Age(76*time.Hour + 59*time.Minute):     "3d04h",
		cli.Percent(0.812):                         "81 %",
		cli.Watts(p):                               "190.0 W",
		cli.SignedWatts(-400 * units.Watt):         "-400.0 W",
		cli.SignedWatts(1500 * units.Milliwatt):    "+1.5 W",
		cli.Opt(&p, cli.Watts):                     "190.0 W",
		cli.Opt(nil, cli.Watts):                    "-",
		cli.Clock(time.Time{}):                     "-",
		fmt.Sprint(cli.Known(1, false) == nil):     "true",
		fmt.Sprint(*cli.Known(7, true)):            "7",
		cli.Nearest("bugdet", []string{"budget"}):  "budget",
		cli.Nearest("zzz", []string{"node", "al"}): "",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestNodeSet(t *testing.T) {
	t.Parallel()
	for want, names := range map[string]string{
		"":                        "",
		"n16":                     "n16",
		"n[01-03]":                "n01 n02 n03",
		"n[01-03,05]":             "n05 n03 n01 n02 n01",
		"n[1-2],n[10-11]":         "n1 n10 n11 n2",
		"n01,r1":                  "n01 r1",
		"r1n[01-02].lab":          "r1n01.lab r1n02.lab",
		"alpha,beta":              "beta alpha",
		"n1234567890123456789012": "n1234567890123456789012",
	} {
		if got := cli.NodeSet(strings.Fields(names)); got != want {
			t.Errorf("NodeSet(%s) = %s, want %s", names, got, want)
		}
	}
}

// Folding loses no node and invents none.
func TestNodeSetNamesTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOf(rapid.StringMatching(`[ab]?[0-9]{1,2}c?`)).Draw(t, "names")
		want := map[string]bool{}
		for _, n := range names {
			want[n] = true
		}
		got := unfold(t, cli.NodeSet(names))
		if !maps.Equal(want, got) {
			t.Fatalf("%v folded to %s, which is %v", names, cli.NodeSet(names), slices.Sorted(maps.Keys(got)))
		}
	})
}

func unfold(t *rapid.T, set string) map[string]bool {
	names := map[string]bool{}
	for _, part := range regexp.MustCompile(`([^,\[\]]*)(?:\[([^\]]*)\])?([^,\[\]]*)(,|$)`).FindAllStringSubmatch(set, -1) {
		if part[0] == "" {
			continue
		}
		if part[2] == "" {
			names[part[1]+part[3]] = true
			continue
		}
		for r := range strings.SplitSeq(part[2], ",") {
			from, to, found := strings.Cut(r, "-")
			if !found {
				to = from
			}
			var a, b int
			if _, err := fmt.Sscan(strings.TrimLeft("0"+from, " "), new(int)); err != nil {
				t.Fatal(err)
			}
			_, _ = fmt.Sscanf(from, "%d", &a)
			_, _ = fmt.Sscanf(to, "%d", &b)
			for i := a; i <= b; i++ {
				names[fmt.Sprintf("%s%0*d%s", part[1], len(from), i, part[3])] = true
			}
		}
	}
	return names
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		id := cli.RequestID()
		if seen[id] || !regexp.MustCompile(`^[0-9A-HJKMNP-TV-Z]{20}$`).MatchString(id) {
			t.Fatalf("id %q", id)
		}
		seen[id] = true
	}
}
