package mesh

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
)

// The processes of a node reach one another without the launcher, at socket names that follow from
// namespace and rank. A process uses them only after it has left the launcher, and need not look up
// the others of its node before.

// nodeEntry returns the entry of rank for processes of this node. Its key is not secret, and it is
// valid on Unix sockets only, where the kernel reports the user of the other end.
func (p *endpoint) nodeEntry(rank uint32) entry {
	sum := func(what string) [sha256.Size]byte {
		return sha256.Sum256(fmt.Appendf(nil, "ferry %s\x00%s\x00%d", what, p.id.Proc.Namespace, rank))
	}
	nonce := sum("nonce")
	return entry{key: sum("key"), nonce: max(binary.BigEndian.Uint64(nonce[:]), 1), hostID: p.ownEntry.hostID}
}

// listenOnNode listens at the process's nodeEntry, unless this process is not reached by Unix
// sockets or another process has the name.
func (p *endpoint) listenOnNode() {
	if p.listeners.unix == nil || p.ownEntry.hostID != localHostID() {
		return
	}
	e := p.nodeEntry(p.id.Proc.Rank)
	p.listeners.node, _ = net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: e.socketName()})
}

// hasNodeEntry reports whether rank can be reached by its nodeEntry.
func (p *endpoint) hasNodeEntry(rank uint32) bool {
	_, here := slices.BinarySearch(p.id.LocalRanks, rank)
	return here && p.listeners.node != nil
}

// entriesFor returns the entries that a process on nc may have.
func (p *endpoint) entriesFor(nc net.Conn) []entry {
	if _, local := nc.(*net.UnixConn); local && p.listeners.node != nil {
		return []entry{p.ownEntry, p.nodeEntry(p.id.Proc.Rank)}
	}
	return []entry{p.ownEntry}
}

// connectOnNode connects to rank, which the launcher does not find because of errLeft.
func (c *client) connectOnNode(ctx context.Context, rank uint32, errLeft error) error {
	if !c.hasNodeEntry(rank) { // That process connects, see lookUpRemaining.
		return fmt.Errorf("look up its entry: %w", errLeft)
	}
	e := c.nodeEntry(rank)
	err := c.connectAddr(ctx, rank, e, "unix", e.socketName())
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, reached := c.connectedRanks[rank]; errors.Is(err, syscall.ECONNREFUSED) && !reached {
		return errNoNodeSocket
	}
	return err
}

var errNoNodeSocket = errors.New("it has not opened a session yet, or has ended")
