// Claims: the wall counts where a BMC tells it; one that is late, hangs, lies or is
// not there never delays the loop nor the watchdog, and that is said in words; its
// own limit is kept a little above the cap, with no action, and put back.
package agent

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"headroom/agent/config"
	"headroom/agent/machine"
	"headroom/agent/statedir"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit/emulated"
	"headroom/ipmi"
	"headroom/units"
)

// withBMC gives the lab a BMC and the configuration that leads to it.
func (l *lab) withBMC(t *testing.T, cfg config.Config) (*emulated.BMC, config.Config) {
	t.Helper()
	action := byte(0)
	b := l.node.StartBMC(t, emulated.BMCOptions{User: "op", Password: "secret", Update: 500 * time.Millisecond, Action: &action})
	path := filepath.Join(l.dir, "password")
	if err := os.WriteFile(path, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.IPMI = config.IPMI{Mode: config.IPMILAN, Address: b.Addr(), User: "op", PasswordFile: path}
	return b, cfg
}

// wallSensor is what status tells of the BMC's own reading. A BMC that is busy for
// its power may have been asked for its sensors meanwhile.
func wallSensor(s *headroomv1.GetAgentStatusResponse) *headroomv1.SensorStatus {
	for _, row := range s.GetSensors() {
		if source := ipmi.Source(row.GetSource()); source == ipmi.SourceDCMI || source == ipmi.SourceSDR {
			return row
		}
	}
	return &headroomv1.SensorStatus{}
}

// Lesson 12: the wall is learned from the BMC, and its own limit follows the cap and
// goes back.
func TestWallFromTheBMC(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	b, cfg := l.withBMC(t, l.config(c.addr))
	cfg.IPMI.Limit = true
	r := run(t, cfg)
	waitFor(t, "a lease is held", c.acknowledged)
	waitFor(t, "the wall is read and learned from", func() bool {
		s := l.status(t)
		return wallSensor(s).GetState() == "ok" && wallSensor(s).PowerUw != nil && s.GetOtherFrom() == "learned"
	})
	waitFor(t, "the BMC's own limit stands above the cap", func() bool {
		p, on := b.Limit()
		return on && p >= 190*units.Watt && p < 210*units.Watt
	})
	if b.Action() != 0 {
		t.Errorf("exception action %#x: a limit must never switch the machine off", b.Action())
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if p, on := b.Limit(); on {
		t.Errorf("the BMC still limits to %v after the release", p)
	}
	if _, err := os.Stat(l.state(statedir.JournalFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the journal is still there: %v", err)
	}
}

// Lesson 12: the limit of a BMC outlives a reboot of its machine, so the value that powerd found before
// is the original still, whichever way it goes back: by the next powerd when it ends, by
// powerd limit restore while that one runs, and, where a powerd is dead and nothing reaches the
// BMC, by a later one. No boot takes powerd's own limit for an original.
func TestBMCLimitOverAReboot(t *testing.T) {
	t.Parallel()
	const found = 230 * units.Watt
	restores := func(t *testing.T, cfg config.Config, kept int) {
		t.Helper()
		out, err := Restore(t.Context(), cfg, RestoreOptions{Force: true, Change: &headroomv1.Change{Actor: "op", RequestId: "r1"}})
		if err != nil || len(out.Kept) != kept {
			t.Errorf("%+v, %v; want %d kept", out, err, kept)
		}
	}
	for name, door := range map[string]func(t *testing.T, l *lab, c *coordinator, cfg config.Config){
		"the end of the next powerd": func(t *testing.T, _ *lab, c *coordinator, cfg config.Config) {
			t.Helper()
			r := run(t, cfg)
			waitFor(t, "a lease is held again", func() bool { return c.lastHello().GetBootId()[:8] == "11111111" && c.acknowledged() })
			if err := r.stop(); err != nil {
				t.Error(err)
			}
		},
		"limit restore of a running powerd": func(t *testing.T, _ *lab, c *coordinator, cfg config.Config) {
			t.Helper()
			run(t, cfg)
			waitFor(t, "a lease is held again", func() bool { return c.lastHello().GetBootId()[:8] == "11111111" && c.acknowledged() })
			restores(t, cfg, 0)
		},
		"limit restore without a powerd, then one that no longer keeps the limit": func(t *testing.T, l *lab, c *coordinator, cfg config.Config) {
			t.Helper()
			restores(t, cfg, 1)
			if _, err := os.Stat(l.state(statedir.JournalFile)); err != nil {
				t.Errorf("the journal is gone, and with it the BMC's original: %v", err)
			}
			cfg.IPMI.Limit = false
			r := run(t, cfg)
			waitFor(t, "a lease is held again", func() bool { return c.lastHello().GetBootId()[:8] == "11111111" && c.acknowledged() })
			if err := r.stop(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, c := newLab(t), newCoordinator(t)
			b, cfg := l.withBMC(t, l.config(c.addr))
			cfg.IPMI.Limit = true
			way, err := cfg.BMC()
			if err != nil {
				t.Fatal(err)
			}
			operator := ipmi.Start(way, nil)
			if _, err := operator.SetLimit(t.Context(), found); err != nil {
				t.Fatal(err)
			}
			operator.Close()
			c.refuse = errors.New("not now")
			r := run(t, cfg)
			waitFor(t, "powerd's limit is in force, and powerd knows that", func() bool {
				p, on := b.Limit()
				return on && p != found && slices.ContainsFunc(l.status(t).GetLadder(), func(r *headroomv1.RungStatus) bool {
					return r.GetRung() == "dcmi" && strings.HasPrefix(r.GetText(), "holds "+p.String()+" ")
				})
			})
			_ = r.stop() // not released: everything stays
			if p, on := b.Limit(); !on || p == found {
				t.Fatalf("%v, %v after a stop that was not released", p, on)
			}
			boot := filepath.Join(l.dir, "root", machine.BootIDFile)
			if err := os.Chmod(boot, 0o600); err != nil {
				t.Fatal(err)
			}
			l.write(machine.BootIDFile, "11111111-2222-3333-4444-555555555555")
			c.set(func() { c.refuse = nil })
			door(t, l, c, cfg)
			if p, on := b.Limit(); !on || p != found || b.Action() != byte(ipmi.ActionNone) {
				t.Errorf("the BMC limits to %v (%v), action %#x; want the %v found before", p, on, b.Action(), found)
			}
			if _, err := os.Stat(l.state(statedir.JournalFile)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the journal is still there: %v", err)
			}
		})
	}
}

// Lesson 11: a BMC that hangs or was never there: the cap is held, and it is said.
func TestBMCThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	b, cfg := l.withBMC(t, l.config(c.addr))
	b.SetFault("hang")
	run(t, cfg)
	waitFor(t, "a lease is held", c.acknowledged)
	c.grant(t, 120*units.Watt)
	waitFor(t, "the cap is carried out", c.acknowledged)
	waitFor(t, "it is said", func() bool { return hasItem(c.last(), "bmc") })
	if s := wallSensor(l.status(t)); s.GetState() == "ok" || s.GetText() == "" || s.PowerUw != nil {
		t.Errorf("sensor %v", s)
	}
}

// A password file that cannot be used leaves the node without a BMC, not without a cap.
func TestBadPasswordFileIsSaid(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	_, cfg := l.withBMC(t, l.config(c.addr))
	if err := os.Chmod(cfg.IPMI.PasswordFile, 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, cfg)
	waitFor(t, "a lease is held and it is said", func() bool { return c.acknowledged() && hasItem(c.last(), "bmc-password") })
}

// The service manager hears READY once the node is safe, a beat with each turn, and
// STOPPING; a stuck owner stops the beats.
func TestServiceManagerIsTold(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	b, cfg := l.withBMC(t, l.config(c.addr))
	b.SetFault("hang") // beats go on all the same
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	file, err := statedir.Lock(cfg.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(cfg, testLog(t), statedir.OS{Dir: cfg.StateDir})
	n.lock, n.control.began = file, instant().Boot
	n.env = func(name string) string {
		return map[string]string{"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "60000000"}[name]
	}
	if err := n.boot(); err != nil {
		t.Fatal(err)
	}
	if !failSafeLong(l.long()) {
		t.Errorf("limit %v before READY", l.long())
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- n.run(ctx) }()
	hears(t, socket, "READY=1")
	hears(t, socket, "WATCHDOG=1")
	hears(t, socket, "STATUS=holding the lease cap of 190.0 W with rapl")
	stuck, free := make(chan struct{}), make(chan struct{})
	n.calls <- func(context.Context) { close(stuck); <-free }
	<-stuck
	drain(t, socket)
	if err := socket.SetReadDeadline(time.Now().Add(4 * period)); err != nil {
		t.Fatal(err)
	}
	if k, err := socket.Read(make([]byte, 1024)); err == nil {
		t.Errorf("%d bytes from a powerd whose owner is stuck", k)
	}
	close(free)
	hears(t, socket, "WATCHDOG=1")
	cancel()
	hears(t, socket, "STOPPING=1")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// hears reads until a message with that in it comes.
func hears(t *testing.T, socket *net.UnixConn, want string) {
	t.Helper()
	if err := socket.SetReadDeadline(time.Now().Add(60 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for {
		k, err := socket.Read(buf)
		if err != nil {
			t.Fatalf("never heard %q: %v", want, err)
		}
		if strings.Contains(string(buf[:k]), want) {
			return
		}
	}
}

// drain throws away what is waiting.
func drain(t *testing.T, socket *net.UnixConn) {
	t.Helper()
	if err := socket.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for buf := make([]byte, 4096); ; {
		if _, err := socket.Read(buf); err != nil {
			return
		}
	}
}

// Lesson 11: whatever a BMC answers instead of its power, the cap is held without it,
// and status, metrics and log say the same.
func TestEveryWrongBMCAnswerIsSaid(t *testing.T) {
	t.Parallel()
	for fault, code := range map[string]string{
		"sentinel=zero": "bmc", "sentinel=max": "bmc", "sentinel=inactive": "bmc", "sentinel=1970": "bmc", "sentinel=equal": "bmc",
		"factor=1000": "bmc", "factor=0.001": "bmc", "offset=30kW": "bmc", "busy": "bmc", "hang": "bmc",
		// Lesson 13: one of two sources that differ by half is wrong; which, nobody knows.
		"factor=1.5": "sensor-disagree",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			b, cfg := l.withBMC(t, l.config())
			b.SetFault(fault)
			log := &book{}
			r := runLogged(t, cfg, log)
			var s *headroomv1.GetAgentStatusResponse
			// An owner that is busy leaves what it told last, without the sensors.
			waitFor(t, "status says "+code, func() bool { s = l.status(t); return hasStatusItem(s, code) && len(s.GetSensors()) > 0 })
			for _, i := range s.GetHealth() {
				if i.GetCode() == "sensor-disagree" && !strings.Contains(i.GetText(), "disagrees by +") {
					t.Errorf("%v: by how much they differ is not said", i)
				}
			}
			if text := exposed(t, s); !strings.Contains(text, `headroom_health{code="`+code+`"`) {
				t.Errorf("the metrics do not say %s:\n%s", code, text)
			}
			if !strings.Contains(log.String(), "code="+code+" ") {
				t.Errorf("the log does not say %s:\n%s", code, log)
			}
			if row := wallSensor(s); code == "bmc" && (row.PowerUw != nil || row.GetText() == "") {
				t.Errorf("sensor %v: no number, and why", row)
			}
			waitFor(t, "the node draws what its cap allows", func() bool { return l.node.Wall() <= cfg.Power.FailSafe+cfg.Power.FailSafe/50 })
			if err := r.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}
