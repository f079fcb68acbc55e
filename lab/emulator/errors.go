package emulator

import "errors"

var (
	// errRunning reports a node folder that another process owns.
	errRunning = errors.New("emulator: node is already running")
	// errName reports a node name that cannot be a folder, a host and a log field.
	errName = errors.New("emulator: bad node name")
	// errFault reports a fault that a BMC does not have.
	errFault = errors.New("emulator: unknown fault")
	// errNeedsFUSE reports a fault that a tree of plain files cannot show.
	errNeedsFUSE = errors.New("emulator: fault not supported by plain files")
)
