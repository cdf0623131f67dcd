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

	"github.com/ferrympi/ferry/internal/nowait"
)

// tlsTunnel is TLS on a connection. While the two ends shake hands, which crypto/tls does in
// one piece, a goroutine has the connection. From then on it is read and written like any
// other, when the module polls: crypto/tls goes on after a read that would have blocked
// (a net.Error that is Temporary, as EAGAIN is), and what it writes is kept here until the
// socket takes it.
type tlsTunnel struct {
	module        *module
	fd            int
	handshakeFile *os.File // the same connection, for the goroutine
	conn          *tls.Conn

	// ready: the goroutine has ended, and all below is the module's.
	isReady           atomic.Bool
	handshakeErr      error  // TLS has not come about
	peerKey           []byte // the key that the other process has proved to have
	firstBytes        []byte // what was read first
	pendingPlaintext  []byte // what was written before
	pendingCiphertext []byte // what the socket has not taken
}

const (
	// sealBatchSize is how much is encrypted before the socket is written to, in bytes: four
	// records.
	sealBatchSize = 64 << 10
	// maxTLSReplies is what TLS may want to say by itself while the peer does not read.
	maxTLSReplies = 256 << 10
)

// startTLS begins TLS on a connection that is watched: with make, which makes a tls.Client or
// a tls.Server. It has patience to come about; then the user of the descriptor is told.
func (m *module) startTLS(fd int, t *tlsTunnel, make func(net.Conn) *tls.Conn, patience time.Duration) error {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	t.module, t.fd, t.handshakeFile = m, fd, os.NewFile(uintptr(own), "tcp")
	if err := t.handshakeFile.SetDeadline(time.Now().Add(patience)); err != nil {
		t.handshakeFile.Close()
		return err
	}
	t.conn = make(tlsConn{t})
	m.socketAt(fd).tunnel = t
	m.tlsHandshakes.running.Go(t.runHandshake)
	return nil
}

// runHandshake is the goroutine.
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

// explainError says what is wrong with the other end: an acceptor of another security says it.
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

// isPermanent reports whether what has ended a connection in the handshake would come again.
func isPermanent(err error) bool {
	return errors.Is(err, errOtherKey) || errors.Is(err, errSecurityDiffers)
}

// abortHandshake ends a handshake: nobody uses the connection any more.
func (t *tlsTunnel) abortHandshake() { t.handshakeFile.SetDeadline(time.Now()) }

// verifiedKey returns what the other end has proved to have; nil: there is no tunnel.
func (t *tlsTunnel) verifiedKey() []byte {
	if t == nil || !t.isReady.Load() {
		return nil
	}
	return t.peerKey
}

// read is read(2), of what was encrypted.
func (t *tlsTunnel) read(b []byte) (int, error) {
	switch {
	case !t.isReady.Load():
		return -1, unix.EAGAIN
	case t.handshakeErr != nil:
		return -1, t.handshakeErr
	}
	n, err := t.conn.Read(b)
	if len(t.pendingCiphertext) > 0 { // TLS has answered
		t.flushCiphertext()
	}
	switch {
	case n > 0:
		return n, nil // the error comes again
	case err == io.EOF:
		return 0, nil
	case err != nil:
		return -1, err
	}
	return -1, unix.EINTR
}

// write is writev(2), of what is encrypted. It keeps what the socket does not take.
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
	plain := t.module.scratch.plaintext[:0]
	seal := func(b []byte) error {
		t.pendingCiphertext = t.module.scratch.ciphertext[:0]
		_, err := t.conn.Write(b)
		if t.module.scratch.ciphertext = t.pendingCiphertext; err == nil {
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
	t.module.scratch.plaintext = plain
	if n > 0 {
		return n, nil // the error comes again
	}
	return -1, err
}

// flushCiphertext writes what is encrypted. EAGAIN: the socket has not taken all.
func (t *tlsTunnel) flushCiphertext() error {
	for rest := t.pendingCiphertext; len(rest) > 0; {
		n, err := unix.Write(t.fd, rest)
		switch {
		case n > 0:
			rest = rest[n:]
		case err == unix.EAGAIN:
			t.pendingCiphertext = append([]byte(nil), rest...) // t.out may be the module's
			return err
		case err != unix.EINTR:
			t.pendingCiphertext = nil
			return err
		}
	}
	t.pendingCiphertext = nil
	return nil
}

// writePending writes what has waited for TLS.
func (t *tlsTunnel) writePending() {
	if before := t.pendingPlaintext; t.handshakeErr == nil && len(before) > 0 {
		t.pendingPlaintext = nil
		t.write(before)
	}
}

// tlsConn is the connection as crypto/tls sees it.
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
		return 0, fmt.Errorf("%w: the peer makes TLS answer, and reads no answers", errDamaged)
	}
	t.pendingCiphertext = append(t.pendingCiphertext, b...)
	return len(b), nil
}

// The rest of net.Conn, which nobody asks for.
func (w tlsConn) Close() error                     { return nil }
func (w tlsConn) LocalAddr() net.Addr              { return nil }
func (w tlsConn) RemoteAddr() net.Addr             { return nil }
func (w tlsConn) SetDeadline(time.Time) error      { return nil }
func (w tlsConn) SetReadDeadline(time.Time) error  { return nil }
func (w tlsConn) SetWriteDeadline(time.Time) error { return nil }

// tlsHandshakes are the goroutines that begin TLS.
type tlsHandshakes struct {
	running   sync.WaitGroup
	completed *completedHandshakes // nil without TLS.
}

// completedHandshakes are the tunnels whose goroutine has ended. Its descriptor wakes the module.
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

// handleEvents implements user.
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

// tunnelOf returns the tunnel of a descriptor; nil: nothing is encrypted.
func (m *module) tunnelOf(fd int) *tlsTunnel {
	if s := m.socketAt(fd); s != nil {
		return s.tunnel
	}
	return nil
}

// readSocket is read(2) of a connection.
func (m *module) readSocket(fd int, b []byte) (int, error) {
	if t := m.tunnelOf(fd); t != nil {
		return t.read(b)
	}
	if len(b) > nowait.Most {
		return unix.Read(fd, b)
	}
	return readResult(nowait.Read(fd, b))
}

// writeSocket is writev(2) of a connection.
func (m *module) writeSocket(fd int, pieces ...[]byte) (int, error) {
	switch t := m.tunnelOf(fd); {
	case t != nil:
		return t.write(pieces...)
	case len(pieces) == 1 && len(pieces[0]) <= nowait.Most:
		return readResult(nowait.Write(fd, pieces[0]))
	}
	return unix.Writev(fd, pieces)
}

// readResult is what a call of package nowait returns, with an error.
func readResult(n int, e unix.Errno) (int, error) {
	if e != 0 {
		return n, e
	}
	return n, nil
}

// bytesEncrypted returns how many bytes the tunnels of a pair keep that their sockets have not taken.
func (p *peerConn) bytesEncrypted() (n int) {
	for _, l := range p.links[:len(p.path.queues)] {
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
