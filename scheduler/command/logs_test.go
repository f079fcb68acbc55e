package command

// A job's logs reach its submitter and operators, while it runs and after its end, and nobody else.

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"headroom/internal/cli"
	"headroom/internal/testkit"
)

func TestLogs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.texts(2)
	s := c.scheduler()
	c.worker("n01", 2)
	c.ready(1)
	gate := filepath.Join(c.dir, "gate")
	id := c.submit("name: loud\nclass: low\nslots: 2\nmap: {input: text/*.txt, command: [sh, -c, 'echo hello $HEADROOM_INDEX >&2; until [ -e " + gate + " ]; do sleep 0.05; done; echo bye >&2']}\noutput: out\n")
	testkit.Eventually(t, patience, "the first lines", func() bool {
		out, _, exit := c.run("job", "logs", id)
		return exit == cli.ExitOK && strings.Contains(out, "hello 0\n") && strings.Contains(out, "hello 1\n")
	})
	cmd := exec.CommandContext(t.Context(), os.Args[0], "job", "logs", id, "--task", "1", "--follow", "--addr", c.address)
	cmd.Env = append(os.Environ(), programEnv+"=1")
	piped := testkit.Need(cmd.StdoutPipe())(t)
	testkit.Check(t, cmd.Start())
	first := make([]byte, len("==> "))
	_ = testkit.Need(io.ReadFull(piped, first))(t)
	s.end(syscall.SIGKILL)
	c.scheduler()
	c.ready(1)
	testkit.WriteFile(t, gate, "")
	rest := testkit.Need(io.ReadAll(piped))(t)
	if err := cmd.Wait(); err != nil || !strings.HasPrefix(string(rest), "map-00001, attempt ") || !strings.Contains(string(rest), " <==\nhello 1\nbye\n") || strings.Contains(string(rest), "hello 0") {
		t.Errorf("followed: %v, %q", err, rest)
	}
	c.ends(id, "done")
	out, _, exit := c.run("job", "logs", id, "-o", "json")
	var doc struct {
		Kind  string
		Items []jsonLog
	}
	if exit != cli.ExitOK || json.Unmarshal([]byte(out), &doc) != nil || doc.Kind != "LogList" || len(doc.Items) != 2 || doc.Items[0].Text != "hello 0\nbye\n" {
		t.Errorf("as JSON: exit %d, %s", exit, out)
	}
	quiet := c.submit(wordsJob(1), "--wait")
	if out, errs, exit := c.run("job", "logs", quiet); exit != cli.ExitOK || out != "" || errs != "job "+quiet+" has written nothing\n" {
		t.Errorf("a quiet job: exit %d, %q, %q", exit, out, errs)
	}
	for _, args := range [][]string{{"none-1"}, {id, "--task", "-1"}} {
		if _, errs, exit := c.run(append([]string{"job", "logs"}, args...)...); exit != cli.ExitUsage || !strings.Contains(errs, "\nhint: ") {
			t.Errorf("%v: exit %d, %q", args, exit, errs)
		}
	}
}
