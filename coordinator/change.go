package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/budget"
	"headroom/coordinator/access"
	"headroom/coordinator/alarms"
	"headroom/coordinator/leading"
	"headroom/coordinator/view"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/ledger"
	"headroom/ledger/leader"
	"headroom/units"
)

// Change implements headroomv1connect.ClusterServiceHandler: one change of what
// operators say, planned on the committed state and carried out by one entry.
func (c clusterService) Change(ctx context.Context, r *connect.Request[headroomv1.ChangeRequest]) (*connect.Response[headroomv1.ChangeResponse], error) {
	if err := mayChange(ctx, r.Msg); err != nil {
		return nil, err
	}
	return rpc.Respond(c.operate(ctx, r.Msg))
}

// mayChange refuses changes that need an administrator: a caller who can create tokens can get every role.
func mayChange(ctx context.Context, r *headroomv1.ChangeRequest) error {
	who := access.CallerOf(ctx)
	if (r.GetCreateToken() == nil && r.GetRevokeToken() == "" && r.GetDeny() == nil) || who.Role.May(ledger.RoleAdmin) {
		return nil
	}
	action := "token create"
	switch {
	case r.GetRevokeToken() != "":
		action = "token revoke"
	case r.GetDeny() != nil:
		action = "tls deny"
	}
	return access.Denied(who, action, ledger.RoleAdmin)
}

// operate makes a change, or returns what it would do.
func (c clusterService) operate(ctx context.Context, r *headroomv1.ChangeRequest) (*headroomv1.ChangeResponse, error) {
	out, err := c.requests.tried(ctx, r, r.GetDryRun(), func(v leader.View, x *ledger.Command) error {
		if r.GetAckAlarm() != "" {
			return c.ackAlarm(v, r.GetAckAlarm(), x)
		}
		return build(v, r, x)
	})
	return out, err
}

// ackAlarm acknowledges an active alarm.
func (c clusterService) ackAlarm(v leader.View, key string, x *ledger.Command) error {
	l := c.requests.loop.Load()
	if l == nil {
		return leading.ErrDeposed
	}
	x.AckAlarm = &ledger.Named{Name: key}
	return l.Known().CheckAlarm(v.State, key)
}

// movedDomains returns the domains whose sums differ, by name.
func movedDomains(before, after map[string]ledger.Totals) (was, is []*headroomv1.Domain) {
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if old, ok := before[name]; !ok || old != after[name] {
			was, is = append(was, view.Totals(name, old)), append(is, view.Totals(name, after[name]))
		}
	}
	return was, is
}

// build converts a request to the ledger's command.
func build(v leader.View, r *headroomv1.ChangeRequest, c *ledger.Command) error {
	s := v.State
	switch x := r.GetWhat().(type) {
	case *headroomv1.ChangeRequest_SetDomain:
		c.Domain = domainSetting(x.SetDomain)
		if _, known := s.Domains[c.Domain.Name]; !known {
			return leader.AboveParent(s, c.Domain.Parent, c.Domain.Name, 0, c.Domain.Budget)
		}
	case *headroomv1.ChangeRequest_RemoveDomain:
		c.RemoveDomain = &ledger.Named{Name: x.RemoveDomain}
	case *headroomv1.ChangeRequest_SetNode:
		settings, err := nodeSettings(s, x.SetNode)
		c.Node = &ledger.SetNode{Node: x.SetNode.GetNode(), Settings: settings}
		return err
	case *headroomv1.ChangeRequest_MoveNode:
		c.Move = &ledger.MoveNode{Node: x.MoveNode.GetNode(), To: x.MoveNode.GetTo()}
	case *headroomv1.ChangeRequest_DrainNode:
		c.Drain = &ledger.DrainNode{Node: x.DrainNode}
	case *headroomv1.ChangeRequest_ResumeNode:
		c.Drain = &ledger.DrainNode{Node: x.ResumeNode, Resume: true}
	case *headroomv1.ChangeRequest_ReleaseNode:
		c.Release = &ledger.Release{Node: x.ReleaseNode, MachineID: s.Nodes[x.ReleaseNode].MachineID}
	case *headroomv1.ChangeRequest_RemoveNode:
		return leader.Remove(x.RemoveNode.GetNode(), x.RemoveNode.GetPoweredOff())(v, c)
	case *headroomv1.ChangeRequest_PowerOffNode:
		return leader.PowerOff(x.PowerOffNode, c.Actor)(v, c)
	case *headroomv1.ChangeRequest_SetPolicy:
		c.Policy = &ledger.Named{Name: x.SetPolicy}
	case *headroomv1.ChangeRequest_SetLease:
		span := func(ms int64) time.Duration { return time.Duration(min(max(0, ms), 1e9)) * time.Millisecond }
		c.SetLease = &ledger.SetLease{Length: span(x.SetLease.GetLengthMs()), Settle: span(x.SetLease.GetSettleMs())}
	case *headroomv1.ChangeRequest_SetContainerPolicy:
		c.ContainerPolicy = &ledger.Named{Name: x.SetContainerPolicy}
	case *headroomv1.ChangeRequest_SetSchedule:
		c.Schedule = &ledger.SetSchedule{
			Name: x.SetSchedule.GetName(), Domain: rootOr(s, x.SetSchedule.GetDomain()), Cron: x.SetSchedule.GetCron(),
			Zone: x.SetSchedule.GetZone(), Budget: units.Power(x.SetSchedule.GetBudgetUw()),
			Force: x.SetSchedule.GetForce() && s.Rules >= ledger.RulesOfFloors,
		}
		if err := checkZone(x.SetSchedule.GetZone()); err != nil || r.GetDryRun() {
			return err
		}
		return confirmed(s, c.Schedule.Domain, c.Schedule.Budget, units.Power(x.SetSchedule.GetConfirmUw()))
	case *headroomv1.ChangeRequest_RemoveSchedule:
		c.RemoveSchedule = &ledger.Named{Name: x.RemoveSchedule}
	case *headroomv1.ChangeRequest_CreateToken:
		t := x.CreateToken
		c.Token = &ledger.Token{ID: t.GetId(), Name: t.GetName(), Role: ledger.Role(t.GetRole()), Hash: t.GetHash(), Created: c.At, Expires: t.GetExpiresUs()}
	case *headroomv1.ChangeRequest_RevokeToken:
		c.RevokeToken = &ledger.Named{Name: x.RevokeToken}
	case *headroomv1.ChangeRequest_Deny:
		c.Deny = &ledger.Denial{Identity: x.Deny.GetIdentity(), Serial: x.Deny.GetSerial()}
		return checkDenial(c.Deny)
	default:
		return buildSprint(s, r, c)
	}
	return nil
}

func buildSprint(s *ledger.State, r *headroomv1.ChangeRequest, c *ledger.Command) error {
	switch x := r.GetWhat().(type) {
	case *headroomv1.ChangeRequest_SetSprintBudget:
		c.SprintBudget = &ledger.SetSprintBudget{
			Domain: rootOr(s, x.SetSprintBudget.GetDomain()), Capacity: units.Energy(x.SetSprintBudget.GetCapacityUj()),
			Refill: units.Power(x.SetSprintBudget.GetRefillUw()), Shares: x.SetSprintBudget.GetShares(),
		}
	case *headroomv1.ChangeRequest_GrantSprint:
		c.Sprint = sprintGrant(s, x.GrantSprint)
	case *headroomv1.ChangeRequest_EndSprint:
		c.EndSprint = &ledger.EndSprint{ID: x.EndSprint, Why: "cancelled by " + c.Actor}
	default:
		return errNoChange
	}
	return nil
}

var (
	errNoChange = errors.New("the request has no change that this server supports")
	errZone     = errors.New("unknown time zone")
)

func checkZone(name string) error {
	if _, err := time.LoadLocation(name); err != nil {
		return fmt.Errorf("%q: %w", name, errZone)
	}
	return nil
}

// rootOr returns the named domain, or the root if none is named.
func rootOr(s *ledger.State, domain string) string {
	if t := s.Tree(); domain == "" && t != nil {
		return t.Root().Name
	}
	return domain
}

func domainSetting(x *headroomv1.SetDomain) *ledger.SetDomain {
	out := &ledger.SetDomain{
		Name: x.GetName(), Parent: x.GetParent(), Budget: units.Power(x.GetBudgetUw()), Unmanaged: power(x.UnmanagedUw), Rating: power(x.RatingUw),
		Margin: x.Margin, RatedMax: power(x.RatedMaxUw),
	}
	if x.BootNodes != nil {
		out.BootNodes = new(int(x.GetBootNodes()))
	}
	if x.LostCharge != nil {
		out.LostCharge = new(ledger.LostCharge(x.GetLostCharge()))
	}
	return out
}

// nodeSettings returns the settings of a node after a change: the named fields are
// replaced or cleared, the others stay.
func nodeSettings(s *ledger.State, x *headroomv1.SetNode) (ledger.Settings, error) {
	out, in := s.Nodes[x.GetNode()].Settings, cmp.Or(x.GetSettings(), &headroomv1.NodeSettings{})
	out.Labels = maps.Clone(out.Labels)
	for _, name := range x.GetClear() {
		switch name {
		case "min":
			out.Min = nil
		case "max":
			out.Max = nil
		case "fail-safe":
			out.FailSafe = nil
		case "rated":
			out.Rated = nil
		case "weight":
			out.Weight = nil
		case "bmc":
			out.BMC = ""
		case "labels":
			out.Labels = nil
		default:
			return out, fmt.Errorf("%w: %q must be one of min, max, fail-safe, rated, weight, bmc, labels", ledger.ErrSettings, name)
		}
	}
	out.Min, out.Max, out.FailSafe = orPower(in.MinUw, out.Min), orPower(in.MaxUw, out.Max), orPower(in.FailSafeUw, out.FailSafe)
	out.Rated = orPower(in.RatedUw, out.Rated)
	if in.Weight != nil {
		out.Weight = in.Weight
	}
	if in.GetBmc() != "" {
		out.BMC = in.GetBmc()
	}
	for k, v := range in.GetLabels() {
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		out.Labels[k] = v
	}
	for _, k := range x.GetRemoveLabels() {
		delete(out.Labels, k)
	}
	return out, nil
}

func orPower(uw *int64, otherwise *units.Power) *units.Power {
	if uw == nil {
		return otherwise
	}
	return new(units.Power(*uw))
}

// sprintGrant returns a sprint on every named node, up to the requested cap or to
// each node's maximum power.
func sprintGrant(s *ledger.State, x *headroomv1.GrantSprint) *ledger.GrantSprint {
	out := &ledger.GrantSprint{
		ID: x.GetId(), Job: x.GetJob(), Class: x.GetClass(), Domain: rootOr(s, x.GetDomain()),
		Duration: time.Duration(x.GetDurationMs()) * time.Millisecond,
	}
	names := slices.Sorted(slices.Values(x.GetNodes()))
	for _, name := range slices.Compact(names) {
		to := units.Power(x.GetCapUw())
		if to == 0 {
			to = s.Nodes[name].Rated
		}
		out.Caps = append(out.Caps, ledger.Target{Node: name, Cap: to})
	}
	return out
}

// changeRefusals returns the refusals of operators' changes.
func changeRefusals() []refusalRule {
	bad, fixed := connect.CodeInvalidArgument, connect.CodeFailedPrecondition
	return []refusalRule{
		{errNoChange, bad, "usage", cli.ExitUsage, "use a coordinator command of this version"},
		{leader.ErrHeard, fixed, "alive", cli.ExitRefused, "stop its powerd or switch the machine off first, and wait until coordinator node list says lost"},
		{leader.ErrAboveParent, fixed, "above-parent", cli.ExitRefused, "raise the budget of the domain above first; coordinator budget show lists both"},
		{errUnconfirmed, fixed, "unconfirmed", cli.ExitUsage, "repeat the value to confirm it: --confirm POWER, in the API confirm_uw"},
		{errZone, bad, "usage", cli.ExitUsage, "a zone is an IANA name like Europe/Berlin; UTC is the default"},
		{alarms.ErrUnknown, connect.CodeNotFound, "unknown-alarm", cli.ExitUsage, "coordinator alarm list shows the keys"},
		{ledger.ErrBraked, fixed, "braked", cli.ExitRefused, "coordinator brake show shows who set it; coordinator brake lift lifts it"},
		{ledger.ErrRestored, fixed, "restored", cli.ExitRefused, "wait until every node has reported, or mark those that are off: coordinator node remove NODE --powered-off"},
		{ledger.ErrParent, bad, "usage", cli.ExitUsage, "add a new domain and move its nodes: coordinator node set NODE --domain"},
		{ledger.ErrDomain, bad, "usage", cli.ExitUsage, "coordinator domain list shows the present settings"},
		{ledger.ErrInUse, fixed, "in-use", cli.ExitRefused, "move or remove its nodes and domains first"},
		{ledger.ErrSettings, bad, "usage", cli.ExitUsage, "coordinator node show NODE -o json shows what the node declares"},
		{ledger.ErrMoving, fixed, "moving", cli.ExitRefused, "wait until the node has acknowledged its last move"},
		{ledger.ErrUnknownSprint, connect.CodeNotFound, "unknown-sprint", cli.ExitUsage, "coordinator sprint list shows the sprints"},
		{ledger.ErrAtRated, fixed, "at-rated", cli.ExitRefused, "lower the budget, or the node's cap first: coordinator node set NODE --max"},
		{ledger.ErrSprint, fixed, "no-sprint", cli.ExitRefused, "coordinator sprint list shows the energy budget and the open sprints"},
		{ledger.ErrUnknownSchedule, connect.CodeNotFound, "unknown-schedule", cli.ExitUsage, "coordinator budget schedule list lists the schedules"},
		{ledger.ErrLease, bad, "usage", cli.ExitUsage, "use a duration from 3s to 2m, e.g. coordinator lease set 10s"},
		{ledger.ErrSchedule, bad, "usage", cli.ExitUsage, "five fields as in crontab(5), e.g. \"0 18 * * 1-5\""},
		{ledger.ErrUnknownToken, connect.CodeNotFound, "unknown-token", cli.ExitUsage, "coordinator token list lists the tokens"},
		{ledger.ErrToken, bad, "usage", cli.ExitUsage, "create a token with coordinator token create"},
		{ledger.ErrDenial, bad, "usage", cli.ExitUsage, "deny ROLE/NAME, or the serial number that coordinator tls inspect shows"},
		{ledger.ErrSkip, fixed, "no-room", cli.ExitRefused, "give the node that reports it a new state directory: it then forgets the generation"},
		{ledger.ErrRole, bad, "usage", cli.ExitUsage, "a role is node, observer, operator or admin"},
		{ledger.ErrPast, bad, "usage", cli.ExitUsage, "use a time in the future"},
		{ledger.ErrText, bad, "usage", cli.ExitUsage, "use a shorter text"},
		{ledger.ErrContainerPolicy, bad, "usage", cli.ExitUsage, "coordinator policy list lists the policies"},
		{budget.ErrPolicy, bad, "usage", cli.ExitUsage, "coordinator policy list lists the policies"},
	}
}
