package udp

import (
	"encoding/binary"
	"syscall"
)

// enableErrorQueue makes the kernel keep ICMP errors with the datagrams that caused them.
func enableErrorQueue(fd, family int) error {
	if family == syscall.AF_INET6 {
		return syscall.SetsockoptInt(fd, syscall.IPPROTO_IPV6, syscall.IPV6_RECVERR, 1)
	}
	return syscall.SetsockoptInt(fd, syscall.IPPROTO_IP, syscall.IP_RECVERR, 1)
}

// sendto sends a datagram. The kernel reports a pending ICMP error of any earlier datagram instead
// of sending, so sendto retries once.
func (m *module) sendto(b []byte, to syscall.Sockaddr) error {
	err := syscall.Sendto(m.fd, b, 0, to)
	if err == syscall.ECONNREFUSED {
		m.hasHostErrors = true
		err = syscall.Sendto(m.fd, b, 0, to)
	}
	return err
}

// handleHostError handles one entry of the error queue. It returns false if the queue is empty. An entry has
// the original datagram, and with it a path number that only the two ends know.
func (m *module) handleHostError() bool {
	var control [512]byte
	n, size, _, to, err := syscall.Recvmsg(m.fd, m.buf, control[:], syscall.MSG_ERRQUEUE|syscall.MSG_DONTWAIT)
	if err != nil {
		return false
	}
	messages, err := syscall.ParseSocketControlMessage(control[:size])
	if err != nil || n < headerSize || to == nil {
		return true
	}
	for _, c := range messages {
		// struct sock_extended_err starts with the errno.
		if len(c.Data) < 4 || syscall.Errno(binary.NativeEndian.Uint32(c.Data)) != syscall.ECONNREFUSED {
			continue
		}
		path := binary.LittleEndian.Uint64(m.buf[8:])
		if e := m.sendPaths[path]; e != nil && m.buf[0] <= kindLeave {
			e.handleRefused([]byte("port unreachable"), to)
		} else if m.buf[0] > kindLeave {
			delete(m.recvPaths, path)
		}
	}
	return true
}
