package meet

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
	// handshakeTimeout is how long whoever connects may take to prove who it is, and a
	// process of the job to answer.
	handshakeTimeout = 10 * time.Second

	// maxHandshakes is how many there may be at a time on one of the sockets.
	maxHandshakes = 128

	// crowded is how long a handshake may take when there are that many. Those of the
	// job's own processes take a few milliseconds.
	fullHandshakeTimeout = time.Second
)

// door is one socket's acceptor.
type acceptor struct {
	client *client
	slots  chan struct{}
	// strangers are those in a handshake, the oldest first. Guarded by place.mu.
	inbound []inboundConn
}

type inboundConn struct {
	conn      net.Conn
	startedAt time.Time
}

// acceptor is what is needed of a listening socket.
type listener interface{ Accept() (net.Conn, error) }

// accept serves who connects until the client closes. When it fails otherwise (no
// descriptors left), it tries again: that may pass. Of failures in a row it logs the first.
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
			c.log.Warn("bootstrap meet: accept failed, trying again", "error", err)
		}
		select {
		case <-time.After(wait):
			wait = min(2*wait, time.Second)
		case <-c.done:
			return
		}
	}
}

// slot waits until one more handshake may begin. While there is no room, those that take
// too long are ended. It reports false when the client closes.
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

// admit has a handshake with nc, and takes its slot.
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

// dismiss takes nc from the strangers, before it can become a link: shut must not close that,
// because a goodbye is to go over it first.
func (d *acceptor) removeInbound(nc net.Conn) {
	d.client.mu.Lock()
	defer d.client.mu.Unlock()
	d.inbound = slices.DeleteFunc(d.inbound, func(g inboundConn) bool { return g.conn == nc })
}

// shut ends what is under way.
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
		nc.SetDeadline(time.Now().Add(handshakeTimeout)) // an error here shows in what follows
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
		c.log.Debug("bootstrap meet: a member stopped waiting", "from", nc.RemoteAddr().String(), "error", err)
		return
	}
	c.logRefusal(nc, err)
}
