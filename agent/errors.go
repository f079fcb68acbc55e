package agent

import (
	"errors"
	"fmt"

	"headroom/agent/originals"
	"headroom/internal/cli"
)

// errNoLeader reports that no coordinator that leads could be asked.
var errNoLeader = errors.New("no coordinator that leads answers")

// errNameTaken reports that another machine is admitted under this node's name.
var errNameTaken = errors.New("the name belongs to another machine")

func damaged(path string, why error) error {
	return &cli.Error{
		Code: "journal-damaged", Exit: cli.ExitFailed,
		Message: fmt.Sprintf("%s is damaged (%v); the fail-safe cap stays written and nothing is restored", path, why),
		Hint:    "put a copy back; without one, reboot the machine (which resets its limits), move the file away and start powerd again",
		Err:     errors.Join(originals.ErrDamaged, why),
	}
}

func nameTaken(node string, err error) error {
	return &cli.Error{
		Code: "name-taken", Exit: cli.ExitConflict,
		Message: fmt.Sprintf("node %s: the coordinator refuses it: the name is used by another machine; the original limits are back", node),
		Hint:    "give this machine another name (node: in powerd.yaml), or keep the etc/machine-id of the one it replaces",
		Err:     errors.Join(errNameTaken, err),
	}
}
