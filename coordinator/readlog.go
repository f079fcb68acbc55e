package coordinator

import (
	"headroom/consensus"
)

// ReadLog calls each for the entries of this stopped server's log, from index from
// on, in order, until it returns an error.
func ReadLog(cfg Config, from uint64, each func(consensus.Entry) error) error {
	return consensus.ReadEntries(Rebirth{Config: cfg}.consensusConfig(cfg.StateDir), from, each)
}
