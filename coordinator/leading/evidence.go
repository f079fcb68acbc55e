package leading

import (
	"context"
	"log/slog"
	"time"
)

const (
	// bmcEvery is how often the BMCs of lost nodes are asked.
	bmcEvery = 15 * time.Second
	// bmcAtOnce bounds how many are asked at the same time.
	bmcAtOnce = 16
)

// evidence asks the BMCs of lost nodes whether their machines are off, beside the
// loop. What is off is charged nothing; a BMC that does not answer is no evidence.
type evidence struct {
	// poweredOff asks one BMC; nil where none may be asked.
	poweredOff func(ctx context.Context, address string) (bool, error)
	asking     bool
	next       time.Duration // leader's monotonic time
}

// due reports whether it is time to ask.
func (e *evidence) due(now time.Duration) bool {
	return e.poweredOff != nil && !e.asking && now >= e.next
}

// ask asks every BMC, some at once, and returns the nodes that are off.
func (e *evidence) ask(ctx context.Context, lost map[string]string, log *slog.Logger) []string {
	found := make(chan string)
	slots := make(chan struct{}, bmcAtOnce)
	for node, address := range lost {
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			off, err := e.poweredOff(ctx, address)
			if err != nil {
				log.Debug("BMC of a lost node tells nothing", slog.String("node", node), slog.Any("error", err))
			}
			if !off {
				node = ""
			}
			found <- node
		}()
	}
	var out []string
	for range lost {
		if node := <-found; node != "" {
			out = append(out, node)
		}
	}
	return out
}
