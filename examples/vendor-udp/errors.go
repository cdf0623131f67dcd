package udp

import (
	"encoding/binary"
	"syscall"
)

// hear has the system keep what hosts answer to datagrams that they can't deliver.
func hear(fd, family int) error {
	if family == syscall.AF_INET6 {
		return syscall.SetsockoptInt(fd, syscall.IPPROTO_IPV6, syscall.IPV6_RECVERR, 1)
	}
	return syscall.SetsockoptInt(fd, syscall.IPPROTO_IP, syscall.IP_RECVERR, 1)
}

// sendto sends a datagram. The system reports the error of an earlier one, to anybody, in
// place of sending.
func (m *module) sendto(b []byte, to syscall.Sockaddr) error {
	err := syscall.Sendto(m.fd, b, 0, to)
	if err == syscall.ECONNREFUSED {
		m.answers = true
		err = syscall.Sendto(m.fd, b, 0, to)
	}
	return err
}

// undelivered takes one answer of a host, and reports whether there was one. It has the
// datagram, and so the number of a path, which only its two ends know.
func (m *module) undelivered() bool {
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
		// struct sock_extended_err begins with the error's number.
		if len(c.Data) < 4 || syscall.Errno(binary.NativeEndian.Uint32(c.Data)) != syscall.ECONNREFUSED {
			continue
		}
		path := binary.LittleEndian.Uint64(m.buf[8:])
		if e := m.out[path]; e != nil && m.buf[0] <= left {
			e.refused([]byte("no process is there any more"), to)
		} else if m.buf[0] > left {
			delete(m.in, path)
		}
	}
	return true
}
