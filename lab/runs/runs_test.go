// Claims: jobs are handed in when they have come, beside each other, and Close ends those under way; a figure of which more
// is better is ahead where ours has more, also one that no other comparison has; a figure that a run did not show is absent.
package runs

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"headroom/internal/cli"
	"headroom/lab/arbitration"
)

func TestClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("no room")
		c := NewClients(t.Context(), []time.Duration{0, time.Second, time.Second}, func(ctx context.Context, job int) (string, error) {
			switch job {
			case 0:
				<-ctx.Done() // a client that needs long
				return "", ctx.Err()
			case 1:
				return "b", nil
			}
			return "", failed
		})
		look := func(now time.Duration) []Handed {
			c.Look(now)
			synctest.Wait()
			return c.Look(now)
		}
		if got := look(0); len(got) != 0 {
			t.Errorf("%+v", got)
		}
		got := look(2 * time.Second)
		if len(got) != 2 {
			t.Fatalf("%+v", got)
		}
		for _, h := range got {
			if h.At != 2*time.Second || h.Taken != h.At || h.Job == 1 && (h.ID != "b" || h.Err != nil) || h.Job == 2 && !errors.Is(h.Err, failed) {
				t.Errorf("%+v", h)
			}
		}
		c.Close()
		if got := c.Look(3 * time.Second); len(got) != 1 || !errors.Is(got[0].Err, context.Canceled) {
			t.Errorf("%+v", got)
		}
	})
}

func TestMoreIsBetter(t *testing.T) {
	t.Parallel()
	c := &Comparison{
		Variants: []Variant{{Name: "ours"}, {Name: "theirs"}},
		Columns:  []Column{{Head: "GOOD", Figure: "good", Scale: 1, Sign: -1}, {Head: "BAD", Figure: "bad", Scale: 1, Sign: 1}, {Head: "NEVER", Figure: "never", Scale: 1, Sign: 1}},
	}
	var results []Result
	for run := range 5 {
		x := 0.01 * float64(run%2)
		results = append(results, Result{"ours", run, map[string]float64{"good": 9 + x, "bad": 3}}, Result{"theirs", run, map[string]float64{"good": 7, "bad": 2 + x}})
	}
	r := c.Report(results)
	for i, want := range []arbitration.Standing{arbitration.Ahead, arbitration.Behind, Unknown} {
		if got := r.Differences[i]; got.Verdict != want {
			t.Errorf("%+v, want %s", got, want)
		}
	}
	if _, known := r.Variants[0].Figures["never"]; known || r.Runs != 5 {
		t.Errorf("%+v", r.Variants)
	}
	err := r.Behind("ours", func(figure string) bool { return figure == "bad" })
	if e, ok := errors.AsType[*cli.Error](err); !ok || e.Exit != cli.ExitDegraded || e.Hint == "" {
		t.Errorf("%v", err)
	}
	if err := r.Behind("ours", func(figure string) bool { return figure == "good" }); err != nil {
		t.Error(err)
	}
}
