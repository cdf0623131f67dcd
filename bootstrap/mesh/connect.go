package mesh

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
	// attemptStagger is the time after which the next address is tried in parallel.
	attemptStagger = 250 * time.Millisecond

	// connectTimeout limits the connection attempt at one address.
	connectTimeout = 5 * time.Second

	// maxLinks limits the connections of a pair. Usually there is one, or two that have crossed,
	// and some that are about to end.
	maxLinks = 8
)

// connectTCP tries the addresses of a process on another host in order. It starts the next attempt
// when the last one fails, or after attemptStagger.
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
			if begun == len(errs) { // No attempt is in progress.
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

// joinAttemptErrors joins the errors of the attempts at several addresses. Errors that leave the
// state of the process open replace refusals and permanent errors, and permanent errors replace
// refusals.
func joinAttemptErrors(errs []error) error {
	isRefused := func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
	isPermanent := func(err error) bool { return errors.Is(err, errPermanent) }
	for _, isConclusive := range []func(error) bool{func(err error) bool { return isRefused(err) || isPermanent(err) }, isRefused} {
		if remaining := slices.DeleteFunc(slices.Clone(errs), isConclusive); len(remaining) > 0 {
			errs = remaining
		}
	}
	if len(errs) == 0 {
		return fmt.Errorf("its entry has no address that this host could use: %w", errPermanent)
	}
	return errors.Join(errs...)
}

// connectAddr connects to one address, performs the handshake and establishes the link.
func (c *client) connectAddr(ctx context.Context, rank uint32, e entry, network, at string) error {
	d := net.Dialer{Timeout: c.connectTimeoutFor(rank)}
	dialing := ctx
	if network == "unix" { // The connection is immediate, and the hello below follows even if ctx ends.
		dialing = context.WithoutCancel(ctx)
	}
	nc, err := d.DialContext(dialing, network, at)
	for pause := firstPause; errors.Is(err, syscall.EAGAIN); pause = min(2*pause, maxPause) { // The backlog is full.
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
	// There is no deadline, because a process without an open client answers when it opens the next
	// one. Writing stays possible, because the other end logs a connection without a hello.
	stop := context.AfterFunc(ctx, func() { nc.SetReadDeadline(time.Unix(1, 0)) })
	h := hello{from: c.id.Proc.Rank, to: rank, fromNonce: c.ownEntry.nonce, toNonce: e.nonce}
	proof, err := proveAsConnector(nc, c.id.Proc.Namespace, h, e)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil { // From here on the other end relies on the link.
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

// connectTimeoutFor returns the limit for a connection attempt to rank. It is short while the host
// is silent, so that an attempt begins soon after the network recovers.
func (c *client) connectTimeoutFor(rank uint32) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.peerOf(rank); p.isSilent || p.state.isSuspect() {
		return min(connectTimeout, keepAlivePeriod(c.timeouts.host))
	}
	return connectTimeout
}

// recordSocketAlive records that the socket of a process accepts connections.
func (c *client) recordSocketAlive(rank uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peerOf(rank)
	p.lastSignAt = time.Now()
	if p.state == peerUnreachable {
		p.state = peerUnresponsive
	}
}

// establishLink adds a link over nc after the handshake with rank. accepted means that the peer has
// dialed, and that this end sends the Welcome.
func (c *client) establishLink(rank uint32, nc net.Conn, accepted bool) error {
	l := &link{client: c, rank: rank, conn: nc, pendingRequests: map[uint64]join.Withdraw{}}
	r := wire.NewReader(nc, wire.MaxFrame)
	if t, ok := nc.(*net.TCPConn); ok {
		setKeepAlive(t, c.timeouts.host)
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
		if !accepted { // The acceptor has a link, and must not report this process as failed.
			nc.SetDeadline(time.Now().Add(closeGrace))
			nc.Write(encodeFrame(wire.Goodbye, 0, wire.Empty{}))
		}
		nc.Close()
		return errors.New("this process has closed, or the peer has ended")
	case len(p.links) >= maxLinks && accepted:
		return errors.New("too many connections of one process")
	}
	if accepted {
		l.send(encodeFrame(wire.Welcome, 0, wire.WelcomeBody{Size: uint32(c.rankLimit.Load())}))
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
	case !c.growth.isPossible && int64(w.Size) != int64(c.id.Size):
		return fmt.Errorf("its job has %d processes, that of this process %d: %w", w.Size, c.id.Size, errPermanent)
	}
	return nil
}
