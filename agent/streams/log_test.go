// Claim: a coordinator that refuses this node again and again costs one line of the log, until
// the reason changes.
package streams

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	headroomv1 "headroom/api/headroom/v1"
)

func TestRefusedNodeLogsOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := New([]string{"c1:7400"}, nil, nil, slog.New(slog.NewTextHandler(&log, nil)))
	l := &Stream{Addr: "c1:7400"}
	s.links[l.Addr] = l
	refused := errors.New("the certificate of node/n01 expired")
	told := func(events ...Event) int {
		log.Reset()
		for _, e := range events {
			e.link = l
			s.Take(e)
		}
		return strings.Count(log.String(), "\n")
	}
	answer := Event{Msg: &headroomv1.CoordinatorMessage{}}
	if n := told(Event{up: true}, answer, answer); n != 1 {
		t.Errorf("an open stream: %d lines", n)
	}
	again := []Event{}
	for range 50 {
		again = append(again, Event{up: true}, Event{Down: refused})
	}
	if n := told(again...); n != 1 {
		t.Errorf("50 refusals: %d lines", n)
	}
	if n := told(Event{up: true}, Event{Down: refused}, Event{Down: errors.New("another")}, Event{Down: errors.New("another")}); n != 1 {
		t.Errorf("another reason: %d lines", n)
	}
	if n := told(Event{up: true}, answer, answer); n != 1 {
		t.Errorf("open again: %d lines", n)
	}
}
