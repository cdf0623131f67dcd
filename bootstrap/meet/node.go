package meet

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

// The processes of a node reach one another without the launcher, at socket names that follow
// from namespace and rank. A process uses them only after it has left the launcher, and need not
// look up the others of its node before.

// nodeEntry returns the entry of rank for processes of this node. Its key is not secret, and it
// is valid on Unix sockets only, where the kernel reports the user of the other end.
func (p *place) nodeEntry(rank uint32) entry {
	sum := func(what string) [sha256.Size]byte {
		return sha256.Sum256(fmt.Appendf(nil, "ferry %s\x00%s\x00%d", what, p.id.Proc.Namespace, rank))
	}
	nonce := sum("nonce")
	return entry{key: sum("key"), nonce: max(binary.BigEndian.Uint64(nonce[:]), 1), host: p.self.host}
}

// listenOnNode listens at the process's nodeEntry, unless this process is not reached by Unix
// sockets or another process has the name.
func (p *place) listenOnNode() {
	if p.unix == nil || p.self.host != sameHost() {
		return
	}
	e := p.nodeEntry(p.id.Proc.Rank)
	p.node, _ = net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: e.socket()})
}

// hasNodeEntry reports whether rank can be reached by its nodeEntry.
func (p *place) hasNodeEntry(rank uint32) bool {
	_, here := slices.BinarySearch(p.id.Locals, rank)
	return here && p.node != nil
}

// entriesFor returns the entries that a process may have that connected over nc.
func (p *place) entriesFor(nc net.Conn) []entry {
	if _, local := nc.(*net.UnixConn); local && p.node != nil {
		return []entry{p.self, p.nodeEntry(p.id.Proc.Rank)}
	}
	return []entry{p.self}
}

// connectOnNode connects to rank, which the launcher does not find for the reason left.
func (c *client) connectOnNode(ctx context.Context, rank uint32, left error) error {
	if !c.hasNodeEntry(rank) { // That process connects, see learnBook.
		return fmt.Errorf("look up its entry: %w", left)
	}
	e := c.nodeEntry(rank)
	err := c.connect(ctx, rank, e, "unix", e.socket())
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, reached := c.reached[rank]; errors.Is(err, syscall.ECONNREFUSED) && !reached {
		return errNoNodeSocket
	}
	return err
}

var errNoNodeSocket = errors.New("it has not opened a session yet, or has ended")
