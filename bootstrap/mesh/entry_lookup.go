package mesh

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// A process that closes its last client may have to leave its launcher, and can then no longer use
// the address book. Its later clients reach the processes of its node by their nodeEntry. Of two
// processes on different nodes at least one has the other's entry, and connects. Each publishes its
// own entry before it looks up others, so the later of the two finds the earlier.
// docs/decisions/reopened-sessions.md has the reasons.

const (
	// defaultLookupTimeout limits the lookups in Close, which take about 0.1 ms each.
	defaultLookupTimeout = 5 * time.Second

	// maxLookups limits the concurrent lookups of a process. A launcher may ask another node for
	// each.
	maxLookups = 16

	// nodeLookupSlots limits the processes of a node that look up entries at a time. Hydra 4.0.2
	// hangs with 128, because mpiexec and its proxy both block in a write to the other.
	nodeLookupSlots = 16
	lookupSlotPause = 10 * time.Millisecond

	// An entry and its length fit before the largest payload.
	_ = uint(wire.MaxJoin - bootstrap.MaxPayload - 2 - MaxEntry)
)

// lookUpRemaining looks up processes of other nodes without a common construct. A client with an
// Exchange skips this, because its constructs need the launcher itself.
func (c *client) lookUpRemaining() {
	c.mu.Lock()
	unknown := c.ranksWithoutEntry()
	c.mu.Unlock()
	if c.exchange != nil || len(unknown) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.timeouts.lookup)
	defer cancel()
	if slot := c.acquireLookupSlot(ctx); slot != nil {
		defer slot.Close()
	}
	c.lookUpEntries(ctx, unknown)
	if ctx.Err() != nil {
		c.log.Info("bootstrap mesh: the launcher is slow: sessions opened later may not reach every process",
			"lookups", len(unknown), "limit", c.timeouts.lookup)
	}
}

// lookUpEntries looks up entries until ctx ends.
func (c *client) lookUpEntries(ctx context.Context, unknown []uint32) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(maxLookups, len(unknown)) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(unknown) {
					return
				}
				_ = c.lookUpEntry(ctx, unknown[i])
			}
		})
	}
	wg.Wait()
}

// acquireLookupSlot waits for a slot of the node, which the caller closes after use. It returns nil
// if none is needed or ctx ends. The kernel releases the slots of a process that dies.
func (c *client) acquireLookupSlot(ctx context.Context) io.Closer {
	if c.listeners.node == nil || len(c.id.LocalRanks) <= nodeLookupSlots {
		return nil
	}
	node := c.nodeEntry(c.id.LocalRanks[0])
	for ctx.Err() == nil {
		for slot := range nodeLookupSlots {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("%s-%d", node.socketName(), slot)})
			if err == nil {
				return l
			}
		}
		select {
		case <-time.After(lookupSlotPause):
		case <-ctx.Done():
		}
	}
	return nil
}

// ranksWithoutEntry returns the ranks to look up. They start after the rank of this process, so
// that processes that close at the same time look up different ones. Those of added processes are
// looked up at rank 0, which needs no launcher. The caller holds endpoint.mu.
func (c *client) ranksWithoutEntry() (ranks []uint32) {
	if c.growth.isAdded() {
		return nil // Rank 0 has the entries.
	}
	size := uint32(c.id.Size)
	for i := range size - 1 {
		rank := (c.id.Proc.Rank + 1 + i) % size
		if _, ok := c.entries[rank]; !ok && !c.hasEnded(rank) && !c.hasNodeEntry(rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// lookUpEntry looks up the entry of rank at the launcher, and returns the error of the launcher. On
// an error, or without an entry, it stays unknown.
func (c *client) lookUpEntry(ctx context.Context, rank uint32) error {
	b, ok, err := c.launcher.Find(ctx, c.id.Procs([]uint32{rank})[0])
	c.recordEntry(rank, b, ok && err == nil)
	return err
}

// recordEntry records an entry that was found, unless it is malformed.
func (c *client) recordEntry(rank uint32, b []byte, isFound bool) {
	if e, err := decodeEntry(b); isFound && err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.entries[rank] = e
	}
}

// prependEntry returns the length of this process's entry, the entry, and the payload.
func (p *endpoint) prependEntry(payload []byte) []byte {
	e := p.ownEntry.encode()
	b := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(e)+len(payload)), uint16(len(e)))
	return append(append(b, e...), payload...)
}

// extractEntries removes the entries from the payloads of a construct, and keeps those that are
// new.
func (c *client) extractEntries(op string, group []framework.Proc, payloads [][]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, p := range group {
		e, payload, err := splitEntry(payloads[i])
		if err != nil {
			return c.peerError(p.Rank, op, fmt.Errorf("its payload: %w", err))
		}
		payloads[i] = payload
		if _, known := c.entries[p.Rank]; !known && p != c.id.Proc {
			c.entries[p.Rank] = e
		}
	}
	return nil
}

// splitEntry is the inverse of prependEntry.
func splitEntry(b []byte) (e entry, payload []byte, err error) {
	if len(b) < 2 {
		return e, nil, errors.New("no entry")
	}
	n := int(binary.BigEndian.Uint16(b))
	if b = b[2:]; len(b) < n {
		return e, nil, fmt.Errorf("an entry of %d bytes in %d", n, len(b))
	}
	e, err = decodeEntry(b[:n])
	return e, b[n:], err
}
