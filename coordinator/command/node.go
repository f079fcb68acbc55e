package command

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
)

// nodeChanges are the commands that change a node.
func nodeChanges(o *operator) []*cobra.Command {
	return []*cobra.Command{
		nodeSet(o),
		nodeVerb(o, "drain", "Drain a node: lower it to its least cap, then grant it nothing", func(n string) *headroomv1.ChangeRequest {
			return &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_DrainNode{DrainNode: n}}
		}),
		nodeVerb(o, "resume", "Resume a drained node", func(n string) *headroomv1.ChangeRequest {
			return &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_ResumeNode{ResumeNode: n}}
		}),
		nodeVerb(o, "release", "Release a node: it restores its original limits and is charged its rated power", func(n string) *headroomv1.ChangeRequest {
			return &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_ReleaseNode{ReleaseNode: n}}
		}),
		nodeRemove(o),
		explainCommand(o, "node explain"),
	}
}

// nodeVerb is a command that names a node and nothing else.
func nodeVerb(o *operator, verb, short string, build func(node string) *headroomv1.ChangeRequest) *cobra.Command {
	return changeOf(o, "node "+verb, "NODE", short, "n03", func(node string) *headroomv1.ChangeRequest { return build(nodeName(node)) })
}

func nodeRemove(o *operator) *cobra.Command {
	c := &changing{o: o}
	off, keep := false, false
	cmd := &cobra.Command{
		Use: "remove NODE", Short: "Remove a node, or mark its machine as powered off", Args: cobra.ExactArgs(1),
		Long: "Remove a node. With --powered-off its charge is freed at once: use it only if the machine is off. Otherwise the charge\n" +
			"becomes unmanaged power of its domain, because the machine may still draw it. With --keep --powered-off the node stays in\n" +
			"the list as off, and is charged again when it reports.",
		Example: "  coordinator node remove n16 --powered-off --yes\n  coordinator node remove n16 --powered-off --keep",
		RunE: func(cmd *cobra.Command, args []string) error {
			node := nodeName(args[0])
			if keep && !off {
				return cli.Usage("--keep goes with --powered-off")
			}
			r := &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_RemoveNode{RemoveNode: &headroomv1.RemoveNode{Node: node, PoweredOff: off}}}
			if keep {
				r.What = &headroomv1.ChangeRequest_PowerOffNode{PowerOffNode: node}
			}
			return c.send(cmd, "node remove", r)
		},
	}
	c.flags(cmd)
	cmd.Flags().BoolVar(&off, "powered-off", false, "the machine is powered off; its charge is freed at once")
	cmd.Flags().BoolVar(&keep, "keep", false, "with --powered-off: keep the node in the list")
	return cmd
}

func nodeSet(o *operator) *cobra.Command {
	c := &changing{o: o}
	x := &headroomv1.SetNode{Settings: &headroomv1.NodeSettings{}}
	var low, high, failSafe, rated powerFlag
	var weight float64
	var labels []string
	var domain string
	cmd := &cobra.Command{
		Use: "set NODE", Short: "Override a node's settings, or move it to another domain", Args: cobra.ExactArgs(1),
		Example: "  coordinator node set n03 --min 100W --max 220W --weight 2\n  coordinator node set n03 --labels app=spark --clear min\n  coordinator node set n03 --domain rack/r2",
		RunE: func(cmd *cobra.Command, args []string) error {
			x.Node = nodeName(args[0])
			if domain != "" {
				if n := cmd.Flags().NFlag(); n > 1 && changedAny(cmd, "min", "max", "fail-safe", "rated", "weight", "labels", "bmc", "clear") {
					return cli.Usage("--domain moves the node and goes alone; set the rest in a second command")
				}
				move := &headroomv1.MoveNode{Node: x.GetNode(), To: domain}
				return c.send(cmd, "node set", &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_MoveNode{MoveNode: move}})
			}
			s := x.GetSettings()
			s.MinUw, s.MaxUw, s.FailSafeUw, s.RatedUw = low.uw, high.uw, failSafe.uw, rated.uw
			if cmd.Flags().Changed("weight") {
				s.Weight = &weight
			}
			if err := readLabels(x, labels); err != nil {
				return err
			}
			if err := c.raisesMax(cmd, x.GetNode(), high); err != nil {
				return err
			}
			return c.send(cmd, "node set", &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetNode{SetNode: x}})
		},
	}
	c.flags(cmd)
	f := cmd.Flags()
	f.Var(&low, "min", "lowest cap in plans")
	f.Var(&high, "max", "highest cap in plans")
	f.Var(&failSafe, "fail-safe", "fail-safe cap of the node")
	f.Var(&rated, "rated", "maximum power of the node, whatever it declares; accepts or refuses a waiting declaration")
	f.Float64Var(&weight, "weight", 1, "weight of the node when power is divided")
	f.StringSliceVar(&labels, "labels", nil, "labels to set, NAME=VALUE; NAME- removes one")
	f.StringVar(&x.Settings.Bmc, "bmc", "", "host:port of its BMC, queried while the node is lost")
	f.StringSliceVar(&x.Clear, "clear", nil, "settings to reset to what the node declares: min, max, fail-safe, rated, weight, bmc, labels")
	f.StringVar(&domain, "domain", "", "move the node to this domain; both domains are charged until the node has confirmed")
	return cmd
}

// raisesMax asks before a node's highest cap is raised; lowering it does not ask.
func (c *changing) raisesMax(cmd *cobra.Command, node string, to powerFlag) error {
	if to.uw == nil || c.dryRun || isSet(cmd, "yes") {
		return nil
	}
	r, err := call(cmd.Context(), c.o, "node set", &headroomv1.ExplainNodeRequest{Node: node}, headroomv1connect.ClusterServiceClient.ExplainNode)
	if err != nil {
		return c.named(err)
	}
	if now := r.GetNode().GetMaxUw(); *to.uw > now {
		return ask(cmd, fmt.Sprintf("raise the highest cap of %s from %s to %s", node, shownWatts(now), shownWatts(*to.uw)))
	}
	return nil
}

func changedAny(cmd *cobra.Command, names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return cmd.Flags().Changed(n) })
}

func readLabels(x *headroomv1.SetNode, labels []string) error {
	x.Settings.Labels = map[string]string{}
	for _, l := range labels {
		name, value, ok := strings.Cut(l, "=")
		switch {
		case ok && name != "":
			x.Settings.Labels[name] = value
		case strings.HasSuffix(l, "-") && len(l) > 1:
			x.RemoveLabels = append(x.RemoveLabels, strings.TrimSuffix(l, "-"))
		default:
			e := cli.Usage("label %q", l)
			e.Hint = "NAME=VALUE sets a label, NAME- takes it away"
			return e
		}
	}
	return nil
}

// percentFlag is a ratio that is given in percent, and may be left out.
type percentFlag struct{ ratio *float64 }

// String is the ratio in percent.
func (p *percentFlag) String() string {
	if p.ratio == nil {
		return ""
	}
	return strconv.FormatFloat(100**p.ratio, 'g', -1, 64) + "%"
}

// Type is the word for the value in help texts.
func (p *percentFlag) Type() string { return "percent" }

// Set reads a percentage, e.g. 20%.
func (p *percentFlag) Set(s string) error {
	number, ok := strings.CutSuffix(strings.TrimSpace(s), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if !ok || err != nil || v < 0 || v > 100 {
		return fmt.Errorf("%q is no percentage from 0%% to 100%%, e.g. 20%%", s)
	}
	v /= 100
	p.ratio = &v
	return nil
}
