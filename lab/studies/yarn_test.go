// Claims: the hooks' server of a profile lets exactly the chosen maps run and remembers
// who asked; outputs that are not lines of a key and a number are made such; an
// application that nobody knows is refused with those that are.
package studies

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"headroom/internal/cli"
	"headroom/internal/testkit"
)

func TestOnlyChosenMapsRun(t *testing.T) {
	t.Parallel()
	c := testkit.Need(newChosenMaps())(t)
	t.Cleanup(c.close)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(body string) (int, string) {
		request := testkit.Need(http.NewRequestWithContext(t.Context(), http.MethodPost, c.url+"/v1/jobs/job_1_0001/begin", strings.NewReader(body)))(t)
		answer := testkit.Need(client.Do(request))(t)
		defer func() { _ = answer.Body.Close() }()
		text := testkit.Need(io.ReadAll(answer.Body))(t)
		return answer.StatusCode, string(text)
	}
	c.choose([]int{1, 3})
	for i := range 4 {
		for range 2 { // a second attempt gets the same answer
			code, text := ask(fmt.Sprintf(`{"task":%d,"attempt":0,"bytes":7}`, i))
			if want := fmt.Sprintf(`{"run":%t}`, i == 1 || i == 3); code != http.StatusOK || text != want {
				t.Errorf("map %d: %d %s, want %s", i, code, text, want)
			}
		}
	}
	if code, _ := ask("{}"); code != http.StatusBadRequest {
		t.Errorf("a question without a task: %d", code)
	}
	if ran, denied := c.asked(); ran != 2 || denied != 2 {
		t.Errorf("%d ran, %d were denied", ran, denied)
	}
	c.choose(nil)
	if ran, denied := c.asked(); ran+denied != 0 {
		t.Error("what was asked of the job before is still counted")
	}
}

func TestOutputsBecomeLines(t *testing.T) {
	t.Parallel()
	if got, err := meanLength([]byte("count\t4\nlength\t10\n")); err != nil || string(got) != "mean\t2.5\n" {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{"", "count\t0\n", "count\tmany\n"} {
		if got, err := meanLength([]byte(bad)); err == nil {
			t.Errorf("%q gave %q", bad, got)
		}
	}
	if got, err := estimateOfPi([]byte("3.25 from 100 points\n")); err != nil || string(got) != "pi\t3.25\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestUnknownApplicationsAreRefused(t *testing.T) {
	t.Parallel()
	_, err := newYARNRuns(t.Context(), "sort", "", "", t.TempDir(), 4, func(string, ...any) {})
	if e, ok := errors.AsType[*cli.Error](err); !ok || e.Exit != cli.ExitUsage || !strings.Contains(e.Message, "histmovies, pi, topn, wordcount, wordmean") {
		t.Errorf("%v", err)
	}
}
