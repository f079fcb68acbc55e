package yarn

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"headroom/scheduler/hookserver"
)

const (
	// hooksMax bounds the concurrent requests: each map attempt sends one.
	hooksMax = 256
	// validFor is how long shares are valid without a further answer.
	validFor = 10 * time.Second
)

// hooks serves the hooks' protocol: docs/hooks.md.
type hooks struct {
	engine *Engine
	places *hookserver.Places
}

func newHooks(e *Engine) *hooks { return &hooks{e, hookserver.NewPlaces(hooksMax)} }

func (h *hooks) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/shares", h.ofShares(h.shares))
	mux.HandleFunc("GET /v1/jobs/{job}/stop", h.ofJob(h.stop))
	mux.HandleFunc("POST /v1/jobs/{job}/drop", h.ofJob(h.drop))
	mux.HandleFunc("POST /v1/jobs/{job}/begin", h.ofJob(h.begin))
	mux.HandleFunc("POST /v1/jobs/{job}/speculate", h.ofJob(h.speculate))
	mux.HandleFunc("POST /v1/admit", h.ofShares(hookserver.AdmitHandler(h.engine)))
	mux.HandleFunc("POST /v1/spark/progress", h.ofApplication(h.sparkProgress))
	return mux
}

type queueShare struct {
	Queue  string `json:"queue"`
	MB     int    `json:"max_mb"`
	VCores int    `json:"max_vcores"`
	Lower  string `json:"lower"`
	// Jobs are the queue's jobs in the order in which they are served, with what each may hold before others get more;
	// omitted for a single job.
	Jobs []jobShare `json:"jobs,omitempty"`
}

func (q queueShare) equal(o queueShare) bool {
	return q.Queue == o.Queue && q.MB == o.MB && q.VCores == o.VCores && q.Lower == o.Lower && slices.Equal(q.Jobs, o.Jobs)
}

type jobShare struct {
	Application string `json:"application"`
	MB          int    `json:"max_mb"`
	VCores      int    `json:"max_vcores"`
}

type sharesAnswer struct {
	Revision uint64       `json:"revision"`
	ValidS   int          `json:"valid_s"`
	Queues   []queueShare `json:"queues"`
	Lines    []appLine    `json:"lines"`
}

func (h *hooks) shares(w http.ResponseWriter, r *http.Request) {
	faults, err := strconv.ParseUint(cmp.Or(r.URL.Query().Get("faults"), "0"), 10, 63)
	if err != nil {
		hookserver.Refuse(w, http.StatusBadRequest, fmt.Errorf("faults is not a number: %w", errRequest))
		return
	}
	hookserver.Answer(w, h.engine.hookShares(time.Now(), faults))
}

type stopAnswer struct {
	Stop     bool  `json:"stop"`
	MinTasks *int  `json:"min_tasks,omitempty"`
	Dropped  []int `json:"dropped"`
	// Over is whether the job has what it promised.
	Over bool `json:"over,omitempty"`
}

func (h *hooks) stop(w http.ResponseWriter, r *http.Request) {
	a, err := h.engine.hookStop(appOf(r.PathValue("job")))
	if err != nil {
		hookserver.Refuse(w, status(err), err)
		return
	}
	hookserver.Answer(w, a)
}

func (h *hooks) drop(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Tasks      *int `json:"tasks"`
		Candidates *[]struct {
			Task  *int    `json:"task"`
			Bytes *uint64 `json:"bytes"`
		} `json:"candidates"`
	}
	if !request(w, r, &ask) {
		return
	}
	if ask.Tasks == nil || ask.Candidates == nil {
		hookserver.Refuse(w, http.StatusBadRequest, fmt.Errorf("tasks and candidates are required: %w", errRequest))
		return
	}
	var candidates []candidate
	for _, c := range *ask.Candidates {
		if c.Task == nil || c.Bytes == nil || *c.Task < 0 || *c.Task >= *ask.Tasks {
			hookserver.Refuse(w, http.StatusBadRequest, fmt.Errorf("a candidate needs bytes and a task from 0 to %d: %w", *ask.Tasks-1, errRequest))
			return
		}
		candidates = append(candidates, candidate{*c.Task, *c.Bytes})
	}
	dropped, err := h.engine.hookDrop(r.Context(), appOf(r.PathValue("job")), *ask.Tasks, candidates)
	if err != nil {
		hookserver.Refuse(w, status(err), err)
		return
	}
	hookserver.Answer(w, struct {
		Dropped []int `json:"dropped"`
	}{dropped})
}

func (h *hooks) begin(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Task    *int    `json:"task"`
		Attempt *int    `json:"attempt"`
		Bytes   *uint64 `json:"bytes"`
	}
	if !request(w, r, &ask) {
		return
	}
	if ask.Task == nil || ask.Attempt == nil || ask.Bytes == nil || *ask.Task < 0 || *ask.Attempt < 0 {
		hookserver.Refuse(w, http.StatusBadRequest, fmt.Errorf("task, attempt and bytes are required and must not be negative: %w", errRequest))
		return
	}
	run, err := h.engine.hookBegin(r.Context(), appOf(r.PathValue("job")), *ask.Task, *ask.Attempt, *ask.Bytes)
	if err != nil {
		hookserver.Refuse(w, status(err), err)
		return
	}
	hookserver.Answer(w, struct {
		Run bool `json:"run"`
	}{run})
}

// request reads the body; it returns false after a refusal.
func request(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(r.Body)
	err := d.Decode(into)
	if err == nil && d.More() {
		err = errors.New("more than one document")
	}
	if err != nil {
		hookserver.Refuse(w, http.StatusBadRequest, fmt.Errorf("the body is not the JSON described in docs/hooks.md: %w", err))
		return false
	}
	return true
}

// status returns the HTTP status of a refusal; everything but 200 makes the job run all of its tasks.
func status(err error) int {
	switch {
	case errors.Is(err, errJob):
		return http.StatusNotFound
	case errors.Is(err, errOtherUser):
		return http.StatusForbidden
	case errors.Is(err, errRequest):
		return http.StatusBadRequest
	case errors.Is(err, errNoStop):
		return http.StatusConflict
	default:
		return http.StatusServiceUnavailable
	}
}
