package mesh

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

const (
	// handshakeTimeout limits a handshake. After it, the peer of a broken connection counts as
	// absent or failed.
	handshakeTimeout = 10 * time.Second

	// maxHandshakes limits the concurrent handshakes on one socket.
	maxHandshakes = 128

	// fullHandshakeTimeout limits a handshake while there are maxHandshakes. Those of members take
	// a few milliseconds.
	fullHandshakeTimeout = time.Second
)

// acceptor accepts the connections of one socket.
type acceptor struct {
	client *client
	slots  chan struct{}
	// Connections in a handshake, the oldest first. Guarded by endpoint.mu.
	inbound []inboundConn
}

type inboundConn struct {
	conn      net.Conn
	startedAt time.Time
}

// listener is a listening socket.
type listener interface {
	net.Listener
	SetDeadline(time.Time) error
}

// accept accepts connections until the client closes. On other errors, such as a lack of
// descriptors, it tries again, and logs the first error in a row.
func (c *client) accept(l listener) {
	const atFirst = time.Millisecond
	d, wait := &acceptor{client: c, slots: make(chan struct{}, maxHandshakes)}, atFirst
	c.wg.Go(func() { <-c.done; d.closeInbound() })
	for {
		if !d.acquireSlot() {
			return
		}
		nc, err := l.Accept()
		if err == nil {
			wait = atFirst
			d.startHandshake(nc)
			continue
		}
		<-d.slots
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if wait == atFirst {
			c.log.Warn("bootstrap mesh: accept failed, trying again", "error", err)
		}
		select {
		case <-time.After(wait):
			wait = min(2*wait, time.Second)
		case <-c.done:
			return
		}
	}
}

// acquireSlot waits for room for another handshake. Without room, it ends handshakes that exceed
// fullHandshakeTimeout. It returns false when the client closes.
func (d *acceptor) acquireSlot() bool {
	for {
		select {
		case d.slots <- struct{}{}:
			return true
		case <-d.client.done:
			return false
		case <-time.After(fullHandshakeTimeout / 4):
		}
		d.client.mu.Lock()
		for _, g := range d.inbound {
			if time.Since(g.startedAt) > fullHandshakeTimeout {
				g.conn.Close()
			}
		}
		d.client.mu.Unlock()
	}
}

// startHandshake starts the handshake on nc, which then releases the slot.
func (d *acceptor) startHandshake(nc net.Conn) {
	c := d.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		nc.Close()
		return
	}
	d.inbound = append(d.inbound, inboundConn{nc, time.Now()})
	c.wg.Go(func() {
		d.runHandshake(nc)
		<-d.slots
	})
}

// removeInbound removes nc before it becomes a link. closeInbound must not close a link, because a
// goodbye is sent on it first.
func (d *acceptor) removeInbound(nc net.Conn) {
	d.client.mu.Lock()
	defer d.client.mu.Unlock()
	d.inbound = slices.DeleteFunc(d.inbound, func(g inboundConn) bool { return g.conn == nc })
}

// closeInbound closes the connections in a handshake.
func (d *acceptor) closeInbound() {
	d.client.mu.Lock()
	defer d.client.mu.Unlock()
	for _, g := range d.inbound {
		g.conn.Close()
	}
}

func (d *acceptor) runHandshake(nc net.Conn) {
	c := d.client
	_, err := wire.CheckPeer(nc)
	entries := c.entriesFor(nc)
	var h hello
	if err == nil {
		nc.SetDeadline(time.Now().Add(handshakeTimeout)) // The handshake reports an error.
		h, err = c.proveAsAcceptor(nc, entries...)
	}
	d.removeInbound(nc)
	if err == nil {
		nc.SetDeadline(time.Time{})
		err = c.establishLink(h.from, nc, true)
	}
	if err == nil {
		return
	}
	nc.Close()
	if c.ctx.Err() != nil || h.entryIndex(entries) >= 0 && (errors.Is(err, io.EOF) || isAbruptClose(err)) {
		c.log.Debug("bootstrap mesh: a member stopped waiting", "from", nc.RemoteAddr().String(), "error", err)
		return
	}
	c.logRefusal(nc, err)
}
