package agent

import (
	"encoding/json"
	"log/slog"

	"headroom/agent/statedir"
	headroomv1 "headroom/api/headroom/v1"
)

// deniedFile keeps, in the state directory, which servers' certificates are denied: a
// restart believes no server that was denied before. Config.Peers reads it.
const deniedFile = "denied.json"

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
	n.records.writer.Do(statedir.Job{Kind: statedir.Denied, Name: deniedFile, Data: append(data, '\n'), Durable: true})
}

// deniedStored takes the end of that; after an error the next second tries again.
func (n *node) deniedStored(j statedir.Job) {
	n.denied.busy = false
	n.health.set(j.Err != nil, item{
		"denied-not-stored", warn, deniedFile + " cannot be written: denied servers are refused until powerd ends",
		"make room in " + n.cfg.StateDir,
	})
	if n.denied.due = n.denied.due || j.Err != nil; j.Err == nil {
		n.saveDenied()
	}
}
