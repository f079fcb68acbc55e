package yarn

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/internal/each"
	"headroom/scheduler/hookserver"
)

// Properties with which a job's owner sets how it is served.
const (
	propertyClass    = "headroom.class"
	propertyDeadline = "headroom.deadline"
	propertySprint   = "headroom.sprint-after"
	propertyDeflate  = "headroom.deflate"
)

// never as a sprint timer means none.
const never = "never"

// Class is a priority class of scheduler.yaml.
type Class struct {
	Name string
	// Deadline is the default for jobs without one, from their submission; 0 for none.
	Deadline time.Duration
}

// terms are how a job is served: by its queue's settings, and by its owner's if these ask for less or the queue permits
// overrides.
type terms struct {
	class string
	rank  int
	// deadline is from the submission; 0 for none.
	deadline time.Duration
	// error is the fraction of its map tasks that its result may miss: it ends as soon as the others are done. 0 for
	// none.
	error float64
	// sprintAfter is the sprint timer from the first task; nil for none.
	sprintAfter *time.Duration
	// deflate is whether a drop ratio may drop tasks.
	deflate bool
	// notes are ignored settings, in words.
	notes []string
}

// due returns the deadline; nil for none.
func (t *terms) due() *time.Duration {
	if t.deadline == 0 {
		return nil
	}
	return &t.deadline
}

// terms returns how a job of the queue with the demand d is served. Without a demand, because it is unreadable, no task
// is dropped.
func (q Queue) terms(d demand, classes []Class) terms {
	t := terms{class: leaf(q.Name), deflate: d != nil && (q.Deflate == nil || *q.Deflate), deadline: q.Deadline.Std()}
	t.sprintAfter, _ = q.Timer() // it was checked at load
	if len(classes) > 0 {
		t.rank = rankOf(q.Class, classes)
		q.takeClass(&t, d, classes)
		t.class = classes[t.rank].Name
	}
	q.takeDeadline(&t, d)
	t.error, _ = d.error()
	if t.deadline == 0 && len(classes) > 0 {
		t.deadline = classes[t.rank].Deadline
	}
	q.takeSprint(&t, d)
	q.takeDeflate(&t, d)
	return t
}

// rankOf returns the place of a class; the lowest for an unknown one.
func rankOf(name string, classes []Class) int {
	if i := slices.IndexFunc(classes, func(c Class) bool { return c.Name == name }); i >= 0 {
		return i
	}
	return len(classes) - 1
}

func (t *terms) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// refuse records that a queue does not permit a setting of its job.
func (q Queue) refuse(t *terms, property, asked, stands string) {
	t.note("%s=%s ignored: queue %s has %s and no overrides: true", property, clip(asked), q.Name, stands)
}

// takeClass applies a class that the job names: always, if it is lower than its queue's.
func (q Queue) takeClass(t *terms, d demand, classes []Class) {
	asked, ok := d[propertyClass]
	if !ok {
		return
	}
	rank := rankOf(asked, classes)
	switch {
	case classes[rank].Name != asked:
		t.rank = rank
		t.note("%s=%s is not one of the classes (%s); running in the lowest class, %s", propertyClass, clip(asked), names(classes), classes[rank].Name)
	case rank < t.rank && !q.Overrides:
		q.refuse(t, propertyClass, asked, "class "+classes[t.rank].Name)
	default:
		t.rank = rank
	}
}

func names(classes []Class) string {
	return strings.Join(each.Of(classes, func(c Class) string { return c.Name }), ", ")
}

// takeDeadline applies a deadline that the job names: always, if it is earlier.
func (q Queue) takeDeadline(t *terms, d demand) {
	asked, ok := d[propertyDeadline]
	if !ok {
		return
	}
	at, err := config.ParseDuration(asked)
	switch {
	case err == nil && (at == 0 || at > hookserver.DeadlineMost):
		t.note("%s=%s ignored: a deadline must be above 0s and at most %v", propertyDeadline, clip(asked), hookserver.DeadlineMost)
	case err != nil:
		t.note("%s=%s ignored: %s", propertyDeadline, clip(asked), plain(err))
	case t.deadline > 0 && at > t.deadline && !q.Overrides:
		q.refuse(t, propertyDeadline, asked, "deadline "+t.deadline.String())
	default:
		t.deadline = at
	}
}

// takeSprint applies a sprint timer that the job names: always, if it is later than its queue's, or none.
func (q Queue) takeSprint(t *terms, d demand) {
	asked, ok := d[propertySprint]
	if !ok {
		return
	}
	if asked == never {
		t.sprintAfter = nil
		return
	}
	after, err := config.ParseDuration(asked)
	switch {
	case err != nil:
		t.note("%s=%s ignored: %s", propertySprint, clip(asked), plain(err))
	case t.sprintAfter == nil && !q.Overrides:
		q.refuse(t, propertySprint, asked, "no sprint_after")
	case t.sprintAfter != nil && after < *t.sprintAfter && !q.Overrides:
		q.refuse(t, propertySprint, asked, "sprint_after "+t.sprintAfter.String())
	default:
		t.sprintAfter = &after
	}
}

// takeDeflate applies whether the job permits a drop ratio: always, if it does not.
func (q Queue) takeDeflate(t *terms, d demand) {
	switch asked, ok := d[propertyDeflate]; {
	case !ok:
	case asked == "true" && !t.deflate && !q.Overrides:
		q.refuse(t, propertyDeflate, asked, "deflate false")
	case asked == "true":
		t.deflate = true
	case asked == "false":
		t.deflate = false
	default:
		t.deflate = false
		t.note("%s=%s is neither true nor false; no tasks are dropped by a drop ratio", propertyDeflate, clip(asked))
	}
}

// plain returns an error in words, with its hint.
func plain(err error) string {
	if e, ok := errors.AsType[*cli.Error](err); ok {
		return e.Message + "; " + e.Hint
	}
	return err.Error()
}

// termsOf returns how a job of the coordinators' log is served. One that an older scheduler committed takes no drop
// ratio.
func termsOf(m *headroomv1.Job) terms {
	t := terms{class: m.GetClass(), rank: int(m.GetRank()), deadline: time.Duration(m.GetDeadlineS() * float64(time.Second))}
	var d description
	if json.Unmarshal(m.GetSpec(), &d) != nil {
		return t
	}
	t.deflate, t.notes = d.Deflate, d.Notes
	if d.Error > 0 && d.Error <= 1 {
		t.error = d.Error
	}
	if d.SprintAfterS != nil && *d.SprintAfterS >= 0 {
		t.sprintAfter = new(time.Duration(*d.SprintAfterS * float64(time.Second)))
	}
	return t
}
