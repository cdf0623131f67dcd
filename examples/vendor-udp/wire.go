package udp

import (
	"encoding/binary"
	"net/netip"
	"syscall"
)

// A datagram, little-endian:
//
//	 0  u8   kind
//	 1  u8   version, 2
//	 2  u16  of data: 20 if a confirmation precedes the body; else 0
//	 4  u32  number
//	 8  u64  path, which the sender of its frames has drawn
//	16  body
//
// Towards the reader of a path:
//
//	open     body: the greeting (progress.Env.Greet). Again until it is answered
//	data     number of the frame from 0; body: the frame
//	left     nothing more comes
//
// and back:
//
//	opened   frames may come
//	confirm  number: all frames below have come; body: u64, bit i says that number+1+i has, too
//	refused  the path is not read any more. body: why, in words; empty: the process closes
//	gone     answers left
//
// A confirmation that travels with data is of a path the other way: u64 path, u32 number, and
// u64 as in confirm.
const (
	headerSize  = 16
	confirmSize = 20
)

const version = 2

const (
	open = 1 + iota
	data
	left
	opened
	confirm
	refused
	gone
)

// ahead is how far behind the first missing frame others can be confirmed, and so the
// largest window.
const ahead = 64

// longest is how much of a reason is sent.
const longest = 200

func header(b []byte, kind byte, number uint32, path uint64) {
	b[0], b[1], b[2], b[3] = kind, version, 0, 0
	binary.LittleEndian.PutUint32(b[4:], number)
	binary.LittleEndian.PutUint64(b[8:], path)
}

// tell sends a small datagram. One that is lost will be asked for again.
func (m *module) tell(kind byte, path uint64, number uint32, body []byte, to syscall.Sockaddr) {
	b := make([]byte, headerSize, headerSize+len(body))
	header(b, kind, number, path)
	_ = m.send(append(b, body...), to)
}

// datagram takes what a stranger may have sent.
func (m *module) datagram(b []byte, from syscall.Sockaddr) {
	if len(b) < headerSize || b[1] != version || from == nil {
		return
	}
	number, path, body := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint64(b[8:]), b[headerSize:]
	switch b[0] {
	case open:
		m.opens(path, body, from)
		return
	case data, left:
		body = body[m.confirmation(b):]
		p := m.in[path]
		switch {
		case b[0] == left:
			delete(m.in, path)
			m.tell(gone, path, 0, nil, from)
		case m.closed:
			m.tell(refused, path, 0, nil, from)
		case p == nil:
			m.tell(refused, path, 0, []byte("this path is not read"), from)
		default:
			p.data(number, body)
		}
		return
	}
	e := m.out[path]
	switch {
	case e == nil && b[0] == opened: // the answer to one that was given up, and came late
		m.tell(left, path, 0, nil, from)
	case e == nil:
	case b[0] == opened:
		e.opened(from)
	case b[0] == confirm && len(body) == 8:
		e.confirmed(number, binary.LittleEndian.Uint64(body))
	case b[0] == refused:
		e.refused(body, from)
	case b[0] == gone && e.closed:
		e.drop()
	}
}

// confirmation takes the one that travels with a datagram, and returns its size.
func (m *module) confirmation(b []byte) int {
	size := confirmationIn(b)
	if size == 0 {
		return 0
	}
	body := b[headerSize:]
	if e := m.out[binary.LittleEndian.Uint64(body)]; e != nil {
		e.confirmed(binary.LittleEndian.Uint32(body[8:]), binary.LittleEndian.Uint64(body[12:]))
	}
	return size
}

// confirmationIn returns the size of the confirmation that travels with a datagram.
func confirmationIn(b []byte) int {
	if b[0] == data && b[2] == confirmSize && len(b) >= headerSize+confirmSize {
		return confirmSize
	}
	return 0
}

func sockaddr(a netip.AddrPort) syscall.Sockaddr {
	if a.Addr().Is4() {
		return &syscall.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &syscall.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// addrPort is the zero value for an address that is not an IP address.
func addrPort(s syscall.Sockaddr) netip.AddrPort {
	switch s := s.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port))
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(s.Addr), uint16(s.Port))
	}
	return netip.AddrPort{}
}
