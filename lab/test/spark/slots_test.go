// Claims: the tasks of an application with spark.master=spark-pigeon://... begin on slots that the masters of groups grant, and on no
// others, however many cores its executors have; tasks of high priority overtake those of low priority; an application whose master
// is lost goes on with the standby, and its results are right; one that no master answers is refused.
package spark

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/internal/testkit"
	"headroom/lab/spark"
	"headroom/scheduler/access"
	"headroom/scheduler/local"
	"headroom/scheduler/master"
)

// The tasks of testdata/slots.py.
const (
	lowTasks  = 40
	highTasks = 3
	taskTakes = 300 * time.Millisecond
)

// background runs until its stop is called.
func background(t *testing.T, what string, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-over; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// peers is how a process with a certificate reaches masters.
func peers(t *testing.T, certs testkit.Certificates, role, name string) (rpc.Peers, *secure.Keeper) {
	t.Helper()
	k := testkit.Need(secure.Open(certs.Files(role, name)))(t)
	return rpc.SecurePeers(k, secure.Server, secure.Master), k
}

// groupOf starts the two masters of a group; each is stopped by its function.
func groupOf(t *testing.T, certs testkit.Certificates) (addresses []string, stops []func()) {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(testLog{t}, nil))
	var listeners []net.Listener
	for range 2 {
		l := testkit.Need(net.Listen("tcp", "127.0.0.1:0"))(t)
		listeners, addresses = append(listeners, l), append(addresses, l.Addr().String())
	}
	for i, name := range []string{"m1", "m2"} {
		p, k := peers(t, certs, secure.Master, name)
		m := testkit.Need(master.New(master.Config{
			Name: name, Group: "rack/r1", Peer: addresses[1-i], Peers: p, Guard: access.New(false, "", logger), Logger: logger,
		}))(t)
		stops = append(stops, background(t, name, func(ctx context.Context) error { return m.Run(ctx, rpc.SecureListener(listeners[i], k)) }))
	}
	return addresses, stops
}

// workerOn offers one slot of a node to masters.
func workerOn(t *testing.T, certs testkit.Certificates, node string, masters ...string) {
	t.Helper()
	p, _ := peers(t, certs, secure.Worker, node)
	w := testkit.Need(local.New(local.Config{Node: node, Schedulers: masters, Peers: p, Slots: 1, Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}))(t)
	background(t, "worker "+node, w.Run)
}

// slotsJob is an application that masters grant slots to.
func slotsJob(t *testing.T, c *spark.Cluster, certs testkit.Certificates, dir string, masters []string) spark.Job {
	t.Helper()
	files := certs.Files(secure.Submitter, "alice")
	var nodes []string
	for host, node := range c.Hosts() {
		nodes = append(nodes, host+"="+node)
	}
	return spark.Job{
		Name: "slots", Application: testkit.Need(filepath.Abs(filepath.Join("testdata", "slots.py")))(t), Master: "spark-pigeon://" + strings.Join(masters, ","),
		Args: []string{filepath.Join(dir, "ready"), filepath.Join(dir, "go"), fmt.Sprint(lowTasks), fmt.Sprint(highTasks), fmt.Sprint(taskTakes.Seconds())},
		Conf: map[string]string{
			"spark.headroom.pigeon.executors": c.Master(), "spark.headroom.pigeon.nodes": strings.Join(nodes, ","),
			"spark.headroom.ca": files.CA, "spark.headroom.cert": files.Cert, "spark.headroom.key": files.Key,
		},
	}
}

func TestSlots(t *testing.T) {
	l, ctx := shared(t), within(t)
	onSlots(ctx, t, l.Cluster, nodeNames)
	refusedWithoutMasters(ctx, t, l.Cluster)
}

// onSlots runs the application, whose executors are on both of two nodes. Until the first master is lost one slot of the first node is
// all that there is.
func onSlots(ctx context.Context, t *testing.T, c *spark.Cluster, names []string) {
	t.Helper()
	dir := t.TempDir()
	certs := testkit.NewCertificates(t)
	masters, stop := groupOf(t, certs)
	workerOn(t, certs, names[0], masters...)
	job := testkit.Need(c.Submit(slotsJob(t, c, certs, dir, masters)))(t)
	over := make(chan spark.Result, 1)
	go func() {
		r, err := job.Wait(ctx)
		if err != nil {
			t.Error(err)
		}
		over <- r
	}()
	var r spark.Result
	ended := false
	testkit.Eventually(t, patience, "the first tasks of high priority have ended", func() bool {
		select {
		case r = <-over:
			ended = true
		default:
		}
		_, err := os.Stat(filepath.Join(dir, "ready"))
		return err == nil || ended
	})
	lost := time.Now()
	stop[0]()
	if len(names) > 1 {
		workerOn(t, certs, names[1], masters[1])
	}
	testkit.WriteFile(t, filepath.Join(dir, "go"), "")
	if !ended {
		r = <-over
	}
	judgeSlots(t, r, lost)
}

func judgeSlots(t *testing.T, r spark.Result, lost time.Time) {
	t.Helper()
	_, text, _ := strings.Cut(r.Output, "RESULT ")
	line, _, _ := strings.Cut(text, "\n")
	var found struct {
		Low        int
		High, Left []int
	}
	if err := json.Unmarshal([]byte(line), &found); err != nil {
		t.Fatalf("%v in %s", err, r.Output)
	}
	sum := func(tasks int) int { return 100 * tasks * (100*tasks - 1) / 2 }
	t.Logf("%v, %d attempts, found %+v; at once before the loss %d, after it %d", r.Elapsed, r.Log.Attempts, found,
		atOnce(r.Log.Tasks, time.Time{}, lost), atOnce(r.Log.Tasks, lost, time.Now()))
	if found.Low != sum(lowTasks) || !slices.Equal(found.High, []int{sum(highTasks), sum(highTasks)}) {
		t.Errorf("wrong sums: %+v", found)
	}
	if n := lowTasks + 2*highTasks; r.Log.Attempts != n || r.Log.Succeeded != n {
		t.Errorf("%d attempts, %d succeeded, of %d tasks", r.Log.Attempts, r.Log.Succeeded, n)
	}
	if found.Left[0] < lowTasks/2 || found.Left[1] == 0 {
		t.Errorf("high priority did not overtake: %v were left of %d", found.Left, lowTasks)
	}
	if n := atOnce(r.Log.Tasks, time.Time{}, lost); n != 1 {
		t.Errorf("%d tasks ran at once on one slot", n)
	}
	if n := atOnce(r.Log.Tasks, lost, time.Now()); n > 2 {
		t.Errorf("%d tasks ran at once on two slots", n)
	}
}

// atOnce is how many of the tasks that began between two times ran at once. Spark writes down the end of a task a little after its slot
// was given back.
func atOnce(tasks []spark.TaskRecord, from, to time.Time) (most int) {
	type change struct {
		at time.Time
		by int
	}
	var changes []change
	for _, task := range tasks {
		if task.Begun.After(from) && task.Begun.Before(to) {
			changes = append(changes, change{task.Begun, 1}, change{task.Begun.Add(min(taskTakes, task.Ended.Sub(task.Begun)) / 2), -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), a.by-b.by) })
	n := 0
	for _, c := range changes {
		n += c.by
		most = max(most, n)
	}
	return most
}

// refusedWithoutMasters submits an application whose masters do not run.
func refusedWithoutMasters(ctx context.Context, t *testing.T, c *spark.Cluster) {
	t.Helper()
	l := testkit.Need(net.Listen("tcp", "127.0.0.1:0"))(t)
	testkit.Check(t, l.Close())
	job := slotsJob(t, c, testkit.NewCertificates(t), t.TempDir(), []string{l.Addr().String()})
	job.Conf["spark.headroom.pigeon.patience-s"] = "1"
	r, err := c.Run(ctx, job)
	if why := "no master of a group is active after 1 s: " + l.Addr().String(); err == nil || !strings.Contains(r.Output, why) {
		t.Errorf("%v; not refused with %q: %s", err, why, r.Output)
	}
}
