package ob1

import "fmt"

// creditAccount is the credit for unexpected messages between this process and another one, in
// bytes.
type creditAccount struct {
	// credit is the rest of creditGranted that this process may still send as unexpected messages.
	// creditOwed is consumed credit of the peer that was not returned yet.
	credit, creditOwed, creditGranted int64
}

// grant sets the credit from the peer's card.
func (c *creditAccount) grant(bytes int64) { c.creditGranted, c.credit = bytes, bytes }

// addCredit adds returned credit. The value of the peer is untrusted.
func (c *creditAccount) addCredit(bytes int64) error {
	if bytes < 0 || bytes > c.creditGranted-c.credit {
		return fmt.Errorf("return of %d bytes of credit, of which %d were consumed", bytes, c.creditGranted-c.credit)
	}
	c.credit += bytes
	return nil
}

// messageCost is the memory of an unexpected message besides its payload, in bytes. It covers
// the queue node and the rounding of the buffer.
const messageCost = 128

// oweCredit records that a message was consumed, and returns accumulated credit to the
// sender in few frames. Lock held.
func (p *proc) oweCredit(bytes int64) {
	if p.creditOwed += bytes + messageCost; p.creditOwed >= p.m.unexpectedLimit/4 {
		p.returnCredit()
	}
}

// releaseCredit owes the credit of a consumed message with that payload. An RTS without a
// fragment has cost none. Lock held.
func (p *proc) releaseCredit(rts bool, payload []byte) {
	if !rts || len(payload) > 0 {
		p.oweCredit(int64(len(payload)))
	}
}

func (p *proc) returnCredit() {
	p.sendControl(newCredit(p.creditOwed))
	p.creditOwed = 0
}
