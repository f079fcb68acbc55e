package scheduler

import "context"

// eventsMax bounds the events that wait for the loop; then senders block.
const eventsMax = 256

// inbox queues the events for the loop.
type inbox chan event

// post sends an event to the loop, unless ctx ends first.
func (b inbox) post(ctx context.Context, e event) error {
	select {
	case b <- e:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// postAnyway sends an event to the loop even if the request that caused it is over, because what was committed must
// happen. If the loop has ended, the next comparison with the log finds it.
func (b inbox) postAnyway(ctx context.Context, e event) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWait)
	defer cancel()
	return b.post(ctx, e)
}

// ask sends an event to the loop and waits for the answer.
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
