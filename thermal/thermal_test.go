// Claims: a reading is a number only when it can be believed; sentinels, leaps
// and drivers' errors are unknown with a reason; counters shared by CPUs count
// once; a kernel without thermal events says so; no message makes the parser
// panic or tell what cannot be.
package thermal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"headroom/internal/testkit"
	"headroom/units"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a two-socket machine with coretemp, ACPI's meter and zones.
func server() map[string]string {
	return map[string]string{
		"sys/class/hwmon/hwmon0/name": "coretemp", "sys/class/hwmon/hwmon0/temp1_input": "61000", "sys/class/hwmon/hwmon0/temp1_label": "Package id 0",
		"sys/class/hwmon/hwmon0/temp1_max": "84000", "sys/class/hwmon/hwmon0/temp1_crit": "94000",
		"sys/class/hwmon/hwmon0/temp2_input": "66000", "sys/class/hwmon/hwmon0/temp2_label": "Core 0",
		"sys/class/hwmon/hwmon1/name": "coretemp", "sys/class/hwmon/hwmon1/temp1_input": "64000", "sys/class/hwmon/hwmon1/temp1_label": "Package id 1",
		"sys/class/hwmon/hwmon2/name": "power_meter", "sys/class/hwmon/hwmon2/power1_average": "158000000",
		"sys/class/hwmon/hwmon10/device/name": "k10temp", "sys/class/hwmon/hwmon10/device/temp1_input": "-5000",
		"sys/class/thermal/thermal_zone0/type": "acpitz", "sys/class/thermal/thermal_zone0/temp": "27800",
		"sys/class/thermal/thermal_zone1/type": "x86_pkg_temp", "sys/class/thermal/thermal_zone1/temp": "62000",
		"sys/class/thermal/thermal_zone1/trip_point_0_type": "passive", "sys/class/thermal/thermal_zone1/trip_point_0_temp": "0",
		"sys/class/thermal/thermal_zone1/trip_point_1_type": "critical", "sys/class/thermal/thermal_zone1/trip_point_1_temp": "105000",
		"sys/devices/system/cpu/cpu0/topology/physical_package_id": "0", "sys/devices/system/cpu/cpu0/topology/core_id": "0",
		"sys/devices/system/cpu/cpu1/topology/physical_package_id": "0", "sys/devices/system/cpu/cpu1/topology/core_id": "0",
		"sys/devices/system/cpu/cpu2/topology/physical_package_id": "1", "sys/devices/system/cpu/cpu2/topology/core_id": "0",
		"sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "3", "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count": "10",
		"sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count": "3", "sys/devices/system/cpu/cpu1/thermal_throttle/package_throttle_count": "10",
		"sys/devices/system/cpu/cpu2/thermal_throttle/core_throttle_count": "4", "sys/devices/system/cpu/cpu2/thermal_throttle/package_throttle_count": "20",
	}
}

func opened(t *testing.T, files map[string]string) (*Sensors, string) {
	t.Helper()
	dir := t.TempDir()
	for file, text := range files {
		write(t, filepath.Join(dir, file), text)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = s.Close(), root.Close() })
	return s, dir
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSensorsOfAServer(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, server())
	want := map[string]Temp{
		"coretemp Package id 0": 61 * Degree, "coretemp Core 0": 66 * Degree, "coretemp Package id 1": 64 * Degree, "k10temp temp1": -5 * Degree,
		"thermal_zone0 acpitz": 27_800, "thermal_zone1 x86_pkg_temp": 62 * Degree,
	}
	for _, r := range s.Sample() {
		switch {
		case r.Meter:
			if !r.Known || r.Power != 158*units.Watt || r.Name != "power_meter power1" {
				t.Errorf("%+v", r)
			}
		case !r.Known || r.Temp != want[r.Name]:
			t.Errorf("%+v, want %v", r, want[r.Name])
		default:
			delete(want, r.Name)
		}
	}
	if len(want) != 0 || len(s.Missing()) != 0 {
		t.Errorf("not seen %v, missing %v", want, s.Missing())
	}
	if p, known := s.Package(); !known || p.Temp != 64*Degree {
		t.Errorf("hottest package %+v, %v", p, known)
	}
	// A trip at 0 is one that nobody has set.
	if _, known := s.Trip(1, 0); known {
		t.Error("trip 0 of zone 1 is known")
	}
	if trip, known := s.Trip(1, 1); !known || trip.Kind != TripCritical || trip.Temp != 105*Degree {
		t.Errorf("%+v, %v", trip, known)
	}
}

func TestBareMachine(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, nil)
	if _, known := s.Package(); known || len(s.Sample()) != 0 || len(s.Missing()) != 4 {
		t.Errorf("a bare machine has %v, lacks %v", s.Sample(), s.Missing())
	}
	if c, err := s.Throttled(); err != nil || c.CoresKnown || c.PackagesKnown {
		t.Errorf("%+v, %v", c, err)
	}
}

// Lesson 11: meters show 4294967295000 when they do not know, and figures a thousand
// times off.
func TestImplausiblePower(t *testing.T) {
	t.Parallel()
	s, dir := opened(t, server())
	s.Bound(2000 * units.Watt)
	file := filepath.Join(dir, "sys/class/hwmon/hwmon2/power1_average")
	for _, c := range []struct {
		text string
		want error
	}{
		{"158000000", nil},
		{"4294967295000", errSentinel},
		{"4294967295", errSentinel},
		{"0", errSentinel},
		{"65535000000", errSentinel},
		{"158000000000", errImplausible},
		{"158000", errImplausible},
		{"170000000", nil},
	} {
		write(t, file, c.text)
		p, err := s.meters[0].read()
		if !errors.Is(err, c.want) || (err != nil) != (p == 0) {
			t.Errorf("%s: %v, %v; want %v", c.text, p, err, c.want)
		}
	}
}

func TestImplausibleTemperature(t *testing.T) {
	t.Parallel()
	s, dir := opened(t, server())
	file := filepath.Join(dir, "sys/class/hwmon/hwmon0/temp1_input")
	for _, text := range []string{"-274000", "127500", "-128000", "900000", "-60000", "", "--5", "9223372036854775808", "x"} {
		write(t, file, text)
		if v, err := s.Thermometers()[0].read(); err == nil || v != 0 {
			t.Errorf("%q read as %v", text, v)
		}
	}
}

func TestThrottleCountsOnce(t *testing.T) {
	t.Parallel()
	s, dir := opened(t, server())
	before, err := s.Throttled()
	if err != nil || before != (Throttle{Cores: 7, Packages: 30, CoresKnown: true, PackagesKnown: true}) {
		t.Fatalf("%+v, %v", before, err)
	}
	at := filepath.Join(dir, "sys/devices/system/cpu/cpu2/thermal_throttle")
	write(t, filepath.Join(at, "package_throttle_count"), "25")
	write(t, filepath.Join(at, "core_throttle_count"), "0") // the CPU was away
	now, err := s.Throttled()
	if d := now.Since(before); err != nil || d != (Throttle{Packages: 5, PackagesKnown: true}) {
		t.Errorf("%+v, %v", d, err)
	}
	write(t, filepath.Join(at, "package_throttle_count"), "?")
	if now, err := s.Throttled(); err == nil || now.PackagesKnown || now.Packages != 0 {
		t.Errorf("%+v, %v from a counter that is none", now, err)
	}
}

func TestRefresh(t *testing.T) {
	t.Parallel()
	s, dir := opened(t, nil)
	write(t, filepath.Join(dir, "sys/class/hwmon/hwmon0/name"), "k10temp")
	for name, text := range map[string]string{"temp1_input": "90000", "temp1_label": "Tctl", "temp2_input": "63000", "temp2_label": "Tdie"} {
		write(t, filepath.Join(dir, "sys/class/hwmon/hwmon0", name), text)
	}
	if err := s.Refresh(); err != nil {
		t.Fatal(err)
	}
	// Tctl carries an offset where there is Tdie.
	if p, known := s.Package(); !known || p.Temp != 63*Degree {
		t.Errorf("%+v, %v", p, known)
	}
}

func message(cmd byte, attrs ...uint32) []byte {
	data := []byte{cmd, 1, 0, 0}
	return append(data, pairs(attrs...)...)
}

// pairs lays out attribute type, value, type, value.
func pairs(attrs ...uint32) []byte {
	var data []byte
	for i := 0; i+1 < len(attrs); i += 2 {
		data = binary.NativeEndian.AppendUint16(data, 8)
		data = binary.NativeEndian.AppendUint16(data, uint16(attrs[i]))
		data = binary.NativeEndian.AppendUint32(data, attrs[i+1])
	}
	return data
}

func capabilities() []byte {
	inner := pairs(attrCPU, 0, attrPerform, 0, attrEfficiency, 500, attrCPU, 7, attrPerform, 800, attrEfficiency, 900)
	data := binary.NativeEndian.AppendUint16([]byte{cmdCapability, 1, 0, 0}, uint16(len(inner)+4))
	data = binary.NativeEndian.AppendUint16(data, attrCapability|1<<15) // nested
	return append(data, inner...)
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		data      []byte
		want      Event
		throttles bool
		bad       bool
	}{
		{name: "trip up", data: message(cmdTripUp, attrZoneID, 1, attrTripID, 2, attrZoneTemp, 91000), want: Event{Kind: TripUp, Zone: 1, Trip: 2, Temp: 91000, HasTemp: true}},
		{name: "trip down of an older kernel", data: message(cmdTripDown, attrZoneID, 1, attrTripID, 2), want: Event{Kind: TripDown, Zone: 1, Trip: 2}},
		{name: "below zero", data: message(cmdSample, attrZoneID, 3, attrZoneTemp, 0xffffec78), want: Event{Kind: Sampled, Zone: 3, Temp: -5000, HasTemp: true}},
		{name: "a temperature that is none", data: message(cmdSample, attrZoneID, 3, attrZoneTemp, 500000), want: Event{Kind: Sampled, Zone: 3}},
		{name: "cooling", data: message(cmdCoolingState, attrCoolingID, 4, attrCoolingNow, 3), want: Event{Kind: Cooling, Device: 4, State: 3}, throttles: true},
		{name: "capability", data: capabilities(), want: Event{Kind: Capability, Efficiency: 500}, throttles: true},
		{name: "an attribute of a later kernel", data: message(cmdZoneCreate, attrZoneID, 9, 99, 1), want: Event{Kind: ZonesChanged, Zone: 9}},
		{name: "no trip", data: message(cmdTripUp, attrZoneID, 1), bad: true},
		{name: "cut short", data: message(cmdTripUp, attrZoneID, 1, attrTripID, 2)[:15], bad: true},
		{name: "negative zone", data: message(cmdTripUp, attrZoneID, 1<<31, attrTripID, 2), bad: true},
		{name: "no header", data: []byte{5}, bad: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := parse(c.data)
			if c.bad {
				if !errors.Is(err, errMessage) {
					t.Errorf("%+v, %v; want ErrMessage", got, err)
				}
				return
			}
			if err != nil || len(got) == 0 || got[0] != c.want || got[0].Throttles() != c.throttles {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
		})
	}
	if got, err := parse(message(200)); err != nil || len(got) != 0 {
		t.Errorf("an unknown command gives %v, %v", got, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(message(cmdTripUp, attrZoneID, 1, attrTripID, 2, attrZoneTemp, 91000))
	f.Add(capabilities())
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		events, err := parse(data)
		if err != nil && len(events) > 0 {
			t.Fatalf("%d events beside %v", len(events), err)
		}
		for _, e := range events {
			if e.Zone < 0 || e.Trip < 0 || e.CPU < 0 || e.State < 0 || (e.HasTemp && judgeTemp(e.Temp) != nil) || (!e.HasTemp && e.Temp != 0) {
				t.Fatalf("%+v", e)
			}
		}
	})
}

func FuzzParseTemp(f *testing.F) {
	f.Add("61000")
	f.Add("-5000")
	f.Add("- 5")
	f.Fuzz(func(t *testing.T, text string) {
		if v, err := parseTemp("temp", text); err != nil && v != 0 {
			t.Fatalf("%d beside %v", v, err)
		}
	})
}

// pipe is a socket that gives what it was filled with and then waits for Close.
type pipe struct {
	script chan func() ([]syscall.NetlinkMessage, *unix.SockaddrNetlink, error)
	closed chan struct{}
}

func (p *pipe) Receive() ([]syscall.NetlinkMessage, *unix.SockaddrNetlink, error) {
	select {
	case next := <-p.script:
		return next()
	case <-p.closed:
		return nil, nil, os.ErrClosed
	}
}

func (p *pipe) Close() { close(p.closed) }

// Events of other families and other senders are nothing; an overrun is told.
func TestTell(t *testing.T) {
	t.Parallel()
	const id = 30
	p := &pipe{make(chan func() ([]syscall.NetlinkMessage, *unix.SockaddrNetlink, error), 8), make(chan struct{})}
	give := func(pid uint32, typ uint16, data []byte, err error) {
		p.script <- func() ([]syscall.NetlinkMessage, *unix.SockaddrNetlink, error) {
			return []syscall.NetlinkMessage{{Header: syscall.NlMsghdr{Type: typ}, Data: data}}, &unix.SockaddrNetlink{Pid: pid}, err
		}
	}
	up := message(cmdTripUp, attrZoneID, 1, attrTripID, 0)
	give(nl.PidKernel+77, id, up, nil)
	give(nl.PidKernel, id+1, up, nil)
	give(nl.PidKernel, id, []byte{cmdTripUp}, nil)
	give(nl.PidKernel, id, nil, unix.ENOBUFS)
	give(nl.PidKernel, id, up, nil)
	ctx, cancel := context.WithCancel(t.Context())
	events := tell(ctx, slog.New(slog.DiscardHandler), p, id)
	if e := <-events; e.Kind != Lost {
		t.Errorf("first %+v, want the loss", e)
	}
	if e := <-events; e.Kind != TripUp || e.Zone != 1 {
		t.Errorf("then %+v", e)
	}
	cancel()
	for e := range events {
		t.Errorf("after the end %+v", e)
	}
}

// The socket gives what the kernel says, gives nothing of what others say, and ends
// whoever waits for more when it is closed.
func TestSocket(t *testing.T) {
	t.Parallel()
	s, err := openSocket()
	if err != nil {
		testkit.NotRun(t, "needs netlink: "+err.Error())
	}
	port := func(c syscall.RawConn, do func(fd int, pid uint32)) {
		err := c.Control(func(fd uintptr) {
			at, err := unix.Getsockname(int(fd))
			if err != nil {
				t.Fatal(err)
			}
			do(int(fd), at.(*unix.SockaddrNetlink).Pid)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ask := nl.NewNetlinkRequest(unix.GENL_ID_CTRL, 0)
	ask.AddData(&nl.Genlmsg{Command: unix.CTRL_CMD_GETFAMILY, Version: 1})
	ask.AddData(nl.NewRtAttr(unix.CTRL_ATTR_FAMILY_NAME, nl.ZeroTerminated("nlctrl")))
	send := func(fd int, to uint32) {
		if err := unix.Sendto(fd, ask.Serialize(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: to}); err != nil {
			t.Fatal(err)
		}
	}
	port(s.conn, func(fd int, pid uint32) {
		send(fd, pid) // as another program would
		send(fd, nl.PidKernel)
	})
	if messages, from, err := s.Receive(); err != nil || len(messages) > 0 || from.Pid == nl.PidKernel {
		t.Errorf("from another program: %v, sender %v, %v", messages, from, err)
	}
	messages, from, err := s.Receive()
	if err != nil || len(messages) != 1 || from.Pid != nl.PidKernel || messages[0].Header.Type != unix.GENL_ID_CTRL {
		t.Errorf("from the kernel: %v, sender %v, %v", messages, from, err)
	}
	ended := make(chan error)
	go func() {
		_, _, err := s.Receive()
		ended <- err
	}()
	s.Close()
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed socket ends with %v", err)
	}
}

// A kernel without the family says so; one with it is watched and left again.
func TestWatch(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events, err := Watch(ctx, slog.New(slog.DiscardHandler))
	switch {
	case errors.Is(err, ErrNoEvents):
		return
	case err != nil:
		testkit.NotRun(t, "needs netlink: "+err.Error())
	}
	cancel()
	for range events {
	}
}

// Chips of one driver have the same names and labels: each sensor has a name of its own, by the device
// where the kernel names it, so that the hotter one of two is not lost. Names that were distinct
// stay what they were.
func TestEverySensorHasANameOfItsOwn(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"sys/class/hwmon/hwmon0/name": "coretemp", "sys/class/hwmon/hwmon0/temp1_input": "50000", "sys/class/hwmon/hwmon0/temp1_label": "Package id 0",
		"sys/class/hwmon/hwmon1/name": "k10temp", "sys/class/hwmon/hwmon1/temp1_input": "40000", "sys/class/hwmon/hwmon1/temp1_label": "Tctl",
		"sys/class/hwmon/hwmon2/name": "k10temp", "sys/class/hwmon/hwmon2/temp1_input": "88000", "sys/class/hwmon/hwmon2/temp1_label": "Tctl",
		"sys/class/hwmon/hwmon3/name": "jc42", "sys/class/hwmon/hwmon3/temp1_input": "31000",
		"sys/class/hwmon/hwmon4/name": "jc42", "sys/class/hwmon/hwmon4/temp1_input": "32000",
		"sys/class/hwmon/hwmon5/name": "psu", "sys/class/hwmon/hwmon5/temp1_input": "33000", "sys/class/hwmon/hwmon5/temp1_label": "in",
		"sys/class/hwmon/hwmon5/temp2_input": "34000", "sys/class/hwmon/hwmon5/temp2_label": "in", "sys/class/hwmon/hwmon5/power1_input": "70000000", "sys/class/hwmon/hwmon5/power1_label": "in",
	}
	dir := t.TempDir()
	for file, text := range files {
		write(t, filepath.Join(dir, file), text)
	}
	for chip, device := range map[string]string{"hwmon1": "0000:00:18.3", "hwmon2": "0000:00:19.3"} {
		if err := os.Symlink("../../../devices/pci0000:00/"+device, filepath.Join(dir, "sys/class/hwmon", chip, "device")); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = s.Close(), root.Close() })
	want := map[string]Temp{
		"coretemp Package id 0": 50000, "k10temp Tctl @0000:00:18.3/temp1": 40000, "k10temp Tctl @0000:00:19.3/temp1": 88000,
		"jc42 temp1 @hwmon3/temp1": 31000, "jc42 temp1 @hwmon4/temp1": 32000, "psu in @hwmon5/temp1": 33000, "psu in @hwmon5/temp2": 34000, "psu in @hwmon5/power1": 0,
	}
	for range 2 { // and after a look for new ones
		got := map[string]Temp{}
		for _, r := range s.Sample() {
			got[r.Name] = r.Temp
		}
		if !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if err := s.Refresh(); err != nil {
			t.Fatal(err)
		}
	}
}

// However many sensors a machine shows, a bounded number is held open.
func TestSensorsAreBounded(t *testing.T) {
	t.Parallel()
	files := map[string]string{"sys/class/hwmon/hwmon0/name": "flood"}
	for i := range sensorsMax + 20 {
		files[fmt.Sprintf("sys/class/hwmon/hwmon0/temp%d_input", i)] = "30000"
		files[fmt.Sprintf("sys/class/thermal/thermal_zone%d/type", i)] = "flood"
		files[fmt.Sprintf("sys/class/thermal/thermal_zone%d/temp", i)] = "30000"
	}
	s, _ := opened(t, files)
	names := map[string]bool{}
	for _, r := range s.Sample() {
		names[r.Name] = true
	}
	if len(names) != 2*sensorsMax {
		t.Errorf("%d sensors, want %d of each kind", len(names), sensorsMax)
	}
}
