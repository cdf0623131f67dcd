package mesh

import (
	"errors"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/events"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

// Revoke implements bootstrap.Revoker. All processes forward the revocation, also those that are no
// members, and send it on each later connection.
func (c *client) Revoke(comm cid.Extended, members []framework.Proc) error {
	if err := c.startRevoke(comm, members); err != nil {
		return err
	}
	patience := time.After(bootstrap.RevokePatience)
	for !c.hasLinks() && !c.connectForwarders() { // After the end of a coordinator, or with an Exchange.
		select {
		case <-time.After(forwarderPollInterval):
		case <-patience:
			return nil
		}
	}
	for _, written := range c.pendingWrites() {
		select {
		case <-written:
		case <-patience:
			return nil
		}
	}
	return nil
}

// startRevoke records a revocation by this process, and queues it for all connected processes.
func (c *client) startRevoke(comm cid.Extended, members []framework.Proc) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return closedError("Revoke")
	}
	if err := c.isolationError(); err != nil {
		return err
	}
	ev := wire.EventBody{Kind: uint8(bootstrap.CommRevoked), Rank: c.id.Proc.Rank, Nonce: c.eventLog.incarnation, Comm: comm.Bytes()}
	return c.floodRevoked(wire.CommEventBody{Event: ev, Members: wire.MakeRuns(c.jobMembers(members))}, nil)
}

// receiveCommEvent handles an event about a communicator.
func (c *client) receiveCommEvent(b wire.CommEventBody, from *link) error {
	if !c.isRank(b.Event.Rank) {
		return fmt.Errorf("event of rank %d: %w", b.Event.Rank, framework.ErrRank)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return nil
	}
	if bootstrap.EventKind(b.Event.Kind) == bootstrap.CommRevoked {
		return c.floodRevoked(b, from)
	}
	c.receiveBroken(b, from)
	return nil
}

// floodRevoked records a new revocation, and sends it to all connected processes. The caller holds
// endpoint.mu.
func (c *client) floodRevoked(b wire.CommEventBody, from *link) error {
	if c.revoked.IsKnown(b.Event.Comm) {
		return nil
	}
	frame, err := wire.Encode(wire.CommEvent, 0, b)
	if err != nil {
		if !errors.Is(err, framework.ErrUnsupported) { // The frame is too large.
			err = fmt.Errorf("%w: %w", framework.ErrUnsupported, err)
		}
		return fmt.Errorf("%s: revocation of %s: %w", component, cid.FromBytes(b.Event.Comm), err)
	}
	c.revoked.Add(b.Event.Comm, &events.Revocation{Frame: frame})
	c.upkeep.hasRevocation = true
	if b.Event.Rank != c.id.Proc.Rank && b.Members.Index(c.id.Proc.Rank) >= 0 {
		c.events.Add(c.publicEvent(b.Event))
	}
	for _, p := range c.peers {
		if len(p.links) > 0 && (from == nil || p.rank != from.rank) {
			p.links[0].send(frame)
		}
	}
	return nil
}

// sendRevocations sends all recorded revocations on a connection. The caller holds endpoint.mu.
func (c *client) sendRevocations(l *link) {
	for _, one := range c.revoked.Kept() {
		l.sendUnlimited(one.Frame)
	}
}

// hasLinks reports whether this process is connected with another one.
func (c *client) hasLinks() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.links) > 0
}

// pendingWrites returns link.writeDone of the connections with queued frames.
func (c *client) pendingWrites() (all []<-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range c.links {
		if written := l.writeDone(); written != nil {
			all = append(all, written)
		}
	}
	return all
}
