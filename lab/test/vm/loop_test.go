package vm

import (
	"bufio"
	"context"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"headroom/internal/testkit"
	"headroom/lab/emulator/bmc"
	"headroom/units"
)

// board is the rest of the node: a BMC whose watts and faults the machine sets over
// its second serial line.
type board struct {
	bmc    *bmc.BMC
	inBand net.Listener // QEMU's device connects here
	serial net.Listener // so does its second serial line
	watts  atomic.Int64
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l := testkit.Need((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func newBoard(t *testing.T) *board {
	t.Helper()
	b := &board{inBand: listen(t), serial: listen(t)}
	b.watts.Store(int64(90 * units.Watt))
	b.bmc = testkit.Need(bmc.Start(bmc.Config{
		Listen: "127.0.0.1:0", User: "headroom", Password: "headroom", VM: b.inBand,
		Watts: func() units.Power { return units.Power(b.watts.Load()) },
	}))(t)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.obey(ctx)
	}()
	t.Cleanup(func() {
		stop()
		_ = b.serial.Close()
		<-ended
		b.bmc.Close()
	})
	return b
}

// obey carries out the machine's lines until the line or ctx ends.
func (b *board) obey(ctx context.Context) {
	line, err := b.serial.Accept()
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = line.Close() })()
	for s := bufio.NewScanner(line); s.Scan(); {
		word, number, _ := strings.Cut(strings.TrimSpace(s.Text()), " ")
		switch word {
		case "mw":
			if mw, err := strconv.ParseInt(number, 10, 64); err == nil {
				b.watts.Store(mw * int64(units.Milliwatt))
			}
		case "hang":
			b.bmc.SetFault(bmc.Fault{Hang: true})
		case "heal":
			b.bmc.SetFault(bmc.Fault{})
		}
	}
}

// devices are the options that put the board's BMC and serial line into a machine.
func (b *board) devices() []string {
	in, serial := b.inBand.Addr().(*net.TCPAddr), b.serial.Addr().(*net.TCPAddr) //nolint:forcetypeassert // listeners of TCP
	return []string{
		"-chardev", "socket,id=ipmi0,host=127.0.0.1,port=" + strconv.Itoa(in.Port) + ",reconnect=1",
		"-device", "ipmi-bmc-extern,id=bmc0,chardev=ipmi0", "-device", "isa-ipmi-kcs,bmc=bmc0",
		"-chardev", "socket,id=line,host=127.0.0.1,port=" + strconv.Itoa(serial.Port), "-serial", "chardev:line",
	}
}

// The whole loop: powerd in the machine, the kernel's RAPL driver below it, and a BMC
// behind the kernel's IPMI driver.
func TestClosedLoop(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: boots a machine")
	}
	img := image(t)
	b := newBoard(t)
	files := []string{guestTests(t) + ":guest.test", build(t, "powerd", "build", "headroom/cmd/powerd") + ":powerd"}
	judge(t, boot(t, img, "/guest.test -test.v -test.run 'TestWallCap' -test.timeout 280s\n", files, b.devices()...))
}
