package emulator

import "errors"

var (
	// ErrRunning reports a node folder that another process owns.
	ErrRunning = errors.New("emulator: node is already running")
	// ErrName reports a node name that cannot be a folder, a host and a log field.
	ErrName = errors.New("emulator: bad node name")
	// errMalformed reports text that the kernel would refuse.
	errMalformed = errors.New("emulator: malformed value")
)
