// Claims: the address told to others leads to a coordinator, and is neither
// loopback nor a container's while there is another; the order of what the kernel
// lists does not matter; a cable that is pulled is noticed and so is a changed
// address.
package links

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"headroom/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func link(index int, name, kind string, addrs ...string) Interface {
	i := Interface{Index: index, Name: name, Kind: kind, Up: true, Carrier: true, Loopback: name == "lo"}
	for _, a := range addrs {
		i.Addrs = append(i.Addrs, Address{Prefix: netip.MustParsePrefix(a)})
	}
	return i
}

func ip(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, t := range texts {
		all = append(all, netip.MustParseAddr(t))
	}
	return all
}

func route(dst string, index int) Route { return Route{Dst: netip.MustParsePrefix(dst), Index: index} }

// host has two NICs and containers; the default route leaves by eno2.
func host() View {
	return View{
		Interfaces: []Interface{
			link(1, "lo", "device", "127.0.0.1/8", "::1/128"), link(2, "eno1", "device", "10.1.0.5/24", "fe80::1/64"),
			link(3, "eno2", "device", "192.0.2.5/24", "2001:db8::5/64"), link(4, "docker0", "bridge", "172.17.0.1/16"),
		},
		Routes: []Route{route("0.0.0.0/0", 3), route("10.1.0.0/24", 2), route("::/0", 3), route("10.9.0.0/16", 2)},
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	pulled := func(v View, names ...string) View {
		for i := range v.Interfaces {
			for _, n := range names {
				if v.Interfaces[i].Name == n {
					v.Interfaces[i].Carrier = false
				}
			}
		}
		return v
	}
	only := func(links ...Interface) View { return View{Interfaces: links} }
	bridged := only(link(2, "eno1", "device"), link(3, "br0", "bridge", "10.1.0.5/24"))
	bridged.Interfaces[0].Master = 3
	for _, c := range []struct {
		name string
		view View
		to   []netip.Addr
		want State
	}{
		{"same subnet first", host(), ip("203.0.113.1", "10.1.0.9"), State{netip.MustParseAddr("10.1.0.5"), "eno1", true}},
		{"else the default route", host(), ip("203.0.113.1"), State{netip.MustParseAddr("192.0.2.5"), "eno2", true}},
		{"a longer route before the default", host(), ip("10.9.3.4"), State{netip.MustParseAddr("10.1.0.5"), "eno1", true}},
		{"IPv6 towards IPv6", host(), ip("2001:db8:1::1"), State{netip.MustParseAddr("2001:db8::5"), "eno2", true}},
		{"IPv4 written as IPv6", host(), ip("::ffff:10.1.0.9"), State{netip.MustParseAddr("10.1.0.5"), "eno1", true}},
		{"loopback towards loopback only", host(), ip("127.0.0.1"), State{netip.MustParseAddr("127.0.0.1"), "lo", true}},
		{"never loopback towards others", host(), ip("127.0.0.1", "10.1.0.9"), State{netip.MustParseAddr("10.1.0.5"), "eno1", true}},
		{"no coordinator known", host(), nil, State{netip.MustParseAddr("192.0.2.5"), "eno2", true}},
		{"cut off", pulled(host(), "eno1"), ip("10.1.0.9"), State{netip.MustParseAddr("192.0.2.5"), "eno2", false}},
		{"one of two ways left", pulled(host(), "eno1"), ip("10.1.0.9", "203.0.113.1"), State{netip.MustParseAddr("192.0.2.5"), "eno2", true}},
		{"all pulled, never a container's", pulled(host(), "eno1", "eno2"), ip("10.1.0.9"), State{netip.MustParseAddr("10.1.0.5"), "eno1", false}},
		{"a coordinator on this node", pulled(host(), "eno1", "eno2"), ip("10.1.0.5"), State{netip.MustParseAddr("10.1.0.5"), "eno1", true}},
		{"only a container's end", only(link(2, "eth0", "veth", "172.17.0.2/16")), ip("172.17.0.9"), State{netip.MustParseAddr("172.17.0.2"), "eth0", true}},
		{"a bridge with a real port", bridged, ip("10.1.0.9"), State{netip.MustParseAddr("10.1.0.5"), "br0", true}},
		{"nothing at all", View{}, ip("10.1.0.9"), State{}},
		{"nothing and nobody", View{}, nil, State{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := choose(c.view, c.to); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func TestOrderDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := host()
		for i := range v.Interfaces {
			v.Interfaces[i].Carrier = rapid.Bool().Draw(t, "carrier")
		}
		to := rapid.SliceOfN(rapid.SampledFrom(ip("10.1.0.9", "203.0.113.1", "127.0.0.1", "2001:db8:1::1", "172.17.0.9")), 0, 4).Draw(t, "to")
		want := choose(v, to)
		mixed := View{Interfaces: rapid.Permutation(v.Interfaces).Draw(t, "links"), Routes: rapid.Permutation(v.Routes).Draw(t, "routes")}
		if got := choose(mixed, rapid.Permutation(to).Draw(t, "order")); got != want {
			t.Fatalf("%+v, in another order %+v", want, got)
		}
	})
}

// apart runs f in a network of its own, which ends with the test.
func apart(t *testing.T, f func() error) {
	t.Helper()
	done, refused := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			refused <- err
			return
		}
		done <- f()
	}()
	select {
	case err := <-refused:
		testkit.NotRun(t, "needs a network namespace of its own: "+err.Error())
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	}
}

// until waits for a state, looking again at each change.
func until(t *testing.T, w *Watcher, want State) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	for w.State() != want {
		select {
		case <-w.Changed():
		case <-deadline.C:
			t.Fatalf("state %+v, want %+v", w.State(), want)
		}
	}
}

// A real kernel: a veth pair whose far end is taken down and up, and whose near
// end gets another address.
func TestWatchFollowsTheKernel(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	var w *Watcher
	var h *netlink.Handle
	var near, far netlink.Link
	var missing string
	apart(t, func() error {
		var err error
		if h, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		near, far, err = pair(h)
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) {
			h.Close()
			missing = err.Error()
			return nil
		}
		if err != nil {
			return err
		}
		w, err = Watch(ctx, slog.New(slog.DiscardHandler))
		return err
	})
	if missing != "" {
		cancel()
		testkit.NotRun(t, "needs veth pairs: "+missing)
	}
	defer h.Close()
	defer func() {
		cancel()
		<-w.Done()
		if err := w.Err(); err != nil {
			t.Error(err)
		}
	}()
	w.SetCoordinators(ip("10.7.0.1"))
	first := State{netip.MustParseAddr("10.7.0.5"), "hr-near", true}
	until(t, w, first)
	must(t, h.LinkSetDown(far))
	until(t, w, State{first.Advertise, first.Interface, false})
	must(t, h.LinkSetUp(far))
	until(t, w, first)
	must(t, h.AddrAdd(near, address(t, "10.7.0.6/24")))
	must(t, h.AddrDel(near, address(t, "10.7.0.5/24")))
	// Deleting the first address takes the second with it where the kernel does not
	// promote it.
	must(t, h.AddrReplace(near, address(t, "10.7.0.6/24")))
	until(t, w, State{netip.MustParseAddr("10.7.0.6"), "hr-near", true})
	must(t, h.LinkDel(near))
	until(t, w, State{})
}

func pair(h *netlink.Handle) (near, far netlink.Link, err error) {
	if err := h.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "hr-near"}, PeerName: "hr-far"}); err != nil {
		return nil, nil, err
	}
	if near, err = h.LinkByName("hr-near"); err != nil {
		return nil, nil, err
	}
	if far, err = h.LinkByName("hr-far"); err != nil {
		return nil, nil, err
	}
	a, err := netlink.ParseAddr("10.7.0.5/24")
	if err != nil {
		return nil, nil, err
	}
	for _, step := range []error{h.AddrAdd(near, a), h.LinkSetUp(near), h.LinkSetUp(far)} {
		if step != nil {
			return nil, nil, step
		}
	}
	return near, far, nil
}

func address(t *testing.T, text string) *netlink.Addr {
	t.Helper()
	a, err := netlink.ParseAddr(text)
	must(t, err)
	return a
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
