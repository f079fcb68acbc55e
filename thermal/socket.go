package thermal

import (
	"errors"
	"os"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// messageMax is the longest datagram that is read whole: an event is tens of bytes,
// and the kernel joins none.
const messageMax = 8 << 10

// socket is a netlink socket that receives events. The library's own keeps 64 KiB on
// the stack of the goroutine that waits in its Receive, which is most of what an idle powerd
// would need for stacks. It is for one goroutine at a time; Close may be called by any.
type socket struct {
	file *os.File
	conn syscall.RawConn
	buf  []byte
}

// openSocket opens a socket of generic netlink that is a member of these groups.
func openSocket(groups ...uint32) (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, err
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	for _, group := range groups {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, int(group)))
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	s := &socket{file: os.NewFile(uintptr(fd), "netlink"), buf: make([]byte, messageMax)}
	if s.conn, err = s.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	return s, nil
}

// Receive waits for one datagram and returns its sender; what another than the kernel
// sent is not taken apart. What it returns stands until it is called again.
func (s *socket) Receive() ([]syscall.NetlinkMessage, *unix.SockaddrNetlink, error) {
	var n int
	var from unix.Sockaddr
	var failed error
	err := s.conn.Read(func(fd uintptr) bool {
		n, from, failed = unix.Recvfrom(int(fd), s.buf, 0)
		return !errors.Is(failed, unix.EAGAIN)
	})
	if err != nil {
		return nil, nil, errors.Join(os.ErrClosed, err) // there is no other way for the wait to fail
	}
	if failed != nil {
		return nil, nil, failed
	}
	sender, ok := from.(*unix.SockaddrNetlink)
	if !ok {
		return nil, nil, unix.EAFNOSUPPORT
	}
	if sender.Pid != nl.PidKernel {
		return nil, sender, nil
	}
	messages, err := syscall.ParseNetlinkMessage(s.buf[:n])
	return messages, sender, err
}

// Close ends the socket, and a Receive that waits.
func (s *socket) Close() { _ = s.file.Close() } // nothing is ever sent: nothing can be lost
