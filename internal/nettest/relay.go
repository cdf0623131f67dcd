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

// queue is how many packets wait in each interface, and in the relay, each way: it
// loses only what the weather says.
const queue = 10000

// A relay carries packets between two tun devices until it is closed.
type relay struct {
	ends [2]*os.File
	stop chan struct{}
	done sync.WaitGroup
}

// relay makes a link of two tun devices with a relay between them.
func (h *Hosts) relay(l *link) error {
	r := &relay{stop: make(chan struct{})}
	h.t.Cleanup(func() { h.check(r.Close()) })
	for me := range h.sides {
		err := h.On(me, func() (err error) {
			r.ends[me], err = tun(l.name)
			return err
		})
		if err != nil {
			return err
		}
		if err := h.sides[me].ns.run(fmt.Sprintf("ip link set %s mtu %d txqueuelen %d", l.name, l.MTU, queue)); err != nil {
			return err
		}
	}
	for me := range r.ends {
		c := &carrier{relay: r, from: r.ends[me], to: r.ends[1-me], source: l.address(me), dest: l.address(1 - me),
			sky: newSky(*l.Weather, uint64(me), &l.met), mtu: l.MTU, way: make(chan timed, queue)}
		r.done.Go(c.read)
		r.done.Go(c.write)
	}
	return nil
}

// Close ends the relay, and its devices.
func (r *relay) Close() error {
	close(r.stop)
	var err error
	for _, f := range r.ends {
		if f != nil {
			err = errors.Join(err, f.Close()) // wakes who reads
		}
	}
	r.done.Wait()
	return err
}

// tun makes a tun device in this thread's namespace: what is sent through it is read
// here, and what is written here is received through it, one packet at a time.
func tun(name string) (*os.File, error) {
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

// carrier carries packets one way.
type carrier struct {
	*relay
	from, to     *os.File
	source, dest netip.Addr
	sky          *sky
	mtu          int
	way          chan timed
}

type timed struct {
	packet
	due time.Time
}

// read takes packets until the relay ends.
func (c *carrier) read() {
	defer close(c.way)
	for {
		var deadline time.Time
		if len(c.sky.held) > 0 {
			deadline = time.Now().Add(c.sky.patience)
		}
		buf := make([]byte, c.mtu)
		n, err := 0, c.from.SetReadDeadline(deadline)
		if err == nil {
			n, err = c.from.Read(buf)
		}
		switch {
		case err == nil && c.between(buf[:n]):
			c.send(c.sky.pass(buf[:n]))
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			c.send(c.sky.clear())
		default: // closed
			return
		}
	}
}

// between says that a packet goes from one host to the other. What an interface sends
// by itself does not count, so that the weather of the others is always the same.
func (c *carrier) between(b []byte) bool {
	first := 12 // byte of the source in an IPv4 header; the destination follows it
	if c.source.Is6() {
		first = 8
	}
	both := slices.Concat(c.source.AsSlice(), c.dest.AsSlice())
	return len(b) >= first+len(both) && slices.Equal(b[first:first+len(both)], both)
}

func (c *carrier) send(list []packet) {
	now := time.Now()
	for _, p := range list {
		select {
		case c.way <- timed{p, now.Add(p.delay)}:
		case <-c.stop:
			return
		}
	}
}

// write hands packets on at their time, in order.
func (c *carrier) write() {
	for p := range c.way {
		if d := time.Until(p.due); d > 0 {
			select {
			case <-time.After(d):
			case <-c.stop:
			}
		}
		_, _ = c.to.Write(p.bytes) // it fails where the host's interface is down: a packet less
	}
}
