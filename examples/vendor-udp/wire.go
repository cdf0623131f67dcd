package udp

import (
	"encoding/binary"
	"net/netip"
	"syscall"
)

// Layout of a datagram, little-endian:
//
//	 0  u8   kind
//	 1  u8   version, 2
//	 2  u16  size of the ack before the body of data, 0 or 20
//	 4  u32  number
//	 8  u64  path id, drawn by the sender of the frames
//	16  body
//
// Sent to the receiver of a path:
//
//	open     body: greeting (progress.Env.Greet); repeated until answered
//	data     number: sequence number from 0; body: frame
//	leave    last datagram of the path
//
// Sent to the sender of a path:
//
//	opened   the path is open
//	ack      number: first missing frame; body: u64, bit i acknowledges number+1+i
//	refused  the path is closed; body: reason, empty if the process closes
//	left     reply to leave
//
// The ack in a data datagram belongs to a path in the other direction: u64 path id, u32 number, u64 bits.
const (
	headerSize = 16
	ackSize    = 20
)

const version = 2

const (
	kindOpen = 1 + iota
	kindData
	kindLeave
	kindOpened
	kindAck
	kindRefused
	kindLeft
)

// maxWindow is the largest window, in frames. An ack has a bit for each frame behind the first missing one.
const maxWindow = 64

// maxReason is the largest reason sent, in bytes.
const maxReason = 200

func putHeader(b []byte, kind byte, number uint32, path uint64) {
	b[0], b[1], b[2], b[3] = kind, version, 0, 0
	binary.LittleEndian.PutUint32(b[4:], number)
	binary.LittleEndian.PutUint64(b[8:], path)
}

// sendControl sends a control datagram. Lost ones are repeated on the peer's next request.
func (m *module) sendControl(kind byte, path uint64, number uint32, body []byte, to syscall.Sockaddr) {
	b := make([]byte, headerSize, headerSize+len(body))
	putHeader(b, kind, number, path)
	_ = m.send(append(b, body...), to)
}

// handleDatagram processes a datagram of an untrusted sender.
func (m *module) handleDatagram(b []byte, from syscall.Sockaddr) {
	if len(b) < headerSize || b[1] != version || from == nil {
		return
	}
	number, path, body := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint64(b[8:]), b[headerSize:]
	switch b[0] {
	case kindOpen:
		m.acceptPath(path, body, from)
		return
	case kindData, kindLeave:
		body = body[m.handlePiggybackAck(b):]
		p := m.recvPaths[path]
		switch {
		case b[0] == kindLeave:
			delete(m.recvPaths, path)
			m.sendControl(kindLeft, path, 0, nil, from)
		case m.closed:
			m.sendControl(kindRefused, path, 0, nil, from)
		case p == nil:
			m.sendControl(kindRefused, path, 0, []byte("unknown path"), from)
		default:
			p.handleData(number, body)
		}
		return
	}
	e := m.sendPaths[path]
	switch {
	case e == nil && b[0] == kindOpened: // A late reply for a removed path.
		m.sendControl(kindLeave, path, 0, nil, from)
	case e == nil:
	case b[0] == kindOpened:
		e.handleOpened(from)
	case b[0] == kindAck && len(body) == 8:
		e.handleAck(number, binary.LittleEndian.Uint64(body))
	case b[0] == kindRefused:
		e.handleRefused(body, from)
	case b[0] == kindLeft && e.closed:
		e.remove()
	}
}

// handlePiggybackAck processes the ack in a data datagram, and returns its size.
func (m *module) handlePiggybackAck(b []byte) int {
	size := piggybackAckSize(b)
	if size == 0 {
		return 0
	}
	body := b[headerSize:]
	if e := m.sendPaths[binary.LittleEndian.Uint64(body)]; e != nil {
		e.handleAck(binary.LittleEndian.Uint32(body[8:]), binary.LittleEndian.Uint64(body[12:]))
	}
	return size
}

// piggybackAckSize returns the size of the ack in a data datagram, 0 if it has none.
func piggybackAckSize(b []byte) int {
	if b[0] == kindData && b[2] == ackSize && len(b) >= headerSize+ackSize {
		return ackSize
	}
	return 0
}

func toSockaddr(a netip.AddrPort) syscall.Sockaddr {
	if a.Addr().Is4() {
		return &syscall.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &syscall.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// addrPort returns the zero value for other address families.
func addrPort(s syscall.Sockaddr) netip.AddrPort {
	switch s := s.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port))
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(s.Addr), uint16(s.Port))
	}
	return netip.AddrPort{}
}
