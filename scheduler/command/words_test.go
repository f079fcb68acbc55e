package command

import (
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// word is what the tests' jobs count.
var word = regexp.MustCompile(`[a-z0-9]+`)

// words is the program of the tests' jobs, `app wordcount [--passes=N] FILE...` and `app merge FILE...`:
// it prints each word of the files, or of such results, with how often it is there.
func words(args []string, out io.Writer) error {
	counts := map[string]int{}
	what, passes := args[0], 1
	for _, arg := range args[1:] {
		if n, found := strings.CutPrefix(arg, "--passes="); found {
			passes, _ = strconv.Atoi(n)
			continue
		}
		text, err := os.ReadFile(arg)
		if err != nil {
			return err
		}
		if what == "merge" {
			for line := range strings.Lines(string(text)) {
				name, n, _ := strings.Cut(strings.TrimSpace(line), "\t")
				times, err := strconv.Atoi(n)
				if err != nil {
					return err
				}
				counts[name] += times
			}
			continue
		}
		for pass := range passes {
			for _, w := range word.FindAllString(strings.ToLower(string(text)), -1) {
				if pass == 0 {
					counts[w]++
				}
			}
		}
	}
	for _, w := range slices.Sorted(maps.Keys(counts)) {
		if _, err := fmt.Fprintf(out, "%s\t%d\n", w, counts[w]); err != nil {
			return err
		}
	}
	return nil
}
