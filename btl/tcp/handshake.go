package tcp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/ferrympi/ferry/framework"
)

// The handshake of a link has four parts of fixed size, before any frame. Each proof covers random
// bytes of both ends, so that a replay fails. It is pure.
//
//	hello    caller    request for a link between two processes
//	answer   acceptor  random bytes, and proof of the key
//	proof    caller    proof of the key, and number of received frames
//	welcome  acceptor  number of received frames
//
// The key is in the acceptor's card. It proves that the caller is of the job, and that the acceptor is
// the process of the card.
const (
	helloSize   = 112
	answerSize  = 96
	proofSize   = 8 + sha256.Size
	welcomeSize = 16

	challengeSize = 32
)

var magic = [8]byte{'f', 'e', 'r', 'r', 'y', 't', 'c', version}

// hello is the first part, in little-endian: magic, u8 security, u8 link, u16 reserved, u32 rank, u64 nonce
// of the acceptor, u64 hash of the caller's namespace, u64 nonce of the caller, u64 state of the caller,
// u64 state of the acceptor or 0, u64 window, u32 frame limit, u32 reserved, 8 bytes reserved, challenge.
type hello struct {
	security      security
	linkSlot      uint8
	rank          uint32
	acceptorNonce uint64
	namespaceHash uint64
	callerNonce   uint64
	// Path states at both ends. acceptorState is 0 for a new one.
	callerState, acceptorState uint64
	limits                     limits
	challenge                  [challengeSize]byte
}

// limits are the parameters that both ends exchange.
type limits struct {
	windowBytes uint64
	frameLimit  uint32
}

func (h *hello) encode() []byte {
	b := make([]byte, helloSize)
	copy(b, magic[:])
	b[8], b[9] = byte(h.security), h.linkSlot
	le.PutUint32(b[12:], h.rank)
	le.PutUint64(b[16:], h.acceptorNonce)
	le.PutUint64(b[24:], h.namespaceHash)
	le.PutUint64(b[32:], h.callerNonce)
	le.PutUint64(b[40:], h.callerState)
	le.PutUint64(b[48:], h.acceptorState)
	le.PutUint64(b[56:], h.limits.windowBytes)
	le.PutUint32(b[64:], h.limits.frameLimit)
	copy(b[80:], h.challenge[:])
	return b
}

func decodeHello(b []byte) (h hello, err error) {
	if err := checkMagic(b); err != nil {
		return h, err
	}
	h = hello{
		security: security(b[8]), linkSlot: b[9], rank: le.Uint32(b[12:]),
		acceptorNonce: le.Uint64(b[16:]), namespaceHash: le.Uint64(b[24:]), callerNonce: le.Uint64(b[32:]),
		callerState: le.Uint64(b[40:]), acceptorState: le.Uint64(b[48:]),
		limits:    limits{windowBytes: le.Uint64(b[56:]), frameLimit: le.Uint32(b[64:])},
		challenge: [challengeSize]byte(b[80:]),
	}
	if h.linkSlot >= maxLinks || h.callerNonce == 0 || h.callerState == 0 || !h.limits.isPlausible() {
		return h, fmt.Errorf("a malformed hello")
	}
	return h, nil
}

// isPlausible reports whether the parameters allow the limits.
func (l limits) isPlausible() bool {
	return l.frameLimit >= 256 && l.frameLimit <= 16<<20 && l.windowBytes >= 4<<10 && l.windowBytes <= 1<<30
}

func checkMagic(b []byte) error {
	if [7]byte(b) != [7]byte(magic[:7]) {
		return fmt.Errorf("something other than ferry answers there")
	}
	if b[7] != version {
		return fmt.Errorf("it speaks version %d, and this program version %d", b[7], version)
	}
	return nil
}

// outcome is the decision of an acceptor.
type outcome uint8

const (
	outcomeAccepted outcome = iota + 1
	// The acceptor dials too, and its link stays.
	outcomeCrossed
	// The acceptor has closed the path of the hello.
	outcomeEnded
	// The nonce or the namespace is not the acceptor's.
	outcomeUnknownPeer
	outcomeOtherSecurity
	// TLS needs the caller's card, which has not arrived.
	outcomeNoCard
)

var outcomeNames = map[outcome]string{
	outcomeAccepted: "accepted", outcomeCrossed: "both ends dialed", outcomeEnded: "the path has ended there",
	outcomeUnknownPeer:   "a different process answers there, or one of another job",
	outcomeOtherSecurity: "another btl.tcp.security",
	outcomeNoCard:        "this process's card has not arrived there",
}

// answer is the second part, in little-endian: magic, u8 security, u8 outcome, u16 and u32 reserved, u64
// state of the acceptor, u64 window, u32 frame limit, u32 reserved, 24 bytes of challenge, and the proof
// over hello and all before it.
type answer struct {
	security      security
	outcome       outcome
	acceptorState uint64
	limits        limits
	challenge     [24]byte
	proof         [sha256.Size]byte
}

func (a *answer) encode() []byte {
	b := make([]byte, answerSize)
	copy(b, magic[:])
	b[8], b[9] = byte(a.security), byte(a.outcome)
	le.PutUint64(b[16:], a.acceptorState)
	le.PutUint64(b[24:], a.limits.windowBytes)
	le.PutUint32(b[32:], a.limits.frameLimit)
	copy(b[40:], a.challenge[:])
	copy(b[64:], a.proof[:])
	return b
}

func decodeAnswer(b []byte) (a answer, err error) {
	if err := checkMagic(b); err != nil {
		return a, err
	}
	a = answer{
		security: security(b[8]), outcome: outcome(b[9]), acceptorState: le.Uint64(b[16:]),
		limits:    limits{windowBytes: le.Uint64(b[24:]), frameLimit: le.Uint32(b[32:])},
		challenge: [24]byte(b[40:]), proof: [sha256.Size]byte(b[64:]),
	}
	if outcomeNames[a.outcome] == "" || a.outcome == outcomeAccepted && (a.acceptorState == 0 || !a.limits.isPlausible()) {
		return a, fmt.Errorf("a malformed answer")
	}
	return a, nil
}

// Each proof begins with its role, so that none serves as another.
const (
	roleAcceptor = 'a'
	roleCaller   = 'c'
	roleWelcome  = 'w'
)

// parties are the two ends of a handshake, and the key of the acceptor's card.
type parties struct {
	cardKey          [keySize]byte
	caller, acceptor framework.Proc
}

func (p *parties) proof(role byte, count uint64, parts ...[]byte) (sum [sha256.Size]byte) {
	m := hmac.New(sha256.New, p.cardKey[:])
	m.Write(le.AppendUint64([]byte{role}, count))
	for _, b := range parts {
		m.Write(b)
	}
	for _, who := range []framework.Proc{p.caller, p.acceptor} {
		m.Write(le.AppendUint32(nil, who.Rank))
		m.Write(le.AppendUint32(nil, uint32(len(who.Namespace))))
		io.WriteString(m, who.Namespace)
	}
	m.Sum(sum[:0])
	return sum
}

// callerHandshake is the caller's side.
type callerHandshake struct {
	parties
	hello          hello
	receivedAnswer answer
	sentHello      []byte
}

// startHello returns the encoded hello with a fresh challenge.
func (c *callerHandshake) startHello() []byte {
	rand.Read(c.hello.challenge[:])
	c.sentHello = c.hello.encode()
	return c.sentHello
}

// checkAnswer decodes and verifies the answer.
func (c *callerHandshake) checkAnswer(b []byte) (err error) {
	if c.receivedAnswer, err = decodeAnswer(b); err != nil {
		return err
	}
	want := c.proof(roleAcceptor, 0, c.sentHello, b[:64])
	if hmac.Equal(want[:], c.receivedAnswer.proof[:]) {
		return nil
	}
	if err := c.hello.security.mismatch(c.receivedAnswer.security); err != nil && c.receivedAnswer.outcome == outcomeOtherSecurity {
		return err
	}
	if c.receivedAnswer.outcome == outcomeUnknownPeer {
		return fmt.Errorf("%s", outcomeNames[outcomeUnknownPeer])
	}
	return fmt.Errorf("the process that answers does not have the key of the peer's card")
}

// makeProof returns the encoded proof. count is the number of received frames.
func (c *callerHandshake) makeProof(count uint64) []byte {
	answered := c.receivedAnswer.encode()
	sum := c.proof(roleCaller, count, c.sentHello, answered)
	return append(le.AppendUint64(nil, count), sum[:]...)
}

// checkWelcome verifies the welcome, and returns the peer's number of received frames.
func (c *callerHandshake) checkWelcome(b []byte) (count uint64, err error) {
	count = le.Uint64(b)
	sum := c.proof(roleWelcome, count, c.sentHello)
	if !hmac.Equal(b[8:welcomeSize], sum[:welcomeSize-8]) {
		return 0, fmt.Errorf("a welcome without a valid proof")
	}
	return count, nil
}

// acceptorHandshake is the acceptor's side.
type acceptorHandshake struct {
	parties
	hello         hello
	sentAnswer    []byte
	receivedHello []byte
}

// makeAnswer returns the encoded answer with a fresh challenge.
func (v *acceptorHandshake) makeAnswer(a answer) []byte {
	rand.Read(a.challenge[:])
	a.proof = v.proof(roleAcceptor, 0, v.receivedHello, a.encode()[:64])
	v.sentAnswer = a.encode()
	return v.sentAnswer
}

// checkProof verifies the proof, and returns the caller's number of received frames.
func (v *acceptorHandshake) checkProof(b []byte) (count uint64, err error) {
	count = le.Uint64(b)
	sum := v.proof(roleCaller, count, v.receivedHello, v.sentAnswer)
	if !hmac.Equal(b[8:proofSize], sum[:]) {
		return 0, fmt.Errorf("the caller does not have the key of this process's card")
	}
	return count, nil
}

// makeWelcome returns the encoded welcome. count is the number of received frames.
func (v *acceptorHandshake) makeWelcome(count uint64) []byte {
	sum := v.proof(roleWelcome, count, v.receivedHello)
	return append(le.AppendUint64(nil, count), sum[:welcomeSize-8]...)
}
