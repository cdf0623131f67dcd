package plugin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/plugin/internal/wire"
)

// serveSocket implements Serve with the control frames of docs/plugin-protocol.md.
func serveSocket(c btl.Component) error {
	k := socket(wire.ControlFD)
	start, err := k.hello() // Of any version. Closing a socket with unread packets would lose the reply.
	if v := os.Getenv(wire.Environment); v != strconv.Itoa(wire.Version) {
		theirs, _ := strconv.ParseUint(v, 10, 32)
		err = wire.Differ(false, uint32(theirs))
		return errors.Join(err, k.send(wire.Failed, []byte(err.Error()))) // All versions have this frame.
	}
	if err != nil {
		return err
	}
	s := newServer(os.Stderr)
	offer, err := s.open(c, start)
	if err != nil {
		return errors.Join(err, k.send(wire.Failed, []byte(err.Error())))
	}
	if _, err := unix.Write(int(k), offer.Bytes()); err != nil {
		return errors.Join(err, s.module.Close())
	}
	go k.listen(s)
	return s.serve()
}

// socket is the plugin's end of the control socket.
type socket int

// receive returns the next control frame.
func (k socket) receive() (kind uint32, body []byte, err error) {
	b := make([]byte, wire.ControlLimit)
	n, err := unix.Read(int(k), b)
	for err == unix.EINTR {
		n, err = unix.Read(int(k), b)
	}
	switch {
	case err != nil:
		return 0, nil, fmt.Errorf("control socket: %w", err)
	case n == 0:
		return 0, nil, errRankGone
	case n < 4:
		return 0, nil, fmt.Errorf("control frame of %d bytes", n)
	}
	return binary.LittleEndian.Uint32(b), b[4:n], nil
}

var errRankGone = errors.New("the rank is gone")

// awaitHangup blocks until the rank's end of the socket is closed.
func (k socket) awaitHangup() error {
	events := []unix.PollFd{{Fd: int32(k)}} // POLLHUP is always reported
	_, err := unix.Poll(events, -1)
	for err == unix.EINTR {
		_, err = unix.Poll(events, -1)
	}
	if err == nil && events[0].Revents&unix.POLLHUP == 0 {
		err = unix.EBADF
	}
	return err
}

// orphanGrace is the time for an orderly end of a plugin after the end of its rank.
const orphanGrace = 5 * time.Second

// awaitOrphan closes orphaned orphanGrace after the end of the rank. A hanging call of the component may hold locks that an orderly end needs. The
// kernel kills a child of the rank, but not the child of a script that the rank has started.
func awaitOrphan(k socket, orphaned chan<- struct{}) {
	if k.awaitHangup() == nil {
		time.Sleep(orphanGrace)
		close(orphaned)
	}
}

// send sends a control frame.
func (k socket) send(kind uint32, body []byte) error {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(body)), kind)
	_, err := unix.Write(int(k), append(b, body...))
	return err
}

// hello waits for the rank's first frame.
func (k socket) hello() (wire.Start, error) {
	kind, body, err := k.receive()
	if err != nil || kind != wire.Hello {
		return wire.Start{}, errors.Join(err, fmt.Errorf("first control frame of the rank has kind %d", kind))
	}
	return wire.ParseStart(body)
}

// listen handles control frames until the end of the server.
func (k socket) listen(s *server) {
	for {
		kind, body, err := k.receive()
		if err == nil && kind == wire.Ping && len(body) == 8 {
			s.ping(func(published uint64) error {
				return k.send(wire.Pong, binary.LittleEndian.AppendUint64(body, published))
			})
			continue
		}
		if err == nil && kind != wire.End {
			err = fmt.Errorf("control frame %d from the rank", kind)
		}
		s.end(err)
		return
	}
}
