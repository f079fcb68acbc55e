package links

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// Interface is one network link with its addresses.
type Interface struct {
	// Index is the kernel's number, from 1; Name its name, e.g. "eno1".
	Index int
	Name  string
	// Kind is the driver's kind: "veth", "bridge", "bond", "vlan", "device".
	Kind string
	// Master is the index of the bridge or bond that it belongs to, 0 without one.
	Master int
	// Loopback is set for lo.
	Loopback bool
	// Up is set when it is switched on, Carrier when it is connected as well.
	Up, Carrier bool
	// Addrs are its addresses, in the kernel's order.
	Addrs []Address
}

// Address is one address of an interface with its subnet.
type Address struct {
	Prefix netip.Prefix
	// Lesser addresses are only taken where there is no other: deprecated and
	// temporary ones.
	Lesser bool
}

// Route is a way out: to Dst through the interface of that index.
type Route struct {
	Dst    netip.Prefix
	Index  int
	Metric int
}

// View is what the kernel knows of the network, at one moment.
type View struct {
	Interfaces []Interface
	Routes     []Route
}

// State is what is advertised to others: the address of this node,
// and whether it can reach a coordinator. States can be compared with ==.
type State struct {
	// Advertise is the address to tell others; not valid when there is none.
	Advertise netip.Addr
	// Interface is the name of the link that has it, "" without one.
	Interface string
	// Up is false when the node is cut off: no link that leads to a coordinator is
	// connected. Without known coordinators: when no link is.
	Up bool
}

// CutOff reports whether no link that leads to a coordinator is connected.
func (s State) CutOff() bool { return !s.Up }

// Ranks of an address, best first. Among those that lead out, a link that is
// connected always goes before one that is not.
const (
	rankSubnet = iota // a coordinator is in its subnet
	rankRoute         // the route to a coordinator leaves by its link
	rankGlobal        // some global address
	rankNone          // never advertised
)

// candidate is one address that may be advertised.
type candidate struct {
	addr    Address
	link    *Interface
	virtual bool
	rank    int
	order   int
}

// choose picks the address to advertise towards coordinators, and reports whether
// any of them can be reached. It is a function of its arguments alone; the order
// of interfaces and routes does not matter, nor does that of coordinators.
//
// An address in a coordinator's subnet comes first, then one on the link of the
// route to a coordinator, then any global one. Loopback is taken only towards
// coordinators that are all on loopback. Links between containers (veth, bridges
// without a real port) are taken only where no other link leads to a coordinator.
func choose(v View, coordinators []netip.Addr) State {
	coordinators = unmapped(coordinators)
	ways := v.ways(coordinators)
	all := v.candidates(coordinators, ways)
	var s State
	if len(all) > 0 {
		best := slices.MinFunc(all, candidate.compare)
		s.Advertise, s.Interface = best.addr.Prefix.Addr(), best.link.Name
		s.Up = best.link.Carrier && len(coordinators) == 0
	}
	for i := range v.Interfaces {
		if link := &v.Interfaces[i]; link.Carrier && ways[link.Index] {
			s.Up = true
		}
	}
	s.Up = s.Up || v.own(coordinators)
	return s
}

func (c candidate) compare(other candidate) int {
	return cmp.Or(
		boolean(c.inside(), other.inside()),
		boolean(!c.link.Carrier, !other.link.Carrier),
		boolean(c.rank == rankGlobal, other.rank == rankGlobal),
		boolean(c.virtual, other.virtual),
		cmp.Compare(c.rank, other.rank),
		boolean(c.addr.Lesser, other.addr.Lesser),
		cmp.Compare(c.link.Index, other.link.Index),
		cmp.Compare(c.order, other.order),
	)
}

// inside reports whether the address only serves containers of this node: it is told
// when there is no other at all, be the others connected or not.
func (c candidate) inside() bool { return c.virtual && c.rank == rankGlobal }

// boolean puts false before true.
func boolean(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// unmapped are the addresses without IPv4-in-IPv6 forms and zones.
func unmapped(addrs []netip.Addr) []netip.Addr {
	var plain []netip.Addr
	for _, a := range addrs {
		if a.IsValid() {
			plain = append(plain, a.Unmap().WithZone(""))
		}
	}
	return plain
}

// candidates are the addresses that may be told at all, ranked.
func (v View) candidates(coordinators []netip.Addr, ways map[int]bool) []candidate {
	loopback := len(coordinators) > 0 && !slices.ContainsFunc(coordinators, func(a netip.Addr) bool { return !a.IsLoopback() })
	var all []candidate
	for i := range v.Interfaces {
		link := &v.Interfaces[i]
		for order, a := range link.Addrs {
			rank := rankOf(a.Prefix, coordinators, ways[link.Index])
			addr := a.Prefix.Addr()
			usable := addr.IsGlobalUnicast() && !link.Loopback
			if loopback {
				usable = addr.IsLoopback()
			}
			if usable && rank != rankNone {
				all = append(all, candidate{addr: a, link: link, virtual: v.virtual(link), rank: rank, order: order})
			}
		}
	}
	return all
}

func rankOf(p netip.Prefix, coordinators []netip.Addr, way bool) int {
	family := len(coordinators) == 0
	for _, c := range coordinators {
		if p.Contains(c) {
			return rankSubnet
		}
		family = family || c.Is4() == p.Addr().Is4()
	}
	switch {
	case !family:
		// Nobody who speaks only IPv4 can use an IPv6 address, and the reverse.
		return rankNone
	case way:
		return rankRoute
	}
	return rankGlobal
}

// ways are the indexes of the links that lead to a coordinator: those in whose
// subnet it is, else those of the route that the kernel would take. With no
// coordinator known, the links of the default routes.
func (v View) ways(coordinators []netip.Addr) map[int]bool {
	ways := map[int]bool{}
	for _, c := range coordinators {
		if !v.subnets(c, ways) {
			v.routes(c, ways)
		}
	}
	if len(coordinators) == 0 {
		for _, r := range v.Routes {
			if r.Dst.Bits() == 0 {
				ways[r.Index] = true
			}
		}
	}
	return ways
}

// subnets adds the links that have to in their subnet, and says whether any has.
func (v View) subnets(to netip.Addr, ways map[int]bool) bool {
	found := false
	for _, link := range v.Interfaces {
		for _, a := range link.Addrs {
			if a.Prefix.Contains(to) {
				ways[link.Index], found = true, true
			}
		}
	}
	return found
}

// routes adds the links of the longest routes to an address. All metrics count:
// when the link of the best one is down, the next is taken.
func (v View) routes(to netip.Addr, ways map[int]bool) {
	longest := -1
	for _, r := range v.Routes {
		if r.Dst.Contains(to) {
			longest = max(longest, r.Dst.Bits())
		}
	}
	for _, r := range v.Routes {
		if r.Dst.Contains(to) && r.Dst.Bits() == longest {
			ways[r.Index] = true
		}
	}
}

// own reports whether a coordinator runs on this node itself: it is reached without
// any link.
func (v View) own(coordinators []netip.Addr) bool {
	for _, link := range v.Interfaces {
		for _, a := range link.Addrs {
			if slices.Contains(coordinators, a.Prefix.Addr()) {
				return true
			}
		}
	}
	return false
}

// virtual reports whether a link only joins containers or guests of this node: one
// end of a veth pair, or a bridge without a port that leads out.
func (v View) virtual(link *Interface) bool {
	if link.Kind != "bridge" {
		return inner(link)
	}
	for i := range v.Interfaces {
		if port := &v.Interfaces[i]; port.Master == link.Index && !inner(port) {
			return false
		}
	}
	return true
}

// inner reports whether a link that is no bridge stays inside the node.
func inner(link *Interface) bool {
	switch link.Kind {
	case "veth", "tuntap", "tun", "tap", "dummy", "ifb", "nlmon":
		return true
	}
	for _, name := range []string{"docker", "veth", "virbr", "vnet", "cni", "flannel", "cali", "podman", "lxcbr", "lxdbr"} {
		if strings.HasPrefix(link.Name, name) {
			return true
		}
	}
	return false
}
