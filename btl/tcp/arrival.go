package tcp

// What a path keeps of the frames from the peer (path.go).

// verdict says what becomes of a frame that a link brings.
type verdict uint8

const (
	handUp verdict = iota // it is the next one
	early                 // others come before it, by other links
	old                   // it is here already
)

// arrive says what becomes of a frame of that number.
func (p *path) arrive(number uint64) verdict {
	switch {
	case number == p.due:
		return handUp
	case number > p.due:
		return early
	}
	return old
}

// ask says that the peer waits for the confirmation of all before upTo.
func (p *path) ask(upTo uint64) { p.asked = max(p.asked, upTo) }

// check looks at the number of a frame or a note: one that is far ahead is damaged, and would
// be waited for in vain.
func (p *path) check(number uint64) error {
	if number > p.due+p.ahead {
		return errAhead
	}
	return nil
}

// received says that the frame which was due is here: size bytes, with its header.
func (p *path) received(size int) {
	p.due++
	p.owed += size
}

// owes reports whether the peer is to hear at once what has come: it waits for that, or
// a good part of its window is used up.
func (p *path) owes(window int) bool {
	return p.owed > window/8 || p.asked > p.confirmed && p.due >= p.asked
}
