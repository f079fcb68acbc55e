package scheduler

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/scheduler/access"
)

// edge is the scheduler's side of every connection.
type edge struct {
	ports []net.Listener
	// peers connects to the coordinators.
	peers rpc.Peers
	// keeper is the scheduler's certificate; nil without TLS.
	keeper *secure.Keeper
	// guard decides who may call which method.
	guard *access.Guard
	// denials are the denied certificates; nil without TLS.
	denials *access.Denied
}

// openEdge opens what the scheduler serves on, with client certificates on l unless TLS is off. After an error l is
// open and nothing else is.
func openEdge(cfg Config, l net.Listener, logger *slog.Logger) (edge, error) {
	if err := cfg.checkAccess(); err != nil {
		return edge{}, err
	}
	e := edge{peers: rpc.PlainPeers(), guard: newGuard(cfg, logger)}
	if !cfg.TLS.Off() {
		k, err := cfg.certificate().Start(logger)
		if err != nil {
			return edge{}, err
		}
		l = rpc.SecureListener(l, k)
		e.peers, e.keeper = rpc.SecurePeers(k, secure.Server), k
		e.denials = &access.Denied{
			File: filepath.Join(cfg.Dir, access.DeniedFile), Coordinators: cfg.Coordinators, Peers: e.peers, Keeper: k, Guard: e.guard, Logger: logger,
		}
		if err := e.denials.Load(); err != nil {
			e.peers.Close()
			return edge{}, err
		}
	}
	e.ports = []net.Listener{l}
	if cfg.Socket != "" {
		socket, err := openSocket(cfg.Socket, cfg.SocketGroup)
		if err != nil {
			e.peers.Close()
			return edge{}, err
		}
		e.ports = append(e.ports, socket)
	}
	return e, nil
}

// openSocket opens the unix socket for root, this user and the group.
func openSocket(path, group string) (net.Listener, error) {
	gid := -1
	if group != "" {
		g, err := user.LookupGroup(group)
		if err == nil {
			gid, err = strconv.Atoi(g.Gid)
		}
		if err != nil {
			return nil, config.Bad("list groups with getent group", "socket_group %q: %v", group, err)
		}
	}
	l, err := rpc.ListenUnix(path)
	if err != nil || gid < 0 {
		return l, err
	}
	if err = os.Chown(path, -1, gid); err == nil {
		err = os.Chmod(path, 0o660)
	}
	if err != nil {
		return nil, errors.Join(&cli.Error{
			Code: "listen", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("cannot open %s to group %s: %v", path, group, err),
			Hint: "the scheduler's user must be a member of the group, or root",
		}, l.Close())
	}
	return l, nil
}

func closeAll(ports []net.Listener) error {
	var failed error
	for _, l := range ports {
		failed = errors.Join(failed, l.Close())
	}
	return failed
}
