package leading

import (
	"context"
	"log/slog"
	"time"
)

const (
	// bmcEvery is the interval at which the BMCs of lost nodes are queried.
	bmcEvery = 15 * time.Second
	// bmcAtOnce bounds how many are queried at the same time.
	bmcAtOnce = 16
)

// evidence queries the BMCs of lost nodes for the power state of their machines, outside the
// loop. A machine that is off is charged nothing; a BMC that does not answer proves nothing.
type evidence struct {
	// poweredOff queries one BMC; nil if no BMC may be queried.
	poweredOff func(ctx context.Context, address string) (bool, error)
	asking     bool
	next       time.Duration // leader's monotonic time
}

// due reports whether it is time to query.
func (e *evidence) due(now time.Duration) bool {
	return e.poweredOff != nil && !e.asking && now >= e.next
}

// ask queries every BMC, a bounded number at once, and returns the nodes that are off.
func (e *evidence) ask(ctx context.Context, lost map[string]string, log *slog.Logger) []string {
	found := make(chan string)
	slots := make(chan struct{}, bmcAtOnce)
	for node, address := range lost {
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			off, err := e.poweredOff(ctx, address)
			if err != nil {
				log.Debug("BMC of a lost node not read", slog.String("node", node), slog.Any("error", err))
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
