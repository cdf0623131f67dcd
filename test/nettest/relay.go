package nettest

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// queueLength is the capacity in packets of each interface and, per direction, of the relay. It is large
// enough that only PacketFaults drop packets.
const queueLength = 10000

// A relay forwards packets between two tun devices until it is closed.
type relay struct {
	ends [2]*os.File
	stop chan struct{}
	done sync.WaitGroup
}

// createRelay creates a link of two tun devices with a relay between them.
func (h *Hosts) createRelay(l *link) error {
	r := &relay{stop: make(chan struct{})}
	h.t.Cleanup(func() { h.check(r.Close()) })
	for me := range h.hosts {
		err := h.On(me, func() (err error) {
			r.ends[me], err = openTun(l.name)
			return err
		})
		if err != nil {
			return err
		}
		if err := h.hosts[me].namespace.run(fmt.Sprintf("ip link set %s mtu %d txqueuelen %d", l.name, l.MTU, queueLength)); err != nil {
			return err
		}
	}
	for me := range r.ends {
		c := &forwarder{relay: r, from: r.ends[me], to: r.ends[1-me], source: l.address(me), dest: l.address(1 - me),
			faults: newFaultModel(*l.Faults, uint64(me), &l.counts), mtu: l.MTU, pending: make(chan duePacket, queueLength)}
		r.done.Go(c.read)
		r.done.Go(c.write)
	}
	return nil
}

// Close ends the relay and its devices.
func (r *relay) Close() error {
	close(r.stop)
	var err error
	for _, f := range r.ends {
		if f != nil {
			err = errors.Join(err, f.Close()) // Wakes the readers.
		}
	}
	r.done.Wait()
	return err
}

// openTun creates a tun device in this thread's namespace. Packets that the host sends through it are
// read here, and packets written here are received by the host, one at a time.
func openTun(name string) (*os.File, error) {
	const path = "/dev/net/tun"
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("tun device %s: %w", name, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), path), nil
}

// forwarder forwards packets in one direction.
type forwarder struct {
	*relay
	from, to     *os.File
	source, dest netip.Addr
	faults       *faultModel
	mtu          int
	pending      chan duePacket
}

type duePacket struct {
	packet
	due time.Time
}

// read reads packets until the relay ends.
func (c *forwarder) read() {
	defer close(c.pending)
	for {
		var deadline time.Time
		if len(c.faults.held) > 0 {
			deadline = time.Now().Add(c.faults.holdLimit)
		}
		buf := make([]byte, c.mtu)
		n, err := 0, c.from.SetReadDeadline(deadline)
		if err == nil {
			n, err = c.from.Read(buf)
		}
		switch {
		case err == nil && c.isBetweenHosts(buf[:n]):
			c.send(c.faults.pass(buf[:n]))
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			c.send(c.faults.releaseHeld())
		default: // The device is closed.
			return
		}
	}
}

// isBetweenHosts reports whether a packet is from one host to the other. Packets that an interface sends
// by itself do not count, so that the faults of the others are reproducible.
func (c *forwarder) isBetweenHosts(b []byte) bool {
	first := 12 // Offset of the source in an IPv4 header. The destination follows it.
	if c.source.Is6() {
		first = 8
	}
	both := slices.Concat(c.source.AsSlice(), c.dest.AsSlice())
	return len(b) >= first+len(both) && slices.Equal(b[first:first+len(both)], both)
}

func (c *forwarder) send(list []packet) {
	now := time.Now()
	for _, p := range list {
		select {
		case c.pending <- duePacket{p, now.Add(p.delay)}:
		case <-c.stop:
			return
		}
	}
}

// write sends packets at their due times in order.
func (c *forwarder) write() {
	for p := range c.pending {
		if d := time.Until(p.due); d > 0 {
			select {
			case <-time.After(d):
			case <-c.stop:
			}
		}
		_, _ = c.to.Write(p.bytes) // Packets are lost while the host's interface is down.
	}
}
