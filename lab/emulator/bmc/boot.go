package bmc

import (
	"context"
	"errors"
	"fmt"

	gobmc "github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/clock"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
	"github.com/bougou/go-ipmi/pkg/server"
	"github.com/bougou/go-ipmi/pkg/types"
	"github.com/bougou/go-ipmi/pkg/vmproto"
)

const (
	userID      = 2
	systemGUID  = "headroom-bmc-001"
	maxSessions = 16 // as real BMCs have, more or less
)

var errSuite = errors.New("bmc: unknown cipher suite")

// boot is one life of the BMC, from one restart to the next: the sessions, and both ways
// to them. What outlives a restart is in BMC.
type boot struct {
	lan *lan
	end context.CancelFunc
}

// store is what outlives a restart and belongs to the protocol library.
type store struct {
	users   *gobmc.UserStore
	records *mock.HAL
	suites  []types.CipherSuiteID
}

// newStore holds the one account and the sensor records.
func newStore(ctx context.Context, cfg Config) (store, error) {
	s := store{users: gobmc.NewUserStore(), records: mock.New()}
	user, err := s.users.Add(userID, cfg.User)
	if err != nil {
		return s, fmt.Errorf("bmc: user %q: %w", cfg.User, err)
	}
	user.SetPassword([]byte(cfg.Password))
	user.Enabled = true
	user.ChannelAccess[lanChannel] = gobmc.UserChannelAccess{MaxPrivilege: cfg.privilege(), Enabled: true}
	for i, rec := range records(cfg.Supplies) {
		if err := s.records.Storage().SDR().Write(ctx, uint16(i+1), rec); err != nil {
			return s, fmt.Errorf("bmc: sensor record %d: %w", i+1, err)
		}
	}
	if err := s.records.Chassis().SetPower(ctx, true); err != nil {
		return s, fmt.Errorf("bmc: chassis: %w", err)
	}
	for _, id := range cfg.CipherSuites {
		if !gobmc.SupportedCipherSuite(types.CipherSuiteID(id)) {
			return s, fmt.Errorf("%w: %d", errSuite, id)
		}
		s.suites = append(s.suites, types.CipherSuiteID(id))
	}
	return s, nil
}

// machine is a new BMC of the protocol library, without sessions.
func (s store) machine() *gobmc.BMC {
	info := gobmc.DeviceInfo{
		DeviceID: 0x20, DeviceRevision: 1, FirmwareMajor: 1, ManufacturerID: 0x157, ProductID: 1,
		IPMIVersion:             0x02, // 2.0: the major digit is the lower one; IPMI v2.0, 20.1
		AdditionalDeviceSupport: 0x81, // a chassis device with sensors
	}
	m := gobmc.New(info, [16]byte([]byte(systemGUID)), s.records, gobmc.WithV15Disabled(), gobmc.WithCipherSuites(s.suites))
	m.Users = s.users
	m.Sessions = gobmc.NewSessionStoreWithOptions(clock.Real, gobmc.WithMaxSessions(maxSessions))
	return m
}

// boot starts a life of the BMC. The lock is held, or nothing else runs yet.
func (b *BMC) boot() {
	ctx, end := context.WithCancel(context.Background())
	life := &boot{lan: &lan{bmc: b, in: make(chan datagram, maxQueue), done: ctx.Done()}, end: end}
	machine, registry := b.store.machine(), b.registry()
	b.booted, b.enables = life, 0
	b.wait.Go(func() {
		s := server.NewServer(machine, life.lan, server.WithHandlerRegistry(registry))
		_ = s.Serve(ctx) // until the end of the boot
		_ = s.Close()
	})
	if b.cfg.VM == nil {
		return
	}
	b.wait.Go(func() {
		s := vmproto.NewVMServer(machine, vmproto.WithVMHandlerRegistry(registry))
		_ = s.Serve(ctx, &door{bmc: b, in: b.machines, done: ctx.Done()})
	})
}
