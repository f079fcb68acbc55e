package emulator

import "errors"

var (
	// ErrRunning reports a node folder that another process owns.
	ErrRunning = errors.New("emulator: node is already running")
	// ErrName reports a node name that cannot be a folder, a host and a log field.
	ErrName = errors.New("emulator: bad node name")
	// ErrFault reports a fault that a BMC does not have.
	ErrFault = errors.New("emulator: no such fault")
	// ErrNeedsFUSE reports a fault that a tree of plain files cannot show.
	ErrNeedsFUSE = errors.New("emulator: plain files cannot show this fault")
)
