// Package command is the coordinator program's command line: the server, and what
// operators ask of it.
//
// The one idea: a command asks and prints, it never decides. Every command that
// changes something sends one request with an idempotency key and tells the
// revision that it made; every list has the same frame in JSON. Lowering never
// asks; the direction that is not safe takes a word.
//
// What it never does: read the log or the state of a server other than by asking it.
package command

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator"
	"headroom/internal/cli"
	"headroom/internal/manual"
)

// New is the coordinator program: the server and the operators' command line.
func New() *cobra.Command {
	root := &cobra.Command{
		Use: "coordinator", Short: "Keep a cluster within its power budget",
		Long: "coordinator runs one server of the cluster that enforces the power budget. It is also the operators' command line.\n\n" +
			"Commands talk to the leader. Without --addr they use the local server's unix socket, where root\n" +
			"and the server's user need no certificate. For remote servers give --addr and credentials: --ca, --cert and --key, or --ca\n" +
			"and --token-file.\n\n" +
			"Lowering a budget or a cap never asks. Raising, removing, restoring and transferring ask on a terminal and require --yes without one.\n" +
			"A command that changes something reports the revision it made. It takes --reason for the audit log, --dry-run, and\n" +
			"--request-id: a request with the same id is executed once.",
		Example: "  coordinator status\n  coordinator budget set 2800W --reason \"feeder B maintenance\"",
	}
	o := &operator{}
	o.out.Flags(root)
	o.flags(root)
	root.AddCommand(runCommand(), statusCommand(o), checkCommand(o), budgetCommand(o), domainCommand(o), nodeCommand(o), leaseCommand(o), policyCommand(o),
		jobCommand(o), sprintCommand(o), brakeCommand(o), eventCommand(o), alarmCommand(o), memberCommand(o), snapshotCommand(o), tokenCommand(o), tlsCommand(o), gossipCommand(&o.out),
		debugCommand(o), configCommand(&o.out), manual.Command("coordinator", generatedDocs), versionCommand(&o.out))
	applyRules(root, rules())
	o.complete(root)
	return root
}

// envelope is the frame of every JSON answer.
type envelope struct {
	Kind        string  `json:"kind"`
	API         string  `json:"api"`
	Revision    uint64  `json:"revision"`
	AsOf        string  `json:"as_of"`
	Consistency string  `json:"consistency"`
	Server      string  `json:"server"`
	Epoch       *uint64 `json:"epoch"`
	// AgeS is the age of the state in a stale answer.
	AgeS  *float64 `json:"age_s,omitempty"`
	Items any      `json:"items"`
}

func wrap(kind string, m *headroomv1.Meta, items any) envelope {
	term, age := m.GetEpoch().GetTerm(), (*float64)(nil)
	if m != nil {
		age = seconds(m.AgeMs)
	}
	return envelope{
		Kind: kind, API: "v1", Revision: m.GetRevision(), AsOf: time.UnixMicro(m.GetAsOfUs()).UTC().Format(time.RFC3339Nano),
		Consistency: m.GetConsistency(), Server: m.GetServer(), Epoch: cli.Known(term, m.GetEpoch() != nil), AgeS: age, Items: items,
	}
}

// staleNote prints on stderr that an answer may be old.
func staleNote(cmd *cobra.Command, m *headroomv1.Meta) {
	if m.GetConsistency() == "stale" {
		cli.Notef(cmd.ErrOrStderr(), "note: read from %s without a leader; its newest state is %s old", m.GetServer(), cli.Opt(m.AgeMs, shownAge))
	}
}

// print writes an answer in the form that was asked for.
func (o *operator) print(cmd *cobra.Command, w *cli.Watch, e envelope, table func(io.Writer) error) error {
	return o.out.Print(cmd, w, e, table)
}

func versionCommand(out *cli.Output) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs, Example: "  coordinator version -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out.IsJSON() {
				return out.JSON(cmd.OutOrStdout(), map[string]string{"program": "coordinator", "version": coordinator.Version})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "coordinator %s\n", coordinator.Version)
			return err
		},
	}
}
