package meet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/internal/netaddr"
)

const (
	// stagger is how long one address has before the next is tried beside it.
	attemptStagger = 250 * time.Millisecond

	// connectTimeout is how long the network may take to answer at an address.
	connectTimeout = 5 * time.Second

	// maxLinks is how many connections a pair may have: one, or two that have crossed, and
	// such as are about to end.
	maxLinks = 8
)

// connectTCP tries the addresses of a process on another host, one after another, the next
// when the last one has failed or takes long.
func (c *client) connectTCP(ctx context.Context, rank uint32, e entry) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	addrs := netaddr.Order(c.interfaces(), e.addrs)
	results := make(chan error, len(addrs))
	var errs []error
	begun := 0
	for len(errs) < len(addrs) {
		var next <-chan time.Time
		if begun < len(addrs) {
			if begun == len(errs) { // nothing is under way
				next = time.After(0)
			} else {
				next = time.After(attemptStagger)
			}
		}
		select {
		case <-next:
			at := net.JoinHostPort(addrs[begun].String(), fmt.Sprint(e.port))
			begun++
			c.wg.Go(func() { results <- c.connectAddr(ctx, rank, e, "tcp", at) })
		case err := <-results:
			if err == nil {
				return nil
			}
			errs = append(errs, err)
		}
	}
	return joinAttemptErrors(errs)
}

// worst joins the errors of a process's addresses. Who was refused at some and else not
// reached was not refused; and who was found to be somebody else at some may still be
// reached at those where nothing was found out.
func joinAttemptErrors(errs []error) error {
	refused := func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
	final := func(err error) bool { return errors.Is(err, errPermanent) }
	for _, known := range []func(error) bool{func(err error) bool { return refused(err) || final(err) }, refused} {
		if open := slices.DeleteFunc(slices.Clone(errs), known); len(open) > 0 {
			errs = open
		}
	}
	if len(errs) == 0 {
		return fmt.Errorf("its entry has no address that this host could use: %w", errPermanent)
	}
	return errors.Join(errs...)
}

// connect connects with one address, proves who this process is, and begins the link.
func (c *client) connectAddr(ctx context.Context, rank uint32, e entry, network, at string) error {
	d := net.Dialer{Timeout: c.connectTimeoutFor(rank)}
	dialing := ctx
	if network == "unix" { // Connecting does not wait, and the hello below follows even if ctx ends.
		dialing = context.WithoutCancel(ctx)
	}
	nc, err := d.DialContext(dialing, network, at)
	for pause := firstPause; errors.Is(err, syscall.EAGAIN); pause = min(2*pause, maxPause) { // a full backlog
		c.recordSocketAlive(rank)
		select {
		case <-time.After(pause):
			nc, err = d.DialContext(dialing, network, at)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err != nil {
		return err
	}
	if _, err := wire.CheckPeer(nc); err != nil {
		nc.Close()
		return fmt.Errorf("%w: %w", err, errPermanent)
	}
	c.recordSocketAlive(rank)
	// There is no deadline: a process without a client does not answer until it has one again.
	// Writing stays possible, because the other end logs a connection without a hello.
	stop := context.AfterFunc(ctx, func() { nc.SetReadDeadline(time.Unix(1, 0)) })
	h := hello{from: c.id.Proc.Rank, to: rank, fromNonce: c.ownEntry.nonce, toNonce: e.nonce}
	proof, err := proveAsConnector(nc, c.id.Proc.Namespace, h, e)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil { // from here on the other end counts on the link
		nc.SetDeadline(time.Now().Add(handshakeTimeout))
		_, err = nc.Write(proof)
	}
	if err != nil {
		nc.Close()
		if errors.Is(err, errWrongKey) {
			err = fmt.Errorf("%s: %w: %w", at, err, errPermanent)
		}
		return err
	}
	return c.establishLink(rank, nc, false)
}

// connectTimeoutFor returns the time that the network may take to answer at an address of rank. It is short
// while the host is silent, so that an attempt begins soon after a cable is back.
func (c *client) connectTimeoutFor(rank uint32) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.peerOf(rank); p.isSilent || p.state.isSuspect() {
		return min(connectTimeout, keepAlivePeriod(c.hostTimeout))
	}
	return connectTimeout
}

// recordSocketAlive notes that a process's socket is there.
func (c *client) recordSocketAlive(rank uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peerOf(rank)
	p.lastSignAt = time.Now()
	if p.state == peerUnreachable {
		p.state = peerUnresponsive
	}
}

// met makes nc, whose other end has proved to be rank, a link. accepted says who had
// connected: the acceptor says welcome.
func (c *client) establishLink(rank uint32, nc net.Conn, accepted bool) error {
	l := &link{client: c, rank: rank, conn: nc, pendingRequests: map[uint64]join.Withdraw{}}
	r := wire.NewReader(nc, wire.MaxFrame)
	if t, ok := nc.(*net.TCPConn); ok {
		setKeepAlive(t, c.hostTimeout)
	}
	if !accepted {
		stopped := make(chan struct{})
		stop := context.AfterFunc(c.ctx, func() { nc.SetDeadline(time.Unix(1, 0)); close(stopped) })
		err := c.awaitWelcome(l, r)
		if !stop() {
			<-stopped
		}
		nc.SetDeadline(time.Time{})
		if err != nil && c.ctx.Err() == nil {
			nc.Close()
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peerOf(rank)
	switch {
	case c.isClosed || p.state == peerEnded:
		c.sendDeathNotice(l)
		if !accepted { // who lets this process in is not to take it for dead
			nc.SetDeadline(time.Now().Add(closeGrace))
			nc.Write(encodeFrame(wire.Goodbye, 0, wire.Empty{}))
		}
		nc.Close()
		return errors.New("this process has closed, or the other one counts as failed")
	case len(p.links) >= maxLinks && accepted:
		return errors.New("too many connections of one process")
	}
	if accepted {
		l.send(encodeFrame(wire.Welcome, 0, wire.WelcomeBody{Size: uint32(c.id.Size)}))
	}
	c.addLink(p, l)
	c.wg.Go(func() { c.readLoop(l, r) })
	return nil
}

func (c *client) awaitWelcome(l *link, r *wire.Reader) error {
	m, err := r.Next()
	if err != nil {
		return err
	}
	if m.Kind == wire.Event {
		return c.receiveRefusal(l, m)
	}
	w, err := wire.Decode[wire.WelcomeBody](m.Body)
	switch {
	case m.Kind != wire.Welcome || err != nil:
		return fmt.Errorf("message kind %d instead of a welcome: %w", m.Kind, errPermanent)
	case int64(w.Size) != int64(c.id.Size):
		return fmt.Errorf("it says that the job has %d processes, this process knows of %d: %w", w.Size, c.id.Size, errPermanent)
	}
	return nil
}
