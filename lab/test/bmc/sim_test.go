package bmc_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"headroom/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	user     = "admin"
	password = "secret"
	// patience is how long a real process may take on a loaded machine.
	patience = 45 * time.Second
)

// sim is one run of ipmi_sim, a BMC that shares no code with ours.
type sim struct {
	dir, addr string
	dcmi      bool
	cmd       *exec.Cmd
}

// newSim starts ipmi_sim on a free port, with DCMI by our plug-in or without.
func newSim(t *testing.T, dcmi bool) *sim {
	t.Helper()
	need(t, "ipmi_sim")
	s := &sim{dir: t.TempDir(), addr: freePort(t), dcmi: dcmi}
	if dcmi {
		s.buildPlugin(t)
	}
	s.put(t, "watts", "143")
	s.start(t)
	t.Cleanup(s.stop)
	return s
}

func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		testkit.NotRun(t, "needs "+program+" (lab/test/bmc/packages.txt)")
	}
}

// freePort is a UDP port of the loopback that was free a moment ago: ipmi_sim cannot
// choose one by itself.
func freePort(t *testing.T) string {
	t.Helper()
	c := testkit.Need((&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0"))(t)
	defer func() { _ = c.Close() }() // only its number was needed
	return c.LocalAddr().String()
}

func (s *sim) buildPlugin(t *testing.T) {
	t.Helper()
	need(t, "gcc")
	if _, err := os.Stat("/usr/include/OpenIPMI/serv.h"); err != nil {
		testkit.NotRun(t, "needs libopenipmi-dev (lab/test/bmc/packages.txt)")
	}
	out, err := exec.CommandContext(t.Context(), "gcc", "-O1", "-Wall", "-shared", "-fPIC", "-o", s.path("dcmi.so"), "plugin/dcmi.c").CombinedOutput()
	if err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
}

func (s *sim) path(name string) string { return filepath.Join(s.dir, name) }

// put writes a file that the BMC reads: renamed, so that it never sees half of one.
func (s *sim) put(t *testing.T, name, text string) {
	t.Helper()
	testkit.WriteFile(t, s.path(name+".new"), text)
	testkit.Check(t, os.Rename(s.path(name+".new"), s.path(name)))
}

func (s *sim) remove(t *testing.T, name string) {
	t.Helper()
	testkit.Check(t, os.Remove(s.path(name)))
}

// start runs ipmi_sim with a fresh state folder: users changed over IPMI would outlive
// the configuration.
func (s *sim) start(t *testing.T) {
	t.Helper()
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	s.put(t, "lan.conf", s.config(host, port))
	s.put(t, "bmc.emu", emulation(s.path("watts")))
	var out bytes.Buffer
	ctx := context.WithoutCancel(t.Context()) // stopped by stop
	s.cmd = exec.CommandContext(ctx, "ipmi_sim", "-c", s.path("lan.conf"), "-f", s.path("bmc.emu"), "-s", t.TempDir(), "-n")
	s.cmd.Stdout, s.cmd.Stderr = &out, &out
	testkit.Check(t, s.cmd.Start())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("ipmi_sim:\n%s", out.String())
		}
	})
}

func (s *sim) stop() {
	_ = s.cmd.Process.Kill() // it may have ended by itself
	_ = s.cmd.Wait()         // killed: an error is certain
}

func (s *sim) config(host, port string) string {
	plugin := ""
	if s.dcmi {
		plugin = fmt.Sprintf("loadlib %q %q\n", s.path("dcmi.so"), s.dir)
	}
	return fmt.Sprintf(`name "headroom-bmc"
startlan 1
  addr %s %s
  priv_limit admin
  allowed_auths_callback none md2 md5 straight
  allowed_auths_user none md2 md5 straight
  allowed_auths_operator none md2 md5 straight
  allowed_auths_admin none md2 md5 straight
  guid a123456789abcdefa123456789abcdef
endlan
%s  user 1 true  "" "test" user 10 none md2 md5 straight
  user 2 true  %q %q admin 10 none md2 md5 straight
`, host, port, plugin, user, password)
}

// emulation is ipmi_sim's command file: a BMC with one watts sensor of 4 W a count,
// polled from a file, and a temperature that must not be taken for it.
func emulation(watts string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	enable := func(number int) {
		line("sensor_set_event_support 0x20 0 %d enable scanning per-state %s", number, strings.TrimSpace(strings.Repeat(strings.Repeat("0", 15)+" ", 4)))
	}
	line("mc_setbmc 0x20")
	line("mc_add 0x20 0x23 no-device-sdrs 0x01 2 10 0xbf 0x0002a2 0x0100")
	line("sel_enable 0x20 1000 0x0a")
	line("sensor_add 0x20 0 1 0x0b 0x01 poll 200 file %q div=4", watts)
	enable(1)
	line("main_sdr_add 0x20 %s", record(1, "Pwr Consumption", 0x0b, 6, 4))
	line("sensor_add 0x20 0 2 0x01 0x01")
	line("sensor_set_value 0x20 0 2 42 0")
	enable(2)
	line("main_sdr_add 0x20 %s", record(2, "Inlet Temp", 0x01, 1, 1))
	line("mc_enable 0x20")
	return b.String()
}

// record is a full sensor record of the system board; IPMI v2.0, table 43-1.
func record(number byte, name string, kind, unit, m byte) string {
	body := []byte{
		0x20, 0, number, 0x07, 0x01, 0x7f, 0x68, kind, 0x01, 0, 0, 0, 0, 0x3f, 0x3f, 0x00, unit, 0x00,
		0x00, m, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0, 0xfa, 0xf5, 0xf0, 0, 0, 0, 2, 2, 0, 0, 0, 0xc0 | byte(len(name)),
	}
	body = append(body, name...)
	words := make([]string, 0, 5+len(body))
	for _, c := range append([]byte{0, 0, 0x51, 0x01, byte(len(body))}, body...) {
		words = append(words, "0x"+strconv.FormatUint(uint64(c), 16))
	}
	return strings.Join(words, " ")
}
