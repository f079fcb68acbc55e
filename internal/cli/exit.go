package cli

// Exit codes of every Headroom program (docs/exit-codes.md). They are part of
// the interface: a script may rely on them.
const (
	// ExitOK means done, healthy, or nothing to change.
	ExitOK = 0
	// ExitFailed means that the command failed or a check found failures.
	ExitFailed = 1
	// ExitUsage means that the command line or a configuration file is wrong.
	ExitUsage = 2
	// ExitUnreachable means that no server answered or there is no leader.
	ExitUnreachable = 3
	// ExitDenied means not authenticated or not allowed.
	ExitDenied = 4
	// ExitConflict means that the revision moved or the name exists with other values.
	ExitConflict = 5
	// ExitRefused means that a safety rule refused the change.
	ExitRefused = 6
	// ExitUnknown means that the outcome is unknown; retry with the same request id.
	ExitUnknown = 7
	// ExitDegraded means done, but not everything is confirmed.
	ExitDegraded = 8
	// ExitChanges means that a plan has changes.
	ExitChanges = 10
	// ExitInterrupted means that the command was ended by SIGINT or SIGTERM.
	ExitInterrupted = 130
)
