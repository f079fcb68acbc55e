package scheduler

// Claims: each method is open to the roles that it is meant for and to no other; nobody
// is let in unproven unless the configuration says dev; jobs carry who submitted them;
// a worker speaks for its own node, and only of attempts that it was given.

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/internal/testkit"
	"headroom/jobs/dispatch"
	"headroom/scheduler/access"
	"headroom/scheduler/jobfile"
)

func TestWhoMayCallWhat(t *testing.T) {
	t.Parallel()
	g := newGuard(Config{TLS: secure.Config{CA: "a", Cert: "b", Key: "c"}}, slog.New(slog.DiscardHandler))
	for procedure, roles := range map[string][]string{
		headroomv1connect.SchedulerServiceSubmitProcedure: {"submitter", "operator", "admin"},
		headroomv1connect.SchedulerServiceCancelProcedure: {"submitter", "operator", "admin"},
		headroomv1connect.SchedulerServiceListProcedure:   {"submitter", "observer", "operator", "admin"},
		headroomv1connect.SchedulerServiceLogsProcedure:   {"submitter", "operator", "admin"},
		headroomv1connect.SchedulerServiceDrainProcedure:  {"operator", "admin"},
		headroomv1connect.WorkerServiceWorkProcedure:      {"worker"},
		headroomv1connect.MasterServicePlaceProcedure:     {"scheduler"},
		headroomv1connect.MasterServiceGetGroupProcedure:  {"master", "scheduler", "observer", "operator", "admin"},
		headroomv1connect.SlotServiceReportProcedure:      {"submitter", "scheduler", "admin"},
		headroomv1connect.SlotServiceAwaitProcedure:       {"submitter", "scheduler", "admin"},
		"/headroom.v1.SchedulerService/NotThoughtOf":      {"admin"},
	} {
		for _, role := range secure.Roles() {
			caller := rpc.Caller{Identity: secure.Identity{Role: role, Name: "x"}, Shown: true, Ends: time.Now().Add(time.Hour)}
			_, err := g.Admit(rpc.WithCaller(t.Context(), caller), procedure)
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
			if _, err := g.Admit(rpc.WithCaller(t.Context(), caller), procedure); err == nil {
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
		_, err := newGuard(c.cfg, slog.New(slog.DiscardHandler)).Admit(clear, headroomv1connect.SchedulerServiceListProcedure)
		if (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClearConnectionsNeedDev(t *testing.T) {
	t.Parallel()
	files := "  ca: /etc/headroom/ca.crt                    # authority of the cluster\n"
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
		"dev on every address":          {strings.NewReplacer("dev: false", "dev: true", "listen: 127.0.0.1:7410", "listen: 0.0.0.0:7410").Replace(plain), "0.0.0.0:7410 is not a loopback address"},
		"dev, coordinators elsewhere":   {strings.NewReplacer("dev: false", "dev: true", `["127.0.0.1:7400"]`, `["10.0.0.1:7400"]`).Replace(plain), "10.0.0.1:7400 is not a loopback address"},
		"group without a socket":        {strings.Replace(ExampleConfig, `socket_group: ""`, "socket_group: users", 1), "socket_group without a socket"},
		"quota below zero":              {strings.Replace(ExampleConfig, "max_waiting: 200", "max_waiting: -1", 1), "max_waiting is -1"},
	} {
		path := filepath.Join(t.TempDir(), "scheduler.yaml")
		testkit.WriteFile(t, path, c.text)
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
	l := testkit.Need(net.Listen("tcp", "127.0.0.1:0"))(t)
	cfg := Config{Dir: t.TempDir(), Listen: l.Addr().String(), Coordinators: []string{"127.0.0.1:1"}}
	if err := Run(t.Context(), cfg, l, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "dev is not true") {
		t.Errorf("started in the clear: %v", err)
	}
}

// The scheduler's own certificate says what it is: with an operator's a stolen key
// would set budgets.
func TestSchedulersCertificateHasItsOwnRole(t *testing.T) {
	t.Parallel()
	f := testkit.NewCertificates(t).Files(secure.Operator, "scheduler")
	l := testkit.Need(net.Listen("tcp", "127.0.0.1:0"))(t)
	cfg := Config{Dir: t.TempDir(), Listen: l.Addr().String(), Coordinators: []string{"127.0.0.1:1"}, TLS: secure.Config{CA: f.CA, Cert: f.Cert, Key: f.Key}}
	if err := Run(t.Context(), cfg, l, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "names operator/scheduler, needed is scheduler/NAME") {
		t.Errorf("got %v", err)
	}
}

func TestSubmitterCancelsOwnJobs(t *testing.T) {
	t.Parallel()
	alice := access.Caller{Role: secure.Submitter, Name: "submitter/alice"}
	for name, c := range map[string]struct {
		who       access.Caller
		submitter string
		good      bool
	}{
		"her own":                 {alice, "submitter/alice", true},
		"another's":               {alice, "submitter/bob", false},
		"an unknown one's":        {alice, "", false},
		"an operator's namesake":  {alice, "operator/alice", false},
		"an operator, any":        {access.Caller{Role: secure.Operator, Name: "operator/ann"}, "submitter/bob", true},
		"in the clear everything": {access.Caller{}, "submitter/bob", true},
	} {
		if err := access.OwnJob(c.who, "words-1", c.submitter); (err == nil) != c.good {
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
	access.Caller{Role: secure.Submitter, Name: "submitter/alice"}.Sign(change)
	if change.GetActor() != "submitter/alice" {
		t.Errorf("signed as %s", change.GetActor())
	}
	access.Caller{}.Sign(change)
	if change.GetActor() != "submitter/alice" {
		t.Errorf("nobody signed as %q", change.GetActor())
	}
}

func TestFalseWorkerIsNotBelieved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := testkit.Need(openProver(dir))(t)
	s := &Server{inbox: make(inbox, 1), prover: p}
	w, n1 := &workers{s}, newSession("n1")
	given := dispatch.Ref{Job: "words-1", Phase: dispatch.PhaseMap, Index: 3, Attempt: 65537}
	named := func(r dispatch.Ref, proof string) *headroomv1.TaskRef {
		ref := jobfile.TaskRef(r)
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
		testkit.Check(t, w.pass(t.Context(), n1, m))
		if believed := len(s.inbox) == 1; believed != c.good {
			t.Errorf("a result %s: believed is %v", name, believed)
		}
		for len(s.inbox) > 0 {
			<-s.inbox
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
