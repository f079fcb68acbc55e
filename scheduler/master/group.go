package master

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/jobs/dispatch"
	"headroom/jobs/dispatch/pigeon"
	"headroom/scheduler/slots"
)

const (
	// workerSilence is the silence after which a worker's tasks count as lost, and distributorSilence that after which
	// a distributor is removed with its waiting tasks.
	workerSilence      = 5 * time.Second
	distributorSilence = time.Minute
	// takeoverAfter is the silence after which a new stream of a node replaces the previous one: workers send a message
	// every second.
	takeoverAfter = 2 * time.Second
	// hold bounds how long a newly active master waits for its workers to report what they run, before unreported tasks
	// are lost. A worker tries the masters of its group in turn at least once a second.
	hold = 3 * time.Second
	// claimWait is how long a task that only its worker knows may run without its distributor: then it is stopped.
	claimWait = 30 * time.Second
	// orphansMost bounds the results whose distributor is not known yet, orphansEach those of one node, and orphanFor how long they
	// are kept.
	orphansMost = 1 << 16
	orphansEach = 1 << 12
	orphanFor   = time.Minute
	// queueLeast, queueEach and queueMost bound the tasks of a priority here, waiting or running: a number per usable
	// slot, because the rest waits at the distributors, who can send it elsewhere.
	queueLeast = 1 << 10
	queueEach  = 64
	queueMost  = 1 << 16
	// overrun is by how much a distributor may exceed its window: tasks and a new window may cross.
	overrun = 2
	// distributorsMost and nodesMost bound the known peers; a group is a rack or a row.
	distributorsMost = 256
	nodesMost        = 10_000
	slotsMost        = 100_000
	// stallMost is how long a message may wait for its peer to read.
	stallMost = 5 * time.Second
	// stateEvery is the interval of sending the state of the group to distributors.
	stateEvery = time.Second
	// newsLate is the age from which caps count as old: the length of a lease.
	newsLate = 10 * time.Second
)

// key names an attempt. Its proof is part of the name: a worker that names an attempt which it was not given, before or after it is
// given to anybody, names another one.
type key struct {
	job, phase     string
	index, attempt uint32
	proof          string
}

func keyOf(r *headroomv1.TaskRef) key {
	return key{r.GetJob(), r.GetPhase(), r.GetIndex(), r.GetAttempt(), r.GetProof()}
}

// ref returns a key as messages carry it.
func (k key) ref() *headroomv1.TaskRef {
	return &headroomv1.TaskRef{Job: k.job, Phase: k.phase, Index: k.index, Attempt: k.attempt, Proof: k.proof}
}

// task is an attempt that waits or runs here. It waits in the queue or, with a zero id, for a worker that may be
// running it.
type task struct {
	key
	message *headroomv1.Task // nil for one that only its worker knows
	from    *distributor     // nil for one that no distributor has sent yet
	high    bool
	id      pigeon.ID
	on      *node // nil while it waits
	// stopped is whether its worker has been told to stop it, and its result is not needed.
	stopped bool
	// slot is one that a framework was granted, or requests. Such a task has no key and no distributor, and no worker.
	slot  *slots.Slot
	since time.Time // when it lost its distributor
}

// node is the node of a worker.
type node struct {
	name    string
	slots   int
	worker  pigeon.Worker
	running int
	session *workSession // nil while it is not connected
	heard   time.Time
	begun   []workItem // not sent to the session yet
	// grants is the key of its worker, which proves grants of its slots.
	grants []byte
}

// distributor is one that sends tasks.
type distributor struct {
	name        string
	incarnation uint64
	session     *placeSession // nil while it is away
	heard       time.Time
	results     map[key]*headroomv1.TaskResult
	lost        map[key]bool
	// here are its tasks that wait or run, of low and high priority.
	here  [2]int
	epoch uint64    // of its scheduler's lease; 0 for none
	told  time.Time // when the state was last sent
}

type orphan struct {
	result *headroomv1.TaskResult
	node   string // whose worker sent it; empty for one whose distributor was known
	at     time.Time
}

// counts of what has happened since the start.
type counts struct {
	taken, refused, begun, ended, failed, lost uint64
}

// group is everything that the owner knows. Time is an argument; the only effects are what it puts into mailboxes.
type group struct {
	cfg      Config
	role     role
	core     *pigeon.Master[*task]
	tasks    map[key]*task
	nodes    map[string]*node
	byWorker map[pigeon.Worker]*node
	// unclaimed are running tasks without a distributor.
	unclaimed    map[key]*task
	distributors map[string]*distributor
	// epoch is the newest of a scheduler's lease.
	epoch uint64
	// slots are those that frameworks use; nil on standby.
	slots   *slots.Book
	orphans map[key]orphan
	// orphansOf counts them by node.
	orphansOf map[string]int
	// caps are those of the nodes in the domain, as received at capsAt; zero for never.
	caps   map[string]dispatch.Cap
	capsAt time.Time
	counts counts
	// settled is whether the workers have reported what they run, or have had the time to.
	settled bool
	// awaited are the nodes that the peer reported last and that have not connected here since; nil if it reported
	// none.
	awaited map[string]bool
	fed     []*node // reused: nodes with started tasks
}

func newGroup(cfg Config, now time.Time) *group {
	g := &group{
		cfg: cfg, role: role{name: cfg.Name, alone: cfg.Peer == ""}, distributors: make(map[string]*distributor), orphans: make(map[key]orphan),
		orphansOf: make(map[string]int),
	}
	g.role.begin(now)
	g.reset()
	if g.role.active {
		g.open(now)
	}
	return g
}

// reset forgets the workers and what they run.
func (g *group) reset() {
	g.core, g.slots = pigeon.NewMaster[*task](pigeon.MasterOptions{W: g.cfg.W}), nil
	g.tasks, g.unclaimed = make(map[key]*task), make(map[key]*task)
	g.nodes, g.byWorker = make(map[string]*node), make(map[pigeon.Worker]*node)
	for _, d := range g.distributors {
		d.here = [2]int{}
	}
}

// share returns how many tasks of a priority each distributor may have here.
func (g *group) share() int {
	queue := min(max(queueLeast, queueEach*g.core.State().Usable), queueMost)
	n := 0
	for _, d := range g.distributors {
		if d.session != nil {
			n++
		}
	}
	return max(1, queue/max(1, n))
}

// orphan keeps the result of a task whose distributor is not known yet.
func (g *group) orphan(k key, o orphan) {
	if len(g.orphans) < orphansMost && g.orphansOf[o.node] < orphansEach || o.node == "" {
		g.orphans[k] = o
		g.orphansOf[o.node]++
	}
}

// unorphan removes such a result.
func (g *group) unorphan(k key) {
	o := g.orphans[k]
	delete(g.orphans, k)
	if g.orphansOf[o.node]--; g.orphansOf[o.node] <= 0 {
		delete(g.orphansOf, o.node)
	}
}

// forget removes an attempt.
func (g *group) forget(t *task) {
	delete(g.tasks, t.key)
	delete(g.unclaimed, t.key)
	if t.from != nil {
		t.from.here[pigeon.Kind(t.high)]--
	}
	if t.on != nil {
		t.on.running--
		t.on = nil
	}
}

// lose reports to the distributor of a task that it has no result.
func (g *group) lose(t *task) {
	from := t.from
	g.forget(t)
	if from != nil && !t.stopped {
		g.counts.lost++
		from.lost[t.key] = true
		from.tell(placeItem{lost: t.ref()})
	}
}

// decide starts what can start, and passes it to the sessions.
func (g *group) decide() {
	for start, more := g.core.Next(); more; start, more = g.core.Next() {
		n, t := g.byWorker[start.Worker], start.Task
		t.on = n
		n.running++
		g.counts.begun++
		if t.slot != nil {
			g.slots.Granted(t.slot, n.name)
			continue
		}
		if len(n.begun) == 0 {
			g.fed = append(g.fed, n)
		}
		n.begun = append(n.begun, workItem{task: t.message})
	}
	for i, n := range g.fed {
		if n.session != nil {
			n.session.put(n.begun...)
		}
		clear(n.begun)
		n.begun, g.fed[i] = n.begun[:0], nil
	}
	g.fed = g.fed[:0]
}

// tick handles timeouts.
func (g *group) tick(now time.Time) {
	if g.role.tick(now) {
		g.turn(now)
	}
	g.expireNodes(now)
	g.expireDistributors(now)
	if g.slots != nil {
		g.slots.Tick(now)
	}
	for _, t := range g.unclaimed {
		if !t.stopped && now.Sub(t.since) > claimWait {
			g.stop(t)
		}
	}
	for k, o := range g.orphans {
		if now.Sub(o.at) > orphanFor {
			g.unorphan(k)
		}
	}
	if g.role.active && !g.settled && (now.Sub(g.role.since) >= hold || g.awaited != nil && len(g.awaited) == 0) {
		g.settle()
	}
	for _, d := range g.distributors {
		if d.session != nil && now.Sub(d.told) >= stateEvery {
			g.tellState(now, d)
		}
	}
}

// hearPeer applies the state of the group's other master. While that one is active, its workers are those to wait for
// if it fails.
func (g *group) hearPeer(now time.Time, w peerWord) {
	if g.role.hear(now, w) {
		g.turn(now)
	}
	if w.active && !g.role.active {
		g.awaited = nil // without workers it may have none yet: then the standby waits for any
		if len(w.nodes) > 0 {
			g.awaited = make(map[string]bool, len(w.nodes))
		}
		for _, n := range w.nodes {
			g.awaited[n] = true
		}
	}
}

// settle gives up resent tasks that no worker has reported.
func (g *group) settle() {
	g.settled = true
	for _, t := range g.tasks {
		if t.id == 0 {
			g.lose(t)
		}
	}
}

// turn handles a change of role. A master that steps down sends its workers to the other one, and forgets what they
// run: they report it there.
func (g *group) turn(now time.Time) {
	g.settled = false
	if g.role.active {
		g.open(now)
		g.cfg.Logger.Info("master is active", slog.String("group", g.cfg.Group))
	} else {
		g.cfg.Logger.Warn("stepping down: the peer has been active for longer", slog.String("group", g.cfg.Group))
		for _, n := range g.nodes {
			if n.session != nil {
				n.session.end(errStandby(g.cfg))
			}
		}
		g.reset()
	}
	g.tellAll(now)
}

func errStandby(cfg Config) error {
	return rpc.Refuse(connect.CodeUnavailable, "standby", cli.ExitUnreachable,
		fmt.Sprintf("master %s of %s is on standby", cfg.Name, cfg.Group), "configure both masters of the group; only the active one assigns tasks")
}

// stop makes a worker stop a running task whose result is not needed. Its slot stays used until the worker reports its
// end.
func (g *group) stop(t *task) {
	t.stopped = true
	if t.on.session != nil {
		t.on.session.put(workItem{kill: t.ref()})
	}
}

// trouble returns what the master is missing, in words.
func (g *group) trouble(now time.Time) string {
	switch {
	case len(g.cfg.Coordinators) == 0:
		return ""
	case g.capsAt.IsZero():
		return "caps unknown: no coordinator has answered yet"
	case now.Sub(g.capsAt) > newsLate:
		return fmt.Sprintf("caps are %d s old: no coordinator reachable", int(now.Sub(g.capsAt).Seconds()))
	}
	return ""
}

// state returns the group as sent to its distributors; for d, or in general.
func (g *group) state(now time.Time, d *distributor) *headroomv1.GroupState {
	s := g.core.State()
	m := &headroomv1.GroupState{
		Group: g.cfg.Group, Master: g.cfg.Name, Active: g.role.active, Reserved: uint32(s.Reserved), Usable: uint32(s.Usable),
		RunningHigh: uint32(s.RunningHigh), RunningLow: uint32(s.RunningLow), WaitingHigh: uint32(s.WaitingHigh), WaitingLow: uint32(s.WaitingLow),
		Trouble: g.trouble(now),
	}
	for _, n := range g.nodes {
		if n.session != nil {
			m.Workers++
			m.Slots += uint32(n.slots)
		}
	}
	if g.role.active {
		m.ActiveMs = max(1, now.Sub(g.role.since).Milliseconds())
		if d != nil {
			share := g.share()
			m.Window, m.WindowHigh = uint32(max(0, share-d.here[0])), uint32(max(0, share-d.here[1]))
		}
	}
	return m
}

func (g *group) tellState(now time.Time, d *distributor) {
	d.told = now
	d.tell(placeItem{state: g.state(now, d)})
}

// tellAll sends every distributor the state, for example when shares have changed.
func (g *group) tellAll(now time.Time) {
	for _, d := range g.distributors {
		if d.session != nil {
			g.tellState(now, d)
		}
	}
}

// view returns the answer to status requests.
func (g *group) view(now time.Time) *headroomv1.GetGroupResponse {
	r := &headroomv1.GetGroupResponse{
		State: g.state(now, nil), Distributors: slices.Sorted(maps.Keys(g.distributors)), Peer: g.cfg.Peer,
		PeerAnswers: g.cfg.Peer != "" && now.Sub(g.role.heard) < silence,
	}
	for _, n := range g.sorted() {
		r.Workers = append(r.Workers, &headroomv1.Worker{
			Node: n.name, Slots: uint32(n.slots), Usable: uint32(g.usable(n)), Running: uint32(n.running), Connected: n.session != nil,
		})
	}
	return r
}

func (g *group) sorted() []*node {
	return slices.SortedFunc(maps.Values(g.nodes), func(a, b *node) int { return cmp.Compare(a.name, b.name) })
}
