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

// pinSize is the size of an Ed25519 public key.
const pinSize = ed25519.PublicKeySize

// identity is a module's key and the certificate of it.
type identity struct{ certificate tls.Certificate }

// newIdentity makes a key that lives as long as the module.
func newIdentity() (*identity, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	always := x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, &always, &always, public, private)
	if err != nil {
		return nil, err
	}
	return &identity{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}}, nil
}

// pin is what peers are told.
func (id *identity) pin() []byte {
	return id.certificate.PrivateKey.(ed25519.PrivateKey).Public().(ed25519.PublicKey)
}

// config returns what both ends have in common; verify is given the key that the other end
// has proved to have.
func (id *identity) config(verify func(key []byte) error) *tls.Config {
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

// encrypt has TLS begin on a connection that was just made.
func (a *attempt) encrypt() error {
	m, pin := a.p.m, a.p.card.pin
	if m.security != encrypted {
		return nil
	}
	config := m.identity.config(func(key []byte) error {
		if !bytes.Equal(key, pin) {
			return errOtherKey
		}
		return nil
	})
	return m.tunnel(a.fd, &tunnel{}, func(c net.Conn) *tls.Conn { return tls.Client(c, config) }, attemptTimeout)
}

// recordHandshake is the first byte of a connection that begins with TLS.
const recordHandshake = 22

// begins finds out whether a guest speaks TLS, where it is to. One that does not gets to
// say hello, and hears what is wanted. It reports false if nothing has come yet.
func (g *guest) begins() bool {
	m := g.m
	if m.security != encrypted || g.begun {
		return true
	}
	var first [1]byte
	switch n, _, err := unix.Recvfrom(g.fd, first[:], unix.MSG_PEEK); {
	case err == unix.EAGAIN || err == unix.EINTR:
		return false
	case n == 1 && first[0] == recordHandshake:
		t := &tunnel{}
		config := m.identity.config(func(key []byte) error { t.peer = key; return nil })
		if err := m.tunnel(g.fd, t, func(c net.Conn) *tls.Conn { return tls.Server(c, config) }, guestTimeout); err != nil {
			g.turnAway(err.Error())
			return false
		}
	}
	g.begun = true
	return true
}

// How long a guest waits for the card of its process, before the caller is told and tries
// again, and how often it is looked for.
const (
	cardPatience = 2 * time.Second
	cardEvery    = 10 * time.Millisecond
)

// pinned reports whether the key of a guest is that of the process which it says it is. If
// that process's card is not here yet, the guest is held; if it never comes, turned away.
func (g *guest) pinned(life framework.Life) bool {
	m := g.m
	v := g.visit
	card, err := m.cardOf(life)
	switch {
	case card != nil && len(card.pin) > 0 && bytes.Equal(card.pin, m.tunnelAt(g.fd).key()):
		return true
	case card != nil:
		g.turnAway(errOtherKey.Error())
	case err != nil:
		g.turnAway(err.Error())
	case m.clock < g.until-guestTimeout+cardPatience:
		g.held, g.visit = v.received, nil
		m.at(m.clock + cardEvery)
	case g.send(v.reply(answer{security: m.security, outcome: unknown})):
		g.turnAway(fmt.Sprintf("the card of %v has not arrived", v.caller))
	}
	return false
}

// resume looks again for the card for which a guest waits.
func (g *guest) resume() {
	if hello := g.held; hello != nil {
		g.held = nil
		g.greeted(hello)
		g.ready(unix.EPOLLIN)
	}
}

// cardOf returns the card of a process, or nil if it has not come.
func (m *module) cardOf(life framework.Life) (*blob, error) {
	if p := m.pairs[life]; p != nil && p.card != nil {
		return p.card, nil
	}
	if m.cards == nil {
		return nil, nil
	}
	peer, ok := m.cards.Card(life)
	if !ok {
		return nil, nil
	}
	card, err := decodeBlob(peer.Blob)
	if err != nil {
		return nil, err
	}
	return &card, nil
}
