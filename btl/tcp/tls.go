package tcp

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/framework"
)

// tlsKeySize is the size of an Ed25519 public key.
const tlsKeySize = ed25519.PublicKeySize

// tlsIdentity is the Ed25519 key of a module, with a self-signed certificate. Only the key counts. The
// caller has the acceptor's card when it dials. The acceptor compares the caller's key with its card after
// the hello, which may have to wait for the card.
type tlsIdentity struct{ certificate tls.Certificate }

// newIdentity generates a key.
func newIdentity() (*tlsIdentity, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	always := x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, &always, &always, public, private)
	if err != nil {
		return nil, err
	}
	return &tlsIdentity{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}}, nil
}

// publicKey returns the key for the card.
func (id *tlsIdentity) publicKey() []byte {
	return id.certificate.PrivateKey.(ed25519.PrivateKey).Public().(ed25519.PublicKey)
}

// config returns the TLS configuration of both ends. verify checks the proven key of the other end.
func (id *tlsIdentity) config(verify func(key []byte) error) *tls.Config {
	return &tls.Config{
		Certificates:                []tls.Certificate{id.certificate},
		MinVersion:                  tls.VersionTLS13,
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
		ClientAuth:                  tls.RequireAnyClientCert,
		// The card replaces chain and name.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errOtherKey
			}
			key, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			if !ok {
				return errOtherKey
			}
			return verify(key)
		},
	}
}

var errOtherKey = errors.New("its key for TLS is not the one in its card")

// startTLS starts TLS on the connection if the security requires it.
func (a *dialAttempt) startTLS() error {
	m, pin := a.peer.module, a.peer.card.tlsKey
	if m.config.security != securityTLS {
		return nil
	}
	config := m.tlsIdentity.config(func(key []byte) error {
		if !bytes.Equal(key, pin) {
			return errOtherKey
		}
		return nil
	})
	return m.startTLS(a.fd, &tlsTunnel{}, func(c net.Conn) *tls.Conn { return tls.Client(c, config) }, attemptTimeout)
}

// recordHandshake is the first byte of a TLS connection.
const recordHandshake = 22

// detectTLS starts TLS if the caller speaks it. A plain caller may send its hello, and gets the required
// security as answer. It reports false until the first byte arrives.
func (c *inboundConn) detectTLS() bool {
	m := c.module
	if m.config.security != securityTLS || c.isProtocolKnown {
		return true
	}
	var first [1]byte
	switch n, _, err := unix.Recvfrom(c.fd, first[:], unix.MSG_PEEK); {
	case err == unix.EAGAIN || err == unix.EINTR:
		return false
	case n == 1 && first[0] == recordHandshake:
		t := &tlsTunnel{}
		config := m.tlsIdentity.config(func(key []byte) error { t.peerKey = key; return nil })
		if err := m.startTLS(c.fd, t, func(c net.Conn) *tls.Conn { return tls.Server(c, config) }, inboundTimeout); err != nil {
			c.refuse(err.Error())
			return false
		}
	}
	c.isProtocolKnown = true
	return true
}

// cardTimeout is the longest wait for the caller's card. Then the caller is answered, and dials again.
const (
	cardTimeout    = 2 * time.Second
	cardPollPeriod = 10 * time.Millisecond
)

// checkTLSKey reports whether the caller's key is that of its card. Without a card it holds the hello, and
// refuses the caller after cardTimeout.
func (c *inboundConn) checkTLSKey(incarnation framework.Incarnation) bool {
	m := c.module
	v := c.handshake
	card, err := m.cardOf(incarnation)
	switch {
	case card != nil && len(card.tlsKey) > 0 && bytes.Equal(card.tlsKey, m.tunnelOf(c.fd).verifiedKey()):
		return true
	case card != nil:
		c.refuse(errOtherKey.Error())
	case err != nil:
		c.refuse(err.Error())
	case m.timers.lastClock < c.handshakeDeadline-inboundTimeout+cardTimeout:
		c.heldHello, c.handshake = v.receivedHello, nil
		m.scheduleAt(m.timers.lastClock + cardPollPeriod)
	case c.send(v.makeAnswer(answer{security: m.config.security, outcome: outcomeNoCard})):
		c.refuse(fmt.Sprintf("the card of %v has not arrived", v.caller))
	}
	return false
}

// retryHello checks again for the card of a held hello.
func (c *inboundConn) retryHello() {
	if hello := c.heldHello; hello != nil {
		c.heldHello = nil
		c.handleHello(hello)
		c.handleEvents(unix.EPOLLIN)
	}
}

// cardOf returns the card of a process, or nil if it has not arrived.
func (m *module) cardOf(incarnation framework.Incarnation) (*businessCard, error) {
	if p := m.peers.byIncarnation[incarnation]; p != nil && p.card != nil {
		return p.card, nil
	}
	peer, ok := m.env.Upcall.Card(incarnation)
	if !ok {
		return nil, nil
	}
	card, err := decodeCard(peer.Blob)
	if err != nil {
		return nil, err
	}
	return &card, nil
}
