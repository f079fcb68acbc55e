// Claims: systemd is asked and told through the bus in its own forms, and bounds are for
// this boot only; a connection outlives the call that made it, survives an answer of no
// and is made anew when it breaks; a bus that hangs anywhere costs no more than the
// caller's patience; nothing runs on after Close.
package systemd

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
	"go.uber.org/goleak"
)

// The one goroutine that may be left is the library's, of a connection that died while
// its signals were being set up (TestBusThatHangs, "AddMatch"): it holds no file and no
// bus that is well leaves one.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/coreos/go-systemd/v22/dbus.(*Conn).dispatch.func1"))
}

// patience bounds what must not hang.
const patience = 30 * time.Second

// peer is a bus with a systemd on it. Its first answers authenticate a client.
type peer struct {
	greet []string
	// answer is the body of a reply or an error; io.EOF means silence.
	answer func(member string, args []any) ([]any, error)

	listener net.Listener
	done     sync.WaitGroup
	mu       sync.Mutex
	conns    []net.Conn // all that ever were
}

// greeting is what a client hears that names no mechanism, names one, asks for file
// descriptors and begins.
func greeting() []string { return []string{"REJECTED EXTERNAL", "OK 1234", "ERROR", ""} }

// serve makes p the system bus of this test.
func (p *peer) serve(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bus")
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+path)
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	p.listener = l
	p.done.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.hangUp()
		p.done.Wait()
	})
}

func (p *peer) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.conns = append(p.conns, c)
		p.mu.Unlock()
		p.done.Go(func() {
			p.talk(c)
			_, _ = io.Copy(io.Discard, c) // silence
			_ = c.Close()
		})
	}
}

// hangUp ends all connections.
func (p *peer) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
}

// made is how many connections there ever were: the library makes two at a time, one
// for calls and one for signals.
func (p *peer) made() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

func (p *peer) talk(c net.Conn) {
	r := bufio.NewReader(c)
	for _, line := range p.greet {
		if _, err := r.ReadString('\n'); err != nil {
			return
		}
		if line == "" {
			break
		}
		if _, err := io.WriteString(c, line+"\r\n"); err != nil {
			return
		}
	}
	for {
		call, err := godbus.DecodeMessage(r)
		if err != nil {
			return
		}
		member, _ := call.Headers[godbus.FieldMember].Value().(string)
		body, no := p.reply(member, call.Body)
		if errors.Is(no, io.EOF) {
			return
		}
		if err := message(call.Serial(), body, no).EncodeTo(c, binary.LittleEndian); err != nil {
			return
		}
	}
}

// reply is the bus's own answer, or systemd's.
func (p *peer) reply(member string, args []any) ([]any, error) {
	body, err := p.answer(member, args)
	if err == nil && body == nil && member == "Hello" {
		body = []any{":1.7"}
	}
	return body, err
}

// message is a reply with the body, or an error.
func message(serial uint32, body []any, no error) *godbus.Message {
	m := &godbus.Message{Type: godbus.TypeMethodReply, Headers: map[godbus.HeaderField]godbus.Variant{
		godbus.FieldReplySerial: godbus.MakeVariant(serial),
	}}
	if e, ok := errors.AsType[godbus.Error](no); ok {
		m.Type, body = godbus.TypeError, e.Body
		m.Headers[godbus.FieldErrorName] = godbus.MakeVariant(e.Name)
	}
	if len(body) > 0 {
		m.Body = body
		m.Headers[godbus.FieldSignature] = godbus.MakeVariant(godbus.SignatureOf(body...))
	}
	return m
}

// fakeSystemd answers what a Manager asks.
type fakeSystemd struct {
	mu      sync.Mutex
	quota   uint64
	runtime bool // how the quota was last set
	no      error
}

func (s *fakeSystemd) answer(member string, args []any) ([]any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch strings.Join(append([]string{member}, texts(args)...), " ") {
	case "Hello", "AddMatch type='signal', interface='org.freedesktop.systemd1.Manager', member='JobRemoved'":
		return nil, nil
	case "ListUnitsByPatterns":
		states, _ := args[0].([]string)
		list := []dbus.UnitStatus{{Name: "a-coordinator.service", Description: "A", ActiveState: "active", SubState: "running", Path: "/u", JobPath: "/"}}
		if len(states) == 0 {
			list = append(list, dbus.UnitStatus{Name: "b-coordinator.service", ActiveState: "inactive", SubState: "dead", Path: "/u", JobPath: "/"})
		}
		return []any{list}, s.no
	case "Get org.freedesktop.systemd1.Service Slice":
		return []any{godbus.MakeVariant("a-b.slice")}, s.no
	case "Get org.freedesktop.systemd1.Slice CPUQuotaPerSecUSec":
		return []any{godbus.MakeVariant(s.quota)}, s.no
	case "SetUnitProperties batch.slice":
		settings, _ := args[2].([][]any)
		if len(settings) == 1 && settings[0][0] == "CPUQuotaPerSecUSec" {
			v, _ := settings[0][1].(godbus.Variant)
			s.quota, _ = v.Value().(uint64)
			s.runtime, _ = args[1].(bool)
		}
		return nil, s.no
	}
	return nil, godbus.Error{Name: "org.freedesktop.DBus.Error.UnknownMethod", Body: []any{member}}
}

// texts are those of the arguments that are text.
func texts(args []any) []string {
	var all []string
	for _, a := range args {
		if s, ok := a.(string); ok {
			all = append(all, s)
		}
	}
	return all
}

func (s *fakeSystemd) refuse(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.no = nil; name != "" {
		s.no = godbus.Error{Name: name, Body: []any{"not today"}}
	}
}

func (s *fakeSystemd) forThisBoot() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runtime
}

func managed(t *testing.T) (*fakeSystemd, *peer, *Manager) {
	t.Helper()
	s := &fakeSystemd{quota: Unlimited.usec()}
	p := &peer{greet: greeting(), answer: s.answer}
	p.serve(t)
	m := New(Options{Dial: SystemBus})
	t.Cleanup(func() { _ = m.Close() })
	return s, p, m
}

func TestAskedThroughTheBus(t *testing.T) {
	s, p, m := managed(t)
	if p.made() != 0 {
		t.Error("connected before anything was asked")
	}
	units, err := m.ActiveUnits(t.Context(), "*coordinator*.service")
	if err != nil || len(units) != 1 || units[0] != (Unit{"a-coordinator.service", "A", "active", "running"}) {
		t.Fatalf("%+v, %v", units, err)
	}
	all, err := m.Slices(t.Context(), []string{"batch.slice", "a.slice"})
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok || refused.Slice != "a.slice" || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	st, err := all[0].Set(t.Context(), CPUs(1.5))
	if err != nil || st.Asked != CPUs(1.5) || !s.forThisBoot() {
		t.Fatalf("%+v, %v, for this boot %v", st, err, s.forThisBoot())
	}
	if st, err = all[0].PutBack(t.Context(), Unlimited, CPUs(1.5)); err != nil || st.Asked != Unlimited {
		t.Fatalf("%+v, %v", st, err)
	}
	if p.made() != 2 {
		t.Errorf("%d connections: one did not outlive its call", p.made())
	}
}

func TestAnswersOfNo(t *testing.T) {
	s, p, m := managed(t)
	slice := m.Adopt("batch.slice")
	for name, want := range map[string]error{
		"org.freedesktop.DBus.Error.AccessDenied":                     ErrDenied,
		"org.freedesktop.DBus.Error.InteractiveAuthorizationRequired": ErrDenied,
		"org.freedesktop.DBus.Error.NameHasNoOwner":                   ErrNoBus,
		"org.freedesktop.DBus.Error.ServiceUnknown":                   ErrNoBus,
		"org.freedesktop.DBus.Error.Spawn.ChildExited":                ErrNoBus,
		"org.freedesktop.systemd1.NoSuchUnit":                         nil,
	} {
		s.refuse(name)
		_, errRead := slice.Read(t.Context())
		_, errWrite := slice.write(t.Context(), CPU)
		for _, err := range []error{errRead, errWrite} {
			if err == nil || !strings.Contains(err.Error(), "not today") || want != nil && !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
	}
	s.refuse("")
	if _, err := slice.Read(t.Context()); err != nil || p.made() != 2 {
		t.Errorf("%v, %d connections", err, p.made())
	}
}

func TestConnectionIsMadeAnew(t *testing.T) {
	_, p, m := managed(t)
	slice := m.Adopt("batch.slice")
	if _, err := slice.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.hangUp()
	if _, err := slice.Read(t.Context()); err == nil {
		t.Error("a connection that was broken answered")
	}
	if _, err := slice.Read(t.Context()); err != nil || p.made() != 4 {
		t.Errorf("%v, %d connections", err, p.made())
	}
}

func TestAnswerOfAnotherType(t *testing.T) {
	p := &peer{greet: greeting(), answer: func(member string, _ []any) ([]any, error) {
		if member == "Get" {
			return []any{godbus.MakeVariant(true)}, nil
		}
		return nil, nil
	}}
	p.serve(t)
	m := New(Options{Dial: SystemBus})
	t.Cleanup(func() { _ = m.Close() })
	if _, err := m.Adopt("batch.slice").Read(t.Context()); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
	if units, err := m.ActiveUnits(t.Context(), "x.service"); err == nil {
		t.Errorf("an empty answer became %v", units)
	}
}

// A bus may hang at any word: the deadline holds for each.
func TestBusThatHangs(t *testing.T) {
	soon := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), 50*time.Millisecond)
	}
	for _, at := range []string{"", "Hello", "AddMatch", "Get"} {
		t.Run("at "+at, func(t *testing.T) {
			p := &peer{greet: greeting(), answer: func(member string, _ []any) ([]any, error) {
				if member == at {
					return nil, io.EOF
				}
				return nil, nil
			}}
			if at == "" {
				p.greet = nil
			}
			p.serve(t)
			ended := make(chan error, 1)
			go func() {
				if at != "Get" {
					ctx, cancel := soon()
					defer cancel()
					_, err := connect(ctx, dbus.NewSystemConnectionContext)
					ended <- err
					return
				}
				w, err := connect(t.Context(), dbus.NewSystemConnectionContext)
				if err != nil {
					ended <- err
					return
				}
				ctx, cancel := soon()
				defer cancel()
				_, err = w.Quota(ctx, "batch.slice")
				ended <- errors.Join(err, w.Close())
			}()
			select {
			case err := <-ended:
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			case <-time.After(patience):
				t.Error("it waits for ever")
			}
		})
	}
}

func TestBusThatTurnsUsAway(t *testing.T) {
	for name, greet := range map[string][]string{"no mechanism": {"REJECTED"}, "not us": {"REJECTED EXTERNAL", "REJECTED EXTERNAL"}, "no bus": {"HTTP/1.1 400"}} {
		t.Run(name, func(t *testing.T) {
			p := &peer{greet: greet}
			p.serve(t)
			if _, err := connect(t.Context(), dbus.NewSystemConnectionContext); err == nil {
				t.Error("connected")
			}
		})
	}
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+filepath.Join(t.TempDir(), "nobody"))
	if _, err := connect(t.Context(), dbus.NewSystemConnectionContext); err == nil {
		t.Error("nobody answered")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := SystemBus(over); !errors.Is(err, context.Canceled) {
		t.Errorf("called too late: %v", err)
	}
}
