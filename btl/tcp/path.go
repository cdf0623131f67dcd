package tcp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/btl"
)

// path is what this process and a peer keep of the frames between them, in both
// directions, while links come and go. It is pure: it knows no socket and no clock. Links
// are named by their places.
//
// A frame gets its number when it is committed, and is kept until the peer has confirmed
// it. It goes out on the link with the most room: that which carries least that is not
// confirmed. What a lost link carried goes again, before everything else.
type path struct {
	window int

	// To the peer: frames first to end-1, by number in a ring.
	ring       []frame
	first, end uint64
	next       uint64    // the first that has never gone out
	again      []uint64  // those that go once more, ascending
	used       int       // of the window
	unsent     int       // bytes of frames that have never gone out
	told       uint64    // up to which the peer has confirmed, at most what is sent
	links      []carrier // as far as there was one
	resent     uint64    // frames, so far

	// From the peer.
	due       uint64 // the next number that is handed up
	ahead     uint64 // how many frames the peer may have under way
	confirmed uint64 // as the peer was told last
	owed      int    // bytes received since then
	asked     uint64 // the peer waits for the confirmation of all before
	damages   int    // links that ended because of what they carried
}

// mostLinks is how many links a pair may have.
const mostLinks = 16

// frame is one that the peer has not confirmed.
type frame struct {
	head    []byte              // header and what was copied
	payload []byte              // of a gathered frame: its owner's while done is not nil
	done    btl.LocalCompletion // is to be told
	mem     *chunk              // of head
	at      int                 // of head in mem
	place   int8                // of the link that carries it; -1: it waits
	out     bool                // a socket has taken something of it
}

func (f *frame) size() int { return len(f.head) + len(f.payload) }

// cost is what a frame takes of the window: its bytes, and its record here.
func (f *frame) cost() int { return f.size() + frameRecord }

// frameRecord is about what a frame takes in the ring, in bytes.
const frameRecord = 112

// carrier is a link as the path sees it.
type carrier struct {
	up      bool
	blocked bool     // its socket takes nothing now
	load    int      // bytes that it carries and that are not confirmed
	out     []uint64 // frames that are not in its socket yet, in order
	written int      // bytes of the first of them that are
	note    []byte   // goes before them, if nothing of them is written
	queued  int      // bytes of out
}

var (
	errDamaged = errors.New("damaged data")
	errUnsent  = fmt.Errorf("%w: it confirms a frame that was not sent", errDamaged)
	errAhead   = fmt.Errorf("%w: a frame number far ahead", errDamaged)
)

func (p *path) at(number uint64) *frame { return &p.ring[number&uint64(len(p.ring)-1)] }

// room reports whether the window has room for a frame of n bytes, with its header.
func (p *path) room(n int) bool { return p.used+n+frameRecord <= p.window }

// crowded reports whether what is sent besides frames, for which there is room always, takes
// as much again.
func (p *path) crowded() bool { return p.used > 2*p.window }

// most is how many frames a peer with such a window may have under way.
func most(window int) uint64 { return uint64(2*window/(headerSize+frameRecord)) + 16 }

// push gives a frame its number. Its header gets that, and what is confirmed.
func (p *path) push(f frame) uint64 {
	if n := p.end - p.first; n == uint64(len(p.ring)) {
		p.grow(max(4, 2*int(n)))
	}
	number := p.end
	p.end++
	le.PutUint64(f.head[8:], number)
	putConfirmed(f.head, p.due)
	f.place = -1
	p.used += f.cost()
	p.unsent += f.size()
	*p.at(number) = f
	return number
}

func (p *path) grow(n int) {
	old, size := p.ring, uint64(len(p.ring))
	p.ring = make([]frame, n)
	for i := p.first; i < p.end; i++ {
		*p.at(i) = old[i&(size-1)]
	}
}

// trim gives memory back that a burst has left.
func (p *path) trim() {
	if p.first == p.end && len(p.ring) > 64 {
		p.ring = nil
	}
}

// waiting reports whether there are frames that no link carries.
func (p *path) waiting() bool { return p.next != p.end || len(p.again) > 0 }

// idle reports whether all is confirmed.
func (p *path) idle() bool { return p.first == p.end }

// up says that a link is there. The peer has received all frames before heard.
func (p *path) up(link int, heard uint64) error {
	if err := p.heard(heard); err != nil {
		return err
	}
	for link >= len(p.links) {
		p.links = append(p.links, carrier{})
	}
	p.links[link] = carrier{up: true}
	return nil
}

func (p *path) isUp(link int) bool { return link < len(p.links) && p.links[link].up }

// down says that a link is gone. What it carried goes again.
func (p *path) down(link int) {
	if !p.isUp(link) {
		return
	}
	p.links[link] = carrier{}
	for n := p.first; n < p.next; n++ {
		if f := p.at(n); int(f.place) == link {
			f.place = -1
			p.again = append(p.again, n)
		}
	}
	slices.Sort(p.again)
	p.confirmed, p.asked = 0, max(p.asked, p.due) // it may have carried that, too
}

// ups counts the links.
func (p *path) ups() (n int) {
	for i := range p.links {
		if p.links[i].up {
			n++
		}
	}
	return n
}

// heard says that the peer has received all frames before upTo. What a link is writing
// stays nevertheless, until release.
func (p *path) heard(upTo uint64) error {
	if upTo > p.next {
		return errUnsent
	}
	p.told = max(p.told, upTo)
	return nil
}

// release takes the first frame off that is confirmed and that nobody writes, for its
// memory to be freed and its owner to be told.
func (p *path) release() (f frame, ok bool) {
	if p.first >= p.told {
		return f, false
	}
	at := p.at(p.first)
	if at.place >= 0 {
		c := &p.links[at.place]
		if len(c.out) > 0 && slices.Contains(c.out, p.first) {
			return f, false
		}
		c.load -= at.cost()
	} else if len(p.again) > 0 && p.again[0] == p.first {
		p.again = slices.Delete(p.again, 0, 1)
	}
	f = *at
	*at = frame{}
	p.first++
	p.used -= f.cost()
	return f, true
}

// batch is what a link gets to write at a time, in bytes: enough that a system call is
// worth it, and not more than the next link could take as well.
const (
	batch       = 256 << 10
	batchFrames = 256
)

// assign gives waiting frames to the link with the most room and returns its place, or
// that of a link that has something to write; -1: there is none.
func (p *path) assign() int {
	best, several := -1, false
	for i := range p.links {
		c := &p.links[i]
		if !c.up || c.blocked {
			continue
		}
		if len(c.out) > 0 || len(c.note) > 0 {
			return i
		}
		several = several || best >= 0
		if best < 0 || c.load < p.links[best].load {
			best = i
		}
	}
	if best < 0 || !p.waiting() {
		return -1
	}
	c, most := &p.links[best], batch
	if several {
		most = 1 // the link for the next one is chosen then
	}
	for p.waiting() && c.queued < most && len(c.out) < batchFrames {
		number := p.next
		if len(p.again) > 0 {
			number = p.again[0]
			p.again = slices.Delete(p.again, 0, 1)
		} else {
			p.next++
			p.unsent -= p.at(number).size()
		}
		f := p.at(number)
		if f.out {
			p.resent++
		}
		f.place, f.out = int8(best), false
		c.out = append(c.out, number)
		c.load += f.cost()
		c.queued += f.size()
	}
	return best
}

// pieces returns what a link is to write: memory that lies together is one piece. What is
// confirmed now goes with the last frame, and whoever waits for the payload's end says so.
func (p *path) pieces(link int, into [][]byte) [][]byte {
	c := &p.links[link]
	if len(c.note) > 0 {
		into = append(into, c.note)
	}
	var mem *chunk // of the last piece
	var from, end int
	skip := c.written
	for i, number := range c.out {
		f := p.at(number)
		if i == len(c.out)-1 && skip == 0 {
			p.confirm(f)
		}
		if len(f.payload) == 0 && skip == 0 && mem != nil && f.mem == mem && f.at == end {
			end += len(f.head)
			into[len(into)-1] = mem.bytes[from:end]
			continue
		}
		mem = nil
		head := f.head[min(skip, len(f.head)):]
		if len(head) > 0 {
			into = append(into, head)
		}
		if f.payload != nil {
			into = append(into, f.payload[max(0, skip-len(f.head)):])
		} else if len(head) > 0 {
			mem, end = f.mem, f.at+len(f.head)
			from = end - len(head)
		}
		skip = 0
		if len(into) >= mostPieces {
			break
		}
	}
	return into
}

// mostPieces is what one system call takes.
const mostPieces = 64

// confirm has a frame that goes out tell what has come.
func (p *path) confirm(f *frame) {
	putConfirmed(f.head, p.due)
	p.confirmed, p.owed = p.due, 0
	if f.done != nil && !p.waiting() {
		putFlags(f.head, flagAsk)
	}
}

// wrote says that a link's socket has taken n bytes of its pieces.
func (p *path) wrote(link, n int) {
	c := &p.links[link]
	k := min(n, len(c.note))
	if c.note = c.note[k:]; len(c.note) == 0 {
		c.note = nil
	}
	n -= k
	done := 0
	for n > 0 {
		f := p.at(c.out[done])
		f.out = true
		rest := f.size() - c.written
		if n < rest {
			c.written += n
			break
		}
		n -= rest
		c.queued -= rest + c.written
		c.written = 0
		done++
	}
	if c.out = slices.Delete(c.out, 0, done); len(c.out) == 0 {
		c.out = c.out[:0]
	}
}

// say has a note go out by itself, on a link that is between two frames. It reports false
// if there is none now.
func (p *path) say(ask bool) bool {
	best := -1
	for i := range p.links {
		c := &p.links[i]
		if c.up && !c.blocked && c.written == 0 && len(c.note) == 0 && (best < 0 || c.load < p.links[best].load) {
			best = i
		}
	}
	if best < 0 {
		return false
	}
	h := header{kind: kindNote, number: p.end, confirmed: p.due}
	if ask {
		h.flags = flagAsk
	}
	note := make([]byte, headerSize)
	h.put(note)
	p.links[best].note = note
	p.confirmed, p.owed = p.due, 0
	return true
}

// toWrite returns how many bytes the sockets have not taken, about.
func (p *path) toWrite() int {
	n := p.unsent + len(p.again)
	for i := range p.links {
		n += p.links[i].queued + len(p.links[i].note) - p.links[i].written
	}
	return n
}
