package scheduler

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/manual"
	"headroom/internal/rpc"
)

const (
	// addrEnv names the scheduler for users who do not want to repeat --addr.
	addrEnv = "HEADROOM_SCHEDULER_ADDR"
	// addrDefault is where a scheduler listens by default.
	addrDefault = "127.0.0.1:7410"
	// callWait bounds one command; longer than the scheduler's own bounds, so that
	// its answer arrives.
	callWait = 15 * time.Second
)

// NewCommand is "scheduler": the server, the worker and the users' commands.
func NewCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "scheduler",
		Short: "Run jobs by priority on nodes whose power is capped",
		Long: "Run jobs by priority on nodes whose power is capped: one buffer per class, first come first served\n" +
			"inside a class. Jobs share the slots, or run one at a time by a discipline of scheduler.yaml. A node with a lower cap gets fewer tasks at once.",
		Example: "  scheduler submit words.yaml\n  scheduler list\n  scheduler cancel words-7f3a90c1 --reason \"wrong input\"",
		Args:    cobra.NoArgs,
	}
	root.AddCommand(runCommand(), workerCommand(), submitCommand(), listCommand(), showCommand(), cancelCommand(), drainCommand(), driveCommand(), runTasksCommand(), configCommand(), manual.Command("scheduler", func(string) (manual.Pages, error) { return generatedDocs(), nil }), versionCommand())
	return root
}

// target is the scheduler that a command talks to.
type target struct{ addr string }

func (t *target) flags(cmd *cobra.Command) {
	addr := os.Getenv(addrEnv)
	if addr == "" {
		addr = addrDefault
	}
	cmd.Flags().StringVar(&t.addr, "addr", addr, "address of the scheduler, host:port ("+addrEnv+")")
}

// use calls the scheduler and turns what it answers into the two-line error.
func (t *target) use(doing string, call func(headroomv1connect.SchedulerServiceClient) error) error {
	client := rpc.NewClient()
	defer client.CloseIdleConnections()
	err := call(headroomv1connect.NewSchedulerServiceClient(client, rpc.BaseURL(t.addr), rpc.ClientOptions()...))
	if err == nil {
		return nil
	}
	return rpc.AsCLI(err, doing, t.addr)
}

// change is who changes something, why, and the key that makes it happen once.
type change struct{ reason, requestID string }

func (c *change) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.reason, "reason", "", "why, for the event log")
	cmd.Flags().StringVar(&c.requestID, "request-id", "", "idempotency key: repeat it to repeat a command safely (made up when empty)")
}

// fill chooses a request id when the user gave none.
func (c *change) fill() {
	if c.requestID == "" {
		c.requestID = cli.RequestID()
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  scheduler version",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "scheduler", cli.Version)
			return err
		},
	}
}
