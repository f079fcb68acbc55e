package agent

import (
	"encoding/json"
	"log/slog"

	"headroom/agent/config"
	"headroom/agent/health"
	"headroom/agent/records"
	"headroom/agent/statedir"
	"headroom/agent/streams"

	headroomv1 "headroom/api/headroom/v1"
)

// denials keeps on disk which servers' certificates are denied. It belongs to the owner
// goroutine.
type denials struct {
	cfg    *config.Config
	log    *slog.Logger
	health *health.Items

	records *records.Records
	streams *streams.Streams

	due, busy bool // the list has to be written; it is being written
}

// told takes over which servers are denied. Streams to those end at once, and no
// lease of theirs is taken any more; what they granted before ends by itself. Any
// coordinator's word counts, for lists only grow. One that lies can have the node refuse
// every server, which leaves it at its fail-safe cap (docs/adr/0012).
func (d *denials) told(m *headroomv1.Denials) {
	if !d.streams.Deny(m) {
		return
	}
	d.log.Info("server certificates denied", slog.Int("denials", len(d.streams.Denied().All())))
	d.due = true
	d.save()
}

// save has the list written, one at a time.
func (d *denials) save() {
	if !d.due || d.busy {
		return
	}
	data, err := json.MarshalIndent(d.streams.Denied().All(), "", "  ")
	if err != nil {
		return
	}
	d.due, d.busy = false, true
	d.records.Writer.Do(statedir.Job{Kind: statedir.Denied, Name: statedir.DeniedFile, Data: append(data, '\n'), Durable: true})
}

// stored takes the end of that; after an error the next second tries again.
func (d *denials) stored(j statedir.Job) {
	d.busy = false
	d.health.Warn(j.Err != nil, "denied-not-stored",
		statedir.DeniedFile+" not written: denied servers are refused until powerd restarts",
		"free space in "+d.cfg.StateDir)
	if d.due = d.due || j.Err != nil; j.Err == nil {
		d.save()
	}
}
