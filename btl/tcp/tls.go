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

// btl.tcp.security=tls: a connection is TLS 1.3 before anything of the handshake travels.
// Each end's certificate is of the key in its card, and of no other use: nobody has signed
// it, and nothing but its key is looked at. The caller has the acceptor's card when it
// calls. The acceptor hears in the hello who calls, and has the guest wait for the card.

// tlsKeySize is the size of an Ed25519 public key.
const tlsKeySize = ed25519.PublicKeySize

// tlsIdentity is a module's key and the certificate of it.
type tlsIdentity struct{ certificate tls.Certificate }

// newIdentity makes a key that lives as long as the module.
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

// publicKey is what peers are told.
func (id *tlsIdentity) publicKey() []byte {
	return id.certificate.PrivateKey.(ed25519.PrivateKey).Public().(ed25519.PublicKey)
}

// config returns what both ends have in common; verify is given the key that the other end
// has proved to have.
func (id *tlsIdentity) config(verify func(key []byte) error) *tls.Config {
	return &tls.Config{
		Certificates:                []tls.Certificate{id.certificate},
		MinVersion:                  tls.VersionTLS13,
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
		ClientAuth:                  tls.RequireAnyClientCert,
		InsecureSkipVerify:          true, // chain and name: there is none
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

// startTLS has TLS begin on a connection that was just made.
func (a *dialAttempt) startTLS() error {
	m, pin := a.peer.module, a.peer.card.tlsKey
	if m.config.security != securityTLS {
		return nil
	}
	config := m.identity.config(func(key []byte) error {
		if !bytes.Equal(key, pin) {
			return errOtherKey
		}
		return nil
	})
	return m.startTLS(a.fd, &tlsTunnel{}, func(c net.Conn) *tls.Conn { return tls.Client(c, config) }, attemptTimeout)
}

// recordHandshake is the first byte of a connection that begins with TLS.
const recordHandshake = 22

// detectTLS finds out whether a guest speaks TLS, where it is to. One that does not gets to
// say hello, and hears what is wanted. It reports false if nothing has come yet.
func (g *inboundConn) detectTLS() bool {
	m := g.module
	if m.config.security != securityTLS || g.isProtocolKnown {
		return true
	}
	var first [1]byte
	switch n, _, err := unix.Recvfrom(g.fd, first[:], unix.MSG_PEEK); {
	case err == unix.EAGAIN || err == unix.EINTR:
		return false
	case n == 1 && first[0] == recordHandshake:
		t := &tlsTunnel{}
		config := m.identity.config(func(key []byte) error { t.peerKey = key; return nil })
		if err := m.startTLS(g.fd, t, func(c net.Conn) *tls.Conn { return tls.Server(c, config) }, inboundTimeout); err != nil {
			g.refuse(err.Error())
			return false
		}
	}
	g.isProtocolKnown = true
	return true
}

// How long a guest waits for the card of its process, before the caller is told and tries
// again, and how often it is looked for.
const (
	cardTimeout    = 2 * time.Second
	cardPollPeriod = 10 * time.Millisecond
)

// checkTLSKey reports whether the key of a guest is that of the process which it says it is. If
// that process's card is not here yet, the guest is held; if it never comes, turned away.
func (g *inboundConn) checkTLSKey(life framework.Life) bool {
	m := g.module
	v := g.handshake
	card, err := m.cardOf(life)
	switch {
	case card != nil && len(card.tlsKey) > 0 && bytes.Equal(card.tlsKey, m.tunnelOf(g.fd).verifiedKey()):
		return true
	case card != nil:
		g.refuse(errOtherKey.Error())
	case err != nil:
		g.refuse(err.Error())
	case m.timers.now < g.deadline-inboundTimeout+cardTimeout:
		g.heldHello, g.handshake = v.receivedHello, nil
		m.scheduleAt(m.timers.now + cardPollPeriod)
	case g.send(v.makeAnswer(answer{security: m.config.security, outcome: outcomeNoCard})):
		g.refuse(fmt.Sprintf("the card of %v has not arrived", v.caller))
	}
	return false
}

// retryHello looks again for the card for which a guest waits.
func (g *inboundConn) retryHello() {
	if hello := g.heldHello; hello != nil {
		g.heldHello = nil
		g.handleHello(hello)
		g.handleEvents(unix.EPOLLIN)
	}
}

// cardOf returns the card of a process, or nil if it has not come.
func (m *module) cardOf(life framework.Life) (*businessCard, error) {
	if p := m.peers.byIncarnation[life]; p != nil && p.card != nil {
		return p.card, nil
	}
	if m.inbound.cardHolder == nil {
		return nil, nil
	}
	peer, ok := m.inbound.cardHolder.Card(life)
	if !ok {
		return nil, nil
	}
	card, err := decodeCard(peer.Blob)
	if err != nil {
		return nil, err
	}
	return &card, nil
}
