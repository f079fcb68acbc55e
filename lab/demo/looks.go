package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
)

// engineEvery is how often the engine's queues are looked at.
const engineEvery = 500 * time.Millisecond

// look is what the queues had at one moment, and what the jobs had given up.
type look struct {
	at      time.Duration
	queues  []queueLook // nil while the engine does not answer
	dropped int
}

// lookBook keeps the looks. The tracker is locked while it is used.
type lookBook struct {
	looks    []look
	last     *look           // the newest one at which the engine answered, or nil
	sprinted map[string]bool // jobs by id
}

func newLookBook() lookBook { return lookBook{sprinted: map[string]bool{}} }

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
func movedBy(from, to []queueLook) int {
	up, down := 0, 0
	for i := range min(len(from), len(to)) {
		if from[i].share != nil && to[i].share != nil {
			up += max(0, *to[i].share-*from[i].share)
			down += max(0, *from[i].share-*to[i].share)
		}
	}
	return max(up, down)
}

// count is a bound in words.
func count(n *int) string { return cli.Opt(n, func(n int) string { return fmt.Sprint(n) }) }

func sharesInWords(queues []queueLook) string {
	var words []string
	for _, q := range queues {
		words = append(words, q.name+" "+count(q.share))
	}
	return strings.Join(words, ", ")
}

// words are the newest look, in short.
func (k *lookBook) words() (short string) {
	if k.last == nil {
		return "queues -"
	}
	for _, q := range k.last.queues {
		short += fmt.Sprintf("%s %d/%s  ", q.name, q.used, count(q.share))
	}
	return fmt.Sprintf("%sdropped %d", short, k.last.dropped)
}

// watchEngine looks at the engine's queues and at the decisions about the jobs until ctx ends.
func (d *show) watchEngine(ctx context.Context) error {
	gaveUp := map[string]int{}
	return every(ctx, engineEvery, func() error {
		queues, err := d.engine.queues(ctx)
		if err != nil {
			queues = nil // not known is not the last value
		}
		d.tracker.locked(func() { d.take(queues, gaveUp) })
		return nil
	})
}

// take takes in a look. The tracker is locked.
func (d *show) take(queues []queueLook, gaveUp map[string]int) {
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
