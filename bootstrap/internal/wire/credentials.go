package wire

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"syscall"
)

// CheckPeer refuses a Unix socket whose other end belongs to another user, as SO_PEERCRED reports
// it at the time of connect or listen. Connections of other kinds rest on the token alone.
// CheckPeer returns the process that connected, or 0 if it is unknown.
func CheckPeer(c net.Conn) (pid int, err error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, nil
	}
	var cred *syscall.Ucred
	var credErr error
	raw, err := u.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
		})
	}
	if err = cmp.Or(err, credErr); err != nil {
		return 0, fmt.Errorf("peer credentials: %w", err)
	}
	if uid := os.Geteuid(); int(cred.Uid) != uid {
		return 0, fmt.Errorf("the other end of %s belongs to user %d, not to %d", c.LocalAddr(), cred.Uid, uid)
	}
	return int(cred.Pid), nil
}
