package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/ferrympi/ferry/plugin/internal/wire"
)

// socketControl implements the control protocol of docs/plugin-protocol.md, which is packets over a socket pair.
type socketControl struct {
	socket       *os.File
	writeTimeout time.Duration // Of a write, since the plugin may not read
}

func (l *launch) startSocket() (control, *child, error) {
	s := &socketControl{l.rankSocket, l.params.HealthTimeout}
	l.cmd.Env = append([]string{wire.Environment + "=" + strconv.Itoa(wire.Version)}, l.cmd.Env...)
	c, err := startChild(l.cmd)
	if err != nil {
		return s, nil, err
	}
	l.output.follow(c.stdout)
	l.output.follow(c.stderr)
	return s, c, nil
}

func (s *socketControl) open(ctx context.Context, start wire.Start) (o wire.Offer, err error) {
	if _, err := s.socket.Write(start.Bytes()); err != nil {
		return o, errChannelEnded
	}
	stop := context.AfterFunc(ctx, func() { _ = s.socket.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	kind, body, err := s.receive()
	switch {
	case err != nil:
		return o, err
	case kind == wire.Failed:
		return o, fmt.Errorf("the plugin reports: %.500q", body)
	case kind != wire.Ready:
		return o, fmt.Errorf("the plugin begins with control frame %d", kind)
	}
	if o, err = wire.ParseOffer(body); err != nil {
		return o, fmt.Errorf("the plugin's description of its transport: %w", err)
	}
	return o, nil
}

// receive returns the next control frame.
func (s *socketControl) receive() (kind uint32, body []byte, err error) {
	b := make([]byte, wire.ControlLimit)
	n, err := s.socket.Read(b)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, nil, err
	case err != nil && !errors.Is(err, io.EOF), n == 0:
		return 0, nil, errChannelEnded
	case n < 4:
		return 0, nil, fmt.Errorf("control frame of %d bytes", n)
	}
	return binary.LittleEndian.Uint32(b), b[4:n], nil
}

func (s *socketControl) ping() {
	frame := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, wire.Ping), 0)
	s.send(frame, s.writeTimeout)
}

func (s *socketControl) stop() { s.send(binary.LittleEndian.AppendUint32(nil, wire.End), stopGrace) }

// send sends a frame. serve returns the reason of an error.
func (s *socketControl) send(frame []byte, limit time.Duration) {
	_ = s.socket.SetWriteDeadline(time.Now().Add(limit))
	_, _ = s.socket.Write(frame)
}

func (s *socketControl) serve(pong func(published uint64)) error {
	for {
		switch kind, body, err := s.receive(); {
		case err != nil:
			return err
		case kind != wire.Pong || len(body) != 16:
			return fmt.Errorf("the plugin sent control frame %d of %d bytes", kind, len(body))
		default:
			pong(binary.LittleEndian.Uint64(body[8:]))
		}
	}
}

func (s *socketControl) close() { s.socket.Close() }
