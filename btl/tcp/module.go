package tcp

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/netaddr"
	"github.com/ferrympi/ferry/progress"
)

// module is this process's socket and its pairs. All is guarded by the engine's lock.
type module struct {
	env      btl.Env
	security security
	key      [keySize]byte
	identity *identity // nil: no TLS
	rules    netaddr.Rules
	ifs      []netaddr.Interface
	asked    time.Time         // for ifs
	addrs    []netip.Addr      // that peers are told
	left     []netaddr.LeftOut // the others
	port     int
	card     []byte

	connectTimeout, retryTimeout time.Duration
	window, eager, frame         int
	wanted                       int // links; 0: as many as there are networks

	epoll    int
	listener *listener
	sockets  []*socket // by descriptor
	turn     int32     // counts sockets
	events   [64]unix.EpollEvent
	pieces   [][]byte  // of the write that is under way
	pair     [2][]byte // of the read that is under way
	pool     pool

	pairs   map[framework.Life]*pair
	all     []*pair                            // of list
	closers map[framework.Life]btl.Description // what there was with peers that have closed
	guests  []*guest                           // in a handshake, the oldest first
	hot     []*link                            // that may have something to read
	dirty   []*pair                            // that may have something to write, or to settle

	polls   int           // until the sockets are looked at
	pace    int           // what polls begins with
	visits  uint64        // of the protocol that polls, so far
	polling bool          // in Poll: upcalls are allowed
	begun   time.Time     // from which clock counts
	clock   time.Duration // as read last
	next    time.Duration // when tick is due
	census  time.Duration // when the links are looked at next
	looked  time.Duration // last
	woke    time.Duration // nobody had looked for a while before: the process was stopped, or computed

	shaken        *shaken // nil: no TLS
	handshakes    sync.WaitGroup
	plain, sealed []byte // of the write that is under way

	watcher   btl.LinkWatcher // nil: nobody wants to know
	cards     btl.CardHolder  // nil: cards come by Connect only
	strangers int             // that were refused
	closed    bool
}

// A poll of sockets is a system call, and one of rings is not. So sockets are looked at
// every so many polls: at each while something comes, then less and less. Before the
// process sleeps they are looked at in any case.
const (
	patientPace = 16  // with links
	lonelyPace  = 256 // with none: somebody may connect
)

// Poll costs nothing but a countdown while nothing is to be done.
func (m *module) Poll() int {
	if m.polls--; m.polls > 0 && len(m.hot)+len(m.dirty) == 0 && !m.env.Bell().Armed() {
		return 0
	}
	m.polling = true
	m.visits++
	n := 0
	if m.polls <= 0 || m.env.Bell().Armed() {
		n = m.look()
	}
	n += m.read()
	m.settle()
	m.polling = false
	return n
}

// Look implements btl.Looker.
func (m *module) Look() int {
	m.polls = 0
	return m.Poll()
}

// look asks which sockets are ready, and whether anything is due. The clock is read first:
// what begins now is to have all of its time, however long ago the last look was.
func (m *module) look() int {
	now := m.now()
	n := m.harvest()
	if now > m.looked+2*censusPeriod {
		m.woke = now
	}
	if m.looked = now; now >= m.next {
		m.tick(now)
	}
	switch {
	case n > 0:
		m.pace = 1
	case len(m.pairs)+len(m.guests) == 0:
		m.pace = min(2*m.pace, lonelyPace)
	default:
		m.pace = min(2*m.pace, patientPace)
	}
	m.polls = m.pace
	return n
}

// harvest takes the events of the sockets. One is told of each change only once (EPOLLET):
// who is told remembers it.
func (m *module) harvest() (n int) {
	for {
		k, err := unix.EpollWait(m.epoll, m.events[:], 0)
		if err == unix.EINTR {
			continue
		}
		for _, ev := range m.events[:max(k, 0)] {
			// The descriptor may have been closed by what an event before this one led
			// to, and be another socket's now.
			if s := m.socketAt(int(ev.Fd)); s != nil && s.turn == ev.Pad {
				if s.tunnel != nil && s.tunnel.ready.Load() {
					s.tunnel.flush()
				}
				s.user.ready(ev.Events)
				n++
			}
		}
		if k < len(m.events) {
			return n
		}
	}
}

// read reads the links that may have something.
func (m *module) read() (n int) {
	hot := m.hot
	m.hot = nil
	for _, l := range hot {
		l.listed = false
		n += l.read(framesPerPoll)
		if l.readable() {
			l.list()
		}
	}
	if m.hot == nil {
		m.hot = hot[:0]
	}
	return n
}

// settle writes what waits, and ends what has broken.
func (m *module) settle() {
	for i := 0; i < len(m.dirty); i++ { // more may come meanwhile
		p := m.dirty[i]
		p.dirty = false
		p.settle()
	}
	clear(m.dirty)
	m.dirty = m.dirty[:0]
}

// now reads the clock.
func (m *module) now() time.Duration {
	m.clock = time.Since(m.begun)
	return m.clock
}

// at has tick called then, or before.
func (m *module) at(when time.Duration) { m.next = min(m.next, when) }

// censusPeriod is how often links are asked whether the other end's host is still heard.
const censusPeriod = time.Second

// tick does what is due, and finds out when the next thing is.
func (m *module) tick(now time.Duration) {
	m.next = now + time.Minute
	for len(m.guests) > 0 && m.guests[0].until <= now {
		m.guests[0].turnAway("its handshake took too long")
	}
	for _, g := range slices.Clone(m.guests) {
		m.at(g.until)
		g.resume()
	}
	if m.listener != nil && m.listener.again {
		m.listener.ready(unix.EPOLLIN)
	}
	census := now >= m.census
	if census {
		m.census = now + censusPeriod
		m.pool.trim()
	}
	for _, p := range m.list() {
		if census && !p.over {
			p.count(now)
		}
		if !p.over {
			p.tick(now)
		}
	}
	if len(m.pairs) > 0 {
		m.at(m.census)
	}
}

// list returns the pairs, which may end while somebody goes through it. The next call uses
// the same memory.
func (m *module) list() []*pair {
	all := m.all[:0]
	for _, p := range m.pairs {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *pair) int {
		if a.peer.ID < b.peer.ID {
			return -1
		}
		return 1
	})
	m.all = all
	return all
}

// FD implements progress.Descriptor: one epoll descriptor stands for all sockets.
func (m *module) FD() int { return m.epoll }

// Arm implements progress.Descriptor. What the sockets have to say makes the descriptor
// readable, and the Poll that follows looks.
func (m *module) Arm() bool { return len(m.hot)+len(m.dirty) == 0 }

// Due implements progress.Timed.
func (m *module) Due() time.Duration {
	if len(m.pairs)+len(m.guests) == 0 && (m.listener == nil || !m.listener.again) {
		return 0
	}
	return max(m.next-m.now(), time.Millisecond)
}

// Caps implements btl.Module.
func (m *module) Caps() btl.Caps {
	return btl.Caps{EagerLimit: m.eager, FrameLimit: m.frame, Exclusivity: 1 << 10, LatencyNS: 10_000, Device: m.device()}
}

// Blob implements btl.Module.
func (m *module) Blob() []byte { return m.card }

// Forget implements btl.Forgetter.
func (m *module) Forget(peer framework.Life) {
	if p := m.pairs[peer]; p != nil {
		p.drop()
	}
	delete(m.closers, peer)
}

// Renew implements btl.Renewer.
func (m *module) Renew(peer framework.Life) { m.Forget(peer) }

// PeerSource implements btl.PeerPoller.
func (m *module) PeerSource(peer framework.Life) progress.Source {
	if p := m.pairs[peer]; p != nil && p.met {
		return &p.source
	}
	return nil
}

// socket is a descriptor that the module watches, and who uses it.
type socket struct {
	fd     int
	turn   int32
	user   user
	tunnel *tunnel // nil: nothing is encrypted
}

// user is told of what has happened with a socket.
type user interface{ ready(events uint32) }

func (m *module) socketAt(fd int) *socket {
	if fd < len(m.sockets) {
		return m.sockets[fd]
	}
	return nil
}

// watch has u told of what comes by fd.
func (m *module) watch(fd int, u user) error {
	if s := m.socketAt(fd); s != nil { // it changes hands
		s.user = u
		return nil
	}
	for fd >= len(m.sockets) {
		m.sockets = append(m.sockets, nil)
	}
	m.turn++
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | 1<<31, // EPOLLET
		Fd: int32(fd), Pad: m.turn}
	if err := unix.EpollCtl(m.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return err
	}
	m.sockets[fd] = &socket{fd: fd, turn: m.turn, user: u}
	return nil
}

// shut closes a descriptor.
func (m *module) shut(fd int) {
	if s := m.socketAt(fd); s != nil {
		if m.sockets[fd] = nil; s.tunnel != nil {
			s.tunnel.leave()
		}
	}
	unix.Close(fd)
}
