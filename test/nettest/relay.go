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
	tunDevices     [2]*os.File
	stopSignal     chan struct{}
	forwarderGroup sync.WaitGroup
}

// createRelay creates a link of two tun devices with a relay between them.
func (h *Hosts) createRelay(l *link) error {
	r := &relay{stopSignal: make(chan struct{})}
	h.t.Cleanup(func() { h.check(r.Close()) })
	for me := range h.hosts {
		err := h.On(me, func() (err error) {
			r.tunDevices[me], err = openTun(l.name)
			return err
		})
		if err != nil {
			return err
		}
		if err := h.hosts[me].namespace.run(fmt.Sprintf("ip link set %s mtu %d txqueuelen %d", l.name, l.MTU, queueLength)); err != nil {
			return err
		}
	}
	for me := range r.tunDevices {
		c := &forwarder{relay: r, fromDevice: r.tunDevices[me], toDevice: r.tunDevices[1-me], sourceAddr: l.address(me), destAddr: l.address(1 - me),
			faultModel: newFaultModel(*l.Faults, uint64(me), &l.packetCounts), mtu: l.MTU, delayedPackets: make(chan duePacket, queueLength)}
		r.forwarderGroup.Go(c.read)
		r.forwarderGroup.Go(c.write)
	}
	return nil
}

// Close ends the relay and its devices.
func (r *relay) Close() error {
	close(r.stopSignal)
	var err error
	for _, f := range r.tunDevices {
		if f != nil {
			err = errors.Join(err, f.Close()) // Wakes the readers.
		}
	}
	r.forwarderGroup.Wait()
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
	fromDevice, toDevice *os.File
	sourceAddr, destAddr netip.Addr
	faultModel           *faultModel
	mtu                  int
	delayedPackets       chan duePacket
}

type duePacket struct {
	packet
	dueAt time.Time
}

// read reads packets until the relay ends.
func (c *forwarder) read() {
	defer close(c.delayedPackets)
	for {
		var deadline time.Time
		if len(c.faultModel.heldPackets) > 0 {
			deadline = time.Now().Add(c.faultModel.holdLimit)
		}
		buf := make([]byte, c.mtu)
		n, err := 0, c.fromDevice.SetReadDeadline(deadline)
		if err == nil {
			n, err = c.fromDevice.Read(buf)
		}
		switch {
		case err == nil && c.isBetweenHosts(buf[:n]):
			c.send(c.faultModel.pass(buf[:n]))
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			c.send(c.faultModel.releaseHeld())
		default: // The device is closed.
			return
		}
	}
}

// isBetweenHosts reports whether a packet is from one host to the other. Packets that an interface sends
// by itself do not count, so that the faults of the others are reproducible.
func (c *forwarder) isBetweenHosts(b []byte) bool {
	first := 12 // Offset of the source in an IPv4 header. The destination follows it.
	if c.sourceAddr.Is6() {
		first = 8
	}
	both := slices.Concat(c.sourceAddr.AsSlice(), c.destAddr.AsSlice())
	return len(b) >= first+len(both) && slices.Equal(b[first:first+len(both)], both)
}

func (c *forwarder) send(list []packet) {
	now := time.Now()
	for _, p := range list {
		select {
		case c.delayedPackets <- duePacket{p, now.Add(p.delay)}:
		case <-c.stopSignal:
			return
		}
	}
}

// write sends packets at their due times in order.
func (c *forwarder) write() {
	for p := range c.delayedPackets {
		if d := time.Until(p.dueAt); d > 0 {
			select {
			case <-time.After(d):
			case <-c.stopSignal:
			}
		}
		_, _ = c.toDevice.Write(p.bytes) // Packets are lost while the host's interface is down.
	}
}
