package command

// Jobs that name a deadline, with real processes: one for which nothing is free is refused, or waits for its turn, and is
// ended as refused when that is too late.

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"headroom/internal/cli"
	"headroom/internal/testkit"
)

// doorKeepsPromises fills the cluster with a job that was promised nothing, and asks for promises beside it.
func (c *cluster) doorKeepsPromises(want string) {
	c.t.Helper()
	dated := c.write("dated.yaml", strings.Replace(wordsJob(1), "class: high", "class: low\ndeadline: 10m", 1))
	out, errs, exit := c.run("submit", dated, "--dry-run", "-o", "json")
	a := c.answered(out)
	if exit != cli.ExitOK || a == nil || a.Decision != "admitted" || a.Need == nil || a.Samples == 0 || a.Confidence == nil || a.Finish == nil {
		c.t.Fatalf("exit %d, %s, answered %+v", exit, errs, a)
	}
	testkit.Check(c.t, os.RemoveAll(filepath.Join(c.dir, "hold")))
	hold := strings.Replace(wordsJob(1), "["+os.Args[0]+", app, wordcount, \"--passes=1\"",
		"[sh, -c, 'while [ ! -e "+filepath.Join(c.dir, "hold")+" ]; do sleep 0.05; done; exec \"$0\" app wordcount \"$1\"', "+os.Args[0], 1)
	holder := c.submit(hold)
	testkit.Eventually(c.t, patience, "all slots taken", func() bool { return c.show(holder).Running == 4 })
	if m := c.show(holder).Move; m == nil || m.Kind != "cap" || len(m.Candidates) != 1 || m.Candidates[0].Kind != "copy" {
		c.t.Errorf("what the coordinators have decided is shown as %+v", m)
	}

	before := c.coords.count()
	for _, args := range [][]string{{"submit", dated}, {"submit", dated, "--dry-run"}} {
		out, errs, exit := c.run(args...)
		if exit != cli.ExitRefused || !strings.Contains(errs, "would have to wait") || !strings.Contains(errs, "--queue") {
			c.t.Errorf("%v: exit %d, %q %q", args, exit, out, errs)
		}
	}
	if out, _, exit := c.run("submit", dated, "--dry-run", "--queue", "-o", "json"); exit != cli.ExitOK || c.answered(out).Decision != "queued" {
		c.t.Errorf("with --queue it would be accepted; exit %d, %s", exit, out)
	}
	if got := c.coords.count(); got != before {
		c.t.Errorf("%d jobs are committed, %d were", got, before)
	}
	waits := c.submit(strings.Replace(wordsJob(1), "class: high", "class: low\ndeadline: 10m", 1), "--queue", "--request-id", "w8")
	j := c.show(waits)
	if j.State != "queued" || j.Admission == nil || j.Admission.Decision != "queued" || j.Admission.Until == nil || !strings.HasPrefix(j.Outcome, "waiting for admission") {
		c.t.Errorf("it waits as %+v, admission %+v", j, j.Admission)
	}
	if again := c.submit(strings.Replace(wordsJob(1), "class: high", "class: low\ndeadline: 10m", 1), "--queue", "--request-id", "w8"); again != waits {
		c.t.Errorf("the same request again is job %s, not %s", again, waits)
	}
	withdrawn := c.submit(strings.Replace(wordsJob(1), "class: high", "class: low\ndeadline: 9m", 1), "--queue")
	if _, errs, exit := c.run("cancel", withdrawn); exit != cli.ExitOK {
		c.t.Errorf("cancel of a job that waits: %d %s", exit, errs)
	}
	c.ends(withdrawn, "cancelled")
	// One task: ten may need more time than that, and would be refused at once.
	late := c.submit(strings.NewReplacer("name: words", "name: late", "text/*", "text/00", "class: high", "class: low\ndeadline: 3s").Replace(wordsJob(1)), "--queue")
	if j := c.ends(late, "failed"); !strings.HasPrefix(j.Outcome, "refused by admission: ") {
		c.t.Errorf("ended as %+v", j)
	}
	c.write("hold", "")
	c.ends(holder, "done")
	j = c.ends(waits, "done")
	if c.result() != want || j.Admission == nil || j.Admission.Decision != "admitted" || j.Error == nil || *j.Error != 0 {
		c.t.Errorf("ended as %+v, admission %+v", j, j.Admission)
	}
}

// answered is the admission in a JSON answer; nil for none.
func (c *cluster) answered(out string) *jsonAdmission {
	c.t.Helper()
	var answer struct {
		Items []struct{ Admission *jsonAdmission }
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil || len(answer.Items) != 1 {
		c.t.Fatalf("%v in %s", err, out)
	}
	return answer.Items[0].Admission
}
