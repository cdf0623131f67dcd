package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

var (
	// ErrGone is the error for a socket that no process serves.
	ErrGone = errors.New("the job has ended")
	// ErrNoAnswer is the error of a job that did not answer in time. Its launcher may be stopped.
	ErrNoAnswer = errors.New("does not answer")
)

// withdrawTimeout is the time that a job has to answer after a withdrawal.
const withdrawTimeout = 2 * time.Second

// A Conn is a connection for one request. It is not safe for concurrent use.
type Conn struct {
	nc  *net.UnixConn
	pid int
}

// Dial connects to the job in directory dir. It does not wait for the job, which may be
// stopped. Errors are ErrGone, and ErrNoAnswer if too many connections wait.
func Dial(dir string) (*Conn, error) {
	nc, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(dir, Name), Net: "unix"})
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: %w", dir, ErrGone)
	case errors.Is(err, syscall.EAGAIN):
		return nil, fmt.Errorf("%s: %w", dir, ErrNoAnswer)
	case err != nil:
		return nil, err
	}
	pid, err := wire.CheckPeer(nc)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &Conn{nc, pid}, nil
}

// PID returns the process id of the job's launcher, as the kernel reports it.
func (c *Conn) PID() int { return c.pid }

// Close closes the connection. A change that is not integrated is withdrawn.
func (c *Conn) Close() error { return c.nc.Close() }

// Status returns the state of the job. If ctx ends before, the error is ErrNoAnswer.
func (c *Conn) Status(ctx context.Context) (Status, error) {
	stop := context.AfterFunc(ctx, func() { c.nc.SetDeadline(time.Now()) })
	defer stop()
	r, err := c.request(request{Version: Version})
	switch {
	case err != nil:
		return Status{}, err
	case r.Status == nil:
		return Status{}, errors.New("malformed reply: no status")
	}
	return *r.Status, nil
}

// Resize requests a change, and returns when it is finished. If ctx ends before, the change is withdrawn, and
// the error is the job's.
func (c *Conn) Resize(ctx context.Context, r Resize) (Resized, error) {
	if err := c.nc.SetDeadline(time.Now().Add(r.Wait).Add(withdrawTimeout)); err != nil {
		return Resized{}, err
	}
	stop := context.AfterFunc(ctx, func() {
		c.nc.CloseWrite()
		c.nc.SetDeadline(time.Now().Add(withdrawTimeout))
	})
	defer stop()
	got, err := c.request(request{Version, &r})
	switch {
	case err != nil:
		return Resized{}, err
	case got.Resized == nil:
		return Resized{}, errors.New("malformed reply: no result of the change")
	}
	return *got.Resized, nil
}

// request sends a request, and returns the reply.
func (c *Conn) request(req request) (reply, error) {
	line, err := encode(req)
	if err != nil {
		return reply{}, err
	}
	if len(line) > maxRequest {
		return reply{}, fmt.Errorf("a request of %d bytes is over the limit of %d", len(line), maxRequest)
	}
	// A job that refuses the connection replies without reading the request.
	_, writeErr := c.nc.Write(line)
	line, err = bufio.NewReaderSize(c.nc, maxReply).ReadSlice('\n')
	switch {
	case err == nil:
		return decodeReply(line)
	case isTimeout(err):
		return reply{}, ErrNoAnswer
	case errors.Is(err, bufio.ErrBufferFull):
		return reply{}, fmt.Errorf("malformed reply: longer than %d bytes", maxReply)
	case writeErr != nil:
		err = writeErr
	}
	return reply{}, fmt.Errorf("%w: %w", ErrGone, err)
}
