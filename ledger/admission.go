package ledger

import (
	"fmt"
	"reflect"
	"slices"
)

// Admission is what was decided about a job's deadline when it was submitted, or when that was looked at again, as the
// scheduler says it.
type Admission struct {
	// Decision is AdmissionAdmitted or AdmissionQueued: a job that is refused is not accepted at all.
	Decision string `json:"decision"`
	// Slots are promised to the job. Need is the fewest on which it is expected to meet its deadline, 0 while unknown,
	// and Free how many nobody held.
	Slots uint32 `json:"slots,omitempty"`
	Need  uint32 `json:"need,omitempty"`
	Free  uint32 `json:"free,omitempty"`
	// Work is the work that is expected of it, slot seconds, and Confidence the probability that it needs no more, as
	// Samples ended jobs say; nil while unknown.
	Work       *float64 `json:"work_s,omitempty"`
	Confidence *float64 `json:"confidence,omitempty"`
	Samples    uint32   `json:"samples,omitempty"`
	// Until is when a job that waits is refused unless it has begun, Finish when an admitted one is expected to end,
	// microseconds since the Unix epoch; 0 for none.
	Until  int64  `json:"until_us,omitempty"`
	Finish int64  `json:"finish_us,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// The decisions that the log keeps.
const (
	AdmissionAdmitted = "admitted"
	AdmissionQueued   = "queued"
)

const (
	// maxSlots bounds what is promised: a cluster has fewer containers.
	maxSlots = 10_000_000
	// maxWork bounds the work of a job: ten million slots for ten years.
	maxWork = maxSlots * 10 * 365 * 24 * 3600
	// maxAdmissionReason bounds its words, bytes.
	maxAdmissionReason = 2000
)

// Check refuses numbers that make no sense about the job of this name, and says which.
func (a *Admission) Check(job string) error {
	if a == nil {
		return nil
	}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("job %q: its admission %s: %w", job, fmt.Sprintf(format, args...), ErrJob)
	}
	switch {
	case !slices.Contains([]string{AdmissionAdmitted, AdmissionQueued}, a.Decision):
		return wrong("is %q; a job that is accepted is %q or %q", a.Decision, AdmissionAdmitted, AdmissionQueued)
	case max(a.Slots, a.Need, a.Free) > maxSlots:
		return wrong("has %d slots, needs %d and finds %d free; at most %d are taken", a.Slots, a.Need, a.Free, maxSlots)
	case a.Decision == AdmissionQueued && a.Slots > 0:
		return wrong("promises %d slots to a job that waits; only one that is admitted has any", a.Slots)
	case a.Work != nil && !(*a.Work >= 0 && *a.Work <= maxWork):
		return wrong("expects %v slot seconds of work; 0 to %v are taken", *a.Work, float64(maxWork))
	case a.Confidence != nil && !(*a.Confidence >= 0 && *a.Confidence <= 1):
		return wrong("has a confidence of %v; it must be from 0 to 1", *a.Confidence)
	case a.Until < 0 || a.Finish < 0:
		return wrong("ends at %d us and %d us; neither may be before 1970", a.Until, a.Finish)
	case len(a.Reason) > maxAdmissionReason:
		return wrong("has a reason of %d bytes, at most %d are taken", len(a.Reason), maxAdmissionReason)
	}
	return nil
}

// readmit takes another decision about a job that was accepted before: that one which waited is admitted now, or that
// another number of slots is promised. One that is admitted never waits again.
func (t *tx) readmit(c Command, old Job, x *Admission) error {
	switch {
	case x == nil || old.State != JobAccepted || reflect.DeepEqual(old.Admission, x):
		return nil
	case old.Admission != nil && old.Admission.Decision == AdmissionAdmitted && x.Decision != AdmissionAdmitted:
		return fmt.Errorf("job %q is admitted with %d slots; it cannot be %s again: %w", old.ID, old.Admission.Slots, x.Decision, ErrJob)
	}
	old.Admission = x
	put(t, t.Jobs, old.ID, old)
	t.record(c, fmt.Sprintf("job %s %s", old.ID, x.words()))
	return nil
}

// words says what was decided.
func (a *Admission) words() string {
	if a.Decision == AdmissionAdmitted {
		return fmt.Sprintf("admitted, %d slots promised", a.Slots)
	}
	return a.Decision
}
