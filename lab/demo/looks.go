package demo

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/lab/experiment/harness"
)

// look is what the queues had at one moment, and what the jobs had given up.
type look struct {
	at      time.Duration
	queues  []harness.Queue // nil while the engine does not answer
	dropped int
}

// lookBook keeps the looks at an engine. The tracker is locked while it is used.
type lookBook struct {
	looks    []look
	last     *look           // the newest one at which the engine answered, or nil
	sprinted map[string]bool // jobs by id
}

// add takes in a look, and returns the new shares when they have moved.
func (k *lookBook) add(l look) (moved string) {
	k.looks = append(k.looks, l)
	if l.queues == nil {
		return ""
	}
	if k.last != nil && movedBy(k.last.queues, l.queues) > 0 {
		moved = sharesInWords(k.last.queues) + " -> " + sharesInWords(l.queues)
	}
	k.last = &l
	return moved
}

// movedBy is by how many containers the known shares of queues differ, each way counted once.
func movedBy(from, to []harness.Queue) int {
	up, down := 0, 0
	for i := range min(len(from), len(to)) {
		if from[i].Share != nil && to[i].Share != nil {
			up += max(0, *to[i].Share-*from[i].Share)
			down += max(0, *from[i].Share-*to[i].Share)
		}
	}
	return max(up, down)
}

// count is a bound in words.
func count(n *int) string { return cli.Opt(n, func(n int) string { return fmt.Sprint(n) }) }

func sharesInWords(queues []harness.Queue) string {
	var words []string
	for _, q := range queues {
		words = append(words, q.Name+" "+count(q.Share))
	}
	return strings.Join(words, ", ")
}

// take takes in a look; gaveUp are the tasks that each job had dropped before. The tracker is locked.
func (d *show) take(queues []harness.Queue, gaveUp map[string]int) {
	b := d.tracker
	l := look{at: b.sinceZero(), queues: queues}
	note := func(what, detail string) { b.events = append(b.events, event{l.at, what, detail}) }
	for _, j := range b.jobs {
		n := droppedTasks(j)
		if l.dropped += n; n > gaveUp[j.GetId()] {
			note(eventDrops, fmt.Sprintf("%s: %d -> %d of %d", j.GetId(), gaveUp[j.GetId()], n, j.GetProgress().GetTasks()))
		}
		gaveUp[j.GetId()] = n
		if d.looks.sprints(j) {
			note(eventSprint, j.GetId()+": "+j.GetOutlook().GetMove().GetReason())
		}
	}
	if moved := d.looks.add(l); moved != "" {
		note(eventShares, moved)
	}
}

// sprints reports whether the job has begun to sprint since the last look.
func (k *lookBook) sprints(j *headroomv1.Job) bool {
	m := j.GetOutlook().GetMove()
	if m.GetKind() != headroomv1.MoveKind_MOVE_KIND_SPRINT || m.GetRefused() != "" || k.sprinted[j.GetId()] {
		return false
	}
	k.sprinted[j.GetId()] = true
	return true
}

// droppedTasks are the tasks that a job gave up, as committed or, where its engine does not
// name them, as it reports.
func droppedTasks(j *headroomv1.Job) int {
	n := 0
	for _, r := range j.GetDropped() {
		n += int(r.GetLast()-r.GetFirst()) + 1
	}
	return cmp.Or(n, int(j.GetProgress().GetDropped()))
}
