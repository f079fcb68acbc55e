package scheduler

// Claims: each method is open to the roles that it is meant for and to no other; nobody
// is let in unproven unless the configuration says dev; jobs carry who submitted them;
// a worker speaks for its own node, and only of attempts that it was given.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/listen"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/scheduler/local"
)

func TestWhoMayCallWhat(t *testing.T) {
	t.Parallel()
	g := newGuard(Config{TLS: secure.Config{CA: "a", Cert: "b", Key: "c"}}, slog.New(slog.DiscardHandler))
	for procedure, roles := range map[string][]string{
		headroomv1connect.SchedulerServiceSubmitProcedure: {"submitter", "operator", "admin"},
		headroomv1connect.SchedulerServiceCancelProcedure: {"submitter", "operator", "admin"},
		headroomv1connect.SchedulerServiceListProcedure:   {"submitter", "observer", "operator", "admin"},
		headroomv1connect.SchedulerServiceDrainProcedure:  {"operator", "admin"},
		headroomv1connect.WorkerServiceWorkProcedure:      {"worker"},
		"/headroom.v1.SchedulerService/NotThoughtOf":      {"admin"},
	} {
		for _, role := range secure.Roles() {
			caller := rpc.Caller{Identity: secure.Identity{Role: role, Name: "x"}, Shown: true, Ends: time.Now().Add(time.Hour)}
			_, err := g.admit(rpc.WithCaller(t.Context(), caller), procedure)
			if (err == nil) != slices.Contains(roles, role) {
				t.Errorf("%s by %s: %v", procedure, role, err)
			}
		}
		for name, caller := range map[string]rpc.Caller{
			"nobody":                 {},
			"somebody in the clear":  {Clear: true},
			"another local user":     {Local: true, UID: ^uint32(0) - 1},
			"an expired certificate": {Identity: secure.Identity{Role: roles[0], Name: "x"}, Shown: true, Ends: time.Now().Add(-time.Second)},
		} {
			if _, err := g.admit(rpc.WithCaller(t.Context(), caller), procedure); err == nil {
				t.Errorf("%s by %s is admitted", procedure, name)
			}
		}
	}
}

// With certificates configured dev opens nothing.
func TestDevOpensOnlyWhatIsInTheClear(t *testing.T) {
	t.Parallel()
	clear := rpc.WithCaller(t.Context(), rpc.Caller{Clear: true})
	for name, c := range map[string]struct {
		cfg  Config
		good bool
	}{
		"dev":                   {Config{Dev: true}, true},
		"dev with certificates": {Config{Dev: true, TLS: secure.Config{CA: "a", Cert: "b", Key: "c"}}, false},
		"neither":               {Config{}, false},
	} {
		_, err := newGuard(c.cfg, slog.New(slog.DiscardHandler)).admit(clear, headroomv1connect.SchedulerServiceListProcedure)
		if (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClearConnectionsNeedDev(t *testing.T) {
	t.Parallel()
	files := "  ca: /etc/headroom/ca.crt                  # authority of the cluster\n"
	if !strings.Contains(ExampleConfig, strings.TrimRight(files, "\n")) {
		t.Fatal("the example has other files")
	}
	var without []string
	for line := range strings.Lines(ExampleConfig) {
		if key := strings.TrimSpace(line); !strings.HasPrefix(key, "ca: /") && !strings.HasPrefix(key, "cert: /") && !strings.HasPrefix(key, "key: /") {
			without = append(without, line)
		}
	}
	plain := strings.Join(without, "")
	for name, c := range map[string]struct{ text, want string }{
		"certificates on every address": {strings.Replace(ExampleConfig, "listen: 127.0.0.1:7410", "listen: 0.0.0.0:7410", 1), ""},
		"in the clear":                  {plain, "tls is off and dev is not true"},
		"in the clear, as dev":          {strings.Replace(plain, "dev: false", "dev: true", 1), ""},
		"dev on every address":          {strings.NewReplacer("dev: false", "dev: true", "listen: 127.0.0.1:7410", "listen: 0.0.0.0:7410").Replace(plain), "0.0.0.0:7410 is no loopback address"},
		"dev, coordinators elsewhere":   {strings.NewReplacer("dev: false", "dev: true", `["127.0.0.1:7400"]`, `["10.0.0.1:7400"]`).Replace(plain), "10.0.0.1:7400 is no loopback address"},
		"group without a socket":        {strings.Replace(ExampleConfig, `socket_group: ""`, "socket_group: users", 1), "socket_group without a socket"},
		"quota below zero":              {strings.Replace(ExampleConfig, "max_waiting: 200", "max_waiting: -1", 1), "max_waiting is -1"},
	} {
		path := filepath.Join(t.TempDir(), "scheduler.yaml")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := LoadConfig(path)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		e, ok := errors.AsType[*cli.Error](err)
		if !ok || !strings.Contains(e.Message, c.want) || e.Hint == "" {
			t.Errorf("%s: %v, %v", name, cfg, err)
		}
	}
	// The start refuses it as well, however the configuration came about.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Dir: t.TempDir(), Listen: l.Addr().String(), Coordinators: []string{"127.0.0.1:1"}}
	if err := Run(t.Context(), cfg, l, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "dev is not true") {
		t.Errorf("started in the clear: %v", err)
	}
}

// certificates are those of a cluster; of returns the flags that name one.
type certificates struct {
	t   *testing.T
	dir string
	own *secure.Authority
}

func newCertificates(t *testing.T) certificates {
	t.Helper()
	a, pair, err := secure.NewAuthority("lab", time.Now(), time.Hour)
	c := certificates{t, t.TempDir(), a}
	if err == nil {
		err = pair.Write(filepath.Join(c.dir, "ca.crt"), filepath.Join(c.dir, "ca.key"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c certificates) files(role, name string) secure.Files {
	c.t.Helper()
	f := secure.Files{CA: filepath.Join(c.dir, "ca.crt"), Cert: filepath.Join(c.dir, role+"-"+name+".crt"), Key: filepath.Join(c.dir, role+"-"+name+".key")}
	pair, err := c.own.Issue(secure.Identity{Role: role, Name: name}, time.Now(), time.Hour)
	if err == nil {
		err = pair.Write(f.Cert, f.Key)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return f
}

func flagsOf(f secure.Files) []string {
	return []string{"--ca", f.CA, "--cert", f.Cert, "--key", f.Key}
}

func TestPortAsksForCertificates(t *testing.T) {
	t.Parallel()
	c, certs := newCluster(t, 1), newCertificates(t)
	own := certs.files(secure.Scheduler, "s1")
	c.write("scheduler.yaml", fmt.Sprintf("listen: %s\ndir: %s\ncoordinators: [\"127.0.0.1:1\"]\nclasses: [high]\ntls: {ca: %s, cert: %s, key: %s}\n",
		c.address, filepath.Join(c.dir, "state"), own.CA, own.Cert, own.Key))
	c.serveHere()
	drain := []string{"drain", "--reason", "test"}
	stranger := newCertificates(t).files(secure.Admin, "zoe")
	stranger.CA = own.CA
	for _, k := range []struct {
		name string
		args []string
		exit int // 0: whatever but denied
	}{
		{"a submitter lists", append([]string{"list"}, flagsOf(certs.files(secure.Submitter, "mia"))...), 0},
		{"a submitter drains", append(drain, flagsOf(certs.files(secure.Submitter, "tom"))...), cli.ExitDenied},
		{"an observer drains", append(drain, flagsOf(certs.files(secure.Observer, "eve"))...), cli.ExitDenied},
		{"an operator drains", append(drain, flagsOf(certs.files(secure.Operator, "ann"))...), 0},
		{"an administrator of another authority lists", append([]string{"list"}, flagsOf(stranger)...), cli.ExitDenied},
		{"a node lists", append([]string{"list"}, flagsOf(certs.files(secure.Node, "n01"))...), cli.ExitDenied},
	} {
		out, errs, exit := c.run(k.args...)
		if k.exit != 0 && exit != k.exit || k.exit == 0 && exit == cli.ExitDenied {
			t.Errorf("%s: exit %d: %s %s", k.name, exit, out, errs)
		}
	}
	if out, errs, exit := c.run("list"); exit == cli.ExitOK || !strings.Contains(errs, "--ca, --cert and --key name yours") {
		t.Errorf("asked in the clear: exit %d: %s%s", exit, out, errs)
	}
	work := func(node string) error {
		k, err := secure.Open(certs.files(secure.Worker, "n01-"+node)) // a certificate each, of another name than the node
		if err != nil {
			t.Fatal(err)
		}
		peers := rpc.SecurePeers(k, secure.Scheduler)
		defer peers.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		st := headroomv1connect.NewWorkerServiceClient(peers.HTTP(), peers.URL(c.address), peers.Options()...).Work(ctx)
		defer st.CloseResponse() //nolint:errcheck // only its answer counts
		_ = st.Send(&headroomv1.WorkerMessage{Message: &headroomv1.WorkerMessage_Hello{Hello: &headroomv1.WorkerHello{Node: node, Slots: 1}}})
		_, err = st.Receive()
		return err
	}
	if err := work("n02"); connect.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(err.Error(), "may not run tasks as node n02") {
		t.Errorf("another node's worker: %v", err)
	}
}

// Strangers that connect and say nothing keep nobody out who shows a certificate.
func TestFloodOfStrangersKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	c, certs := newCluster(t, 1), newCertificates(t)
	own := certs.files(secure.Scheduler, "s1")
	c.write("scheduler.yaml", fmt.Sprintf("listen: %s\ndir: %s\ncoordinators: [\"127.0.0.1:1\"]\nclasses: [high]\ntls: {ca: %s, cert: %s, key: %s}\n",
		c.address, filepath.Join(c.dir, "state"), own.CA, own.Cert, own.Key))
	c.serveHere()
	for range 2 * listen.Defaults().Strangers {
		silent, err := (&net.Dialer{Timeout: 30 * time.Second}).DialContext(t.Context(), "tcp", c.address)
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close() //nolint:errcheck // it is a stranger's
	}
	if out, errs, exit := c.run(append([]string{"list"}, flagsOf(certs.files(secure.Submitter, "mia"))...)...); !strings.Contains(errs, "has not read its jobs") { // what it says without coordinators
		t.Errorf("exit %d: %s%s", exit, out, errs)
	}
}

// The scheduler's own certificate says what it is: with an operator's a stolen key
// would set budgets.
func TestSchedulersCertificateHasItsOwnRole(t *testing.T) {
	t.Parallel()
	f := newCertificates(t).files(secure.Operator, "scheduler")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Dir: t.TempDir(), Listen: l.Addr().String(), Coordinators: []string{"127.0.0.1:1"}, TLS: secure.Config{CA: f.CA, Cert: f.Cert, Key: f.Key}}
	if err := Run(t.Context(), cfg, l, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "needs a certificate of role scheduler") {
		t.Errorf("got %v", err)
	}
}

func TestWorkerShowsItsNodesCertificate(t *testing.T) {
	t.Parallel()
	certs := newCertificates(t)
	own, other, node := certs.files(secure.Worker, "n01"), certs.files(secure.Worker, "n02"), certs.files(secure.Node, "n01")
	for name, c := range map[string]struct {
		files     secure.Files
		dev       bool
		scheduler string
		good      bool
	}{
		"its own":                 {own, false, "10.0.0.1:7410", true},
		"another's":               {other, false, "10.0.0.1:7410", false},
		"powerd's":                {node, false, "10.0.0.1:7410", false},
		"none":                    {secure.Files{}, false, "127.0.0.1:7410", false},
		"none, as dev":            {secure.Files{}, true, "127.0.0.1:7410", true},
		"none, as dev, elsewhere": {secure.Files{}, true, "10.0.0.1:7410", false},
	} {
		peers, err := workerPeers(local.Config{Node: "n01", Scheduler: c.scheduler}, c.files, c.dev)
		if (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			peers.Close()
		}
	}
}

// Who submits is proven by the connection, whatever the client says; it is committed,
// shown, and bounds how many jobs of one submitter wait.
func TestSubmitterIsProvenAndBounded(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.texts(1)
	data, err := os.ReadFile(filepath.Join(c.dir, "scheduler.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(c.dir, "s.sock")
	c.write("scheduler.yaml", string(data)+fmt.Sprintf("socket: %s\nmax_waiting: 1\n", socket))
	c.serveHere()
	c.ready(0)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	id, want := c.submit(wordsJob(1), "--socket", socket), "unix/"+me.Username
	committed := c.coords.job(id)
	if got := submitterOf(committed.GetSpec()); got != want || committed.GetSubmitter() != want {
		t.Errorf("committed %q and %q, want %q", got, committed.GetSubmitter(), want)
	}
	if j := c.show(id); j.Submitter == nil || *j.Submitter != want {
		t.Errorf("shown %v, want %q", j.Submitter, want)
	}
	file := c.write("job.yaml", strings.Replace(wordsJob(1), "name: words", "name: more", 1))
	if _, errs, exit := c.run("submit", file, "--socket", socket); exit != cli.ExitRefused || !strings.Contains(errs, want+" has 1 jobs waiting; max_waiting allows 1") {
		t.Errorf("one too many: exit %d: %s", exit, errs)
	}
	file = c.write("job.yaml", wordsJob(1)+"submitter: submitter/boss\n")
	if _, errs, exit := c.run("submit", file); exit != cli.ExitUsage || !strings.Contains(errs, "must not name its submitter") {
		t.Errorf("a name of one's choice: exit %d: %s", exit, errs)
	}
	if unproven := c.submit(wordsJob(1)); c.show(unproven).Submitter != nil {
		t.Error("nobody was proven, and somebody is shown")
	}
}

func TestSubmitterCancelsOwnJobs(t *testing.T) {
	t.Parallel()
	alice := caller{role: secure.Submitter, name: "submitter/alice"}
	for name, c := range map[string]struct {
		who       caller
		submitter string
		good      bool
	}{
		"her own":                 {alice, "submitter/alice", true},
		"another's":               {alice, "submitter/bob", false},
		"an unknown one's":        {alice, "", false},
		"an operator's namesake":  {alice, "operator/alice", false},
		"an operator, any":        {caller{role: secure.Operator, name: "operator/ann"}, "submitter/bob", true},
		"in the clear everything": {caller{}, "submitter/bob", true},
	} {
		if err := ownJob(c.who, "words-1", c.submitter); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
	jobs := []*headroomv1.Job{{Id: "a", Submitter: "submitter/alice", Spec: []byte("a")}, {Id: "b", Submitter: "submitter/bob", Spec: []byte("b")}}
	hideOthers(alice, jobs)
	if jobs[0].GetSpec() == nil || jobs[1].GetSpec() != nil {
		t.Errorf("shown %v", jobs)
	}
}

// A change is signed with what is proven.
func TestActorIsProven(t *testing.T) {
	t.Parallel()
	change := &headroomv1.Change{Actor: "root"}
	caller{role: secure.Submitter, name: "submitter/alice"}.sign(change)
	if change.GetActor() != "submitter/alice" {
		t.Errorf("signed as %s", change.GetActor())
	}
	caller{}.sign(change)
	if change.GetActor() != "submitter/alice" {
		t.Errorf("nobody signed as %q", change.GetActor())
	}
}

func TestFalseWorkerIsNotBelieved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p, err := openProver(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{events: make(chan event, 1), prover: p}
	w, n1 := &workers{s}, newSession("n1")
	given := Ref{Job: "words-1", Phase: PhaseMap, Index: 3, Attempt: 65537}
	named := func(r Ref, proof string) *headroomv1.TaskRef {
		ref := refToProto(r)
		ref.Proof = proof
		return ref
	}
	next, job := given, given
	next.Attempt++
	job.Job = "words-2"
	for name, c := range map[string]struct {
		ref  *headroomv1.TaskRef
		good bool
	}{
		"as given":              {named(given, p.proof("n1", given)), true},
		"without a proof":       {named(given, ""), false},
		"given to another node": {named(given, p.proof("n2", given)), false},
		"another attempt":       {named(next, p.proof("n1", given)), false},
		"another job":           {named(job, p.proof("n1", given)), false},
	} {
		m := &headroomv1.WorkerMessage{Message: &headroomv1.WorkerMessage_Result{Result: &headroomv1.TaskResult{Ref: c.ref}}}
		if err := w.pass(t.Context(), n1, m); err != nil {
			t.Fatal(err)
		}
		if believed := len(s.events) == 1; believed != c.good {
			t.Errorf("a result %s: believed is %v", name, believed)
		}
		for len(s.events) > 0 {
			<-s.events
		}
		// What a worker says to run when it connects is judged in the same way.
		if ours, others := p.sort("n1", []*headroomv1.TaskRef{c.ref}); (len(ours) == 1) != c.good || (len(others) == 0) != c.good {
			t.Errorf("running %s: %v, %v", name, ours, others)
		}
	}
	// A restarted scheduler recognizes what the one before has given.
	if again, err := openProver(dir); err != nil || again.proof("n1", given) != p.proof("n1", given) {
		t.Errorf("after a restart: %v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, proofKeyFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v", info, err)
	}
}
