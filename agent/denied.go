package agent

import (
	"encoding/json"
	"log/slog"

	"headroom/agent/statedir"
	headroomv1 "headroom/api/headroom/v1"
)

// deniedTold takes over which servers are denied. Streams to those end at once, and no
// lease of theirs is taken any more; what they granted before ends by itself. Any
// coordinator's word counts, for lists only grow. One that lies can have the node refuse
// every server, which leaves it at its fail-safe cap (docs/adr/0012).
func (n *node) deniedTold(m *headroomv1.Denials) {
	if !n.streams.Deny(m) {
		return
	}
	n.log.Info("server certificates denied", slog.Int("denials", len(n.streams.Denied().All())))
	n.denied.due = true
	n.saveDenied()
}

// saving is what of the denials is being written, or has to be.
type saving struct{ due, busy bool }

// saveDenied has the list written, one at a time.
func (n *node) saveDenied() {
	if !n.denied.due || n.denied.busy {
		return
	}
	data, err := json.MarshalIndent(n.streams.Denied().All(), "", "  ")
	if err != nil {
		return
	}
	n.denied = saving{busy: true}
	n.records.writer.Do(statedir.Job{Kind: statedir.Denied, Name: statedir.DeniedFile, Data: append(data, '\n'), Durable: true})
}

// deniedStored takes the end of that; after an error the next second tries again.
func (n *node) deniedStored(j statedir.Job) {
	n.denied.busy = false
	n.health.Warn(j.Err != nil, "denied-not-stored",
		statedir.DeniedFile+" cannot be written: denied servers are refused until powerd ends",
		"make room in "+n.cfg.StateDir)
	if n.denied.due = n.denied.due || j.Err != nil; j.Err == nil {
		n.saveDenied()
	}
}
