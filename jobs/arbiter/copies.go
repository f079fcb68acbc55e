package arbiter

import "fmt"

// copyRuns decides how many more copies of stragglers each job of an engine may run. A copy takes about as long as a
// task. On containers that no other job can use it is free; elsewhere it delays all jobs behind, and is worthwhile if
// its own job ends earlier by more, in weighted seconds.
func copyRuns(rows []*row, p Pool, c float64) {
	if p.Containers <= 0 {
		return
	}
	spare, behind := max(0, p.Containers-max(0, p.Overhead)*len(rows)), 0.0
	wanted := false
	for _, r := range rows {
		r.width += r.Copies
		spare -= r.width
		behind += r.slope
		wanted = wanted || r.CopiesWanted > 0
	}
	if !wanted {
		return
	}
	spare = max(0, spare)
	for _, r := range rows {
		behind -= r.slope
		if n := r.copiesOf(spare, max(0, behind), c); n > 0 {
			r.copies = n
			r.width += n
			spare -= min(spare, n)
			r.left = max(0, r.left-r.CopiesSave.Seconds()*float64(n)/float64(r.CopiesWanted))
			r.slope = r.slopeNow()
		}
	}
}

// copiesOf returns how many more copies one job may run, with spare unused containers, if a second of the jobs behind
// it costs behind.
func (r *row) copiesOf(spare int, behind, c float64) int {
	want := min(r.CopiesWanted, max(0, r.atMost()-r.width))
	if want == 0 {
		return 0
	}
	part := float64(want) / float64(r.CopiesWanted)
	saves := r.CopiesSave.Seconds() * part
	worth := r.slope*saves - float64(max(0, want-spare))*behind*r.task/c
	r.leverage.copied = passage{time: -saves, worth: worth, count: want}
	if worth > 0 {
		return want
	}
	return min(want, spare)
}

// weighCopies computes what copies are worth.
func (r *row) weighCopies(divided bool) {
	x := Candidate{Kind: MoveCopy, Chosen: r.copies > 0}
	l := r.leverage.copied
	switch {
	case r.CopiesWanted == 0 && r.Copies > 0:
		x.Chosen, x.Why = true, fmt.Sprintf("%d copies running; no other straggler", r.Copies)
	case r.CopiesWanted == 0:
		x.Why = "no straggler that a copy would help"
	case !divided:
		x.Why = "its engine decides on copies itself"
	case l.count == 0:
		x.Why = "it holds its maximum of containers"
	default:
		x.Worth = l.worth
		x.shifted(l.time)
		switch {
		case r.copies == 0:
			x.Why = fmt.Sprintf("%d copies would cost the jobs behind it more than they save", l.count)
		case r.copies < l.count:
			x.Why = fmt.Sprintf("%d of %d copies run in containers that no other job can use; more would cost the jobs behind it more than they save", r.copies, l.count)
		default:
			x.Why = fmt.Sprintf("%d copies save more than they cost the jobs behind it", r.copies)
		}
	}
	r.weigh(x)
}

// copied returns the move of a job that runs copies.
func (r *row) copied() Move {
	x := Move{Kind: MoveCopy, Mark: fmt.Sprint(r.Copies + r.copies)}
	x.Reason = fmt.Sprintf("%s; %d more copies of stragglers may run (%d running)", r.aim(), r.copies, r.Copies)
	if l := r.leverage.copied; l.time < 0 {
		x.Time, x.TimeKnown = -span(-l.time), true
		x.Reason += fmt.Sprintf("; with them it finishes %.0f s earlier; net saving %.3g weighted seconds", -l.time, l.worth)
	}
	return x
}
