package cgroup

// Claims: what a program has started is killed, frozen and measured with it, in whatever session it is; also after this
// process was killed, and without cgroups. The own cgroup is found whatever is mounted.

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"headroom/internal/leaks"
	"headroom/internal/testkit"
)

// childEnv makes this test binary a process that starts two tasks and is then killed: "cgroup RECORD" or "tree".
const childEnv = "HEADROOM_CGROUP_CHILD"

func TestMain(m *testing.M) {
	if how := os.Getenv(childEnv); how != "" {
		if err := child(how); err != nil {
			_, _ = fmt.Fprintln(os.Stdout, err)
		}
		return
	}
	os.Exit(leaks.Main(m, os.Stderr))
}

// escape starts two processes in sessions of their own, one of them without an environment, and says their ids.
const escape = `setsid sh -c 'echo $$; exec sleep 600' & env -i setsid sh -c 'echo $$; exec sleep 600' & wait`

// child starts escaping processes in a room, says their ids and waits for its input to close.
func child(how string) error {
	record, cgroups := strings.CutPrefix(how, "cgroup ")
	r := &Room{live: map[string]*Group{}}
	if cgroups {
		var err error
		if r, err = Open(Options{Record: record}); err != nil {
			return err
		}
	} else if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	g := r.New()
	cmd := exec.Command("sh", "-c", escape)
	cmd.Stdout, cmd.SysProcAttr = os.Stdout, &syscall.SysProcAttr{Setpgid: true}
	if err := g.Start(cmd); err != nil {
		return err
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
	if err := cmd.Process.Kill(); err != nil {
		return err
	}
	_ = cmd.Wait()
	_, err := g.End()
	_, _ = fmt.Fprintln(os.Stdout, "ended", err)
	return err
}

// begin starts child and returns it with the processes that it has started.
func begin(t *testing.T, how string) (cmd *exec.Cmd, stop func() string, escaped [2]int) {
	t.Helper()
	cmd = exec.Command(testkit.Need(os.Executable())(t))
	cmd.Env = append(os.Environ(), childEnv+"="+how)
	in := testkit.Need(cmd.StdinPipe())(t)
	out := testkit.Need(cmd.StdoutPipe())(t)
	testkit.Check(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for i := range escaped {
		if !lines.Scan() {
			t.Fatal("the child says nothing")
		}
		escaped[i] = testkit.Need(strconv.Atoi(lines.Text()))(t)
	}
	return cmd, func() string {
		_ = in.Close()
		lines.Scan()
		_ = cmd.Wait()
		return lines.Text()
	}, escaped
}

// alive reports whether a process runs.
func alive(pid int) bool {
	return syscall.Kill(pid, 0) == nil && !strings.Contains(read("/proc/"+strconv.Itoa(pid), "stat"), ") Z ")
}

// open returns a room with cgroups, where the machine permits it.
func open(t *testing.T, record string) *Room {
	t.Helper()
	r, err := Open(Options{Record: record})
	if why := r.Can().GetTrouble(); why != "" {
		testkit.NotRun(t, "no cgroup can be made here: "+why)
	}
	testkit.Check(t, err)
	t.Cleanup(func() { testkit.Check(t, r.Close()) })
	return r
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within 30 s: " + what)
		}
	}
}

func start(t *testing.T, r *Room, script string) (*Group, *exec.Cmd) {
	t.Helper()
	g := r.New()
	cmd := exec.Command("sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	testkit.Check(t, g.Start(cmd))
	return g, cmd
}

func TestEndTakesEverySession(t *testing.T) {
	t.Parallel()
	r := open(t, "")
	g, cmd := start(t, r, escape)
	eventually(t, "three processes", func() bool { return len(pidsOf(below(g.dir))) == 3 })
	pids := pidsOf(below(g.dir))
	g.Kill()
	_ = cmd.Wait()
	testkit.Need(g.End())(t)
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d lives on", pid)
		}
	}
	if _, err := os.Stat(g.dir); err == nil {
		t.Error("its cgroup is left")
	}
}

// A task makes cgroups of its own, in its own and beside it, and moves there.
func TestSweepFindsWhoMovedOut(t *testing.T) {
	t.Parallel()
	r := open(t, "")
	g, cmd := start(t, r, "sleep 600")
	for _, dir := range []string{filepath.Join(g.dir, "deeper"), filepath.Join(r.dir, "beside")} {
		testkit.Check(t, os.Mkdir(dir, 0o755))
		testkit.Check(t, put(dir, "cgroup.procs", strconv.Itoa(cmd.Process.Pid)))
	}
	go func() { _ = cmd.Wait() }()
	testkit.Need(g.End())(t)
	eventually(t, "the process has ended", func() bool { return !alive(cmd.Process.Pid) })
}

func TestFreezeAndThaw(t *testing.T) {
	t.Parallel()
	r := open(t, "")
	if !r.Can().GetFreeze() {
		testkit.NotRun(t, "this kernel has no cgroup.freeze")
	}
	g, cmd := start(t, r, "while :; do :; done")
	testkit.Check(t, g.Freeze(true))
	eventually(t, "frozen", func() bool { return g.Use().GetFrozen() })
	before := g.Use().GetCpuSeconds()
	testkit.Check(t, g.Freeze(false))
	eventually(t, "it runs again", func() bool { u := g.Use(); return !u.GetFrozen() && u.GetCpuSeconds() > before })
	testkit.Check(t, g.Freeze(true)) // it is killed in this state too
	g.Kill()
	_ = cmd.Wait()
	testkit.Need(g.End())(t)
}

// CPU time and memory are those of all processes, of ended ones too.
func TestUseIsThatOfAll(t *testing.T) {
	t.Parallel()
	r := open(t, "")
	g, cmd := start(t, r, "setsid sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done' & exec sleep 600")
	eventually(t, "CPU time of a process in another session", func() bool { u := g.Use(); return u.GetCpuSeconds() > 0.05 })
	if u := g.Use(); u.GetMemoryBytes() == 0 {
		t.Errorf("memory: %+v", u)
	}
	g.Kill()
	_ = cmd.Wait()
	if u := testkit.Need(g.End())(t); u.GetCpuSeconds() < 0.05 {
		t.Errorf("at its end: %+v", u)
	}
}

// Where the memory controller is there, what a task has written into a tmpfs counts, which no process holds.
func TestMemoryIsTheCgroupsOwn(t *testing.T) {
	t.Parallel()
	r := open(t, "")
	file := filepath.Join(t.TempDir(), "held")
	g, cmd := start(t, r, "dd if=/dev/zero of="+file+" bs=1048576 count=16 2>/dev/null; exec sleep 600")
	if read(g.dir, "memory.current") == "" {
		testkit.NotRun(t, "version 2 has no memory controller here")
	}
	eventually(t, "16 MiB in the file", func() bool { return g.Use().GetMemoryBytes() > 16<<20 })
	if rss := resident(pidsOf(below(g.dir))); rss >= 16<<20 {
		t.Errorf("its processes hold %d bytes", rss)
	}
	g.Kill()
	_ = cmd.Wait()
	testkit.Need(g.End())(t)
}

// A process that was killed can end nothing; the next one does, and nothing else.
func TestNextProcessEndsWhatIsLeft(t *testing.T) {
	t.Parallel()
	record := filepath.Join(t.TempDir(), "cgroups.json")
	open(t, "") // or there are no cgroups
	cmd, _, escaped := begin(t, "cgroup "+record)
	testkit.Check(t, cmd.Process.Kill())
	_ = cmd.Wait()
	if !alive(escaped[0]) || !alive(escaped[1]) {
		t.Fatal("they have ended by themselves")
	}
	other, _ := start(t, open(t, ""), "exec sleep 600")
	r := open(t, record)
	if alive(escaped[0]) || alive(escaped[1]) {
		t.Error("they live on")
	}
	if len(pidsOf([]string{other.dir})) != 1 {
		t.Error("a process of another room was killed")
	}
	if data := testkit.Need(os.ReadFile(record))(t); string(data) != r.dir {
		t.Errorf("the record is %s, the cgroup %s", data, r.dir)
	}
	mine, _ := start(t, r, "exec sleep 600")
	second, err := Open(Options{Record: record}) // of a process that must not be there
	if err == nil || len(pidsOf([]string{mine.dir})) != 1 || Clean(record) == nil {
		t.Errorf("a second process: %v", err)
	}
	testkit.Check(t, second.Close())
	mine.Kill()
	testkit.Need(mine.End())(t)
	other.Kill()
	testkit.Need(other.End())(t)
}

// A record that names what it did not make ends nothing.
func TestRecordOfOthers(t *testing.T) {
	t.Parallel()
	r := open(t, "")
	g, cmd := start(t, r, "exec sleep 600")
	for name, text := range map[string]string{
		"not a room": g.dir,
		"no cgroup":  "/tmp/" + baseName + "x",
		"nothing":    "",
		"relative":   filepath.Base(r.dir),
	} {
		record := filepath.Join(t.TempDir(), "cgroups.json")
		testkit.WriteFile(t, record, text)
		open(t, record)
		if len(pidsOf([]string{g.dir})) != 1 {
			t.Fatalf("%s: the process was killed", name)
		}
	}
	g.Kill()
	_ = cmd.Wait()
	testkit.Need(g.End())(t)
}

// Without cgroups, the processes of a group are those with its mark, and all that this process has adopted.
func TestEndWithoutCgroups(t *testing.T) {
	t.Parallel()
	_, stop, escaped := begin(t, "tree")
	if said := stop(); said != "ended <nil>" {
		t.Errorf("it says %q", said)
	}
	for _, pid := range escaped {
		if alive(pid) {
			t.Errorf("process %d lives on", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// A room whose cgroup is gone starts the group without one, and says so until one can be made again.
func TestCgroupCannotBeMade(t *testing.T) {
	t.Parallel()
	r := open(t, "")
	dir := r.dir
	testkit.Check(t, os.Remove(dir))
	g := r.New()
	if can := r.Can(); g.dir != "" || can.GetKill() || can.GetTrouble() == "" {
		t.Errorf("%v", can)
	}
	testkit.Check(t, os.Mkdir(dir, 0o755))
	if can := r.Can(); can.GetTrouble() == "" || r.New().dir == "" || r.Can().GetTrouble() != "" || !r.Can().GetKill() {
		t.Errorf("made again: %v, %v", can, r.Can())
	}
	clear(r.live)
}

func TestNoRoom(t *testing.T) {
	t.Parallel()
	var r *Room
	g, cmd := start(t, r, "exit 3")
	_ = cmd.Wait()
	g.Kill()
	if u, err := g.End(); err != nil || u != nil || r.Close() != nil || g.Freeze(true) == nil {
		t.Errorf("without a room: %+v, %v", u, err)
	}
}

const hybrid = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n"

func TestFind(t *testing.T) {
	t.Parallel()
	const pure = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	for name, c := range map[string]struct {
		mounts, own, dir string
	}{
		"pure":            {pure, "0::/a.slice/b.service\n", "/sys/fs/cgroup/a.slice/b.service"},
		"the root":        {pure, "0::/\n", "/sys/fs/cgroup"},
		"hybrid":          {hybrid, "4:memory:/x\n0::/a\n", "/sys/fs/cgroup/unified/a"},
		"bound writable":  {pure + "50 41 0:38 /a/b /sys/fs/cgroup/a/b rw - cgroup2 cgroup2 rw\n", "0::/a/b/c\n", "/sys/fs/cgroup/a/b/c"},
		"elsewhere":       {"41 31 0:38 /a /c\\040d rw - cgroup2 cgroup2 rw\n", "0::/a/b\n", "/c d/b"},
		"another's":       {"41 31 0:38 /a /c rw - cgroup2 cgroup2 rw\n", "0::/ab\n", ""},
		"version 1":       {"32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", "2:cpu:/\n", ""},
		"outside":         {pure, "0::/../a\n", ""},
		"not mounted":     {"", "0::/a\n", ""},
		"removed cgroup":  {pure, "0::/a/../b\n", ""},
		"malformed mount": {"x - cgroup2\n - \n41 31 0:38 a b rw - cgroup2 cgroup2 rw\n", "0::/\n", ""},
	} {
		dir, err := Find(c.mounts, c.own)
		if dir != c.dir || (err == nil) != (c.dir != "") {
			t.Errorf("%s: %q, %v", name, dir, err)
		}
	}
}

func TestParseUsage(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"usage_usec 1500000\nuser_usec 1\n": 1500 * time.Millisecond, "user_usec 1\n": -1, "usage_usec -5\n": -1, "usage_usec 99999999999999999\n": -1, "": -1} {
		if got, err := ParseUsage(text); (err == nil) != (want >= 0) || err == nil && got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func FuzzFind(f *testing.F) {
	f.Add(hybrid, "0::/a\n")
	f.Add("41 31 0:38 /a /c\\040d rw - cgroup2 cgroup2 rw\n", "0::/a/b")
	f.Fuzz(func(t *testing.T, mounts, own string) {
		dir, err := Find(mounts, own)
		if (err == nil) != filepath.IsAbs(dir) || err == nil && filepath.Clean(dir) != dir {
			t.Errorf("%q, %v", dir, err)
		}
		if d, err := ParseUsage(mounts); err == nil && d < 0 {
			t.Errorf("%v", d)
		}
	})
}
