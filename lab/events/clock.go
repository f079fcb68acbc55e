// Package events is the discrete-event core of the lab's simulations: a clock with a queue of events,
// work that proceeds at a rate, and a machine with slots on which copies of tasks run.
//
// The one idea: a simulation takes the next event from its Clock, applies the decision of its policy, and schedules, moves or cancels what
// follows. Everything that takes time is Work at a rate: when the rate changes, the end of the work moves.
//
// Guarantees: time never goes back. Events at the same time come by rank, then by order of scheduling. The same calls give the same events.
// Nothing is allocated once the number of events, slots and tasks has been reached before. Time is in seconds or a duration; work is in
// seconds at rate 1. An invalid call is a bug of the simulation and panics.
package events

import "math"

// Clock is the time of a simulation and the events ahead. Its zero value is at time 0 without events, and ready.
type Clock[T Time, E any] struct {
	now   T
	queue Queue[T, E]
}

// Now returns the time.
func (c *Clock[T, E]) Now() T { return c.now }

// Schedule adds an event; one in the past happens now. Of events at the same time those of lower rank come first.
func (c *Clock[T, E]) Schedule(at T, rank uint8, e E) ID {
	return c.queue.Push(max(at, c.now), rank, e)
}

// Move gives an event that has not happened yet another time; one in the past happens now.
func (c *Clock[T, E]) Move(id ID, at T) { c.queue.Move(id, max(at, c.now)) }

// Cancel removes an event that has not happened yet.
func (c *Clock[T, E]) Cancel(id ID) { c.queue.Remove(id) }

// Until returns when the next event is due; false if there is none, or it is never due.
func (c *Clock[T, E]) Until() (at T, ok bool) {
	at, ok = c.queue.Next()
	return at, ok && at < Never[T]()
}

// Next advances the time to the next event and returns it; false if there is none.
func (c *Clock[T, E]) Next() (e E, ok bool) { return c.Before(Never[T]()) }

// Before does the same with an event that is due up to a time; false if there is none.
func (c *Clock[T, E]) Before(until T) (e E, ok bool) {
	at, ok := c.Until()
	if !ok || at > until {
		return e, false
	}
	c.now, e, _ = c.queue.Pop()
	return e, true
}

// Advance lets time go by; events that are due are left to Before.
func (c *Clock[T, E]) Advance(to T) { c.now = max(c.now, to) }

// second is a second in units of T: nanoseconds of a duration.
func second[T Time]() float64 {
	if T(1)/2 == 0 {
		return 1e9
	}
	return 1
}

// Never returns a time that never comes.
func Never[T Time]() T {
	if second[T]() > 1 {
		never := int64(math.MaxInt64)
		return T(never)
	}
	return T(math.Inf(1))
}

// Work is something that takes time: so many seconds at rate 1.
type Work[T Time] struct {
	// Left is what was left at Since. From then on it proceeds at Rate.
	Left, Rate float64
	Since      T
}

// LeftAt returns what is left at a time.
func (w *Work[T]) LeftAt(now T) float64 {
	return max(0, w.Left-w.Rate*(float64(now-w.Since)/second[T]()))
}

// SetRate changes the rate from a time on.
func (w *Work[T]) SetRate(now T, rate float64) { w.Left, w.Rate, w.Since = w.LeftAt(now), rate, now }

// Ends returns when the work is done at its rate, a duration rounded to the nanosecond; Never if it is paused.
func (w *Work[T]) Ends() T {
	unit := second[T]()
	took := w.Left / w.Rate * unit
	switch {
	case w.Left <= 0:
		return w.Since
	case w.Rate <= 0 || unit > 1 && took >= math.MaxInt64/2:
		return Never[T]()
	case unit > 1:
		took = math.Round(took)
	}
	return w.Since + T(took)
}
