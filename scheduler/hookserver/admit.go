package hookserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/admission"
	"headroom/units"
)

// Application is one that an engine's hook asks admission about.
type Application struct {
	// ID is the engine's own, User the submitter and Queue its queue. Name is what its user called it; empty if unknown.
	ID, User, Queue, Name string
	// Tasks is the maximum of containers that it can use at one time; 0 if unknown.
	Tasks int
	// Deadline is its deadline, from its submission.
	Deadline time.Duration
	// Error is the fraction of its tasks that its result may miss.
	Error float64
	// Waits is whether it prefers to wait over being refused.
	Waits bool
}

// Admitter decides whether an application may start.
type Admitter interface {
	// Admit decides at once and keeps the decision: repeated requests get the same answer or, if the application waits,
	// its state.
	Admit(ctx context.Context, a Application) (*headroomv1.Admission, error)
}

// ErrApplication is returned for an application that cannot be judged.
var ErrApplication = errors.New("invalid application")

// Limits of an application.
const (
	// DeadlineMost is ten years, the maximum at the coordinators.
	DeadlineMost = 10 * 365 * 24 * time.Hour
	// nameMost bounds an id, a user and a queue, in bytes.
	nameMost = 300
)

// AdmitHandler serves POST /v1/admit: docs/hooks.md.
func AdmitHandler(admitter Admitter) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var ask struct {
			Application string  `json:"application"`
			User        string  `json:"user"`
			Queue       string  `json:"queue"`
			Name        string  `json:"name"`
			Tasks       int     `json:"tasks"`
			DeadlineS   float64 `json:"deadline_s"`
			Error       float64 `json:"error"`
			Wait        bool    `json:"wait"`
		}
		body := json.NewDecoder(r.Body)
		body.DisallowUnknownFields()
		if err := body.Decode(&ask); err != nil {
			Refuse(w, http.StatusBadRequest, fmt.Errorf("the body is not the JSON described in docs/hooks.md: %w", err))
			return
		}
		a := Application{ask.Application, ask.User, ask.Queue, ask.Name, ask.Tasks, 0, ask.Error, ask.Wait}
		if ask.DeadlineS > 0 && ask.DeadlineS <= DeadlineMost.Seconds() {
			a.Deadline = time.Duration(ask.DeadlineS * float64(time.Second))
		}
		if err := a.check(); err != nil {
			Refuse(w, http.StatusBadRequest, err)
			return
		}
		d, err := admitter.Admit(r.Context(), a)
		switch {
		case errors.Is(err, ErrApplication):
			Refuse(w, http.StatusBadRequest, err)
		case err != nil:
			Refuse(w, http.StatusServiceUnavailable, err)
		default:
			Answer(w, struct {
				Decision string   `json:"decision"`
				Slots    uint32   `json:"slots"`
				Reason   string   `json:"reason"`
				NearestS *float64 `json:"nearest_s,omitempty"`
			}{d.GetDecision(), d.GetSlots(), d.GetReason(), d.NearestS})
		}
	}
}

func (a *Application) check() error {
	switch {
	case a.ID == "" || a.User == "" || a.Queue == "" || max(len(a.ID), len(a.User), len(a.Queue), len(a.Name)) > nameMost:
		return fmt.Errorf("%w: application, user and queue are required, these and a name have at most %d bytes", ErrApplication, nameMost)
	case a.Tasks < 0 || a.Tasks > admission.TasksMost:
		return fmt.Errorf("%w: tasks is %d; it must be from 0 (unknown) to %d", ErrApplication, a.Tasks, admission.TasksMost)
	case a.Deadline <= 0:
		return fmt.Errorf("%w: deadline_s must be above 0 and at most %v", ErrApplication, DeadlineMost.Seconds())
	case !(a.Error >= 0 && a.Error < 1):
		return fmt.Errorf("%w: error is %v; it must be at least 0 and below 1", ErrApplication, a.Error)
	}
	return nil
}

// Needed returns how many of its tasks the application's promise requires; 0 if unknown.
func (a *Application) Needed() int {
	return units.Ratio(1 - a.Error).Least(a.Tasks)
}
