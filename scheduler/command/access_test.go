package command

// Claims: the ports ask for certificates; a worker shows that of its node; jobs carry who
// submitted them, as the connection proves it.

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
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
	"headroom/internal/testkit"
	"headroom/scheduler/local"
)

func flagsOf(f secure.Files) []string {
	return []string{"--ca", f.CA, "--cert", f.Cert, "--key", f.Key}
}

func TestPortAsksForCertificates(t *testing.T) {
	t.Parallel()
	c, certs := newCluster(t, 1), testkit.NewCertificates(t)
	own := certs.Files(secure.Scheduler, "s1")
	c.write("scheduler.yaml", fmt.Sprintf("listen: %s\ndir: %s\ncoordinators: [%s]\nclasses: [high]\ntls: {ca: %s, cert: %s, key: %s}\n",
		c.address, filepath.Join(c.dir, "state"), startSecure(t, certs), own.CA, own.Cert, own.Key))
	c.serveHere()
	drain := []string{"drain", "--reason", "test"}
	stranger := testkit.NewCertificates(t).Files(secure.Admin, "zoe")
	stranger.CA = own.CA
	for _, k := range []struct {
		name string
		args []string
		exit int // 0: whatever but denied
	}{
		{"a submitter lists", append([]string{"list"}, flagsOf(certs.Files(secure.Submitter, "mia"))...), 0},
		{"a submitter drains", append(drain, flagsOf(certs.Files(secure.Submitter, "tom"))...), cli.ExitDenied},
		{"an observer drains", append(drain, flagsOf(certs.Files(secure.Observer, "eve"))...), cli.ExitDenied},
		{"an operator drains", append(drain, flagsOf(certs.Files(secure.Operator, "ann"))...), 0},
		{"an administrator of another authority lists", append([]string{"list"}, flagsOf(stranger)...), cli.ExitDenied},
		{"a node lists", append([]string{"list"}, flagsOf(certs.Files(secure.Node, "n01"))...), cli.ExitDenied},
	} {
		out, errs, exit := c.run(k.args...)
		if k.exit != 0 && exit != k.exit || k.exit == 0 && exit == cli.ExitDenied {
			t.Errorf("%s: exit %d: %s %s", k.name, exit, out, errs)
		}
	}
	if out, errs, exit := c.run("list"); exit == cli.ExitOK || !strings.Contains(errs, "use --ca, --cert and --key") {
		t.Errorf("asked in the clear: exit %d: %s%s", exit, out, errs)
	}
	work := func(node string) error {
		k, err := secure.Open(certs.Files(secure.Worker, "n01-"+node)) // a certificate each, of another name than the node
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

// Who has a master's key is no scheduler, neither to people nor for a scheduler that is started with it; and the other way round.
func TestMasterIsNoScheduler(t *testing.T) {
	t.Parallel()
	c, certs := newCluster(t, 1), testkit.NewCertificates(t)
	own := certs.Files(secure.Master, "m1")
	l := testkit.Need(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() {
		over <- rpc.Serve(ctx, rpc.SecureListener(l, testkit.Need(secure.Open(own))(t)), http.NotFoundHandler())
	}()
	defer func() {
		cancel()
		testkit.Check(t, <-over)
	}()
	c.address = l.Addr().String()
	if out, errs, exit := c.run(append([]string{"list"}, flagsOf(certs.Files(secure.Submitter, "mia"))...)...); exit == cli.ExitOK || !strings.Contains(errs, "master/m1, expected [scheduler]") {
		t.Errorf("a submitter lists at it: exit %d: %s%s", exit, out, errs)
	}
	c.write("scheduler.yaml", fmt.Sprintf("listen: 127.0.0.1:0\ndir: %s\ncoordinators: [\"127.0.0.1:1\"]\nclasses: [high]\ntls: {ca: %s, cert: %s, key: %s}\n",
		filepath.Join(c.dir, "state"), own.CA, own.Cert, own.Key))
	for want, args := range map[string][]string{
		"names master/m1, needed is scheduler/NAME": {"run", "--config", filepath.Join(c.dir, "scheduler.yaml")},
		"names scheduler/m1, needed is master/m1":   append([]string{"master", "--name", "m1", "--group", "rack/r1"}, flagsOf(certs.Files(secure.Scheduler, "m1"))...),
	} {
		var errs bytes.Buffer
		if exit := cli.Run(t.Context(), New(), args, io.Discard, &errs); exit != cli.ExitUsage || !strings.Contains(errs.String(), want) || !strings.Contains(errs.String(), "coordinator tls cert create") {
			t.Errorf("%s: exit %d: %s", args[0], exit, errs.String())
		}
	}
}

// Strangers that connect and say nothing keep nobody out who shows a certificate.
func TestFloodOfStrangersKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	c, certs := newCluster(t, 1), testkit.NewCertificates(t)
	own := certs.Files(secure.Scheduler, "s1")
	c.write("scheduler.yaml", fmt.Sprintf("listen: %s\ndir: %s\ncoordinators: [\"127.0.0.1:1\"]\nclasses: [high]\ntls: {ca: %s, cert: %s, key: %s}\n",
		c.address, filepath.Join(c.dir, "state"), own.CA, own.Cert, own.Key))
	c.serveHere()
	for range 2 * listen.Defaults().Strangers {
		silent := testkit.Need((&net.Dialer{Timeout: 30 * time.Second}).DialContext(t.Context(), "tcp", c.address))(t)
		defer silent.Close() //nolint:errcheck // it is a stranger's
	}
	if out, errs, exit := c.run(append([]string{"list"}, flagsOf(certs.Files(secure.Submitter, "mia"))...)...); !strings.Contains(errs, "has not yet read its jobs") { // what it says without coordinators
		t.Errorf("exit %d: %s%s", exit, out, errs)
	}
}

func TestWorkerShowsItsNodesCertificate(t *testing.T) {
	t.Parallel()
	certs := testkit.NewCertificates(t)
	own, other, node := certs.Files(secure.Worker, "n01"), certs.Files(secure.Worker, "n02"), certs.Files(secure.Node, "n01")
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
		peers, err := workerPeers(local.Config{Node: "n01", Schedulers: []string{c.scheduler}, Logger: slog.New(slog.DiscardHandler)}, c.files, c.dev)
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
	data := testkit.Need(os.ReadFile(filepath.Join(c.dir, "scheduler.yaml")))(t)
	socket := filepath.Join(c.dir, "s.sock")
	c.write("scheduler.yaml", string(data)+fmt.Sprintf("socket: %s\nmax_waiting: 1\n", socket))
	c.serveHere()
	c.ready(0)
	me := testkit.Need(user.Current())(t)
	id, want := c.submit(wordsJob(1), "--socket", socket), "unix/"+me.Username
	committed := c.coords.job(id)
	if spec := string(committed.GetSpec()); !strings.Contains(spec, fmt.Sprintf("submitter: %q\n", want)) || committed.GetSubmitter() != want {
		t.Errorf("committed %s and %q, want %q", spec, committed.GetSubmitter(), want)
	}
	if j := c.show(id); j.Submitter == nil || *j.Submitter != want {
		t.Errorf("shown %v, want %q", j.Submitter, want)
	}
	file := c.write("job.yaml", strings.Replace(wordsJob(1), "name: words", "name: more", 1))
	if _, errs, exit := c.run("submit", file, "--socket", socket); exit != cli.ExitRefused || !strings.Contains(errs, want+" has 1 waiting jobs; max_waiting is 1") {
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
