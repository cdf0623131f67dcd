package tcp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/rawsys"
)

// tlsTunnel is TLS on a connection. crypto/tls shakes hands in one blocking call, so a goroutine owns the
// connection until then. Afterwards polls read and write it. A Read of crypto/tls can be repeated after
// EAGAIN, which is a Temporary net.Error, and pendingCiphertext takes its writes until the socket does.
type tlsTunnel struct {
	module *module
	fd     int
	// The same connection, for the goroutine.
	handshakeFile *os.File
	conn          *tls.Conn

	// isReady hands all fields below to the module when the goroutine ends.
	isReady      atomic.Bool
	handshakeErr error
	peerKey      []byte
	// First received bytes, for explainError.
	firstBytes        []byte
	pendingPlaintext  []byte
	pendingCiphertext []byte
}

const (
	// sealBatchSize is the number of bytes to encrypt before each write, four records.
	sealBatchSize = 64 << 10
	// maxTLSReplies bounds the replies of TLS to a peer that does not read.
	maxTLSReplies = 256 << 10
)

// startTLS starts TLS on a connection in the epoll set, with a tls.Client or tls.Server from newConn.
// After the handshake or its timeout the socket gets an event.
func (m *module) startTLS(fd int, t *tlsTunnel, newConn func(net.Conn) *tls.Conn, timeout time.Duration) error {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	t.module, t.fd, t.handshakeFile = m, fd, os.NewFile(uintptr(own), "tcp")
	if err := t.handshakeFile.SetDeadline(time.Now().Add(timeout)); err != nil {
		t.handshakeFile.Close()
		return err
	}
	t.conn = newConn(tlsConn{t})
	m.socketAt(fd).tunnel = t
	m.tlsHandshakes.running.Go(t.runHandshake)
	return nil
}

// runHandshake is the goroutine of the handshake.
func (t *tlsTunnel) runHandshake() {
	err := t.conn.Handshake()
	t.handshakeFile.Close()
	if err != nil {
		t.handshakeErr = t.explainError(err)
	}
	t.firstBytes = nil
	t.isReady.Store(true)
	t.module.tlsHandshakes.completed.add(t)
}

// explainError replaces the TLS error if the acceptor's plain answer names another security.
func (t *tlsTunnel) explainError(err error) error {
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok && len(t.firstBytes) == answerSize {
		if a, wrong := decodeAnswer(t.firstBytes); wrong == nil && a.outcome == outcomeOtherSecurity && a.security != securityTLS {
			return securityTLS.mismatch(a.security)
		}
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	return err
}

// isPermanent reports whether a handshake error repeats on every attempt.
func isPermanent(err error) bool {
	return errors.Is(err, errOtherKey) || errors.Is(err, errSecurityDiffers)
}

// abortHandshake ends a running handshake.
func (t *tlsTunnel) abortHandshake() { t.handshakeFile.SetDeadline(time.Now()) }

// verifiedKey returns the proven key of the other end, or nil.
func (t *tlsTunnel) verifiedKey() []byte {
	if t == nil || !t.isReady.Load() {
		return nil
	}
	return t.peerKey
}

// read is read(2) of the plaintext.
func (t *tlsTunnel) read(b []byte) (int, error) {
	switch {
	case !t.isReady.Load():
		return -1, unix.EAGAIN
	case t.handshakeErr != nil:
		return -1, t.handshakeErr
	}
	n, err := t.conn.Read(b)
	// A reply of TLS.
	if len(t.pendingCiphertext) > 0 {
		t.flushCiphertext()
	}
	switch {
	case n > 0:
		// The error repeats.
		return n, nil
	case err == io.EOF:
		return 0, nil
	case err != nil:
		return -1, err
	}
	return -1, unix.EINTR
}

// write is writev(2) of plaintext. It keeps the ciphertext that the socket does not take.
func (t *tlsTunnel) write(pieces ...[]byte) (n int, err error) {
	if !t.isReady.Load() {
		for _, b := range pieces {
			t.pendingPlaintext = append(t.pendingPlaintext, b...)
			n += len(b)
		}
		return n, nil
	}
	if t.handshakeErr != nil {
		return -1, t.handshakeErr
	}
	if err := t.flushCiphertext(); err != nil {
		return -1, err
	}
	plain := t.module.scratch.plaintextBuf[:0]
	seal := func(b []byte) error {
		t.pendingCiphertext = t.module.scratch.ciphertextBuf[:0]
		_, err := t.conn.Write(b)
		if t.module.scratch.ciphertextBuf = t.pendingCiphertext; err == nil {
			n += len(b)
			err = t.flushCiphertext()
		}
		plain = plain[:0]
		return err
	}
	for _, b := range pieces {
		for len(b) > 0 && err == nil {
			if len(plain) == 0 && len(b) >= sealBatchSize {
				err = seal(b[:sealBatchSize])
				b = b[sealBatchSize:]
				continue
			}
			k := min(len(b), sealBatchSize-len(plain))
			plain, b = append(plain, b[:k]...), b[k:]
			if len(plain) == sealBatchSize {
				err = seal(plain)
			}
		}
	}
	if len(plain) > 0 && err == nil {
		err = seal(plain)
	}
	t.module.scratch.plaintextBuf = plain
	if n > 0 {
		// The error repeats.
		return n, nil
	}
	return -1, err
}

// flushCiphertext writes pending ciphertext. EAGAIN means that some remains.
func (t *tlsTunnel) flushCiphertext() error {
	for rest := t.pendingCiphertext; len(rest) > 0; {
		n, err := unix.Write(t.fd, rest)
		switch {
		case n > 0:
			rest = rest[n:]
		case err == unix.EAGAIN:
			// It may be scratch memory of the module.
			t.pendingCiphertext = append([]byte(nil), rest...)
			return err
		case err != unix.EINTR:
			t.pendingCiphertext = nil
			return err
		}
	}
	t.pendingCiphertext = nil
	return nil
}

// writePending writes the plaintext from before the handshake.
func (t *tlsTunnel) writePending() {
	if before := t.pendingPlaintext; t.handshakeErr == nil && len(before) > 0 {
		t.pendingPlaintext = nil
		t.write(before)
	}
}

// tlsConn is the net.Conn for crypto/tls.
type tlsConn struct{ tunnel *tlsTunnel }

// Read implements net.Conn.
func (w tlsConn) Read(b []byte) (int, error) {
	t := w.tunnel
	if !t.isReady.Load() {
		n, err := t.handshakeFile.Read(b)
		if room := answerSize - len(t.firstBytes); room > 0 && n > 0 {
			t.firstBytes = append(t.firstBytes, b[:min(n, room)]...)
		}
		return n, err
	}
	for {
		switch n, err := unix.Read(t.fd, b); {
		case n > 0:
			return n, nil
		case err == nil:
			return 0, io.EOF
		case err != unix.EINTR:
			return 0, err
		}
	}
}

// Write implements net.Conn.
func (w tlsConn) Write(b []byte) (int, error) {
	t := w.tunnel
	if !t.isReady.Load() {
		return t.handshakeFile.Write(b)
	}
	if len(t.pendingCiphertext) > maxTLSReplies {
		return 0, fmt.Errorf("%w: the peer does not read the replies of TLS", errDamaged)
	}
	t.pendingCiphertext = append(t.pendingCiphertext, b...)
	return len(b), nil
}

// The rest of net.Conn is unused.
func (w tlsConn) Close() error                     { return nil }
func (w tlsConn) LocalAddr() net.Addr              { return nil }
func (w tlsConn) RemoteAddr() net.Addr             { return nil }
func (w tlsConn) SetDeadline(time.Time) error      { return nil }
func (w tlsConn) SetReadDeadline(time.Time) error  { return nil }
func (w tlsConn) SetWriteDeadline(time.Time) error { return nil }

// tlsHandshakes are the goroutines of running TLS handshakes.
type tlsHandshakes struct {
	running   sync.WaitGroup
	completed *completedHandshakes
}

// completedHandshakes are the tunnels after their handshake. An event of eventFD wakes the module.
type completedHandshakes struct {
	module  *module
	eventFD int
	mu      sync.Mutex
	tunnels []*tlsTunnel
}

func newCompletedHandshakes(m *module) (*completedHandshakes, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	s := &completedHandshakes{module: m, eventFD: fd}
	if err := m.watchSocket(fd, s); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return s, nil
}

func (s *completedHandshakes) add(t *tlsTunnel) {
	s.mu.Lock()
	s.tunnels = append(s.tunnels, t)
	s.mu.Unlock()
	unix.Write(s.eventFD, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// handleEvents implements socketHandler.
func (s *completedHandshakes) handleEvents(uint32) {
	var count [8]byte
	unix.Read(s.eventFD, count[:])
	s.mu.Lock()
	list := s.tunnels
	s.tunnels = nil
	s.mu.Unlock()
	for _, t := range list {
		if at := s.module.socketAt(t.fd); at != nil && at.tunnel == t {
			t.writePending()
			at.handler.handleEvents(unix.EPOLLIN | unix.EPOLLOUT)
		}
	}
}

// tunnelOf returns the tunnel of a descriptor, or nil without TLS.
func (m *module) tunnelOf(fd int) *tlsTunnel {
	if s := m.socketAt(fd); s != nil {
		return s.tunnel
	}
	return nil
}

// readSocket is read(2) of a connection. Small reads do not block the scheduler.
func (m *module) readSocket(fd int, b []byte) (int, error) {
	if t := m.tunnelOf(fd); t != nil {
		return t.read(b)
	}
	if len(b) > rawsys.MaxBytes {
		return unix.Read(fd, b)
	}
	return readResult(rawsys.Read(fd, b))
}

// writeSocket is writev(2) of a connection.
func (m *module) writeSocket(fd int, pieces ...[]byte) (int, error) {
	switch t := m.tunnelOf(fd); {
	case t != nil:
		return t.write(pieces...)
	case len(pieces) == 1 && len(pieces[0]) <= rawsys.MaxBytes:
		return readResult(rawsys.Write(fd, pieces[0]))
	}
	return unix.Writev(fd, pieces)
}

// readResult adds an error to the result of package rawsys.
func readResult(n int, e unix.Errno) (int, error) {
	if e != 0 {
		return n, e
	}
	return n, nil
}

// bytesEncrypted returns the bytes of ciphertext that the sockets of a peer have not taken.
func (p *peerConn) bytesEncrypted() (n int) {
	for _, l := range p.linksBySlot[:len(p.path.queuesBySlot)] {
		if l == nil {
			continue
		}
		if t := p.module.tunnelOf(l.fd); t != nil {
			t.flushCiphertext()
			n += len(t.pendingCiphertext)
		}
	}
	return n
}
