package scheduler

import (
	"connectrpc.com/connect"

	"headroom/internal/cli"
	"headroom/internal/rpc"
)

// refusal returns err for the scheduler's own callers, with the same two lines and exit code.
func refusal(err error, doing string) error {
	e := rpc.AsCLI(err, doing, "the coordinators")
	if e.Code == "not-active" { // it was replaced and has not noticed yet: nothing was carried out
		return rpc.Standby("", "")
	}
	return rpc.Refuse(codeFor(e.Exit), e.Code, e.Exit, e.Error(), e.Hint)
}

// codeFor returns the Connect code of an exit code.
func codeFor(exit int) connect.Code {
	switch exit {
	case cli.ExitUsage:
		return connect.CodeInvalidArgument
	case cli.ExitUnreachable:
		return connect.CodeUnavailable
	case cli.ExitDenied:
		return connect.CodePermissionDenied
	case cli.ExitConflict:
		return connect.CodeAlreadyExists
	case cli.ExitRefused:
		return connect.CodeFailedPrecondition
	case cli.ExitUnknown:
		return connect.CodeDeadlineExceeded
	default:
		return connect.CodeUnknown
	}
}
