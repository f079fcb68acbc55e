// Package energy attributes the energy of nodes to the jobs that ran on them.
//
// The one idea: each node counts its own energy, and only counts are compared. The energy of a node between two of
// its reports is attributed to the jobs with containers there, in proportion to their CPU time of the last seconds if
// it is known of all of them, and otherwise to their containers (the mean before and after). A node without a job was
// idle.
//
//	var book energy.Book
//	book.Look(now, counters, jobs) // once a second
//	use, known := book.Job("words-7f3a")
//
// Guarantees: measured energy is attributed once and completely, to the microjoule. Unmeasured energy is time, never
// joules: a node that does not report, restarts or cannot measure adds to Unknown, and an impossible count is
// rejected. Energy that a node counted while it was silent is attributed to nobody, because its jobs are unknown.
//
// A Book belongs to one goroutine, reads no clock and has only what it was given: a new one starts at 0.
package energy

import (
	"maps"
	"slices"
	"time"

	"headroom/units"
)

// Counter is what one node has counted, as of its newest report.
type Counter struct {
	// Process is the node's: another one counts from 0 again.
	Process uint64
	// Energy was drawn at the wall since that process began, over that much time of known
	// power. Counts is false where the node counts none.
	Energy units.Energy
	Time   time.Duration
	Counts bool
	// From is by what it is measured; empty while unknown.
	From string
	// Most is what the node can draw: a faster count is not believed.
	Most units.Power
	// At is when the report was heard, on the clock of Look's now.
	At time.Duration
}

// Job is a job that runs, with its containers by node.
type Job struct {
	ID, Class string
	On        map[string]int
	// CPU are the CPU seconds of its containers so far, by node, as far as they are known.
	CPU map[string]float64
	// Ran is for how long it has run already. At the first look at the job that is time of
	// which nothing is known, on the nodes that it is on then.
	Ran time.Duration
}

// Use is what was drawn for somebody.
type Use struct {
	// Energy that was measured.
	Energy units.Energy
	// Measured is for how long it was, and Unknown for how long it was not: seconds times
	// nodes.
	Measured, Unknown time.Duration
	// From are the sources of the nodes' counts, sorted.
	From []string
	// Since is when the job was first shown, on the clock of Look's now: nothing is known of
	// what it drew before.
	Since time.Duration
}

func (u *Use) add(e units.Energy, measured, unknown time.Duration, from string) {
	u.Energy, u.Measured, u.Unknown = u.Energy+e, u.Measured+measured, u.Unknown+unknown
	if i, found := slices.BinarySearch(u.From, from); !found && from != "" && measured > 0 {
		u.From = slices.Insert(u.From, i, from)
	}
}

const (
	// patience is how long a node may be silent before its time counts as unknown: reports
	// come every second, and one or another may be lost.
	patience = 5 * time.Second
	// unlikely is how many times faster than a node can draw it may count: sprints and
	// rounded time are inside.
	unlikely = 2
	// fading is what a second's CPU time still weighs with the next report: jobs and nodes report at different moments,
	// about once a second.
	fading = 0.8
	// cpuMost bounds the CPU seconds that are believed.
	cpuMost = 1e12
)

// Others are the classes beyond so many that a scheduler can have meant them.
const (
	Others      = "(others)"
	classesMost = 256
)

// Book is what was drawn since it began. The zero Book has seen nothing.
type Book struct {
	nodes   map[string]*node
	jobs    map[string]*Use
	classes map[string]*Use
	idle    Use
	nobody  units.Energy
}

// node is what is remembered of a node.
type node struct {
	count Counter
	// settled is up to when its time is accounted for; silent says that the time since count is too.
	settled time.Duration
	silent  bool
	on      []held
}

// held are the containers of one job on one node. Their CPU time counts only if it is known; busy is that of the last
// seconds, negative while unknown.
type held struct {
	id, class  string
	containers float64
	known      bool
	cpu, busy  float64
}

// Look takes in the newest counters, by node, and the jobs that run now. now never falls.
func (b *Book) Look(now time.Duration, counters map[string]Counter, jobs []Job) {
	if b.nodes == nil {
		b.nodes, b.jobs, b.classes = map[string]*node{}, map[string]*Use{}, map[string]*Use{}
	}
	on := map[string][]held{}
	for _, j := range jobs {
		for name, n := range j.On {
			if n > 0 {
				cpu, known := j.CPU[name]
				on[name] = append(on[name], held{id: j.ID, class: j.Class, containers: float64(n), cpu: cpu, known: known})
			}
		}
		if b.jobs[j.ID] == nil {
			b.jobs[j.ID] = &Use{Since: now, Unknown: time.Duration(len(j.On)) * max(0, j.Ran)}
		}
	}
	names := map[string]bool{}
	for _, all := range []map[string]bool{keysOf(counters), keysOf(on), keysOf(b.nodes)} {
		maps.Copy(names, all)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		slices.SortFunc(on[name], compareID)
		c, heard := counters[name]
		b.node(name, now, c, heard, on[name])
	}
}

// node accounts for one node's time up to its newest report.
func (b *Book) node(name string, now time.Duration, c Counter, heard bool, on []held) {
	n := b.nodes[name]
	switch {
	case n == nil:
		b.nodes[name] = &node{count: c, settled: now, on: on, silent: !heard}
		return
	case !heard && len(on) == 0 && len(n.on) == 0: // removed, and nobody there
		delete(b.nodes, name)
		return
	case !heard || c.Process == n.count.Process && c.At == n.count.At:
		if now-n.settled > patience {
			b.share(n.on, on, 0, 0, now-n.settled, "")
			n.settled, n.silent, n.on = now, true, on
		}
		return
	}
	n.used(on)
	energy, measured, ok := n.drawn(c)
	switch {
	case ok && n.silent:
		b.nobody += energy
		fallthrough
	case !ok:
		energy, measured = 0, 0
	}
	spent := max(0, c.At-n.settled)
	measured = min(measured, spent)
	b.share(n.on, on, energy, measured, spent-measured, c.From)
	n.count, n.settled, n.silent, n.on = c, max(n.settled, c.At), false, on
}

// used works out the CPU time of the last seconds of the jobs on a node: of all of them or of none. A sum that fell was
// begun anew.
func (n *node) used(on []held) {
	for i := range on {
		h := &on[i]
		at, found := slices.BinarySearchFunc(n.on, *h, compareID)
		if !found || !h.known || !n.on[at].known || !(h.cpu >= n.on[at].cpu && h.cpu < cpuMost) {
			for i := range on {
				on[i].busy = -1
			}
			return
		}
		h.busy = max(0, n.on[at].busy)*fading + h.cpu - n.on[at].cpu
	}
}

// drawn returns what a node has drawn between two reports, and false where that is unknown.
func (n *node) drawn(c Counter) (units.Energy, time.Duration, bool) {
	energy, measured := c.Energy-n.count.Energy, c.Time-n.count.Time
	switch {
	case !c.Counts || !n.count.Counts || c.Process != n.count.Process:
		return 0, 0, false
	case energy < 0 || measured < 0 || measured == 0 && energy > 0:
		return 0, 0, false
	case energy > (unlikely * c.Most).For(measured):
		return 0, 0, false
	}
	return energy, measured, true
}

// share divides a stretch of a node's time among the jobs there before and after it.
func (b *Book) share(before, after []held, energy units.Energy, measured, unknown time.Duration, from string) {
	all, total := parts(before, after)
	if total == 0 {
		b.idle.add(energy, measured, unknown, from)
		return
	}
	left, sum := energy, 0.0
	for _, h := range all {
		// What is left by then is divided: rounding leaves nothing over.
		part := units.Energy(float64(left) * (h.containers / (total - sum)))
		if sum += h.containers; sum >= total {
			part = left
		}
		left -= part
		b.class(h.class).add(part, measured, unknown, from)
		if u := b.jobs[h.id]; u != nil {
			u.add(part, measured, unknown, from)
		}
	}
	b.nobody += left
}

// class returns the use of a class; those beyond the first classesMost are one.
func (b *Book) class(name string) *Use {
	if b.classes[name] == nil && len(b.classes) >= classesMost {
		name = Others
	}
	if b.classes[name] == nil {
		b.classes[name] = &Use{}
	}
	return b.classes[name]
}

// parts returns the jobs before and after with what each weighs, and the sum: CPU time where it is known of all.
func parts(before, after []held) (all []held, total float64) {
	all = mean(before, after)
	busy := 0.0
	for _, h := range after {
		busy += h.busy
	}
	byCPU := busy > 0 && len(all) == len(after)
	for i := range all {
		if byCPU {
			all[i].containers = after[i].busy
		}
		total += all[i].containers
	}
	return all, total
}

// mean returns the containers of before and after, in the mean, in the order of the jobs.
func mean(before, after []held) []held {
	var out []held
	for _, h := range slices.Concat(before, after) {
		i, found := slices.BinarySearchFunc(out, h, compareID)
		if !found {
			out = slices.Insert(out, i, held{id: h.id, class: h.class})
		}
		out[i].containers += h.containers / 2
	}
	return out
}

func compareID(x, y held) int {
	switch {
	case x.id < y.id:
		return -1
	case x.id > y.id:
		return 1
	}
	return 0
}

func keysOf[V any](m map[string]V) map[string]bool {
	out := make(map[string]bool, len(m))
	for k := range m {
		out[k] = true
	}
	return out
}

// Job returns what was drawn for a job, and false for one that was never shown.
func (b *Book) Job(id string) (Use, bool) {
	u := b.jobs[id]
	if u == nil {
		return Use{}, false
	}
	return u.copy(), true
}

// Final returns what was drawn for a job that ends now. The time since the newest report of each
// of its nodes is unknown: its joules come too late for the job, and go to its class.
func (b *Book) Final(id string, now time.Duration) (Use, bool) {
	u, known := b.Job(id)
	for _, n := range b.nodes {
		if slices.ContainsFunc(n.on, func(h held) bool { return h.id == id }) {
			u.Unknown += max(0, now-n.settled)
		}
	}
	return u, known
}

// Keep forgets the jobs that keep does not want; their joules stay with their classes.
func (b *Book) Keep(keep func(id string) bool) {
	maps.DeleteFunc(b.jobs, func(id string, _ *Use) bool { return !keep(id) })
}

// Classes returns what was drawn for the jobs of each class.
func (b *Book) Classes() map[string]Use {
	out := make(map[string]Use, len(b.classes))
	for name, u := range b.classes {
		out[name] = u.copy()
	}
	return out
}

// Idle returns what nodes drew while no job ran on them. Nobody's is what nodes had counted while
// they were silent.
func (b *Book) Idle() (idle Use, nobodys units.Energy) { return b.idle.copy(), b.nobody }

func (u *Use) copy() Use {
	out := *u
	out.From = slices.Clone(u.From)
	return out
}
