package command

import (
	"fmt"
	"time"

	"headroom/agent/config"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/gossip/brake"
	"headroom/internal/cli"
)

// brakeJSON is the newest brake that the node has received.
type brakeJSON struct {
	Generation uint64  `json:"generation"`
	Set        bool    `json:"set"`
	Actor      *string `json:"actor"`
	Reason     *string `json:"reason"`
	At         *string `json:"at"`
	Stored     bool    `json:"stored"`
}

// brakeLine describes the brake in force; "" if none is.
func brakeLine(b *headroomv1.BrakeStatus) string {
	if !b.GetSet() {
		return ""
	}
	line := fmt.Sprintf("SET, generation %d", b.GetGeneration())
	if b.GetActor() != "" {
		line += " by " + b.GetActor()
	}
	if b.GetAtUs() != 0 {
		line += " at " + cli.Clock(time.UnixMicro(b.GetAtUs()))
	}
	if b.GetReason() != "" {
		line += ": " + b.GetReason()
	}
	return line
}

// checkBrake checks whether a brake would reach this node without a leader.
func checkBrake(s site) finding {
	switch {
	case s.cfg == nil || s.cfg.Alone():
		return finding{"brake", checkOK, "no coordinator configured, not checked", ""}
	case s.cfg.Brake.PublicKeyFile == "":
		return finding{
			"brake", checkWarn, "no public key: without a leader, a brake takes effect only when the lease expires",
			"copy brake.pub from a coordinator and set brake.public_key_file in powerd.yaml",
		}
	}
	if _, err := brake.LoadKeys(s.cfg.Brake.PublicKeyFile); err != nil {
		return finding{"brake", checkFail, err.Error(), config.HintOf(err)}
	}
	return finding{"brake", checkOK, "received by gossip, verified with " + s.cfg.Brake.PublicKeyFile, ""}
}
