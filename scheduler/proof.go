package scheduler

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/secure"
	"headroom/jobs/dispatch"
)

const (
	// proofKeyFile is the key of the proofs, in the scheduler's own folder.
	proofKeyFile = "attempts.key"
	// proofSize is the length of a proof in bytes: 128 bits cannot be guessed.
	proofSize = 16
)

// withKey returns the prover of the active scheduler: the key in the log, or this folder's own if there is none yet.
func (p prover) withKey(key []byte) prover {
	if len(key) == len(p.key) {
		return prover{key}
	}
	return p
}

// prover creates the proof of an attempt: a message authentication code over the node and the attempt, which only the
// worker that was given the attempt knows. It needs no memory, so attempts of an earlier scheduler process on the same
// folder are recognised.
type prover struct{ key []byte }

// openProver reads the key in the scheduler's folder, or creates one.
func openProver(dir string) (prover, error) {
	key, err := secure.OpenKey(filepath.Join(dir, proofKeyFile))
	if errors.Is(err, secure.ErrKey) {
		return prover{}, &cli.Error{Code: "state", Exit: cli.ExitFailed, Err: err, Message: err.Error(), Hint: "remove it; running tasks are then run again"}
	}
	return prover{key}, err
}

// proof returns the proof of an attempt on a node.
func (p prover) proof(node string, ref dispatch.Ref) string {
	mac := hmac.New(sha256.New, p.key)
	// No part contains a zero byte: nameRule checks names and ids.
	_, _ = fmt.Fprintf(mac, "%s\x00%s\x00%s\x00%d\x00%d", node, ref.Job, ref.Phase, ref.Index, ref.Attempt) // writing to a hash never fails
	return hex.EncodeToString(mac.Sum(nil)[:proofSize])
}

// verify returns the attempt that a worker of the node reports, and whether the worker was given it.
func (p prover) verify(node string, r *headroomv1.TaskRef) (ref dispatch.Ref, ok bool) {
	ref, err := refFromProto(r)
	if err != nil {
		return ref, false
	}
	return ref, hmac.Equal([]byte(p.proof(node, ref)), []byte(r.GetProof()))
}

// sort separates the attempts that the worker of a node was given from others.
func (p prover) sort(node string, refs []*headroomv1.TaskRef) (given []dispatch.Ref, others []*headroomv1.TaskRef) {
	for _, r := range refs {
		if ref, ok := p.verify(node, r); ok {
			given = append(given, ref)
		} else {
			others = append(others, r)
		}
	}
	return given, others
}
