package scheduler

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"strconv"

	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/internal/secure"
)

// openPorts returns what the scheduler serves on, with certificates asked for on l
// unless the configuration says otherwise, and how it reaches the coordinators. After
// an error l is open and nothing else is.
func openPorts(cfg Config, l net.Listener) ([]net.Listener, rpc.Peers, error) {
	if err := cfg.checkAccess(); err != nil {
		return nil, rpc.Peers{}, err
	}
	peers := rpc.PlainPeers()
	if !cfg.TLS.Off() {
		k, err := secure.Open(cfg.TLS.Files())
		if err != nil {
			return nil, rpc.Peers{}, badConfig("coordinator tls inspect FILE shows what a certificate says", "%v", err)
		}
		if who := k.Identity(); who.Role != secure.Scheduler {
			return nil, rpc.Peers{}, badConfig("coordinator tls cert create scheduler/NAME makes the right one", "tls.cert names %s; the scheduler needs a certificate of role scheduler", who)
		}
		l, peers = rpc.SecureListener(l, k), rpc.SecurePeers(k, secure.Server)
	}
	ports := []net.Listener{l}
	if cfg.Socket != "" {
		socket, err := openSocket(cfg.Socket, cfg.SocketGroup)
		if err != nil {
			peers.Close()
			return nil, rpc.Peers{}, err
		}
		ports = append(ports, socket)
	}
	return ports, peers, nil
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
			return nil, badConfig("getent group lists the groups", "socket_group %q: %v", group, err)
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
