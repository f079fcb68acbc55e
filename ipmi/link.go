package ipmi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"

	"github.com/bougou/go-ipmi/pkg/open"
)

// link carries commands to one BMC, one at a time. ask is bounded by its context and,
// where that has no deadline, by the link's own; err is about the transport, the
// completion code is the BMC's.
type link interface {
	ask(ctx context.Context, cmd command, data []byte) (completion, []byte, error)
	close()
}

// openerOf chooses the way to the BMC.
func openerOf(cfg Config) (opener, error) {
	switch cfg.Mode {
	case ModeAuto, ModeInBand:
		number, err := deviceNumber(cfg.Device)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (link, error) { return openDevice(ctx, cfg, number) }, nil
	case ModeLAN:
		return func(ctx context.Context) (link, error) { return dialLAN(ctx, cfg) }, nil
	case ModeOff:
		return nil, fmt.Errorf("%w: disabled by configuration", ErrAbsent)
	default:
		return nil, fmt.Errorf("%w: mode %q", ErrConfig, cfg.Mode)
	}
}

var deviceForm = regexp.MustCompile(`^/dev/(?:ipmi|ipmi/|ipmidev/)([0-9]{1,3})$`)

func deviceNumber(device string) (int32, error) {
	m := deviceForm.FindStringSubmatch(device)
	if m == nil {
		return 0, fmt.Errorf("%w: device %q: must be /dev/ipmiN, /dev/ipmi/N or /dev/ipmidev/N", ErrConfig, device)
	}
	n, err := strconv.ParseInt(m[1], 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%w: device %q: %w", ErrConfig, device, err)
	}
	return int32(n), nil
}

// device is the kernel's way to the BMC (ipmi_devintf).
type device struct {
	backend open.DeviceBackend
	cfg     Config
}

func openDevice(ctx context.Context, cfg Config, number int32) (link, error) {
	if err := mayOpen(cfg.Device); err != nil {
		return nil, err
	}
	d := &device{cfg: cfg}
	if err := d.backend.Connect(ctx, number); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrAbsent, cfg.Device, err)
	}
	return d, nil
}

// mayOpen says why the device cannot be opened; the library's error does not tell a
// missing device from a forbidden one.
func mayOpen(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	switch {
	case err == nil:
		return f.Close()
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: %s does not exist", ErrAbsent, path)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: no permission to open %s", ErrAbsent, path)
	default:
		return fmt.Errorf("%w: %w", ErrAbsent, err)
	}
}

// ask holds until the kernel answers or the time is up: the kernel cannot be
// interrupted, so a cancelled context only ends the wait before the call.
func (d *device) ask(ctx context.Context, cmd command, data []byte) (completion, []byte, error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, errors.Join(ErrNoAnswer, err)
	}
	answer, err := d.backend.Send(ctx, &open.Request{NetFn: cmd.NetFn, Cmd: cmd.ID, Data: data}, d.cfg.Timeout)
	switch {
	case err != nil:
		return 0, nil, fmt.Errorf("%w: %s: %w", ErrNoAnswer, d.cfg.Device, err)
	case len(answer) == 0:
		return 0, nil, fmt.Errorf("%w: %s: no completion code", ErrMalformed, d.cfg.Device)
	}
	return completion(answer[0]), answer[1:], nil
}

func (d *device) close() {
	_ = d.backend.Close(context.Background()) // nothing can be done about a device that does not close
}

// dialLAN connects a socket (which sends nothing yet) and logs in.
func dialLAN(ctx context.Context, cfg Config) (link, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "udp", cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAbsent, err)
	}
	s := &session{conn: conn, cfg: cfg}
	if err := s.login(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}
