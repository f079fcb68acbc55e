package agent

import (
	"errors"
	"fmt"

	"headroom/agent/originals"
	"headroom/internal/cli"
)

// errNoLeader reports that no leader was reachable.
var errNoLeader = errors.New("no leader reachable")

// errNameTaken reports that another machine is admitted under this node's name.
var errNameTaken = errors.New("name in use by another machine")

func damaged(path string, why error) error {
	return &cli.Error{
		Code: "journal-damaged", Exit: cli.ExitFailed,
		Message: fmt.Sprintf("%s damaged (%v); the fail-safe cap stays written, nothing is restored", path, why),
		Hint:    "restore the file from a copy; otherwise reboot the machine (which resets its limits), delete the file and restart powerd",
		Err:     errors.Join(originals.ErrDamaged, why),
	}
}

func nameTaken(node string, err error) error {
	return &cli.Error{
		Code: "name-taken", Exit: cli.ExitConflict,
		Message: fmt.Sprintf("node %s refused by the coordinator: name in use by another machine; the original limits are restored", node),
		Hint:    "set another node: in powerd.yaml, or keep the etc/machine-id of the machine that this one replaces",
		Err:     errors.Join(errNameTaken, err),
	}
}
