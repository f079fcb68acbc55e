package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"headroom/agent"
	"headroom/agent/machine"
	"headroom/agent/status"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/dvfs"
	"headroom/internal/cli"
	"headroom/internal/each"
	"headroom/units"
)

func newFreqCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "freq", Short: "Show or limit the processor frequency",
		Example: "  powerd freq list\n  powerd freq set 2400MHz --for 10m\n  powerd freq clear",
	}
	cmd.AddCommand(newFreqListCommand(), newFreqSetCommand(), newFreqClearCommand())
	return cmd
}

func newFreqListCommand() *cobra.Command {
	var p shown
	cmd := &cobra.Command{
		Use: "list", Short: "List the cpufreq policies and their frequency limits",
		Long: "List the cpufreq policies: driver, governor, frequency, and limit as requested and effective. Figures\n" +
			"come from the running powerd, or from the machine if none runs. On a machine without cpufreq the list\n" +
			"is empty and a note gives the reason.",
		Example: "  powerd freq list\n  powerd freq list --root n01/root -o json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := p.find(cmd.Context())
			if err != nil {
				return err
			}
			return p.watch.Run(cmd, func() error {
				if s.status != nil {
					s.status, _ = answering(cmd.Context(), s.stateDir)
				}
				rows, err := freqRows(s, cmd.ErrOrStderr())
				if err != nil {
					return err
				}
				return p.print(cmd, cli.NewList("PolicyList", rows), func(w io.Writer) error { return printFreqs(w, &p.out, rows) })
			})
		},
	}
	return p.watched(cmd)
}

// freqRows returns the policies as the running powerd reports them, or as the machine shows them.
func freqRows(s site, notes io.Writer) (rows []policyJSON, err error) {
	if len(s.status.GetPolicies()) > 0 {
		return cli.Filled[policyJSON](s.status.GetPolicies()), nil
	}
	root, err := machine.OpenRoot(s.root)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	set, err := dvfs.Open(root)
	if errors.Is(err, dvfs.ErrNoPolicy) {
		cli.Notef(notes, "note: no cpufreq policies: %s; this is a virtual machine, or the kernel has no cpufreq driver", oneLine(err))
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, p := range set.Policies() {
		rows = append(rows, ownPolicy(p))
	}
	return rows, set.Close()
}

func ownPolicy(p *dvfs.Policy) policyJSON {
	row := policyJSON{Policy: p.Name, Driver: p.Driver, MinHz: new(p.Min.Hertz()), MaxHz: new(p.Max.Hertz()), State: "unknown"}
	if g, err := p.Governor(); err == nil {
		row.Governor = text(g)
	}
	if f, err := p.Frequency(); err == nil {
		row.FreqHz = new(f.Hertz())
	}
	if f, err := p.CeilingNow(); err == nil {
		row.EffectiveHz, row.State = new(f.Hertz()), status.OK
	}
	return row
}

func printFreqs(w io.Writer, out *cli.Output, rows []policyJSON) error {
	lines := each.List(rows, func(r policyJSON) []string {
		return []string{
			r.Policy, r.Driver, screenText(r.Governor), screenText(r.EPP), screenMHz(r.FreqHz), screenMHz(r.RequestedHz), screenMHz(r.EffectiveHz),
			screenMHz(r.MinHz), screenMHz(r.MaxHz), r.State,
		}
	})
	return out.TableOf(w, cli.Table{Head: []string{"POLICY", "DRIVER", "GOVERNOR", "EPP", "FREQ", "REQUESTED", "EFFECTIVE", "MIN", "MAX", "STATE"}, Rows: lines, Noun: "frequency policy"})
}

func newFreqSetCommand() *cobra.Command {
	var p changes
	var lasts time.Duration
	cmd := &cobra.Command{
		Use: "set FREQ", Short: "Set a frequency limit on every processor for a limited time",
		Long: "Set a frequency limit on every processor for a limited time. It can only lower the frequency. It ends\n" +
			"when its time is up, with powerd freq clear, or when powerd stops.",
		Example: "  powerd freq set 2400MHz --for 10m --reason \"heat\"", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			want, err := units.ParseFreq(args[0])
			if err != nil {
				return quantityError("FREQ", err)
			}
			if want <= 0 {
				return cli.Usage("FREQ: must be above 0; powerd freq clear removes the limit")
			}
			if err := needFor(lasts); err != nil {
				return err
			}
			dir, err := p.state()
			if err != nil {
				return err
			}
			change := p.change()
			got, err := setCeiling(cmd.Context(), dir, want, lasts, change)
			if err != nil {
				return err
			}
			return printCeiling(cmd.OutOrStdout(), &p.out, got, lasts, change.GetRequestId())
		},
	}
	cmd.Flags().DurationVar(&lasts, "for", 0, "duration, for example 10m (required)")
	return p.flags(cmd)
}

func setCeiling(ctx context.Context, dir string, want units.Freq, lasts time.Duration, change *headroomv1.Change) ([]int64, error) {
	req := &headroomv1.SetLocalCeilingRequest{CeilingKhz: int64(want), DurationMs: lasts.Milliseconds(), Change: change}
	res, err := agent.Client(dir).SetLocalCeiling(ctx, connect.NewRequest(req))
	if err != nil {
		doing := "freq set"
		if want == 0 {
			doing = "freq clear"
		}
		return nil, socketError(err, doing, dir, change.GetRequestId())
	}
	return res.Msg.GetEffectiveKhz(), nil
}

func printCeiling(w io.Writer, out *cli.Output, got []int64, lasts time.Duration, id string) error {
	if out.IsJSON() {
		j := setJSON{Kind: "CeilingSet", API: "v1", ForS: lasts.Seconds(), RequestID: id}
		for _, khz := range got {
			j.EffectiveHz = append(j.EffectiveHz, float64(khz)*1e3)
		}
		return out.JSON(w, j)
	}
	low, high := int64(0), int64(0)
	for i, khz := range got {
		if i == 0 {
			low = khz
		}
		low, high = min(low, khz), max(high, khz)
	}
	_, err := fmt.Fprintf(w, "set  %d policies read back %s to %s, for %s, request %s\n", len(got), megahertz(low), megahertz(high), cli.Age(lasts), id)
	return err
}

func newFreqClearCommand() *cobra.Command {
	var p changes
	cmd := &cobra.Command{
		Use: "clear", Short: "Clear the local frequency limit", Example: "  powerd freq clear --yes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := p.state()
			if err != nil {
				return err
			}
			if err := p.sure(cmd, "clear the local frequency limit"); err != nil {
				return err
			}
			s, err := fetchStatus(cmd.Context(), dir)
			if err != nil {
				return err
			}
			change := p.change()
			if _, err := setCeiling(cmd.Context(), dir, 0, 0, change); err != nil {
				return err
			}
			was := s.GetLocal().GetCeilingKhz() > 0
			return printCleared(cmd.OutOrStdout(), &p.out, "local frequency limit", was, change.GetRequestId())
		},
	}
	return p.confirmed(cmd)
}
