package tcp

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/netaddr"
	"github.com/ferrympi/ferry/progress"
)

// module is the transport of one process. The engine's lock guards all of it.
type module struct {
	env         btl.Env
	config      config
	host        hostAddrs
	encodedCard []byte
	cardKey     [keySize]byte
	tlsIdentity *tlsIdentity

	poller        poller
	timers        timers
	pacer         pacer
	bufferPool    bufferPool
	scratch       scratch
	inbound       inbound
	tlsHandshakes tlsHandshakes

	peers        peerTable
	readyLinks   []*link
	pendingPeers []*peerConn
	isClosed     bool
}

// config has the parameters in the units of this package.
type config struct {
	security       security
	addressRules   netaddr.Rules
	connectTimeout time.Duration
	retryTimeout   time.Duration
	windowBytes    int
	eagerLimit     int
	frameLimit     int
	// 0: one for each common network.
	linkCount int
}

// hostAddrs has the addresses of this host.
type hostAddrs struct {
	allowedInterfaces []netaddr.Interface
	listedAt          time.Time
	publishedAddrs    []netip.Addr
	unpublishedAddrs  []netaddr.LeftOut
	listenPort        int
}

// peerTable has the peers by incarnation.
type peerTable struct {
	byIncarnation    map[framework.Incarnation]*peerConn
	sortedBuf        []*peerConn
	lastDescriptions map[framework.Incarnation]btl.Description
}

// inbound is the listener with the connections in their handshake.
type inbound struct {
	listener *listener
	// Oldest first.
	handshakingConns []*inboundConn
	refusedCount     int
}

// scratch is reused memory for one system call or one TLS record.
type scratch struct {
	writeVec      [][]byte
	readVec       [2][]byte
	plaintextBuf  []byte
	ciphertextBuf []byte
}

// sortedPeers returns the peers by rank. Peers may close during an iteration. The slice is valid until the
// next call.
func (m *module) sortedPeers() []*peerConn {
	all := m.peers.sortedBuf[:0]
	for _, p := range m.peers.byIncarnation {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *peerConn) int {
		if a.incarnation.ID < b.incarnation.ID {
			return -1
		}
		return 1
	})
	m.peers.sortedBuf = all
	return all
}

// Caps implements btl.Module.
func (m *module) Caps() btl.Caps {
	return btl.Caps{EagerLimit: m.config.eagerLimit, FrameLimit: m.config.frameLimit, Exclusivity: 1 << 10, LatencyNS: 10_000, Device: m.deviceName()}
}

// Blob implements btl.Module.
func (m *module) Blob() []byte { return m.encodedCard }

// Forget implements btl.Forgetter.
func (m *module) Forget(peer framework.Incarnation) {
	if p := m.peers.byIncarnation[peer]; p != nil {
		p.close()
	}
	delete(m.peers.lastDescriptions, peer)
}

// Reconnect implements btl.Reconnector.
func (m *module) Reconnect(peer framework.Incarnation) { m.Forget(peer) }

// PeerSource implements btl.PeerPoller.
func (m *module) PeerSource(peer framework.Incarnation) progress.Source {
	if p := m.peers.byIncarnation[peer]; p != nil && p.wasConnected {
		return &p.inboundPath.source
	}
	return nil
}

// hostInterfaces returns the interfaces that the parameters allow. The result is cached for
// interfacesMaxAge, because many peers may connect at once.
func (m *module) hostInterfaces() []netaddr.Interface {
	if now := time.Now(); now.Sub(m.host.listedAt) > interfacesMaxAge {
		m.host.listedAt = now
		if ifs, err := netaddr.Host(); err == nil {
			m.host.allowedInterfaces, _ = m.config.addressRules.Apply(ifs)
		}
	}
	return m.host.allowedInterfaces
}

const interfacesMaxAge = time.Second

// localLimits returns the limits for the handshake.
func (m *module) localLimits() limits {
	return limits{windowBytes: uint64(m.config.windowBytes), frameLimit: uint32(m.config.frameLimit)}
}

// deviceName returns the published addresses.
func (m *module) deviceName() string {
	all := make([]string, len(m.host.publishedAddrs))
	for i, a := range m.host.publishedAddrs {
		all[i] = a.String()
		if i == 0 {
			all[i] = net.JoinHostPort(all[i], fmt.Sprint(m.host.listenPort))
		}
	}
	return strings.Join(all, " ")
}
