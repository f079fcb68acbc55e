package yarn

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
	"headroom/scheduler/profiles"
	"headroom/scheduler/scaling"
	"headroom/units"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plant is a YARN that works: applications come, get a master, run their tasks in
// containers of its nodes, and end, as time goes by. Its answers have the form of
// those in testdata/rest, which are a real ResourceManager's.
type plant struct {
	mu    sync.Mutex
	epoch time.Time
	now   time.Time
	apps  []*plantApp
	nodes []*plantNode
	// queues exist besides root.
	queues []string
	// fault spoils the answer to a path; nil for none.
	fault func(path string, w *httptest.ResponseRecorder) bool
	// standby are hosts whose ResourceManager is not the active one.
	standby map[string]bool
	// cs is its capacity scheduler; nil for the fair scheduler.
	cs *capacityPlant
}

type plantNode struct {
	name             string
	memoryMB, vcores int
	lost             bool
}

type plantApp struct {
	number   int
	queue    string
	user     string // "" for ann
	came     time.Time
	stuck    bool
	masterIn time.Duration
	// masterAt is when the master of this attempt answers; zero before it is promised.
	masterAt      time.Time
	attempt       int
	state, final  string
	diagnostics   string
	ended         time.Time
	maps, reduces []*plantTask
	taskTime      time.Duration
	slots         int
	conf          map[string]string
	// part spoils the progress of running tasks.
	part *float64
	// drop are the tasks that the master has dropped.
	drop map[int]bool
	// spark makes it an application of Spark; its map tasks are executors.
	spark *plantSpark
}

type plantTask struct {
	state   string
	started time.Time
	node    string
	ended   time.Time
}

func newPlant() *plant {
	return &plant{
		epoch: time.Now(), now: time.Now(), queues: []string{"root.q1", "root.q2"}, standby: map[string]bool{},
		nodes: []*plantNode{{name: "node1", memoryMB: 4096, vcores: 4}, {name: "node2", memoryMB: 4096, vcores: 4}},
	}
}

// submit is a new application of n map tasks of 4 s each.
func (p *plant) submit(queue string, maps, reduces int) *plantApp {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(time.Now())
	a := &plantApp{
		number: len(p.apps) + 1, queue: queue, came: time.Now(), masterIn: 3 * time.Second, attempt: 1, state: "ACCEPTED", final: "UNDEFINED",
		taskTime: 4 * time.Second, slots: 4, conf: map[string]string{"mapreduce.job.queuename": queue}, drop: map[int]bool{},
	}
	for range maps {
		a.maps = append(a.maps, &plantTask{state: "SCHEDULED"})
	}
	for range reduces {
		a.reduces = append(a.reduces, &plantTask{state: "SCHEDULED"})
	}
	p.apps = append(p.apps, a)
	return a
}

// with changes the plant while nobody asks.
func (p *plant) with(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(time.Now())
	change()
}

func (p *plant) id(a *plantApp) string {
	return fmt.Sprintf("application_%d_%04d", p.epoch.UnixMilli(), a.number)
}

func (p *plant) job(a *plantApp) string { return jobOf(p.id(a)) }

// kill ends an application as its user would.
func (p *plant) kill(a *plantApp) {
	p.with(func() { a.end(time.Now(), "KILLED", "KILLED", "Application was killed by user ann") })
}

func (a *plantApp) end(now time.Time, state, final, diagnostics string) {
	a.state, a.final, a.diagnostics, a.ended = state, final, diagnostics, now
}

// loseNode kills a NodeManager: what ran there runs again elsewhere.
func (p *plant) loseNode(name string) {
	p.with(func() {
		for _, n := range p.nodes {
			n.lost = n.lost || n.name == name
		}
		for _, a := range p.apps {
			for _, t := range slices.Concat(a.maps, a.reduces) {
				if t.state == "RUNNING" && t.node == name {
					*t = plantTask{state: "SCHEDULED"}
				}
			}
		}
	})
}

// preempt takes the container of a running task away: its master calls it running
// all the same.
func (p *plant) preempt(a *plantApp, task int) {
	p.with(func() { a.maps[task].node = "" })
}

// restartMaster loses the running tasks; the next attempt knows those that are done.
func (p *plant) restartMaster(a *plantApp, in time.Duration) {
	p.with(func() {
		a.attempt++
		a.masterAt = time.Now().Add(in)
		for _, t := range slices.Concat(a.maps, a.reduces) {
			if t.state == "RUNNING" {
				*t = plantTask{state: "SCHEDULED"}
			}
		}
	})
}

// advance lets what happened since the last time happen, in small steps.
func (p *plant) advance(now time.Time) {
	for p.now.Before(now) {
		p.now = p.now.Add(250 * time.Millisecond)
		if p.now.After(now) {
			p.now = now
		}
		p.step(p.now)
	}
}

func (p *plant) step(now time.Time) {
	for _, a := range p.apps {
		if a.stuck || !a.ended.IsZero() {
			continue
		}
		if a.masterAt.IsZero() {
			a.masterAt = a.came.Add(a.masterIn)
		}
		if now.Before(a.masterAt) {
			continue
		}
		a.state = "RUNNING"
		a.run(now, a.maps, p.live())
		for i := range a.drop {
			if a.maps[i].state == "SCHEDULED" {
				a.maps[i].state = "KILLED"
			}
		}
		if !over(a.maps) {
			continue
		}
		a.run(now, a.reduces, p.live())
		if over(a.reduces) {
			a.end(now, "FINISHED", "SUCCEEDED", "")
		}
	}
}

// size is what the running nodes have together.
func (p *plant) size() (all Container) {
	for _, n := range p.nodes {
		if !n.lost {
			all.MemoryMB, all.VCores = all.MemoryMB+n.memoryMB, all.VCores+n.vcores
		}
	}
	return all
}

func (p *plant) live() (names []string) {
	for _, n := range p.nodes {
		if !n.lost {
			names = append(names, n.name)
		}
	}
	return names
}

func over(list []*plantTask) bool {
	return !slices.ContainsFunc(list, func(t *plantTask) bool { return t.state == "SCHEDULED" || t.state == "RUNNING" })
}

func (a *plantApp) run(now time.Time, list []*plantTask, nodes []string) {
	running := 0
	for _, t := range list {
		if t.state == "RUNNING" && now.Sub(t.started) >= a.taskTime {
			t.state, t.ended = "SUCCEEDED", now
		}
		if t.state == "RUNNING" {
			running++
		}
	}
	for i, t := range list {
		if t.state == "SCHEDULED" && running < a.slots && !a.drop[i] && len(nodes) > 0 {
			*t = plantTask{state: "RUNNING", started: now, node: nodes[i%len(nodes)]}
			running++
		}
	}
}

// RoundTrip answers as the web service does; no network is needed.
func (p *plant) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	if w.Code == 0 || w.Code == 999 {
		return nil, fmt.Errorf("dial %s: connection refused", r.URL.Host)
	}
	return w.Result(), nil
}

func (p *plant) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(time.Now())
	rec := httptest.NewRecorder()
	if p.standby[r.URL.Host] {
		rec.Header().Set("Location", "http://rm1:8088"+r.URL.Path)
		rec.WriteHeader(http.StatusTemporaryRedirect)
		_, _ = io.WriteString(rec, "This is standby RM. The redirect url is: http://rm1:8088"+r.URL.Path)
	} else {
		p.answer(rec, r)
	}
	if p.fault != nil {
		p.fault(r.URL.Path, rec)
	}
	maps.Copy(w.Header(), rec.Header())
	w.WriteHeader(rec.Code)
	_, _ = w.Write(rec.Body.Bytes())
}

type object = map[string]any

func (p *plant) answer(w *httptest.ResponseRecorder, r *http.Request) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case path[0] == "proxy" && path[2] == "api":
		p.driver(w, p.find(path[1]), strings.Join(path[4:], "/"))
	case path[0] == "proxy":
		p.proxy(w, p.find(path[1]), path[7:])
	case path[3] == "nodes":
		var list []object
		for _, n := range p.nodes {
			if !n.lost {
				list = append(list, object{"id": n.name + ":45454", "state": "RUNNING", "totalResource": object{"memory": n.memoryMB, "vCores": n.vcores}})
			}
		}
		reply(w, object{"nodes": object{"node": list}})
	case path[3] == "scheduler-conf" && p.cs != nil:
		p.cs.serve(w, r, path)
	case path[3] == "scheduler-conf":
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "This API only supports to retrieve scheduler configuration from a mutable-conf scheduler, underneath scheduler FairScheduler is not an instance of MutableConfScheduler")
	case path[3] == "scheduler" && p.cs != nil:
		reply(w, object{"scheduler": object{"schedulerInfo": p.cs.tree(p.size())}})
	case path[3] == "scheduler":
		var list []object
		for _, q := range p.queues {
			list = append(list, object{"type": "fairSchedulerLeafQueueInfo", "queueName": q})
		}
		root := object{"queueName": "root", "childQueues": object{"queue": list}}
		reply(w, object{"scheduler": object{"schedulerInfo": object{"type": "fairScheduler", "rootQueue": root}}})
	case path[3] == "apps" && len(path) == 4:
		p.list(w, r)
	case len(path) == 5:
		if a := p.find(path[4]); a != nil {
			reply(w, object{"app": p.app(a)})
			return
		}
		missing(w)
	default:
		p.containers(w, p.find(path[4]))
	}
}

func (p *plant) find(id string) *plantApp {
	for _, a := range p.apps {
		if p.id(a) == id {
			return a
		}
	}
	return nil
}

func (p *plant) list(w *httptest.ResponseRecorder, r *http.Request) {
	var since int64
	_, _ = fmt.Sscan(r.URL.Query().Get("startedTimeBegin"), &since)
	var list []object
	for _, a := range p.apps {
		if slices.Contains(strings.Split(r.URL.Query().Get("states"), ","), a.state) && a.came.UnixMilli() >= since {
			list = append(list, p.app(a))
		}
	}
	if list == nil {
		reply(w, object{"apps": object{}})
		return
	}
	reply(w, object{"apps": object{"app": list}})
}

func (p *plant) app(a *plantApp) object {
	o := object{
		"id": p.id(a), "user": cmp.Or(a.user, "ann"), "name": "words", "queue": a.queue, "state": a.state, "finalStatus": a.final, "diagnostics": a.diagnostics,
		"applicationType": "MAPREDUCE", "startedTime": a.came.UnixMilli(), "elapsedTime": time.Since(a.came).Milliseconds(), "runningContainers": 0,
	}
	if a.state == "RUNNING" {
		o["launchTime"] = a.masterAt.UnixMilli()
		o["amContainerLogs"] = "http://node1:8042/node/containerlogs/" + p.container(a, 1) + "/ann"
		o["runningContainers"] = 1 + a.running()
	}
	if a.spark != nil {
		o["applicationType"], o["applicationTags"] = "SPARK", a.spark.tags
	}
	if !a.ended.IsZero() {
		o["finishedTime"], o["runningContainers"] = a.ended.UnixMilli(), -1
	}
	return o
}

func (a *plantApp) running() (n int) {
	for _, t := range slices.Concat(a.maps, a.reduces) {
		if t.state == "RUNNING" {
			n++
		}
	}
	return n
}

func (p *plant) container(a *plantApp, number int) string {
	return fmt.Sprintf("container_%d_%04d_%02d_%06d", p.epoch.UnixMilli(), a.number, a.attempt, number)
}

func (p *plant) containers(w *httptest.ResponseRecorder, a *plantApp) {
	if a == nil {
		missing(w)
		return
	}
	list := []object{{"containerId": p.container(a, 1), "nodeId": "node1:45454", "containerState": "RUNNING", "allocatedMB": "768", "allocatedVCores": "1"}}
	for i, t := range slices.Concat(a.maps, a.reduces) {
		if t.state == "RUNNING" && t.node != "" {
			list = append(list, object{"containerId": p.container(a, i+2), "nodeId": t.node + ":45454", "containerState": "RUNNING", "allocatedMB": "1024", "allocatedVCores": "2"})
		}
	}
	if len(list) == 1 { // as Hadoop writes a list of one
		reply(w, object{"container": list[0]})
		return
	}
	reply(w, object{"container": list})
}

func (p *plant) proxy(w *httptest.ResponseRecorder, a *plantApp, rest []string) {
	if a == nil {
		missing(w)
		return
	}
	if a.state != "RUNNING" || time.Now().Before(a.masterAt) {
		w.Header().Set("Location", "http://rm1:8088/cluster/app/"+p.id(a))
		w.WriteHeader(http.StatusFound)
		return
	}
	switch rest[0] {
	case "conf":
		var list []object
		for name, value := range a.conf {
			list = append(list, object{"name": name, "value": value, "source": []string{"job.xml"}})
		}
		reply(w, object{"conf": object{"path": "job.xml", "property": list}})
	case "tasks":
		list := append(p.tasks(a, "m", "MAP", a.maps), p.tasks(a, "r", "REDUCE", a.reduces)...)
		reply(w, object{"tasks": object{"task": list}})
	default:
		missing(w)
	}
}

func (p *plant) tasks(a *plantApp, letter, kind string, tasks []*plantTask) (list []object) {
	for i, t := range tasks {
		part := 0.0
		started := a.came
		switch t.state {
		case "RUNNING":
			part, started = 100*min(1, time.Since(t.started).Seconds()/a.taskTime.Seconds()), t.started
			if a.part != nil {
				part = *a.part
			}
		case "SUCCEEDED":
			part, started = 100, t.started
		}
		list = append(list, object{
			"id": fmt.Sprintf("task_%d_%04d_%s_%06d", p.epoch.UnixMilli(), a.number, letter, i), "state": t.state, "type": kind, "progress": part,
			"startTime": started.UnixMilli(), "finishTime": 0, "elapsedTime": 0, "successfulAttempt": "", "status": "",
		})
	}
	return list
}

func reply(w *httptest.ResponseRecorder, v any) {
	w.Header().Set("Content-Type", "application/json;charset=utf-8")
	_ = json.NewEncoder(w).Encode(v)
}

func missing(w *httptest.ResponseRecorder) {
	w.WriteHeader(http.StatusNotFound)
}

// log is a double of the coordinators: one job table with the rules of the real one.
type log struct {
	mu       sync.Mutex
	jobs     map[string]*headroomv1.Job
	commits  map[string]int
	finishes map[string]int
	dropped  map[string]numbers
	// away: nobody answers; lost: what is asked is carried out, and the answer is lost.
	away, lost bool
	drops      []*headroomv1.DropTasksRequest
}

func newLog() *log {
	return &log{jobs: map[string]*headroomv1.Job{}, commits: map[string]int{}, finishes: map[string]int{}, dropped: map[string]numbers{}}
}

// said is the end of a command. The caller holds mu.
func (l *log) said(ctx context.Context) error {
	if l.lost || l.away {
		l.mu.Unlock() // a bubble's time stands still for who waits for a lock
		defer l.mu.Lock()
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (l *log) CommitJob(ctx context.Context, r *headroomv1.CommitJobRequest) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.away && l.jobs[r.GetJob().GetId()] == nil {
		l.jobs[r.GetJob().GetId()] = proto.CloneOf(r.GetJob())
		l.commits[r.GetJob().GetId()]++
	}
	return l.said(ctx)
}

func (l *log) FinishJob(ctx context.Context, r *headroomv1.FinishJobRequest) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := l.jobs[r.GetId()]
	if j == nil {
		return fmt.Errorf("no job %s: %w", r.GetId(), ErrRefused)
	}
	if !l.away && !stateEnded(j.GetState()) {
		l.finishes[r.GetId()]++
		j.State, j.Outcome = r.GetState(), r.GetOutcome()
		j.Progress = &headroomv1.JobProgress{Id: r.GetId(), Tasks: r.GetTasks(), Done: r.GetDone(), RuntimeS: &r.RuntimeS}
		j.End = r.GetEnd()
	}
	return l.said(ctx)
}

func (l *log) DropTasks(ctx context.Context, r *headroomv1.DropTasksRequest) ([]*headroomv1.TaskRange, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drops = append(l.drops, r)
	j := l.jobs[r.GetId()]
	if l.away {
		return nil, l.said(ctx)
	}
	if j.GetStop() == nil && (j.GetDeflation() == nil || r.GetOf() == 0) {
		return nil, fmt.Errorf("job %s has no early stop: %w", r.GetId(), ErrRefused)
	}
	all := numbers{}
	all.add(l.dropped[r.GetId()])
	all.add(fromRanges(r.GetTasks()))
	room := int(j.GetStop().GetTasks() - j.GetStop().GetMinTasks())
	if d := j.GetDeflation(); d != nil {
		room = max(room, int(r.GetOf())-units.Ratio(1-d.GetTheta()).Kept(int(r.GetOf())))
	}
	if len(all) > room {
		return nil, fmt.Errorf("%d dropped tasks are beyond the floor: %w", len(all), ErrRefused)
	}
	l.dropped[r.GetId()] = all
	j.Dropped = all.ranges()
	return all.ranges(), l.said(ctx)
}

// set changes the double while nobody asks.
func (l *log) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

func (l *log) job(id string) *headroomv1.Job {
	l.mu.Lock()
	defer l.mu.Unlock()
	return proto.CloneOf(l.jobs[id])
}

func (l *log) list() (all []*headroomv1.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(l.jobs)) {
		all = append(all, proto.CloneOf(l.jobs[id]))
	}
	return all
}

// lab is an engine that watches a plant, in a bubble of made-up time.
type lab struct {
	*testing.T

	plant  *plant
	log    *log
	cfg    Config
	dir    string
	engine *Engine
	// profiles are those of the scheduler; nil for none.
	profiles *profiles.Folder
	// classes are those of scheduler.yaml.
	classes []Class
	// learner learns from runs; nil for nothing.
	learner *scaling.Learner
	said    bytes.Buffer
	end     func()
}

func testConfig() Config {
	c := Defaults()
	c.ResourceManager = []string{"http://rm1:8088"}
	c.Queues = []Queue{{Name: "root.q1", Guarantee: 0.5}, {Name: "root.q2"}}
	c.Container = Container{MemoryMB: 512, VCores: 1}
	c.Nodes = map[string]string{"node1:45454": "n01"}
	c.Hooks = "127.0.0.1:0" // its handler is asked without a network
	return c
}

// inLab runs a story.
func inLab(t *testing.T, story func(l *lab)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := &lab{T: t, plant: newPlant(), log: newLog(), cfg: testConfig(), dir: dir}
		defer func() {
			l.stop()
			if t.Failed() {
				t.Log(l.said.String())
			}
		}()
		story(l)
	})
}

// start starts an engine, as a scheduler that comes up does.
func (l *lab) start() {
	l.Helper()
	logger := slog.New(slog.NewTextHandler(&l.said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	l.engine = New(l.cfg, l.dir, nil, l.profiles, l.log, logger)
	l.engine.Rank(l.classes)
	l.engine.Learn(l.learner)
	l.engine.client.http.Transport = l.plant
	l.engine.Restore(l.log.list())
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := l.engine.Run(ctx); err != nil {
			l.Errorf("engine: %v", err)
		}
	}()
	l.end = func() { cancel(); <-over }
	synctest.Wait()
}

func (l *lab) stop() {
	if l.end != nil {
		l.end()
		l.end = nil
	}
}

// pass lets time go by.
func (l *lab) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// progress is what the coordinators hear of a job.
func (l *lab) progress(id string) *headroomv1.JobProgress {
	jobs, _ := l.engine.Report(nil)
	for _, j := range jobs {
		if j.GetId() == id {
			return j
		}
	}
	return nil
}

func (l *lab) trouble() string {
	_, r := l.engine.Report(nil)
	return r.GetTrouble()
}

// ask is a hook's request; answer is decoded into a map.
func (l *lab) ask(method, path, body string) (code int, answer string) {
	l.Helper()
	w := httptest.NewRecorder()
	newHooks(l.engine).handler().ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code, strings.TrimSpace(w.Body.String())
}

// deflateJob is the coordinators' decision, committed and told.
func (l *lab) deflateJob(id string, theta float64) error {
	const seed = 7
	l.log.set(func() { l.log.jobs[id].Deflation = &headroomv1.Deflation{Theta: theta, Seed: seed} })
	return l.engine.Deflate(&headroomv1.DeflateDirective{Id: id, Theta: theta, Seed: seed})
}

// stopJob is the coordinators' decision, committed and told.
func (l *lab) stopJob(id string, of, least uint32) {
	l.Helper()
	l.log.set(func() { l.log.jobs[id].Stop = &headroomv1.EarlyStop{Tasks: of, MinTasks: least} })
	testkit.Check(l, l.engine.Stop(&headroomv1.StopDirective{Id: id, Tasks: of, MinTasks: least}))
}
