//go:build guest

package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/rapl"
	"headroom/units"
)

// The node in the machine: 60 W of it are neither package nor memory, but powerd is
// configured with 45 W, so that only the BMC's reading can correct it. The model of psim draws
// 123 W at the wall at full load and 97 W at the lowest frequency.
const nodeConfig = `node: vm
domain: rack/r1
root: /
state_dir: /tmp/state
enforce: true
power:
  rated: 135W
  floor: 100W
  max: 130W
  fail_safe: 115W
  other: 45W
  supply_efficiency: 0.9
ipmi:
  mode: in-band
rivals: tolerate
`

const (
	failSafe = 115
	lower    = 105
	patience = 2 * time.Minute
)

// host has the program that started the machine set what the BMC reports and does.
type host struct {
	t    *testing.T
	port *os.File
	mu   sync.Mutex
	stop chan struct{}
	done sync.WaitGroup
	mean []float64 // wall power, the newest last, one each 100 ms
}

// meanOver is how many samples make up a mean.
const meanOver = 30

func wallPower(t *testing.T) *host {
	t.Helper()
	port := testkit.Need(os.OpenFile("/dev/ttyS1", os.O_WRONLY|syscall.O_NOCTTY, 0))(t)
	command(t, "stty", "-F", "/dev/ttyS1", "raw", "-echo")
	h := &host{t: t, port: port, stop: make(chan struct{})}
	h.done.Go(h.run)
	t.Cleanup(func() {
		close(h.stop)
		h.done.Wait()
		_ = port.Close()
	})
	return h
}

func (h *host) run() {
	for n := 0; ; n++ {
		select {
		case <-h.stop:
			return
		case <-time.After(100 * time.Millisecond):
		}
		text, err := os.ReadFile(params + "ac_mw")
		mw, errNumber := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || errNumber != nil {
			continue
		}
		h.mu.Lock()
		h.mean = append(h.mean, float64(mw)/1000)
		if len(h.mean) > meanOver {
			h.mean = h.mean[1:]
		}
		h.mu.Unlock()
		h.tell(fmt.Sprintf("mw %d", mw))
	}
}

func (h *host) tell(line string) { _, _ = h.port.WriteString(line + "\n") }

// wall is the mean power of the last three seconds, false until there are as many.
func (h *host) wall() (float64, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sum := 0.0
	for _, w := range h.mean {
		sum += w
	}
	return sum / float64(max(1, len(h.mean))), len(h.mean) == meanOver
}

// settles waits until the mean lies between two bounds and stays there for five seconds.
func (h *host) settles(what string, least, most float64) {
	h.t.Helper()
	inside := time.Time{}
	for began := time.Now(); time.Since(began) < patience; time.Sleep(200 * time.Millisecond) {
		w, ok := h.wall()
		switch {
		case !ok || w < least || w > most:
			inside = time.Time{}
		case inside.IsZero():
			inside = time.Now()
		case time.Since(inside) > 5*time.Second:
			h.t.Logf("%s: %.1f W after %.0f s", what, w, time.Since(began).Seconds()-5)
			return
		}
	}
	w, _ := h.wall()
	h.t.Fatalf("%s: %.1f W, wanted %.1f to %.1f W\n%s", what, w, least, most, powerd(h.t, "status"))
}

// powerd runs one of powerd's commands and returns what it printed.
func powerd(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "/powerd", append(args, "--state-dir", "/tmp/state")...).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s(%v)", out, err)
	}
	return string(out)
}

// startPowerd runs powerd until the test ends, or stop is called.
func startPowerd(t *testing.T) (process *os.Process, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "/powerd", "run", "--config", "/tmp/powerd.yaml")
	var log bytes.Buffer
	cmd.Stderr = &log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	testkit.Check(t, cmd.Start())
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			_ = cmd.Wait()
			t.Logf("powerd said:\n%s", log.String())
		})
	}
	t.Cleanup(stop)
	return cmd.Process, stop
}

// bmcState is the state of the BMC in powerd's status.
func bmcState(t *testing.T) string {
	t.Helper()
	var s struct {
		Sensors []struct{ Source, State string } `json:"sensors"`
	}
	if err := json.Unmarshal([]byte(powerd(t, "status", "-o", "json")), &s); err != nil {
		return ""
	}
	for _, sensor := range s.Sensors {
		if sensor.Source == "dcmi" {
			return sensor.State
		}
	}
	return ""
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(200 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("never came about: %s\n%s", what, powerd(t, "status"))
		}
	}
}

// powerd holds a cap at the wall through the kernel's RAPL driver and the BMC behind
// /dev/ipmi0, which corrects powerd's wrong configuration; cap down and up; BMC hung and
// back; killed and started again; stopped, and the limit that was there is there again.
func TestWallCapThroughBMC(t *testing.T) {
	hardware(t, nil, nil)
	command(t, "modprobe", "ipmi_si")
	command(t, "modprobe", "ipmi_devintf")
	eventually(t, "/dev/ipmi0 appears", func() bool { _, err := os.Stat("/dev/ipmi0"); return err == nil })
	h := wallPower(t)
	set(t, "load", "1000")
	limit := filepath.Join("/sys/class/powercap/intel-rapl:0", "constraint_0_power_limit_uw")
	original := testkit.Need(os.ReadFile(limit))(t)
	testkit.WriteFile(t, "/tmp/powerd.yaml", nodeConfig)
	process, stop := startPowerd(t)
	h.settles("the fail-safe cap is held", 0.94*failSafe, 1.01*failSafe)
	if s := bmcState(t); s != "ok" {
		t.Errorf("the BMC's reading is %q\n%s", s, powerd(t, "status"))
	}

	if out := powerd(t, "limit", "set", fmt.Sprintf("%dW", lower), "--for", "10m"); strings.Contains(out, "error") {
		t.Fatal(out)
	}
	h.settles("a lower cap is held", 0.94*lower, 1.01*lower)
	h.tell("hang")
	eventually(t, "a hung BMC is said", func() bool { s := bmcState(t); return s != "ok" && s != "" })
	h.settles("the cap is held by the model, without the BMC", 0.90*lower, 1.03*lower)
	h.tell("heal")
	eventually(t, "the BMC is back", func() bool { return bmcState(t) == "ok" })
	if out := powerd(t, "limit", "clear", "--yes"); strings.Contains(out, "error") {
		t.Fatal(out)
	}
	h.settles("the fail-safe cap is held again", 0.94*failSafe, 1.01*failSafe)

	testkit.Check(t, process.Kill())
	stop()
	_, stop = startPowerd(t)
	h.settles("the next powerd holds it", 0.94*failSafe, 1.01*failSafe)
	stop()
	if now, err := os.ReadFile(limit); err != nil || !bytes.Equal(now, original) {
		t.Errorf("after the stop the limit is %q, %v; it was %q", now, err, original)
	}
	tree := open(t)
	if held, err := limiter(t, tree).Power(rapl.LongTerm); err != nil || held < 40*units.Watt {
		t.Errorf("limit %v, %v", held, err)
	}
}
