package sparkapp

import (
	"maps"
	"strings"
	"unicode/utf8"
)

// Source is where progress comes from.
type Source string

// The sources.
const (
	// ByHook is the hook in the driver.
	ByHook Source = ""
	// ByREST is the driver's REST interface.
	ByREST Source = "progress by Spark's REST"
)

// Progress is the last reported progress of an application.
type Progress struct {
	// Known reports that it was heard of lately. Otherwise the rest is old, or nothing
	// when nothing was ever heard.
	Known bool
	// From is the source of the report.
	From Source
	// Tasks are those of all stages that Spark has begun to plan so far, the dropped ones
	// included: Done + Running + Dropped never exceeds it, and Done + Dropped is it at a
	// good end.
	Tasks, Done, Running, Dropped int
	// Copies are the tasks of which a second attempt runs, if the hook reports them.
	Copies int
	// Stages are the newest ones.
	Stages []Stage
	// Shuffles tell what was kept of each.
	Shuffles []Shuffle
	// RunningOn is how many tasks run on each node. Where tasks are about to begin, a node
	// with executors and without a task counts with their cores. It is nil while unknown.
	RunningOn map[string]int
	// Executors that are registered; the driver is none. Cores are theirs together, 0 while unknown.
	Executors, Cores int
	// Surplus are executors beyond those wanted that stay until nothing needs their shuffle files.
	Surplus int
	// Theta is the drop ratio last sent to it.
	Theta float64
	// Trouble is what went wrong last in the hook, in words.
	Trouble string
	// Exact is why it computed its newest action completely although partitions were to be dropped.
	Exact string
}

// Remark returns what people are shown about the hook.
func (p Progress) Remark() string {
	var parts []string
	if p.Trouble != "" {
		parts = append(parts, p.Trouble)
	}
	if p.Exact != "" {
		parts = append(parts, "computed exactly: "+p.Exact)
	}
	return strings.Join(parts, "; ")
}

// Pending returns how many tasks have not begun.
func (p Progress) Pending() int { return max(0, p.Tasks-p.Done-p.Dropped-p.Running) }

// Stage is one stage of the application.
type Stage struct {
	ID, Attempt int
	Name        string
	// Kind is map or result; empty while unknown.
	Kind string
	// Partitions is what it would compute, Kept what it does.
	Partitions, Kept int
	Done, Running    int
	// Seconds is the sum of the durations of the attempts that succeeded.
	Seconds      float64
	Begun, Ended bool

	// missing is how many results its newest attempt has not.
	missing int
}

// Shuffle is what was kept of a shuffle's map partitions.
type Shuffle struct {
	ID    int     `json:"id"`
	Total int     `json:"total"`
	Kept  int     `json:"kept"`
	Theta float64 `json:"theta"`
	Seed  int64   `json:"seed"`
	Input bool    `json:"input"`
}

// Bounds of what an application may tell.
const (
	stagesMax = 1024
	hostsMax  = 10_000
	numberMax = 1 << 30
	nameMax   = 4 << 10
	partsMost = 1 << 40
	// textMost bounds a text for people, which enters listings.
	textMost = 2 << 10
)

func inRange(n int) bool { return n >= 0 && n <= numberMax }

// Clip bounds a text and keeps it UTF-8.
func Clip(text string) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= textMost {
		return text
	}
	cut := textMost
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}

// places returns how tasks are on nodes: those that run, and where tasks wait, the cores of executors
// on nodes that none runs on.
func places(running, cores map[string]int, waits bool, node func(host string) string) map[string]int {
	on := make(map[string]int, len(running))
	for host, n := range running {
		if n > 0 {
			on[node(host)] += n
		}
	}
	if !waits {
		return on
	}
	idle := make(map[string]int)
	for host, n := range cores {
		if name := node(host); on[name] == 0 && n > 0 {
			idle[name] += n
		}
	}
	maps.Copy(on, idle)
	return on
}

func sum(on map[string]int) (n int) {
	for _, k := range on {
		n += k
	}
	return min(n, numberMax)
}
