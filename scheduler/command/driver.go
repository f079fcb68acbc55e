package command

import (
	"os"

	"github.com/spf13/cobra"

	"headroom/internal/cgroup"
	"headroom/internal/cli"
	"headroom/scheduler/lookup"
	"headroom/scheduler/spark"
	"headroom/systemd"
)

// driveCommand is the supervisor of one run; the engine starts it.
func driveCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "drive FOLDER",
		Short:   "Supervise the driver of a run (started by the scheduler)",
		Example: "  scheduler drive /var/lib/headroom/scheduler/jobs/words-7f3a90c1/run-1",
		Args:    cobra.ExactArgs(1),
		Hidden:  true,
		RunE:    func(_ *cobra.Command, args []string) error { return spark.Drive(args[0]) },
	}
}

// startDriverCommand puts a driver into a unit of its own; "driver" in the section spark of
// scheduler.yaml names it.
func startDriverCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "start-driver SOCKET PROGRAM [ARG...]",
		Short:   "Start a driver as another user (spark.driver of scheduler.yaml)",
		Example: "  scheduler start-driver /run/headroom-driver.sock /opt/spark/bin/spark-submit app.jar",
		Args:    cobra.MinimumNArgs(2),
		Hidden:  true,
		// All that follows is the driver's.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			code, err := spark.StartDriver(cmd.Context(), args[0], args[1:], os.Environ())
			if err != nil {
				return cli.Failed("the unit headroom-driver.socket must be active, and its socket this user's", "%w", err)
			}
			if code != 0 {
				os.Exit(code) // the driver's own, for its supervisor
			}
			return nil
		},
	}
}

// runDriverCommand is the process of a driver's unit.
func runDriverCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "run-driver",
		Short:   "Run a driver as this user (started by a socket unit)",
		Example: "  scheduler run-driver    # ExecStart= of headroom-driver@.service",
		Args:    cobra.NoArgs,
		Hidden:  true,
		RunE: func(*cobra.Command, []string) error {
			c, err := systemd.Conn(os.Getenv, os.Getpid())
			if err != nil {
				return cli.Failed("the unit headroom-driver.socket starts it", "%w", err)
			}
			room, _ := cgroup.Open(cgroup.Options{Delegated: true}) // without a cgroup, the unit's end is the driver's
			return spark.RunDriver(c, room)
		},
	}
}

// lookUpCommand is a process that looks at the files of a job as the job's user.
func lookUpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "look-up",
		Short:   "Find the files that a job names (started by the scheduler)",
		Example: "  scheduler look-up    # the job file is in its environment",
		Args:    cobra.NoArgs,
		Hidden:  true,
		RunE:    func(cmd *cobra.Command, _ []string) error { return lookup.Answer(os.Getenv, cmd.OutOrStdout()) },
	}
}
