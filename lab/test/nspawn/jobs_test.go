package nspawn

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"headroom/internal/testkit"
)

// Claims: the shipped units run a cluster of one node under a real systemd: a job with
// output, a job of Spark, a cut of the budget while a job runs. Neither a task nor a
// driver gets at a key, socket, port or state folder of Headroom. The files of two
// tenants are apart.

// prober is the probe of this test binary as a job's command.
func prober(what string) string { return "env, " + probeEnv + "=" + what + ", " + probe }

// programs builds the real programs of the project.
func (m *machine) programs(t *testing.T) {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", m.path("usr/bin")+"/", "headroom/cmd/powerd", "headroom/cmd/coordinator", "headroom/cmd/scheduler")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
}

// certificates makes the authority and a certificate for each program, in the folders that
// the units expect, and one for each of two people.
func (m *machine) certificates(t *testing.T) {
	t.Helper()
	ca := t.TempDir()
	tls := func(args ...string) {
		if out, err := exec.Command(m.path("usr/bin/coordinator"), append([]string{"tls"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("coordinator tls %v: %v: %s", args, err, out)
		}
	}
	tls("ca", "create", "--name", "lab", "--dir", ca)
	for at, who := range map[string][]string{
		"etc/headroom/coordinator": {"server/c1"}, "etc/headroom/powerd": {"node/n01"}, "etc/headroom/scheduler": {"scheduler/s1"},
		"etc/headroom/worker": {"worker/n01"}, "root": {"submitter/ann", "submitter/bob"},
	} {
		dir := m.path("root/" + at)
		testkit.Check(t, os.MkdirAll(dir, 0o755))
		tls(append([]string{"cert", "create", "--ca-dir", ca, "--dir", dir}, who...)...)
	}
	m.copy(t, filepath.Join(ca, "ca.crt"), "root/etc/headroom/ca.crt", 0o644)
	m.copy(t, filepath.Join(ca, "ca.key"), "root/etc/headroom/ca.key", 0o600)
}

// identity is the section tls of a program's configuration.
func identity(program, name string) string {
	file := "/etc/headroom/" + program + "/" + name
	return "tls: {ca: /etc/headroom/ca.crt, cert: " + file + ".crt, key: " + file + ".key}\n"
}

// secrets are the keys of all programs, by who may read them.
func secrets() map[string]string {
	return map[string]string{
		"/etc/headroom/powerd/n01.key": "headroom-powerd", "/etc/headroom/coordinator/c1.key": "headroom-coordinator",
		"/etc/headroom/scheduler/s1.key": "headroom-scheduler", "/etc/headroom/worker/n01.key": "headroom-worker",
		"/etc/headroom/gossip.key": "headroom-gossip", "/etc/headroom/brake.key": "headroom-coordinator", "/etc/headroom/ca.key": "root",
	}
}

// targets is what a spy tries.
func targets(tcp bool) string {
	var b strings.Builder
	for path := range secrets() {
		b.WriteString("file " + path + "\n")
	}
	for _, program := range []string{"powerd", "coordinator", "scheduler", "worker"} {
		b.WriteString("folder /etc/headroom/" + program + "\nfolder /var/lib/headroom/" + program + "\n")
	}
	b.WriteString("folder /etc/headroom\nfolder /run/headroom-task\nsocket /run/headroom-scheduler/scheduler.sock\nfolder /var/lib/headroom\n")
	for _, socket := range []string{"/var/lib/headroom/powerd/powerd.sock", "/var/lib/headroom/coordinator/coordinator.sock", "/run/headroom-task/headroom-task.sock", "/run/headroom-driver.sock", "/run/dbus/system_bus_socket"} {
		b.WriteString("socket " + socket + "\n")
	}
	if tcp {
		for _, port := range []string{"7400", "7401", "7402", "7410"} {
			b.WriteString("tcp 127.0.0.1:" + port + "\n")
		}
	}
	return b.String()
}

// cluster is a machine that runs all programs under their units.
func cluster(t *testing.T) *machine {
	t.Helper()
	m := boot(t, func(m *machine) {
		m.env = []string{"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1"} // also on a host with version 1
		m.makeTree(t)
		m.programs(t)
		m.install(t)
		m.copy(t, deploy+"/headroom-scheduler-spark.conf", "root/etc/systemd/system/headroom-scheduler.service.d/spark.conf", 0o644)
		m.certificates(t)
		m.write(t, "usr/lib/sysusers.d/tenants.conf", "u ann - - - -\nu bob - - - -\nm headroom-scheduler ann\nm headroom-scheduler bob\n", 0o644)
		m.write(t, "root/etc/headroom/powerd.yaml", aloneConfig+identity("powerd", "n01")+"coordinators: [\"127.0.0.1:7400\"]\n", 0o644)
		m.write(t, "root/etc/headroom/coordinator.yaml", identity("coordinator", "c1")+`id: c1
state_dir: /var/lib/headroom/coordinator
servers: [{id: c1, rpc: "127.0.0.1:7400", raft: "127.0.0.1:7401"}]
site: [{name: rack/r1, budget: 250W, unmanaged: 0W}]
`, 0o644)
		m.write(t, "root/etc/headroom/scheduler.yaml", identity("scheduler", "s1")+`listen: 127.0.0.1:7410
socket: /run/headroom-scheduler/scheduler.sock
dir: /var/lib/headroom/scheduler
coordinators: ["127.0.0.1:7400"]
classes: [high]
task_users: {unix/root: headroom-task, submitter/ann: ann, submitter/bob: bob}
spark: {home: /opt/spark, master: "spark://127.0.0.1:7077", plugin: /opt/spark/plugin.jar, driver: [/usr/bin/scheduler, start-driver, /run/headroom-driver.sock]}
`, 0o644)
		m.write(t, "root/etc/headroom/worker.env", "WORKER_OPTIONS=--node n01 --scheduler 127.0.0.1:7410 --slots 2 "+
			"--ca /etc/headroom/ca.crt --cert /etc/headroom/worker/n01.crt --key /etc/headroom/worker/n01.key "+
			"--task-user unix/root=headroom-task --task-user submitter/ann=ann --task-user submitter/bob=bob\n", 0o644)
		// A Spark with two applications: a spy, and a program for a real Java machine.
		m.write(t, "root/opt/spark/bin/spark-submit", "#!/bin/sh\ncase \"$*\" in *Compiled*) exec "+m.java(t)+" /srv/headroom/Compiled.java;; esac\n"+
			probeEnv+"=spy exec "+probe+" /srv/headroom/driver-targets\n", 0o755)
		m.write(t, "root/srv/headroom/Compiled.java", compiled, 0o644)
		m.write(t, "root/srv/headroom/compiled.yaml", "name: compiled\nclass: high\nslots: 1\nspark: {application: /opt/spark/plugin.jar, main: Compiled}\n", 0o644)
		m.write(t, "root/opt/spark/plugin.jar", "PK", 0o644)
		m.write(t, "root/srv/headroom/driver-targets", targets(false), 0o644)
		m.write(t, "root/srv/headroom/in/targets", targets(true), 0o644)
		m.write(t, "root/srv/headroom/spy.yaml", "name: spy\nclass: high\nslots: 1\nmap: {input: /srv/headroom/in/*, command: ["+prober("spy")+", \"{input}\"]}\noutput: /var/lib/headroom-jobs/spy\n", 0o644)
		m.write(t, "root/srv/headroom/driver.yaml", "name: driver\nclass: high\nslots: 1\nspark: {application: /opt/spark/plugin.jar, main: Spy}\n", 0o644)
		m.write(t, "root/srv/headroom/slow.yaml", "name: slow\nclass: high\nslots: 1\nmap: {input: /srv/headroom/in/*, command: [sh, -c, \"while ! [ -e /srv/headroom/gate ]; do sleep 0.1; done; cat $0\", \"{input}\"]}\noutput: /var/lib/headroom-jobs/slow\n", 0o644)
		for name, line := range map[string]string{"ann": "id -un", "bob": "id -un; ls /srv/headroom/ann; cat /srv/headroom/ann/out/*/map-00000; true"} {
			m.write(t, "root/srv/headroom/"+name+".yaml", "name: "+name+"\nclass: high\nslots: 1\nmap: {input: /srv/headroom/in/*, command: [sh, -c, \""+line+"\"]}\noutput: /srv/headroom/"+name+"/out\n", 0o644)
		}
		for _, name := range []string{"gossip.key", "brake.key"} {
			m.write(t, "root/etc/headroom/"+name, "secret\n", 0o640)
		}
	})
	for path, group := range secrets() {
		m.do(t, "chgrp", group, path)
		m.do(t, "chmod", "640", path)
	}
	for _, tenant := range []string{"ann", "bob"} {
		m.do(t, "install", "-d", "-o", "root", "-g", tenant, "-m", "3770", "/srv/headroom/"+tenant)
		m.do(t, "systemctl", "start", "headroom-task@"+tenant+".socket")
	}
	m.do(t, "systemd-tmpfiles", "--create", "headroom.conf")
	m.do(t, "systemctl", "start", "headroom-coordinator.service", unit, "headroom-scheduler.service", "headroom-worker.service")
	return m
}

// One machine for all claims: they are checked in order. Not parallel: two machines would
// share this process's control group.
func TestJobsUnderSystemd(t *testing.T) {
	m := cluster(t)
	t.Run("task", func(t *testing.T) { testSpyingTask(t, m) })
	t.Run("driver", func(t *testing.T) { testSpyingDriver(t, m) })
	t.Run("java", func(t *testing.T) { testJavaDriver(t, m) })
	t.Run("cut", func(t *testing.T) { testCutWhileAJobRuns(t, m) })
	t.Run("tenants", func(t *testing.T) { testTenants(t, m) })
	t.Run("cgroups", func(t *testing.T) { testCgroups(t, m) })
	t.Run("programs", func(t *testing.T) { testProgramsApart(t, m) })
}

// jobs is what scheduler prints about jobs.
type jobs struct {
	Items []struct {
		ID    string `json:"id"`
		State string `json:"state"`
	} `json:"items"`
}

// asRoot is how root reaches the scheduler, as is how a user with a certificate does.
func asRoot() []string { return []string{"--socket", "/run/headroom-scheduler/scheduler.sock"} }

func as(who string) []string {
	return []string{"--ca", "/etc/headroom/ca.crt", "--cert", "/root/" + who + ".crt", "--key", "/root/" + who + ".key"}
}

// submit hands a job file in and returns the job's id.
func (m *machine) submit(t *testing.T, file string, way []string) string {
	t.Helper()
	id := ""
	m.eventually(t, "headroom-scheduler.service", "the job "+file+" is accepted", func() bool {
		out, err := m.try(append([]string{"scheduler", "submit", file, "--request-id", "the-only-one-" + filepath.Base(file), "-o", "json"}, way...)...)
		if err != nil {
			return false
		}
		var j jobs
		if err := json.Unmarshal([]byte(out), &j); err != nil || len(j.Items) != 1 || j.Items[0].ID == "" {
			t.Fatalf("submit says %s", out)
		}
		id = j.Items[0].ID
		return true
	})
	return id
}

// ended waits until a job has ended well.
func (m *machine) ended(t *testing.T, id string) {
	t.Helper()
	m.eventually(t, "headroom-scheduler.service", "job "+id+" has ended", func() bool {
		out, err := m.try(append([]string{"scheduler", "list", "-o", "json"}, asRoot()...)...)
		if err != nil {
			return false
		}
		var all jobs
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, j := range all.Items {
			if j.ID == id && (j.State == "failed" || j.State == "cancelled") {
				t.Fatal(m.do(t, append([]string{"scheduler", "show", id}, asRoot()...)...))
			}
			if j.ID == id {
				return j.State == "done"
			}
		}
		return false
	})
}

// read is the one file of a pattern in the machine.
func (m *machine) read(t *testing.T, pattern string) string {
	t.Helper()
	all, err := filepath.Glob(m.path("root" + pattern))
	if err != nil || len(all) != 1 {
		t.Fatalf("%s: %v, %v", pattern, all, err)
	}
	data := testkit.Need(os.ReadFile(all[0]))(t)
	return string(data)
}

func (m *machine) id(t *testing.T, user string) int {
	t.Helper()
	return testkit.Need(strconv.Atoi(m.do(t, "id", "-u", user)))(t)
}

// What a task of the worker's gets at is nothing; its output is kept.
func testSpyingTask(t *testing.T, m *machine) {
	// The spy finds what there is: root reads every key and reaches every socket.
	said := ""
	m.eventually(t, "headroom-scheduler.service", "the scheduler listens", func() bool {
		said = m.do(t, "env", probeEnv+"=spy", probe, "/srv/headroom/in/targets")
		return strings.Contains(said, spied+"tcp 127.0.0.1:7410")
	})
	for path := range secrets() {
		if !strings.Contains(said, spied+"file "+path) {
			t.Fatalf("the spy does not find %s as root: %s", path, said)
		}
	}
	if !strings.Contains(said, spied+"tcp 127.0.0.1:7410") || !strings.Contains(said, spied+"socket /run/headroom-task/headroom-task.sock") {
		t.Fatalf("the spy does not find ports and sockets as root: %s", said)
	}
	id := m.submit(t, "/srv/headroom/spy.yaml", asRoot())
	m.ended(t, id)
	said = m.read(t, "/var/lib/headroom-jobs/spy/"+id+"/map-00000")
	if found := got(said); len(found) > 0 {
		t.Errorf("a task gets at %v", found)
	}
	if want := m.id(t, "headroom-task"); uidOf(said) != want {
		t.Errorf("the task is not user %d: %s", want, said)
	}
	if got := m.show(t, "headroom-task@headroom-task.service", "Slice"); got != "headroom-batch.slice" {
		t.Errorf("tasks run in %s", got)
	}
}

// So does a driver of Spark, started through the scheduler's own unit.
func testSpyingDriver(t *testing.T, m *machine) {
	id := m.submit(t, "/srv/headroom/driver.yaml", asRoot())
	m.ended(t, id)
	said := m.read(t, "/var/lib/headroom/scheduler/jobs/"+id+"/run-1/stdout")
	if found := got(said); len(found) > 0 {
		t.Errorf("a driver gets at %v", found)
	}
	if want := m.id(t, "headroom-driver"); uidOf(said) != want {
		t.Errorf("the driver is not user %d: %s", want, said)
	}
}

// compiled is a program that a Java machine compiles to machine code while it runs: it needs
// memory that is written and executed, threads, and a folder for temporary files.
const compiled = `public class Compiled {
  public static void main(String[] args) throws Exception {
    long sum = 0;
    for (int i = 0; i < 50_000_000; i++) sum += i % 7 * (sum & 3);
    java.nio.file.Files.delete(java.nio.file.Files.createTempFile("compiled", ""));
    Thread t = new Thread(() -> {});
    t.start();
    t.join();
    long ms = java.lang.management.ManagementFactory.getCompilationMXBean().getTotalCompilationTime();
    System.out.println("sum " + sum + ", compiled for more than 0 ms: " + (ms > 0));
  }
}
`

// java is the host's Java machine, with its configuration in the machine; "false" where there is none.
func (m *machine) java(t *testing.T) string {
	t.Helper()
	found, err := exec.LookPath("javac")
	if err != nil {
		return "false"
	}
	if found, err = filepath.EvalSymlinks(found); err != nil {
		t.Fatal(err)
	}
	configs := testkit.Need(filepath.Glob("/etc/java-*-openjdk"))(t)
	for _, dir := range configs {
		testkit.Check(t, os.CopyFS(m.path("root"+dir), os.DirFS(dir)))
	}
	return filepath.Join(filepath.Dir(found), "java")
}

// A real Java machine runs as a driver: what its unit forbids it does not need.
func testJavaDriver(t *testing.T, m *machine) {
	if _, err := exec.LookPath("javac"); err != nil {
		testkit.NotRun(t, "there is no JDK here")
	}
	id := m.submit(t, "/srv/headroom/compiled.yaml", asRoot())
	m.ended(t, id)
	said := m.read(t, "/var/lib/headroom/scheduler/jobs/"+id+"/run-1/stdout")
	if !strings.Contains(said, "compiled for more than 0 ms: true") {
		t.Errorf("the driver says %q", said)
	}
}

// A budget that is cut reaches the processor while a job runs, and the job ends well.
func testCutWhileAJobRuns(t *testing.T, m *machine) {
	id := m.submit(t, "/srv/headroom/slow.yaml", asRoot())
	running := func() bool {
		// Its unfinished output is there, and no other.
		all := testkit.Need(filepath.Glob(m.path("root/var/lib/headroom-jobs/slow/" + id + "/*map-00000*")))(t)
		parts, _ := filepath.Glob(m.path("root/var/lib/headroom-jobs/slow/" + id + "/.map-00000.*.part"))
		return len(all) == 1 && len(parts) == 1
	}
	m.eventually(t, "headroom-scheduler.service", "the task runs", running)
	m.eventually(t, unit, "the node holds a lease", func() bool { long, _ := m.limits(); return long > 90_000_000 })
	m.do(t, "coordinator", "budget", "set", "120W", "rack/r1", "--reason", "cut", "--yes")
	m.eventually(t, unit, "the cut has reached the package", func() bool { long, _ := m.limits(); return long > 0 && long < 90_000_000 })
	if !running() {
		t.Error("the cut has ended the job")
	}
	m.write(t, "root/srv/headroom/gate", "", 0o644)
	m.ended(t, id)
	if out := m.read(t, "/var/lib/headroom-jobs/slow/"+id+"/map-00000"); len(out) != len(targets(true)) {
		t.Errorf("the output has %d bytes, want %d", len(out), len(targets(true)))
	}
}

// Tasks of two tenants run as their users: neither reads nor changes what the other has.
func testTenants(t *testing.T, m *machine) {
	for _, tenant := range []string{"ann", "bob"} {
		id := m.submit(t, "/srv/headroom/"+tenant+".yaml", as(tenant))
		m.ended(t, id)
		if out := m.read(t, "/srv/headroom/"+tenant+"/out/"+id+"/map-00000"); out != tenant+"\n" {
			t.Errorf("the job of %s writes %q", tenant, out)
		}
	}
	// The scheduler is in both groups. Its search for inputs shows what the submitter may read.
	m.write(t, "root/srv/headroom/curious.yaml", "name: curious\nclass: high\nslots: 1\nmap: {input: /srv/headroom/*/out/*/map-*, command: [echo, \"{input}\"]}\noutput: /srv/headroom/bob/names\n", 0o644)
	id := m.submit(t, "/srv/headroom/curious.yaml", as("bob"))
	m.ended(t, id)
	if out := m.read(t, "/srv/headroom/bob/names/"+id+"/map-00000"); !strings.HasPrefix(out, "/srv/headroom/bob/out/") {
		t.Errorf("bob's first input is %q", out)
	}
	hand := func(as, tenant, output string, argv ...string) (string, error) {
		return m.try(append([]string{"setpriv", "--reuid=" + as, "--regid=" + as, "--clear-groups", "env", probeEnv + "=task", probe, tenant, output}, argv...)...)
	}
	if out, err := hand("headroom-worker", "ann", "/srv/headroom/ann/mine", "echo", "ann's"); err != nil || out != "exit 0" {
		t.Fatalf("ann's task: %s, %v", out, err)
	}
	if out := m.do(t, "stat", "-c", "%U:%G %a", "/srv/headroom/ann/mine"); out != "ann:ann 660" {
		t.Errorf("ann's output is %s", out)
	}
	for name, argv := range map[string][]string{
		"read":   {"cat", "/srv/headroom/ann/mine"},
		"list":   {"ls", "/srv/headroom/ann"},
		"change": {"touch", "/srv/headroom/ann/mine"},
		"key":    {"cat", "/etc/headroom/worker/n01.key"},
	} {
		if out, err := hand("headroom-worker", "bob", "/srv/headroom/bob/"+name, argv...); err != nil || strings.HasPrefix(out, "exit 0") {
			t.Errorf("bob may %s: %s, %v", name, out, err)
		}
	}
	if out, err := hand("headroom-worker", "bob", "/srv/headroom/ann/bobs", "echo"); err != nil || strings.HasPrefix(out, "exit 0") {
		t.Errorf("bob writes into ann's folder: %s, %v", out, err)
	}
	// Only the worker runs programs as them, and the scheduler, which looks at their files.
	for _, as := range []string{"ann", "headroom-task", "headroom-master", "headroom-coordinator", "headroom-driver"} {
		if out, err := hand(as, "bob", "/srv/headroom/bob/x", "true"); err == nil {
			t.Errorf("%s runs a program as bob: %s", as, out)
		}
	}
}

// Under the real units, a task is frozen, measured and ended with what it has put into another session; the unit itself
// goes on. The worker is shown with all of it.
func testCgroups(t *testing.T, m *machine) {
	const unit = "headroom-task@ann.service"
	busy := "setsid -f sh -c 'echo $$ > /srv/headroom/ann/pid; while :; do :; done' </dev/null >/dev/null 2>&1; exec sleep 600"
	said, err := m.try("setpriv", "--reuid=headroom-worker", "--regid=headroom-worker", "--clear-groups", "env", probeEnv+"=orders", probe, "ann", "/srv/headroom/ann/busy", "sh", "-c", busy)
	if err != nil || said != "controls true true true true \nuse\nfreeze\nthaw" && said != "controls true true true true\nuse\nfreeze\nthaw" {
		journal, _ := m.try("journalctl", "-u", unit, "--no-pager", "-n", "20")
		t.Fatalf("the runner: %q, %v\n%s", said, err, journal)
	}
	pid := strings.TrimSpace(m.read(t, "/srv/headroom/ann/pid"))
	m.eventually(t, unit, "the process in another session has ended", func() bool {
		_, err := m.try("kill", "-0", pid)
		return err != nil
	})
	if got := m.show(t, unit, "ActiveState"); got != "active" {
		t.Errorf("its unit ended too: %s", got)
	}
	left := m.do(t, "sh", "-c", "find /sys/fs/cgroup -path '*"+unit+"/*' -name 'task-*' -type d")
	if left != "" {
		t.Errorf("cgroups are left: %s", left)
	}
	m.eventually(t, "headroom-worker.service", "the worker shows what it can do", func() bool {
		out, err := m.try(append([]string{"scheduler", "job", "list", "--workers"}, asRoot()...)...)
		return err == nil && strings.Contains(out, "kill,freeze,cpu,memory")
	})
}

// Each program reads its own keys, and none of another's.
func testProgramsApart(t *testing.T, m *machine) {
	for _, program := range []string{"coordinator", "scheduler", "worker"} {
		user := "headroom-" + program
		for path, group := range secrets() {
			_, err := m.try("setpriv", "--reuid="+user, "--regid="+user, "--init-groups", "cat", path)
			may := group == user || group == "headroom-gossip" && program == "coordinator"
			if (err == nil) != may {
				t.Errorf("%s reads %s: %v, want %v", user, path, err == nil, may)
			}
		}
	}
}
