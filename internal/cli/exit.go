package cli

// Exit codes of every Headroom program (docs/exit-codes.md). They are part of
// the interface: a script may rely on them.
const (
	// ExitOK says done, healthy, or nothing to change.
	ExitOK = 0
	// ExitFailed says that the command failed, or that a check found failures.
	ExitFailed = 1
	// ExitUsage says that the command line or a configuration file is wrong.
	ExitUsage = 2
	// ExitUnreachable says that no server answered, or that there is no leader.
	ExitUnreachable = 3
	// ExitDenied says not authenticated or not allowed.
	ExitDenied = 4
	// ExitConflict says that the revision moved, or that the name exists differently.
	ExitConflict = 5
	// ExitRefused says that a safety rule refused the change.
	ExitRefused = 6
	// ExitUnknown says that the outcome is unknown: retry with the same request id.
	ExitUnknown = 7
	// ExitDegraded says done, but not everything was confirmed.
	ExitDegraded = 8
	// ExitChanges says that a plan would change something.
	ExitChanges = 10
	// ExitInterrupted says that the command was ended by SIGINT or SIGTERM.
	ExitInterrupted = 130
)
