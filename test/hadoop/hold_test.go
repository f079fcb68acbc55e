// Claim: when the process that holds a cluster is killed, nothing is left of the cluster,
// neither its daemons nor the containers of the job that runs.
package hadoop

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"headroom/lab/hadoop"
)

// holdIn is the environment variable that makes this test program a holder of a cluster in
// the folder that it names.
const holdIn = "HEADROOM_TEST_HOLD"

// hold starts a cluster and a job that does not end, says so in a line and never returns.
func hold(dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	if err := holdCluster(ctx, dir); err != nil {
		_, _ = fmt.Fprintln(os.Stdout, err)
	}
	cancel()
	os.Exit(1)
}

func holdCluster(ctx context.Context, dir string) error {
	j, err := jars()
	if err != nil {
		return err
	}
	c, err := hadoop.Start(ctx, hadoop.Config{Dir: dir, Jars: j, Nodes: hadoop.Nodes(1)})
	if err != nil {
		return err
	}
	job, err := c.Submit(ctx, c.Sleep("q1", 1, time.Hour))
	if err != nil {
		return err
	}
	for n := 0; n < 2; { // its master and its map
		if n, err = job.Containers(ctx); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintln(os.Stdout, held)
	_, err = bufio.NewReader(os.Stdin).ReadByte() // until it is killed
	return err
}

// held is the line that a holder says when its job runs.
const held = "held"

func TestNothingOutlivesAKilledHolder(t *testing.T) {
	_, err := jars()
	permitted(t, err)
	dir, ctx := filepath.Join(scratch(), "held"), within(t)
	holder := exec.CommandContext(ctx, os.Args[0])
	holder.Env = append(os.Environ(), holdIn+"="+dir)
	_, inErr := holder.StdinPipe()
	out, err := holder.StdoutPipe()
	if err != nil || inErr != nil {
		t.Fatal(err, inErr)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	if !said.Scan() || said.Text() != held {
		t.Fatalf("the holder says %q, %v", said.Text(), holder.Wait())
	}
	if n := len(namedBy(t, dir)); n < 5 { // two daemons, the client, two containers
		t.Errorf("%d processes of the cluster are found: the test looks wrong", n)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // "signal: killed"
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for len(namedBy(t, dir)) > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("left of the cluster: %v", namedBy(t, dir))
		}
	}
}
