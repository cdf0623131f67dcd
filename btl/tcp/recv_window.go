package tcp

// What a path keeps of the frames from the peer (path.go).

// arrival says what becomes of a frame that a link brings.
type arrival uint8

const (
	arrivalInOrder    arrival = iota // it is the next one
	arrivalOutOfOrder                // others come before it, by other links
	arrivalDuplicate                 // it is here already
)

// classify says what becomes of a frame of that number.
func (p *path) classify(number uint64) arrival {
	switch {
	case number == p.nextExpected:
		return arrivalInOrder
	case number > p.nextExpected:
		return arrivalOutOfOrder
	}
	return arrivalDuplicate
}

// recordAckRequest says that the peer waits for the confirmation of all before upTo.
func (p *path) recordAckRequest(upTo uint64) { p.ackRequestedUpTo = max(p.ackRequestedUpTo, upTo) }

// checkNumber looks at the number of a frame or a note: one that is far ahead is damaged, and would
// be waited for in vain.
func (p *path) checkNumber(number uint64) error {
	if number > p.nextExpected+p.maxAhead {
		return errNumberAhead
	}
	return nil
}

// recordReceived says that the frame which was due is here: size bytes, with its header.
func (p *path) recordReceived(size int) {
	p.nextExpected++
	p.ackOwedBytes += size
}

// mustAck reports whether the peer is to hear at once what has come: it waits for that, or
// a good part of its window is used up.
func (p *path) mustAck(window int) bool {
	return p.ackOwedBytes > window/8 || p.ackRequestedUpTo > p.lastAckSent && p.nextExpected >= p.ackRequestedUpTo
}
