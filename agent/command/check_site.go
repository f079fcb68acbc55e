package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"time"

	"connectrpc.com/connect"

	"headroom/agent"
	"headroom/agent/config"
	"headroom/agent/machine"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/units"
)

const (
	// leaderWait bounds the search for the leader.
	leaderWait = 5 * time.Second
	// leaderPatience bounds the wait for an election, which takes one to three seconds.
	leaderPatience = 2 * time.Second
)

// checkLeader looks for the leader and checks whether this node could be released now.
func checkLeader(ctx context.Context, s site) []finding {
	switch {
	case s.cfg == nil:
		return []finding{{"leader", checkOK, "no configuration, not checked", ""}}
	case s.cfg.Alone():
		return []finding{{"leader", checkOK, "no coordinator configured; the node holds its fail-safe cap", ""}}
	}
	addrs := agent.KnownCoordinators(*s.cfg)
	if len(addrs) == 0 {
		return []finding{{
			"leader", checkWarn, "no coordinator address known: only gossip is configured, and powerd has not run yet",
			"start powerd, or set coordinators: in powerd.yaml",
		}}
	}
	ctx, cancel := context.WithTimeout(ctx, leaderWait)
	defer cancel()
	began := time.Now()
	var domains []*headroomv1.Domain
	var nodes []*headroomv1.Node
	peers, err := s.cfg.Peers()
	if err != nil {
		return []finding{{"leader", checkFail, "not reached without a certificate: " + oneLine(err), config.HintOf(err)}}
	}
	defer peers.Close()
	leader, err := rpc.Search{Addrs: addrs, Patience: leaderPatience, Refused: rpc.RefusedWait, Probe: peers.Probe}.ToLeader(ctx, func(addr string) error {
		var err error
		domains, nodes, err = askSite(ctx, peers, addr, s.cfg.Node)
		return err
	})
	took := time.Since(began)
	if err != nil {
		return []finding{{
			"leader", checkFail, fmt.Sprintf("no leader reachable at %s: %s", strings.Join(addrs, ", "), oneLine(err)),
			"see coordinator status on a server; without a leader the node holds its fail-safe cap",
		}}
	}
	f := finding{"leader", checkOK, fmt.Sprintf("%s answered in %.1f ms", leader, float64(took.Microseconds())/1e3), ""}
	if s.status != nil && s.status.GetLeader() == "" {
		f = finding{"leader", checkWarn, leader + " is the leader, but powerd has no stream to it", "powerd status shows the reason"}
	}
	return []finding{f, checkOriginals(s, domains, nodes)}
}

// checkIdentity checks the certificate of this node, and the files of its key and authority.
func checkIdentity(s site) finding {
	if s.cfg == nil || s.cfg.TLS.Off() {
		return finding{"certificate", checkOK, "none configured", ""}
	}
	c := s.cfg.Certificate().Check(time.Now())
	return finding{"certificate", c.State, c.Text, c.Hint}
}

func askSite(ctx context.Context, peers rpc.Peers, addr, node string) ([]*headroomv1.Domain, []*headroomv1.Node, error) {
	c := headroomv1connect.NewClusterServiceClient(peers.HTTP(), peers.URL(addr), peers.Options()...)
	domains, err := c.ListDomains(ctx, connect.NewRequest(&headroomv1.ListDomainsRequest{}))
	if err != nil {
		return nil, nil, err
	}
	nodes, err := c.ListNodes(ctx, connect.NewRequest(&headroomv1.ListNodesRequest{Node: node}))
	if connect.CodeOf(err) == connect.CodeNotFound {
		return domains.Msg.GetDomains(), nil, nil // not charged yet
	}
	if err != nil {
		return nil, nil, err
	}
	return domains.Msg.GetDomains(), nodes.Msg.GetNodes(), nil
}

// checkMachineID checks whether this machine can be told apart from others. A tree without a
// machine id is none that powerd runs on.
func checkMachineID(o *own) []finding {
	_, err := machine.ReadIdentity(o.root)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return []finding{{"machine-id", checkFail, oneLine(err), config.HintOf(err)}}
}

// checkOriginals checks whether the budget has room for this node without a cap.
func checkOriginals(s site, domains []*headroomv1.Domain, nodes []*headroomv1.Node) finding {
	if len(domains) == 0 {
		return finding{"originals", checkOK, "not checked: the coordinator has no record of " + s.cfg.Node + " yet", ""}
	}
	room, at, err := tightest(domains, s.cfg.Domain)
	if err != nil {
		return finding{"originals", checkFail, err.Error(), "set domain: in powerd.yaml to one of coordinator domain list"}
	}
	needs := s.cfg.Power.Rated
	for _, n := range nodes {
		if n.GetName() == s.cfg.Node {
			needs -= units.Power(n.GetChargeUw())
		}
	}
	if needs <= room {
		return finding{"originals", checkOK, fmt.Sprintf("%s has %s; a release needs %s", at, roomText(room), cli.Watts(max(0, needs))), ""}
	}
	return finding{
		"originals", checkWarn, fmt.Sprintf("%s has %s; a release of this node needs %s, so its fail-safe cap stays written when powerd stops", at, roomText(room), cli.Watts(needs)),
		"free budget before you take this node out of service; see coordinator budget show",
	}
}

var errNoDomain = errors.New("domain unknown to the coordinator")

// tightest returns the least headroom of a domain and all above it.
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
		return 0, "", fmt.Errorf("%w: %s", errNoDomain, name)
	}
	return room, at, nil
}
