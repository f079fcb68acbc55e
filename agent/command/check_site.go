package command

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"connectrpc.com/connect"

	"headroom/agent"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/units"
)

const (
	// leaderWait bounds the whole search for a coordinator that leads.
	leaderWait = 5 * time.Second
	// leaderPatience is how long none may lead until the search gives up: an election
	// takes one to three seconds.
	leaderPatience = 2 * time.Second
)

// checkLeader looks for a coordinator that leads, and asks it whether this node
// could be released now: whether its originals could go back.
func checkLeader(ctx context.Context, s site) []finding {
	switch {
	case s.cfg == nil:
		return []finding{{"leader", checkOK, "no configuration, not looked for", ""}}
	case s.cfg.Alone():
		return []finding{{"leader", checkOK, "no coordinator configured: the node holds its fail-safe cap and needs no release", ""}}
	}
	addrs := agent.KnownCoordinators(*s.cfg)
	if len(addrs) == 0 {
		return []finding{{
			"leader", checkWarn, "no coordinator's address is known yet: only gossip is configured, and powerd has not run",
			"powerd run learns it; or name one in coordinators: in powerd.yaml",
		}}
	}
	ctx, cancel := context.WithTimeout(ctx, leaderWait)
	defer cancel()
	began := time.Now()
	var domains []*headroomv1.Domain
	var nodes []*headroomv1.Node
	peers, err := s.cfg.Peers()
	if err != nil {
		return []finding{{"leader", checkFail, oneLine(err), "correct the tls section of powerd.yaml"}}
	}
	defer peers.Close()
	leader, err := rpc.Search{Addrs: addrs, Patience: leaderPatience, Refused: rpc.RefusedWait}.ToLeader(ctx, func(addr string) error {
		var err error
		domains, nodes, err = askSite(ctx, peers, addr, s.cfg.Node)
		return err
	})
	took := time.Since(began)
	if err != nil {
		return []finding{{
			"leader", checkFail, fmt.Sprintf("no coordinator that leads answers at %s: %s", strings.Join(addrs, ", "), oneLine(err)),
			"start one, or look at coordinator status; without one the node holds its fail-safe cap",
		}}
	}
	f := finding{"leader", checkOK, fmt.Sprintf("%s answered in %.1f ms", leader, float64(took.Microseconds())/1e3), ""}
	if s.status != nil && s.status.GetLeader() == "" {
		f = finding{"leader", checkWarn, leader + " leads, but powerd has no stream to it", "powerd status says why (health)"}
	}
	return []finding{f, checkOriginals(s, domains, nodes)}
}

func askSite(ctx context.Context, peers rpc.Peers, addr, node string) ([]*headroomv1.Domain, []*headroomv1.Node, error) {
	c := headroomv1connect.NewClusterServiceClient(peers.HTTP(), peers.URL(addr), peers.Options()...)
	domains, err := c.ListDomains(ctx, connect.NewRequest(&headroomv1.ListDomainsRequest{}))
	if err != nil {
		return nil, nil, err
	}
	nodes, err := c.ListNodes(ctx, connect.NewRequest(&headroomv1.ListNodesRequest{Node: node}))
	if connect.CodeOf(err) == connect.CodeNotFound {
		return domains.Msg.GetDomains(), nil, nil // not known yet: nothing is charged
	}
	if err != nil {
		return nil, nil, err
	}
	return domains.Msg.GetDomains(), nodes.Msg.GetNodes(), nil
}

// checkOriginals looks whether the budget has room for this node without a cap.
func checkOriginals(s site, domains []*headroomv1.Domain, nodes []*headroomv1.Node) finding {
	room, at, err := tightest(domains, s.cfg.Domain)
	if err != nil {
		return finding{"originals", checkFail, err.Error(), "domain: in powerd.yaml must be one of those that coordinator domain list shows"}
	}
	needs := s.cfg.Power.Rated
	for _, n := range nodes {
		if n.GetName() == s.cfg.Node {
			needs -= units.Power(n.GetChargeUw())
		}
	}
	if needs <= room {
		return finding{"originals", checkOK, fmt.Sprintf("%s has %s, a release needs %s", at, roomText(room), cli.Watts(max(0, needs))), ""}
	}
	return finding{
		"originals", checkWarn, fmt.Sprintf("%s has %s, a release of this node needs %s: at a stop its fail-safe cap stays written", at, roomText(room), cli.Watts(needs)),
		"make room in the budget before this node is taken out of service; see coordinator budget show",
	}
}

// errNoDomain reports a domain that the coordinator does not know.
var errNoDomain = errors.New("the coordinator does not know the domain")

// tightest is the least headroom of a domain and all above it.
func tightest(domains []*headroomv1.Domain, name string) (room units.Power, at string, err error) {
	by := make(map[string]*headroomv1.Domain, len(domains))
	for _, d := range domains {
		by[d.GetName()] = d
	}
	room = math.MaxInt64
	for range len(domains) + 1 { // a tree is never deeper than it has domains
		d := by[name]
		if d == nil {
			break
		}
		if units.Power(d.GetHeadroomUw()) < room {
			room, at = units.Power(d.GetHeadroomUw()), d.GetName()
		}
		name = d.GetParent()
	}
	if at == "" {
		return 0, "", fmt.Errorf("%w %s", errNoDomain, name)
	}
	return room, at, nil
}
