package rpc_test

// Claim: a refusal that repeats is one line an hour, another reason is a line of its own, and no flood of
// reasons is more than a line a second.

import (
	"fmt"
	"testing"
	"time"

	"headroom/internal/rpc"
)

func TestRefusalIsNewsOnce(t *testing.T) {
	t.Parallel()
	var r rpc.Refusals
	begin, lines := time.Unix(1000, 0), 0
	count := func(err error, at time.Duration) {
		if r.News(err, begin.Add(at)) {
			lines++
		}
	}
	expired, denied := fmt.Errorf("the certificate of n1 expired"), fmt.Errorf("the certificate of n1 is denied")
	for s := range 3000 {
		count(expired, time.Duration(s)*time.Second)
	}
	count(denied, 3001*time.Second)
	if lines != 2 {
		t.Errorf("%d lines of two reasons", lines)
	}
	if count(expired, 2*time.Hour); lines != 3 {
		t.Errorf("%d lines after two hours", lines)
	}
	for i := range 10_000 {
		count(fmt.Errorf("guess %d", i), 3*time.Hour+time.Duration(i)*time.Millisecond)
	}
	if lines > 3+10 {
		t.Errorf("%d lines of a flood of ten seconds", lines)
	}
}
