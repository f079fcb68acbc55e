package demo

import (
	"context"
	"fmt"
	"strings"
	"sync"
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

// lookBook keeps the looks. Its methods may be called from any goroutine.
type lookBook struct {
	mu    sync.Mutex
	looks []look
	// moved is how many containers the shares of queues have moved by, sprinted how many jobs
	// have sprinted.
	moved    int
	sprinted map[string]bool
}

func newLookBook() *lookBook { return &lookBook{sprinted: map[string]bool{}} }

// all are the looks so far.
func (k *lookBook) all() []look {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.looks
}

// add takes in a look, and returns the new shares when they have moved.
func (k *lookBook) add(l look) (moved string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if last := k.last(); last != nil && l.queues != nil {
		n := movedBy(last.queues, l.queues)
		if k.moved += n; n > 0 {
			moved = sharesInWords(last.queues) + " -> " + sharesInWords(l.queues)
		}
	}
	k.looks = append(k.looks, l)
	return moved
}

// last is the newest look at which the engine answered, or nil.
func (k *lookBook) last() *look {
	for i := len(k.looks) - 1; i >= 0; i-- {
		if k.looks[i].queues != nil {
			return &k.looks[i]
		}
	}
	return nil
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

// lines are the queues for the table, and in short.
func (k *lookBook) lines() (lines []string, short string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	last := k.last()
	if last == nil {
		return []string{"the engine does not answer yet"}, "queues -"
	}
	lines = []string{fmt.Sprintf("%-12s  %5s  %5s   %d tasks dropped, %d containers moved, %d jobs sprinted", "QUEUE", "USED", "SHARE", last.dropped, k.moved, len(k.sprinted))}
	var words []string
	for _, q := range last.queues {
		lines = append(lines, fmt.Sprintf("%-12s  %5d  %5s", q.name, q.used, count(q.share)))
		words = append(words, fmt.Sprintf("%s %d/%s", q.name, q.used, count(q.share)))
	}
	return lines, fmt.Sprintf("%s  dropped %d", strings.Join(words, "  "), last.dropped)
}

// watchEngine looks at the engine's queues and at the decisions about the jobs until ctx ends.
func (d *engineShow) watchEngine(ctx context.Context) {
	gaveUp := map[string]int{}
	every(ctx, engineEvery, func() {
		queues, err := d.engine.queues(ctx)
		if err != nil {
			queues = nil // not known is not the last value
		}
		l := look{at: d.tracker.now(), queues: queues}
		for _, j := range d.tracker.jobList() {
			n := droppedTasks(j)
			if l.dropped += n; n > gaveUp[j.GetId()] {
				d.tracker.note(l.at, eventDrops, fmt.Sprintf("%s: %d -> %d of %d", j.GetId(), gaveUp[j.GetId()], n, j.GetProgress().GetTasks()))
			}
			gaveUp[j.GetId()] = n
			if d.looks.sprints(j) {
				d.tracker.note(l.at, eventSprint, j.GetId()+": "+j.GetOutlook().GetMove().GetReason())
			}
		}
		if moved := d.looks.add(l); moved != "" {
			d.tracker.note(l.at, eventShares, moved)
		}
	})
}

// sprints reports whether the job has begun to sprint since the last look.
func (k *lookBook) sprints(j *headroomv1.Job) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := j.GetOutlook().GetMove()
	if m.GetKind() != headroomv1.MoveKind_MOVE_KIND_SPRINT || m.GetRefused() != "" || k.sprinted[j.GetId()] {
		return false
	}
	k.sprinted[j.GetId()] = true
	return true
}
