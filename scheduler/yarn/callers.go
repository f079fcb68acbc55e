package yarn

import (
	"errors"
	"fmt"
	"net/http"

	"headroom/internal/listen"
	"headroom/scheduler/hookserver"
)

var (
	// errOtherUser is returned for a hook whose token belongs to another user than the job.
	errOtherUser = errors.New("the hook's token is for another user")
	// errOwnerUnknown is returned until a job's user has been read after a start of the scheduler.
	errOwnerUnknown = errors.New("the job's user is not yet known")
)

// admit checks that a hook acts for a running job of its own user. Only a caller with the job's token learns that a job
// is unknown.
func (e *Engine) admit(id string, who hookserver.Caller) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	j, err := e.book.running(id)
	switch {
	case err != nil:
		return err
	case who.All:
		return nil
	case j.app.user == "":
		return fmt.Errorf("%s: %w", id, errOwnerUnknown)
	case !who.May(j.app.user):
		return fmt.Errorf("%s: %w", id, errOtherUser)
	}
	return nil
}

// ofShares answers only callers that may read shares.
func (h *hooks) ofShares(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h.engine.guard.Shares(r); err != nil {
			hookserver.Refuse(w, http.StatusUnauthorized, err)
			return
		}
		h.places.Serve(w, r, listen.Guest{First: true}, next)
	}
}

// ofJob answers only callers that may act for the job in the path.
func (h *hooks) ofJob(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := appOf(r.PathValue("job"))
		who, err := h.engine.guard.Job(r, id)
		if err != nil {
			hookserver.Refuse(w, http.StatusUnauthorized, err)
			return
		}
		if err := h.engine.admit(id, who); err != nil {
			hookserver.Refuse(w, status(err), err)
			return
		}
		h.places.Serve(w, r, who.Guest(), next)
	}
}

// ofApplication answers callers who show a token that may be for the application in the body.
func (h *hooks) ofApplication(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, err := h.engine.guard.Before(r, h.engine.runningOf)
		if err != nil {
			hookserver.Refuse(w, http.StatusUnauthorized, err)
			return
		}
		h.places.Serve(w, r, who, next)
	}
}

// runningOf returns the running applications of a user.
func (e *Engine) runningOf(user string) (ids []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, j := range e.book.jobs {
		if j.app.user == user && !j.over {
			ids = append(ids, id)
		}
	}
	return ids
}
