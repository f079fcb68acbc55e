package distributor

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/dispatch/pigeon"
)

// piece is a task of a flight.
type piece struct {
	flight *Flight
	index  int32
	id     pigeon.ID
}

// group is a group in the loop.
type group struct {
	Group
	number pigeon.Group
	links  []*link
	// active is the stream to the active master; nil without one. Since is when it was lost.
	active *session
	since  time.Time
	// lost is whether its tasks were given to other groups.
	lost bool
	// windows are how many more tasks of low and of high priority its master accepts.
	windows [2]int
	// owed are attempts to be cancelled at the group's active master.
	owed []owed
}

// attempt identifies an attempt in results.
type attempt struct {
	job, phase     string
	index, attempt uint32
}

func attemptOf(r *headroomv1.TaskRef) attempt {
	return attempt{r.GetJob(), r.GetPhase(), r.GetIndex(), r.GetAttempt()}
}

// placed is an attempt that was sent and has no result.
type placed struct {
	id      pigeon.ID
	attempt int
	task    *headroomv1.Task
	flight  *Flight
	// again is whether it was sent more than once, so that it may have started.
	again bool
}

// loop owns the tasks. Only its goroutine accesses it once Run is called.
type loop struct {
	*Distributor
	core   *pigeon.Distributor[*piece]
	groups []*group
	placed map[attempt]placed
	// names are the keys of placed by the tasks' ids: what has to be sent again.
	names map[pigeon.ID]attempt
	ids   []pigeon.ID
	tasks []*piece
	// batches are tasks to be sent, by group and priority.
	batches [][2][]*headroomv1.Task
	powers  *powers
}

func newLoop(d *Distributor) *loop {
	l := &loop{
		Distributor: d, placed: make(map[attempt]placed), names: make(map[pigeon.ID]attempt), batches: make([][2][]*headroomv1.Task, len(d.cfg.Groups)),
		powers: newPowers(len(d.cfg.Groups)),
		core: pigeon.NewDistributor[*piece](pigeon.DistributorOptions{
			Spread: d.cfg.Spread, Placement: d.cfg.Placement, WaitMost: d.cfg.WaitMost, Random: d.cfg.Random,
		}),
	}
	for _, g := range d.cfg.Groups {
		x := &group{Group: g, number: l.core.Join(), lost: true}
		l.core.Lost(x.number) // until its master has sent its state
		for _, address := range g.Masters {
			x.links = append(x.links, &link{group: x, address: address})
		}
		l.groups = append(l.groups, x)
	}
	return l
}

// run handles events until ctx ends.
func (l *loop) run(ctx context.Context) {
	tick := time.NewTicker(min(aliveEvery, l.cfg.LostAfter))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-l.events:
			now := time.Now()
			e.apply(l, now)
			l.more(now)
		case now := <-tick.C:
			l.expire(now)
		}
		l.handOver()
	}
}

// more applies the waiting events, so that batches are large under load.
func (l *loop) more(now time.Time) {
	for range roundMost {
		select {
		case e := <-l.events:
			e.apply(l, now)
		default:
			return
		}
	}
}

// expire moves the tasks of groups that have been without a master for too long to other groups.
func (l *loop) expire(now time.Time) {
	for _, g := range l.groups {
		g.settle(now)
		if g.active != nil || g.lost || now.Sub(g.since) < l.cfg.LostAfter {
			continue
		}
		moved := 0
		for s := range l.core.Outstanding(g.number) {
			g.owe(l.placed[l.names[s.ID]].task.GetRef())
			l.drop(s.ID)
			moved++
		}
		l.core.Lost(g.number)
		g.lost = true
		l.cfg.Logger.Warn("no active master in group; moving its tasks to other groups", slog.String("group", g.Name), slog.Int("tasks", moved))
	}
}

// owedMost bounds the attempts of a group that are cancelled late: more than a window.
const owedMost = 1 << 16

// owed is an attempt to be cancelled.
type owed struct {
	ref *headroomv1.TaskRef
	// at is when it was sent on the present stream; zero before.
	at time.Time
}

// owe stores an attempt that is to be cancelled. Those above the bound run to their ends, and are ignored.
func (g *group) owe(ref *headroomv1.TaskRef) {
	if len(g.owed) < owedMost {
		g.owed = append(g.owed, owed{ref: ref})
	}
}

// pay sends the cancellations that were not sent on the present stream.
func (g *group) pay(now time.Time) {
	var refs []*headroomv1.TaskRef
	for i := range g.owed {
		if g.owed[i].at.IsZero() {
			g.owed[i].at = now
			refs = append(refs, g.owed[i].ref)
		}
	}
	for part := range slices.Chunk(refs, batchMost) {
		g.active.send(&headroomv1.PlaceMessage{Message: &headroomv1.PlaceMessage_Cancel{Cancel: &headroomv1.PlaceCancel{Refs: part}}})
	}
}

// settle forgets what has certainly arrived.
func (g *group) settle(now time.Time) {
	g.owed = slices.DeleteFunc(g.owed, func(o owed) bool { return !o.at.IsZero() && now.Sub(o.at) > repeatFor })
}

// drop removes the attempt of a task that was sent.
func (l *loop) drop(id pigeon.ID) {
	if name, ok := l.names[id]; ok {
		l.placed[name].flight.handed.Add(-1)
		delete(l.placed, name)
		delete(l.names, id)
	}
}

// handOver sends what the windows permit.
func (l *loop) handOver() {
	for s, ok := l.core.Next(); ok; s, ok = l.core.Next() {
		g := l.groups[s.Group]
		task := s.Task.flight.Task(int(s.Task.index), s.Attempt)
		if task == nil { // its submitter wants no further attempt
			l.core.Result(s.ID)
			s.Task.flight.deliver(int(s.Task.index), &headroomv1.TaskResult{ExitCode: -1, Error: Lost})
			continue
		}
		task.Ref.Proof = rand.Text()
		name := attemptOf(task.GetRef())
		if _, twice := l.placed[name]; twice { // an error of its submitter: results would be ambiguous
			l.core.Result(s.ID)
			s.Task.flight.deliver(int(s.Task.index), &headroomv1.TaskResult{Ref: task.GetRef(), ExitCode: -1, Error: errTwice.Error()})
			continue
		}
		l.placed[name], l.names[s.ID] = placed{id: s.ID, attempt: s.Attempt, task: task, flight: s.Task.flight}, name
		s.Task.flight.handed.Add(1)
		g.windows[pigeon.Kind(s.High)]--
		b := &l.batches[s.Group][pigeon.Kind(s.High)]
		if *b = append(*b, task); len(*b) == batchMost {
			l.flush(g, s.High, b)
		}
	}
	for i := range l.batches {
		for k := range l.batches[i] {
			l.flush(l.groups[i], k == 1, &l.batches[i][k])
		}
	}
}

// flush sends a batch. Windows are open only while a master is active.
func (l *loop) flush(g *group, high bool, batch *[]*headroomv1.Task) {
	if len(*batch) == 0 {
		return
	}
	if g.active != nil {
		g.active.place(&headroomv1.PlaceTasks{Tasks: *batch, High: high})
	}
	*batch = nil // the stream's goroutine reads it
}

func (s *session) place(t *headroomv1.PlaceTasks) {
	s.send(&headroomv1.PlaceMessage{Message: &headroomv1.PlaceMessage_Tasks{Tasks: t}})
}

// received is a message of a master.
type received struct {
	session *session
	message *headroomv1.GroupMessage
}

func (e received) apply(l *loop, now time.Time) {
	s := e.session
	if s.link.open != s {
		select {
		case <-s.over: // it has already ended
			return
		default:
		}
		s.link.open, s.link.trouble = s, ""
	}
	switch m := e.message.GetMessage().(type) {
	case *headroomv1.GroupMessage_State:
		s.state, s.link.name = m.State, m.State.GetMaster()
		l.elect(now, s.link.group)
		if s.link.group.active == s {
			l.open(now, s)
		}
	case *headroomv1.GroupMessage_Results:
		l.take(now, s, m.Results)
	case *headroomv1.GroupMessage_Refused:
		l.refuse(s, m.Refused)
	}
}

// elect finds the active master of a group: of two, the one that has been active for longer.
func (l *loop) elect(now time.Time, g *group) {
	var best *session
	for _, k := range g.links {
		s := k.open
		if s == nil || !s.state.GetActive() {
			continue
		}
		if best == nil || s.state.GetActiveMs() > best.state.GetActiveMs() {
			best = s
		}
	}
	if best == g.active {
		return
	}
	g.active = best
	if best == nil {
		g.since, g.windows = now, [2]int{}
		l.core.Window(g.number, 0, 0)
		return
	}
	l.cfg.Logger.Info("group has an active master", slog.String("group", g.Name), slog.String("master", best.state.GetMaster()), slog.String("address", best.link.address), slog.Int("again", l.core.OutstandingAt(g.number)))
	if g.lost {
		g.lost = false
		l.core.Up(g.number)
	}
	l.again(g)
	for i := range g.owed {
		g.owed[i].at = time.Time{}
	}
	g.pay(now)
	l.open(now, best)
}

// again resends what was sent before, on a new stream or to a new master.
func (l *loop) again(g *group) {
	var batches [2][]*headroomv1.Task
	send := func(k int) {
		if len(batches[k]) > 0 {
			g.active.place(&headroomv1.PlaceTasks{Tasks: batches[k], High: k == 1, Again: true})
			batches[k] = nil
		}
	}
	for s := range l.core.Outstanding(g.number) {
		k, name := pigeon.Kind(s.High), l.names[s.ID]
		p := l.placed[name]
		p.again = true
		l.placed[name] = p
		if batches[k] = append(batches[k], p.task); len(batches[k]) == batchMost {
			send(k)
		}
	}
	send(0)
	send(1)
}

// open records the window and the power of the active master of a group.
func (l *loop) open(now time.Time, s *session) {
	g, state := s.link.group, s.state
	l.core.Report(g.number, l.powers.of(now, g.number, state), int(state.GetRunningLow()+state.GetWaitingLow()), int(state.GetRunningHigh()+state.GetWaitingHigh()))
	g.windows = [2]int{int(state.GetWindow()), int(state.GetWindowHigh())}
	l.core.Window(g.number, g.windows[0], g.windows[1])
}

// take delivers results, and acknowledges them to the master.
func (l *loop) take(now time.Time, s *session, m *headroomv1.GroupResults) {
	g := s.link.group
	refs := make([]*headroomv1.TaskRef, 0, len(m.GetResults())+len(m.GetLost()))
	for _, r := range m.GetResults() {
		refs = append(refs, r.GetRef())
		p, ok := l.handed(r.GetRef())
		if !ok {
			continue
		}
		l.drop(p.id)
		if done, counted := l.core.Result(p.id); counted {
			g.windows[pigeon.Kind(done.High)]++
			l.powers.ended(now, g.number, done.Task.flight.number, r)
			done.Task.flight.deliver(int(done.Task.index), r)
		}
	}
	for _, ref := range m.GetLost() {
		refs = append(refs, ref)
		if p, ok := l.handed(ref); ok {
			l.drop(p.id)
			l.core.LostTask(p.id, p.attempt)
		}
	}
	if s == g.active {
		l.core.Window(g.number, g.windows[0], g.windows[1])
	}
	if len(refs) > 0 {
		s.send(&headroomv1.PlaceMessage{Message: &headroomv1.PlaceMessage_Taken{Taken: &headroomv1.PlaceTaken{Refs: refs}}})
	}
}

// handed returns an attempt that was sent, proven by what only its worker received.
func (l *loop) handed(ref *headroomv1.TaskRef) (placed, bool) {
	p, ok := l.placed[attemptOf(ref)]
	return p, ok && p.task.GetRef().GetProof() == ref.GetProof()
}

// refuse puts tasks back that a master has refused.
func (l *loop) refuse(s *session, m *headroomv1.GroupRefused) {
	for _, ref := range m.GetRefs() {
		p, ok := l.handed(ref)
		if !ok {
			continue
		}
		l.drop(p.id)
		if p.again {
			l.core.LostTask(p.id, p.attempt)
		} else {
			l.core.Refused(p.id, p.attempt)
		}
	}
	s.link.group.windows = [2]int{}
	l.cfg.Logger.Debug("master refused tasks", slog.String("group", s.link.group.Name), slog.Int("tasks", len(m.GetRefs())), slog.String("reason", m.GetReason()))
}

// deliver sends a result to the submitter.
func (f *Flight) deliver(index int, r *headroomv1.TaskResult) {
	f.results <- Result{index, r} // it has room for all
	f.settle(1)
}

// settle counts tasks that get no further result.
func (f *Flight) settle(tasks int) {
	if f.left -= tasks; f.left == 0 && tasks > 0 {
		close(f.results)
		f.pieces = nil
		f.distributor.loop.powers.done(f.number)
	}
}

// submitted is a submitted job.
type submitted struct {
	flight *Flight
	reply  chan<- error
}

func (e submitted) apply(l *loop, _ time.Time) {
	f := e.flight
	l.powers.jobs++
	f.number = l.powers.jobs
	f.pieces, l.tasks = make([]piece, f.Tasks), l.tasks[:0]
	for i := range f.pieces {
		f.pieces[i] = piece{flight: f, index: int32(i)}
		l.tasks = append(l.tasks, &f.pieces[i])
	}
	ids, ok := l.core.Submit(l.tasks, f.High, l.ids[:0])
	clear(l.tasks)
	if l.ids = ids; !ok {
		e.reply <- full(f.Tasks, l.core.Waiting(), l.cfg.WaitMost)
		return
	}
	for i, id := range ids {
		f.pieces[i].id = id
	}
	if f.Tasks == 0 {
		close(f.results)
	}
	e.reply <- nil
}

// withdrawn removes up to most of the indexes that were not sent.
type withdrawn struct {
	flight  *Flight
	indexes []int
	most    int
	reply   chan<- []int
}

func (e withdrawn) apply(l *loop, _ time.Time) {
	var taken []int
	for _, i := range e.indexes {
		if len(taken) == e.most || e.flight.pieces == nil {
			break
		}
		id := e.flight.pieces[i].id
		if _, handed := l.names[id]; handed {
			continue
		}
		if _, _, ok := l.core.Cancel(id); ok {
			taken = append(taken, i)
		}
	}
	e.flight.settle(len(taken))
	e.reply <- taken
}

// cancelled cancels tasks that have no result, sent or not; all of them if indexes is nil.
type cancelled struct {
	flight  *Flight
	indexes []int
}

func (e cancelled) apply(l *loop, now time.Time) {
	f, indexes := e.flight, e.indexes
	if indexes == nil {
		indexes = make([]int, len(f.pieces))
		for i := range indexes {
			indexes[i] = i
		}
	}
	gone := 0
	for _, i := range indexes {
		if i >= len(f.pieces) { // all of them have ended
			break
		}
		id := f.pieces[i].id
		s, handed, ok := l.core.Cancel(id)
		if !ok {
			continue
		}
		gone++
		if handed {
			l.groups[s.Group].owe(l.placed[l.names[id]].task.GetRef())
			l.drop(id)
		}
	}
	for _, g := range l.groups {
		if g.active != nil {
			g.pay(now)
		}
	}
	f.settle(gone)
}
