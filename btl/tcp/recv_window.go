package tcp

// recvWindow has the numbers of the frames from the peer.
type recvWindow struct {
	nextExpected     uint64
	maxFramesAhead   uint64
	lastAckSent      uint64
	bytesSinceAck    int
	ackRequestedUpTo uint64
	damagedLinks     int
}

// arrival is the position of an arriving frame relative to the next expected one.
type arrival uint8

const (
	arrivalInOrder arrival = iota
	// Frames before it arrive on other links.
	arrivalOutOfOrder
	arrivalDuplicate
)

// classify returns the arrival of a frame number.
func (w *recvWindow) classify(number uint64) arrival {
	switch {
	case number == w.nextExpected:
		return arrivalInOrder
	case number > w.nextExpected:
		return arrivalOutOfOrder
	}
	return arrivalDuplicate
}

// recordAckRequest records that the peer waits for the ack of all frames before upTo.
func (w *recvWindow) recordAckRequest(upTo uint64) {
	w.ackRequestedUpTo = max(w.ackRequestedUpTo, upTo)
}

// checkNumber rejects a number beyond the peer's window, for which the path would wait forever.
func (w *recvWindow) checkNumber(number uint64) error {
	if number > w.nextExpected+w.maxFramesAhead {
		return errNumberAhead
	}
	return nil
}

// recordReceived records the expected frame of size bytes, header included.
func (w *recvWindow) recordReceived(size int) {
	w.nextExpected++
	w.bytesSinceAck += size
}

// mustAck reports whether an ack is due now. The peer has requested one, or a good part of its window is
// used.
func (w *recvWindow) mustAck(window int) bool {
	return w.bytesSinceAck > window/8 || w.ackRequestedUpTo > w.lastAckSent && w.nextExpected >= w.ackRequestedUpTo
}
