package cli_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

const waitingYAML = `id: %s
state_dir: %s
tls: {mode: off}
servers:
  - {id: %s, rpc: %q, raft: %q}
join: [%s]
`

// serverWait starts a coordinator that waits to be added to the script's cluster:
// server-wait NAME. Its RPC address is $NAME, in capitals.
func serverWait(ts *testscript.TestScript, _ bool, args []string) {
	id, rpc, raft := args[0], freePort(ts), freePort(ts)
	var join []string
	for a := range strings.SplitSeq(ts.Getenv("HEADROOM_ADDR"), ",") {
		join = append(join, strconv.Quote(a))
	}
	yaml := fmt.Sprintf(waitingYAML, id, ts.MkAbs(id), id, rpc, raft, strings.Join(join, ", "))
	ts.Check(os.WriteFile(ts.MkAbs(id+".yaml"), []byte(yaml), 0o600))
	ts.Setenv(strings.ToUpper(id), rpc)
	serverStart(ts, false, args)
}

// serverStart starts a coordinator of the script again: server-start NAME.
func serverStart(ts *testscript.TestScript, _ bool, args []string) {
	labOf(ts).start(ts, args[0], "coordinator", "run", "--config", ts.MkAbs(args[0]+".yaml"))
}

// ended waits until a process has ended by itself and its log has the text:
// ended NAME TEXT.
func ended(ts *testscript.TestScript, _ bool, args []string) {
	c := labOf(ts).running[args[0]]
	if c == nil {
		ts.Fatalf("no process %s", args[0])
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Wait() // how it ended shows in its log
	}()
	select {
	case <-done:
		delete(labOf(ts).running, args[0])
	case <-after():
		logs(ts)
		ts.Fatalf("%s goes on", args[0])
	}
	log := ts.ReadFile(args[0] + ".log")
	if !strings.Contains(log, args[1]) {
		ts.Fatalf("%s ended without %q:\n%s", args[0], args[1], log)
	}
}

// untilExits repeats a command until it ends with a code: until-exits CODE CMD...
func untilExits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	for end := time.Now().Add(patience); ; pause(100 * time.Millisecond) {
		var e *exec.ExitError
		if err := ts.Exec(args[1], args[2:]...); err == nil && want == 0 || errors.As(err, &e) && e.ExitCode() == want {
			return
		}
		if !time.Now().Before(end) {
			logs(ts)
			ts.Fatalf("after %v %v still does not end with %d", patience, args[1:], want)
		}
	}
}
