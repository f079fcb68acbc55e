package command

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/secure"
)

func tlsRevoke(o *operator) *cobra.Command {
	c := &changing{o: o}
	cmd := &cobra.Command{
		Use: "revoke ROLE/NAME|SERIAL", Short: "Revoke certificates before they expire", Args: cobra.ExactArgs(1),
		Long: "Revoke every certificate issued to an identity until now, or the one with a serial number (see coordinator tls inspect).\n" +
			"The revocation is permanent and is stored on every server. A certificate created for the identity afterwards is accepted.",
		Example: "  coordinator tls revoke node/n03 --reason \"the machine was stolen\" --yes\n  coordinator tls revoke 3f9a01c5 --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := secure.ParseDenial(args[0])
			if err != nil {
				return tlsError(err)
			}
			return c.send(cmd, "tls revoke", &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_Deny{Deny: &headroomv1.Denial{Identity: d.Identity, Serial: d.Serial}}})
		},
	}
	c.flags(cmd)
	return cmd
}

type deniedItem struct {
	Identity *string `json:"identity"`
	Serial   *string `json:"serial"`
	Denied   string  `json:"denied" of:"at_us"`
	Actor    string  `json:"actor"`
	Reason   string  `json:"reason"`
}

func tlsDenied(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "denied", Short: "List revoked certificates", Args: cobra.NoArgs, Example: "  coordinator tls denied",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := call(cmd.Context(), o, "tls denied", &headroomv1.ListDeniedRequest{}, headroomv1connect.ClusterServiceClient.ListDenied)
			if err != nil {
				return err
			}
			rows := [][]string{}
			for _, d := range r.GetDenied() {
				rows = append(rows, []string{d.GetIdentity() + d.GetSerial(), cli.Clock(time.UnixMicro(d.GetAtUs())), d.GetActor(), d.GetReason()})
			}
			return o.print(cmd, &cli.Watch{}, wrap("DeniedList", r.GetMeta(), cli.Filled[deniedItem](r.GetDenied())), func(out io.Writer) error {
				return o.out.TableOf(out, cli.Table{Head: []string{"WHAT", "DENIED", "BY", "REASON"}, Rows: rows, Noun: "denied certificate or token"})
			})
		},
	}
}
