package cli_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"headroom/gossip"
	"headroom/gossip/brake"
)

// patience bounds every wait of a script; what is waited for comes within a few seconds.
const patience = 40 * time.Second

// lab are the processes that one script has started.
type lab struct {
	running map[string]*exec.Cmd
	before  string
}

type labKey struct{}

func setup(env *testscript.Env) error {
	l := &lab{running: map[string]*exec.Cmd{}}
	env.Values[labKey{}] = l
	env.Defer(l.end)
	// Nothing is taken from the environment of the test itself.
	env.Setenv("HEADROOM_ADDR", "127.0.0.1:1")
	env.Setenv("HEADROOM_SCHEDULER_ADDR", "127.0.0.1:1")
	return nil
}

func labOf(ts *testscript.TestScript) *lab { return ts.Value(labKey{}).(*lab) }

type command = func(ts *testscript.TestScript, neg bool, args []string)

func commands() map[string]command {
	return map[string]command{
		"cluster": cluster, "kill-process": killProcess, "node": node, "scheduler-run": schedulerRun, "worker": worker,
		"server-wait": serverWait, "server-start": serverStart, "ended": ended, "until-exits": untilExits,
		"build-headroom": buildHeadroom, "ports": ports, "expand": expand, "background": background, "until-logged": untilLogged, "hangup": hangup,
		"until": until, "exits": exits, "refused": refused, "remember": remember, "unchanged": unchanged,
	}
}

// buildHeadroom puts the program headroom on the script's PATH. It is built, since it
// replaces its process with another program of the script.
func buildHeadroom(ts *testscript.TestScript, _ bool, _ []string) {
	bin := ts.MkAbs("bin")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", bin+string(os.PathSeparator), "headroom/cmd/headroom").CombinedOutput()
	if err != nil {
		ts.Fatalf("build headroom: %v\n%s", err, out)
	}
	ts.Setenv("PATH", bin+string(os.PathListSeparator)+ts.Getenv("PATH"))
}

// start starts a program in the background; its log is NAME.log.
func (l *lab) start(ts *testscript.TestScript, name, program string, args ...string) {
	log, err := os.Create(ts.MkAbs(name + ".log"))
	ts.Check(err)
	defer log.Close() //nolint:errcheck // the process has its own
	path, err := exec.LookPath(filepath.Join(binaries(ts), program))
	ts.Check(err)
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = ts.Getenv("WORK"), log, log
	cmd.Env = []string{"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("WORK"), "TMPDIR=" + ts.Getenv("TMPDIR")}
	ts.Check(cmd.Start())
	l.running[name] = cmd
}

// binaries is the folder of the programs: the one on PATH that has them.
func binaries(ts *testscript.TestScript) string {
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if _, err := os.Stat(filepath.Join(dir, "powerd")); err == nil {
			return dir
		}
	}
	ts.Fatalf("the programs are not on PATH")
	return ""
}

// end ends what the script has started: first politely, then not.
func (l *lab) end() {
	for _, c := range l.running {
		_ = c.Process.Signal(syscall.SIGTERM)
	}
	for name, c := range l.running {
		late := time.AfterFunc(5*time.Second, func() { _ = c.Process.Kill() })
		_ = c.Wait()
		late.Stop()
		delete(l.running, name)
	}
}

func killProcess(ts *testscript.TestScript, _ bool, args []string) {
	c := labOf(ts).running[args[0]]
	if c == nil {
		ts.Fatalf("no process %s", args[0])
	}
	ts.Check(c.Process.Kill())
	_ = c.Wait()
	delete(labOf(ts).running, args[0])
}

// hangup makes processes reread what may change while they run.
func hangup(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		c := labOf(ts).running[name]
		if c == nil {
			ts.Fatalf("no process %s", name)
		}
		ts.Check(c.Process.Signal(syscall.SIGHUP))
	}
}

// freePort is a TCP and UDP port of 127.0.0.1 that was free a moment ago.
func freePort(ts *testscript.TestScript) string {
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		ts.Check(err)
		addr := l.Addr().String()
		u, err := net.ListenPacket("udp", addr)
		_ = l.Close()
		if err == nil {
			_ = u.Close()
			return addr
		}
	}
	ts.Fatalf("no free port")
	return ""
}

// ports puts free addresses into variables of the script.
func ports(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		ts.Setenv(name, freePort(ts))
	}
}

// expand puts the variables of the script into files.
func expand(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(os.Expand(ts.ReadFile(name), ts.Getenv)), 0o600))
	}
}

// background starts a program under a name.
func background(ts *testscript.TestScript, _ bool, args []string) {
	labOf(ts).start(ts, args[0], args[1], args[2:]...)
}

// untilLogged waits until the log of a process matches.
func untilLogged(ts *testscript.TestScript, _ bool, args []string) {
	want, err := regexp.Compile(args[1])
	ts.Check(err)
	for end := time.Now().Add(patience); ; pause(100 * time.Millisecond) {
		if text, err := os.ReadFile(ts.MkAbs(args[0] + ".log")); err == nil && want.Match(text) {
			return
		}
		if !time.Now().Before(end) {
			logs(ts)
			ts.Fatalf("after %v the log of %s still does not match %q", patience, args[0], args[1])
		}
	}
}

const coordinatorYAML = `id: %s
state_dir: %s
tls: {mode: off}
servers:
%sgossip:
  bind: %s
  join: [%s]
  key_file: %s
brake:
  public_key_file: %s
  private_key_file: %s
site:
  - {name: site/lab, budget: 1000W, unmanaged: 100W}
  - {name: rack/r1, parent: site/lab, budget: 800W}
`

func cluster(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	work, l := ts.Getenv("WORK"), labOf(ts)
	key, err := gossip.NewKey()
	ts.Check(err)
	keyFile := filepath.Join(work, "gossip.key")
	ts.Check(os.WriteFile(keyFile, []byte(key+"\n"), 0o600))
	ts.Setenv("KEY", keyFile)
	private, public := filepath.Join(work, "brake.key"), filepath.Join(work, "brake.pub")
	ts.Check(brake.WriteKey(private, public))
	ts.Setenv("BRAKE", public)
	var rpcs []string
	servers := ""
	for i := range n {
		rpcs = append(rpcs, freePort(ts))
		servers += fmt.Sprintf("  - {id: c%d, rpc: %q, raft: %q}\n", i+1, rpcs[i], freePort(ts))
		ts.Setenv(fmt.Sprintf("C%d", i+1), rpcs[i])
	}
	join := freePort(ts)
	ts.Setenv("JOIN", join)
	for i := range n {
		id, bind, others := fmt.Sprintf("c%d", i+1), join, ""
		if i > 0 {
			bind, others = freePort(ts), strconv.Quote(join)
		}
		yaml := fmt.Sprintf(coordinatorYAML, id, filepath.Join(work, id), servers, bind, others, keyFile, public, private)
		path := filepath.Join(work, id+".yaml")
		ts.Check(os.WriteFile(path, []byte(yaml), 0o600))
		l.start(ts, id, "coordinator", "run", "--config", path)
	}
	ts.Setenv("HEADROOM_ADDR", strings.Join(rpcs, ","))
	wait(ts, "1000.0 W", "coordinator", "status")
	for i := range n { // the group writes its servers down in the second after it was founded
		wait(ts, fmt.Sprintf("server c%d at", i+1), "coordinator", "event", "list")
	}
}

func node(ts *testscript.TestScript, _ bool, args []string) {
	args = append([]string{
		"node", args[0], "--dir", ts.MkAbs("lab"), "--join", ts.Getenv("JOIN"), "--key-file", ts.Getenv("KEY"), "--brake-key-file", ts.Getenv("BRAKE"), "--throttle", "signals", "--no-worker",
	}, args[1:]...)
	name := args[1]
	if labOf(ts).running[name] != nil {
		name += "-again"
	}
	labOf(ts).start(ts, name, "powerlab", args...)
}

func schedulerRun(ts *testscript.TestScript, _ bool, _ []string) {
	addr := freePort(ts)
	var quoted []string
	for a := range strings.SplitSeq(ts.Getenv("HEADROOM_ADDR"), ",") {
		quoted = append(quoted, strconv.Quote(a))
	}
	yaml := fmt.Sprintf("dev: true\nlisten: %s\ndir: %s\ncoordinators: [%s]\nclasses: [high, low]\n", addr, ts.MkAbs("s1"), strings.Join(quoted, ", "))
	ts.Check(os.WriteFile(ts.MkAbs("scheduler.yaml"), []byte(yaml), 0o600))
	labOf(ts).start(ts, "s1", "scheduler", "run", "--config", ts.MkAbs("scheduler.yaml"))
	ts.Setenv("HEADROOM_SCHEDULER_ADDR", addr)
	wait(ts, "JOB|no jobs|^$", "scheduler", "list")
}

func worker(ts *testscript.TestScript, _ bool, args []string) {
	labOf(ts).start(ts, "w-"+args[0], "scheduler", "worker", "--dev", "--node", args[0], "--scheduler", ts.Getenv("HEADROOM_SCHEDULER_ADDR"),
		"--slots", "2", "--dir", ts.MkAbs("w-"+args[0]))
}

func until(ts *testscript.TestScript, _ bool, args []string) { wait(ts, args[0], args[1], args[2:]...) }

// wait repeats a command until its stdout matches.
func wait(ts *testscript.TestScript, pattern, program string, args ...string) {
	want, err := regexp.Compile("(?m)" + pattern)
	ts.Check(err)
	for end := time.Now().Add(patience); ; {
		err := ts.Exec(program, args...)
		if err == nil && want.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if !time.Now().Before(end) {
			logs(ts)
			ts.Fatalf("after %v %s %v still does not print %q: %v", patience, program, args, pattern, err)
		}
		pause(100 * time.Millisecond)
	}
}

// after is when patience ends.
func after() <-chan time.Time { return time.After(patience) }

// pause waits between two looks at real processes.
func pause(d time.Duration) { <-time.After(d) }

// logs puts the ends of the processes' logs into the test's own.
func logs(ts *testscript.TestScript) {
	for name := range labOf(ts).running {
		data, _ := os.ReadFile(ts.MkAbs(name + ".log"))
		ts.Logf("== %s.log\n%s", name, data[max(0, len(data)-4000):])
	}
}

// exits runs a command and compares its exit code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		e, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = e.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s ended with %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// A notice that the command waits for an election may stand before.
var twoLines = regexp.MustCompile(`\A([a-z ]+: no leader, waiting .*\n)?error: \S.*\nhint: \S.*\n\z`)

// refused runs a command that must fail in two lines: the cause and the way out.
func refused(ts *testscript.TestScript, neg bool, args []string) {
	exits(ts, neg, args)
	if text := ts.ReadFile("stderr"); !twoLines.MatchString(text) {
		ts.Fatalf("not an error line and a hint line:\n%s", text)
	}
}

// factory are the initial limits of an emulated node, uW.
var factory = []string{"185000000", "222000000"}

// picture is all that a refused command could have changed: the log's revision
// and budgets, and on every emulated node the saved originals and whether they
// are back. (The limits themselves follow the load.)
func picture(ts *testscript.TestScript) string {
	var b strings.Builder
	if labOf(ts).running["c1"] != nil {
		ts.Check(ts.Exec("coordinator", "budget", "show", "-o", "json"))
		var show struct {
			Revision uint64 `json:"revision"`
			Items    []struct {
				Domain  string  `json:"domain"`
				BudgetW float64 `json:"budget_w"`
			} `json:"items"`
		}
		ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &show))
		fmt.Fprintf(&b, "%+v\n", show)
	}
	limits, err := filepath.Glob(ts.MkAbs("lab/*/root/sys/class/powercap/*/constraint_*_power_limit_uw"))
	ts.Check(err)
	originals, err := filepath.Glob(ts.MkAbs("lab/*/state/journal.json"))
	ts.Check(err)
	for _, name := range limits {
		data, _ := os.ReadFile(name)
		fmt.Fprintf(&b, "%s is back: %v\n", name, slices.Contains(factory, strings.TrimSpace(string(data))))
	}
	for _, name := range originals {
		data, _ := os.ReadFile(name)
		fmt.Fprintf(&b, "%s: %s\n", name, data)
	}
	return b.String()
}

func remember(ts *testscript.TestScript, _ bool, _ []string) { labOf(ts).before = picture(ts) }

func unchanged(ts *testscript.TestScript, _ bool, _ []string) {
	if now := picture(ts); now != labOf(ts).before {
		ts.Fatalf("something changed\nbefore:\n%s\nnow:\n%s", labOf(ts).before, now)
	}
}
