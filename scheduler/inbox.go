package scheduler

import "context"

// eventsMax is how many events may wait for the loop; senders wait beyond it.
const eventsMax = 256

// inbox takes the events for the loop.
type inbox chan event

// post gives an event to the loop, unless ctx ends first.
func (b inbox) post(ctx context.Context, e event) error {
	select {
	case b <- e:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// postAnyway gives an event to the loop although the request that caused it may
// be over: what was committed must happen. Should the loop be gone, the next
// comparison with the log finds it.
func (b inbox) postAnyway(ctx context.Context, e event) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWait)
	defer cancel()
	return b.post(ctx, e)
}

// ask gives an event to the loop and waits for the answer.
func ask[T any](ctx context.Context, b inbox, e event, reply <-chan T) (answer T, err error) {
	if err := b.post(ctx, e); err != nil {
		return answer, err
	}
	select {
	case answer = <-reply:
		return answer, nil
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}
