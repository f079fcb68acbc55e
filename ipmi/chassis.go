package ipmi

import (
	"context"
	"fmt"
)

// chassisStatus is Get Chassis Status (IPMI v2.0, 28.2).
func chassisStatus() command { return command{NetFn: 0x00, ID: 0x01} }

// PoweredOff asks a BMC over LAN whether its machine is off, in one session. It
// returns true only if the BMC reports it; anything else is an error, and
// proves nothing about the machine.
func PoweredOff(ctx context.Context, cfg Config) (bool, error) {
	if cfg.Mode = ModeLAN; cfg.Address == "" {
		return false, fmt.Errorf("%w: no address", ErrConfig)
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	l, err := dialLAN(ctx, cfg)
	if err != nil {
		return false, err
	}
	defer l.close()
	code, data, err := l.ask(ctx, chassisStatus(), nil)
	switch {
	case err != nil:
		return false, err
	case code != codeOK:
		return false, fmt.Errorf("%w: chassis status: completion code %#02x", ErrRefused, byte(code))
	case len(data) < 3:
		return false, fmt.Errorf("%w: chassis status of %d bytes", ErrMalformed, len(data))
	}
	return data[0]&1 == 0, nil
}
