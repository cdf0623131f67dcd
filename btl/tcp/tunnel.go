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

// tunnel is TLS on a connection. While the two ends shake hands, which crypto/tls does in
// one piece, a goroutine has the connection. From then on it is read and written like any
// other, when the module polls: crypto/tls goes on after a read that would have blocked
// (a net.Error that is Temporary, as EAGAIN is), and what it writes is kept here until the
// socket takes it.
type tunnel struct {
	m    *module
	fd   int
	file *os.File // the same connection, for the goroutine
	conn *tls.Conn

	// ready: the goroutine has ended, and all below is the module's.
	ready  atomic.Bool
	err    error  // TLS has not come about
	peer   []byte // the key that the other process has proved to have
	first  []byte // what was read first
	before []byte // what was written before
	out    []byte // what the socket has not taken
}

const (
	// cryptAtOnce is how much is encrypted before the socket is written to, in bytes: four
	// records.
	cryptAtOnce = 64 << 10
	// mostAnswers is what TLS may want to say by itself while the peer does not read.
	mostAnswers = 256 << 10
)

// tunnel begins TLS on a connection that is watched: with make, which makes a tls.Client or
// a tls.Server. It has patience to come about; then the user of the descriptor is told.
func (m *module) tunnel(fd int, t *tunnel, make func(net.Conn) *tls.Conn, patience time.Duration) error {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	t.m, t.fd, t.file = m, fd, os.NewFile(uintptr(own), "tcp")
	if err := t.file.SetDeadline(time.Now().Add(patience)); err != nil {
		t.file.Close()
		return err
	}
	t.conn = make(wire{t})
	m.socketAt(fd).tunnel = t
	m.handshakes.Go(t.shake)
	return nil
}

// shake is the goroutine.
func (t *tunnel) shake() {
	err := t.conn.Handshake()
	t.file.Close()
	if err != nil {
		t.err = t.explain(err)
	}
	t.first = nil
	t.ready.Store(true)
	t.m.shaken.add(t)
}

// explain says what is wrong with the other end: an acceptor of another security says it.
func (t *tunnel) explain(err error) error {
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok && len(t.first) == answerSize {
		if a, wrong := decodeAnswer(t.first); wrong == nil && a.outcome == otherwise && a.security != encrypted {
			return encrypted.differs(a.security)
		}
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	return err
}

// isFinal reports whether what has ended a connection in the handshake would come again.
func isFinal(err error) bool { return errors.Is(err, errOtherKey) || errors.Is(err, errDiffers) }

// leave ends a handshake: nobody uses the connection any more.
func (t *tunnel) leave() { t.file.SetDeadline(time.Now()) }

// key returns what the other end has proved to have; nil: there is no tunnel.
func (t *tunnel) key() []byte {
	if t == nil || !t.ready.Load() {
		return nil
	}
	return t.peer
}

// read is read(2), of what was encrypted.
func (t *tunnel) read(b []byte) (int, error) {
	switch {
	case !t.ready.Load():
		return -1, unix.EAGAIN
	case t.err != nil:
		return -1, t.err
	}
	n, err := t.conn.Read(b)
	if len(t.out) > 0 { // TLS has answered
		t.flush()
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
func (t *tunnel) write(pieces ...[]byte) (n int, err error) {
	if !t.ready.Load() {
		for _, b := range pieces {
			t.before = append(t.before, b...)
			n += len(b)
		}
		return n, nil
	}
	if t.err != nil {
		return -1, t.err
	}
	if err := t.flush(); err != nil {
		return -1, err
	}
	plain := t.m.plain[:0]
	seal := func(b []byte) error {
		t.out = t.m.sealed[:0]
		_, err := t.conn.Write(b)
		if t.m.sealed = t.out; err == nil {
			n += len(b)
			err = t.flush()
		}
		plain = plain[:0]
		return err
	}
	for _, b := range pieces {
		for len(b) > 0 && err == nil {
			if len(plain) == 0 && len(b) >= cryptAtOnce {
				err = seal(b[:cryptAtOnce])
				b = b[cryptAtOnce:]
				continue
			}
			k := min(len(b), cryptAtOnce-len(plain))
			plain, b = append(plain, b[:k]...), b[k:]
			if len(plain) == cryptAtOnce {
				err = seal(plain)
			}
		}
	}
	if len(plain) > 0 && err == nil {
		err = seal(plain)
	}
	t.m.plain = plain
	if n > 0 {
		return n, nil // the error comes again
	}
	return -1, err
}

// flush writes what is encrypted. EAGAIN: the socket has not taken all.
func (t *tunnel) flush() error {
	for rest := t.out; len(rest) > 0; {
		n, err := unix.Write(t.fd, rest)
		switch {
		case n > 0:
			rest = rest[n:]
		case err == unix.EAGAIN:
			t.out = append([]byte(nil), rest...) // t.out may be the module's
			return err
		case err != unix.EINTR:
			t.out = nil
			return err
		}
	}
	t.out = nil
	return nil
}

// begin writes what has waited for TLS.
func (t *tunnel) begin() {
	if before := t.before; t.err == nil && len(before) > 0 {
		t.before = nil
		t.write(before)
	}
}

// wire is the connection as crypto/tls sees it.
type wire struct{ t *tunnel }

// Read implements net.Conn.
func (w wire) Read(b []byte) (int, error) {
	t := w.t
	if !t.ready.Load() {
		n, err := t.file.Read(b)
		if room := answerSize - len(t.first); room > 0 && n > 0 {
			t.first = append(t.first, b[:min(n, room)]...)
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
func (w wire) Write(b []byte) (int, error) {
	t := w.t
	if !t.ready.Load() {
		return t.file.Write(b)
	}
	if len(t.out) > mostAnswers {
		return 0, fmt.Errorf("%w: the peer makes TLS answer, and reads no answers", errDamaged)
	}
	t.out = append(t.out, b...)
	return len(b), nil
}

// The rest of net.Conn, which nobody asks for.
func (w wire) Close() error                     { return nil }
func (w wire) LocalAddr() net.Addr              { return nil }
func (w wire) RemoteAddr() net.Addr             { return nil }
func (w wire) SetDeadline(time.Time) error      { return nil }
func (w wire) SetReadDeadline(time.Time) error  { return nil }
func (w wire) SetWriteDeadline(time.Time) error { return nil }

// shaken are the tunnels whose goroutine has ended. Its descriptor wakes the module.
type shaken struct {
	m    *module
	fd   int
	mu   sync.Mutex
	list []*tunnel
}

func newShaken(m *module) (*shaken, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	s := &shaken{m: m, fd: fd}
	if err := m.watch(fd, s); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return s, nil
}

func (s *shaken) add(t *tunnel) {
	s.mu.Lock()
	s.list = append(s.list, t)
	s.mu.Unlock()
	unix.Write(s.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// ready implements user.
func (s *shaken) ready(uint32) {
	var count [8]byte
	unix.Read(s.fd, count[:])
	s.mu.Lock()
	list := s.list
	s.list = nil
	s.mu.Unlock()
	for _, t := range list {
		if at := s.m.socketAt(t.fd); at != nil && at.tunnel == t {
			t.begin()
			at.user.ready(unix.EPOLLIN | unix.EPOLLOUT)
		}
	}
}

// tunnelAt returns the tunnel of a descriptor; nil: nothing is encrypted.
func (m *module) tunnelAt(fd int) *tunnel {
	if s := m.socketAt(fd); s != nil {
		return s.tunnel
	}
	return nil
}

// input is read(2) of a connection.
func (m *module) input(fd int, b []byte) (int, error) {
	if t := m.tunnelAt(fd); t != nil {
		return t.read(b)
	}
	if len(b) > nowait.Most {
		return unix.Read(fd, b)
	}
	return result(nowait.Read(fd, b))
}

// output is writev(2) of a connection.
func (m *module) output(fd int, pieces ...[]byte) (int, error) {
	switch t := m.tunnelAt(fd); {
	case t != nil:
		return t.write(pieces...)
	case len(pieces) == 1 && len(pieces[0]) <= nowait.Most:
		return result(nowait.Write(fd, pieces[0]))
	}
	return unix.Writev(fd, pieces)
}

// result is what a call of package nowait returns, with an error.
func result(n int, e unix.Errno) (int, error) {
	if e != 0 {
		return n, e
	}
	return n, nil
}

// kept returns how many bytes the tunnels of a pair keep that their sockets have not taken.
func (p *pair) kept() (n int) {
	for _, l := range p.links[:len(p.path.links)] {
		if l == nil {
			continue
		}
		if t := p.m.tunnelAt(l.fd); t != nil {
			t.flush()
			n += len(t.out)
		}
	}
	return n
}
