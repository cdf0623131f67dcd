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
	crowded = time.Second
)

// door is one socket's acceptor.
type door struct {
	c     *client
	slots chan struct{}
	// strangers are those in a handshake, the oldest first. Guarded by place.mu.
	strangers []guest
}

type guest struct {
	nc    net.Conn
	since time.Time
}

// acceptor is what is needed of a listening socket.
type acceptor interface{ Accept() (net.Conn, error) }

// accept serves who connects until the client closes. When it fails otherwise (no
// descriptors left), it tries again: that may pass. Of failures in a row it logs the first.
func (c *client) accept(l acceptor) {
	const atFirst = time.Millisecond
	d, wait := &door{c: c, slots: make(chan struct{}, maxHandshakes)}, atFirst
	c.wg.Go(func() { <-c.done; d.shut() })
	for {
		if !d.slot() {
			return
		}
		nc, err := l.Accept()
		if err == nil {
			wait = atFirst
			d.admit(nc)
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
func (d *door) slot() bool {
	for {
		select {
		case d.slots <- struct{}{}:
			return true
		case <-d.c.done:
			return false
		case <-time.After(crowded / 4):
		}
		d.c.mu.Lock()
		for _, g := range d.strangers {
			if time.Since(g.since) > crowded {
				g.nc.Close()
			}
		}
		d.c.mu.Unlock()
	}
}

// admit has a handshake with nc, and takes its slot.
func (d *door) admit(nc net.Conn) {
	c := d.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		nc.Close()
		return
	}
	d.strangers = append(d.strangers, guest{nc, time.Now()})
	c.wg.Go(func() {
		d.handshake(nc)
		<-d.slots
	})
}

// dismiss takes nc from the strangers, before it can become a link: shut must not close that,
// because a goodbye is to go over it first.
func (d *door) dismiss(nc net.Conn) {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	d.strangers = slices.DeleteFunc(d.strangers, func(g guest) bool { return g.nc == nc })
}

// shut ends what is under way.
func (d *door) shut() {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	for _, g := range d.strangers {
		g.nc.Close()
	}
}

func (d *door) handshake(nc net.Conn) {
	c := d.c
	_, err := wire.CheckPeer(nc)
	entries := c.entriesFor(nc)
	var h hello
	if err == nil {
		nc.SetDeadline(time.Now().Add(handshakeTimeout)) // an error here shows in what follows
		h, err = c.welcome(nc, entries...)
	}
	d.dismiss(nc)
	if err == nil {
		nc.SetDeadline(time.Time{})
		err = c.met(h.from, nc, true)
	}
	if err == nil {
		return
	}
	nc.Close()
	if c.ctx.Err() != nil || h.among(entries) >= 0 && (errors.Is(err, io.EOF) || cutOff(err)) {
		c.log.Debug("bootstrap meet: a member stopped waiting", "from", nc.RemoteAddr().String(), "error", err)
		return
	}
	c.refuse(nc, err)
}
