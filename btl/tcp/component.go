package tcp

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/netaddr"
)

// Component returns the component for the registry.
func Component() btl.Component { return component{} }

type component struct{}

// params are the parameters btl.tcp.NAME.
type params struct {
	AddressInclude []string       `param:"address_include" default:"" level:"user" scope:"process" doc:"Addresses of this host to publish: networks (10.1.0.0/16), addresses, or patterns of interface names (eth0, ib*). Empty: all but loopback, bridges without members, and networks of docker and libvirt."`
	AddressExclude []string       `param:"address_exclude" default:"" level:"user" scope:"process" doc:"Addresses not to publish, in the same form."`
	PortRange      string         `param:"port_range" default:"" level:"user" scope:"process" doc:"Range of listening ports, as in 40000-40999. The first free one is used. Empty: the system chooses."`
	LinkCount      int            `param:"links" default:"0" min:"0" max:"16" level:"tuner" scope:"process" doc:"Connections with a peer, which share its frames. 0: one for each common network of the hosts, at most 4."`
	ConnectTimeout time.Duration  `param:"connect_timeout" default:"10s" min:"10ms" max:"10m" level:"user" scope:"process" doc:"Time limit for the first connection with a peer over all of its addresses. Then another transport is tried."`
	RetryTimeout   time.Duration  `param:"retry_timeout" default:"30s" min:"100ms" max:"1h" level:"user" scope:"process" doc:"Time limit of reconnects. A peer is lost after this time of silence, or of reconnects without an acked frame."`
	Window         framework.Size `param:"window" default:"4MiB" min:"4KiB" max:"1GiB" unit:"bytes" level:"tuner" scope:"process" doc:"Limit of unacked data to a peer. It is kept for retransmission after the loss of a connection."`
	Security       string         `param:"security" default:"auto" choices:"auto,auth,tls,none" level:"user" scope:"process" doc:"auto, auth: both ends of a connection prove that they belong to the job, by a key in the business card. Nothing is encrypted. tls: as auth, within TLS 1.3 with the keys of both cards, which also prove the identity of each process. none: no proof."`
	EagerLimit     framework.Size `param:"eager_limit" default:"32KiB" min:"64" max:"1MiB" unit:"bytes" level:"tuner" scope:"process" doc:"Largest message, header included, that is sent eagerly, and buffered until it is received."`
	FrameLimit     framework.Size `param:"frame_limit" default:"256KiB" min:"256" max:"16MiB" unit:"bytes" level:"tuner" scope:"process" doc:"Largest fragment of a message. At most a quarter of the window."`
}

func (component) Info() framework.Info {
	return framework.Info{
		Kind:     framework.BTL,
		Name:     "tcp",
		Version:  "1.0.0",
		Summary:  "processes on any hosts, over TCP",
		Priority: 30,
	}
}

// Suggest implements framework.Suggester.
func (component) Suggest(word string) string {
	if word == "tcp" || word == "ethernet" {
		return "btl=self,tcp"
	}
	return ""
}

func (component) Params() any { return new(params) }

func (p *params) rules() netaddr.Rules {
	return netaddr.Rules{Include: p.AddressInclude, Exclude: p.AddressExclude}
}

// ports returns the range of listening ports, or 0, 0 for any.
func (p *params) ports() (low, high int, err error) {
	if p.PortRange == "" {
		return 0, 0, nil
	}
	from, to, both := strings.Cut(p.PortRange, "-")
	if !both {
		to = from
	}
	low, err1 := strconv.Atoi(strings.TrimSpace(from))
	high, err2 := strconv.Atoi(strings.TrimSpace(to))
	if err1 != nil || err2 != nil || low < 1 || high > 65535 || low > high {
		return 0, 0, fmt.Errorf("%q is not a range of ports: want two from 1 to 65535 such as 40000-40999, the lower one first", p.PortRange)
	}
	return low, high, nil
}

func (p *params) security() security {
	for s, name := range securityNames {
		if name == p.Security {
			return s
		}
	}
	return securityAuth
}

func (p *params) config() config {
	frameLimit := min(int(p.FrameLimit), int(p.Window)/4)
	return config{
		security: p.security(), addressRules: p.rules(), linkCount: p.LinkCount,
		connectTimeout: p.ConnectTimeout, retryTimeout: p.RetryTimeout, windowBytes: int(p.Window),
		frameLimit: frameLimit, eagerLimit: min(int(p.EagerLimit), frameLimit),
	}
}

// Check implements framework.Checker.
func (p *params) Check() (param string, err error) {
	if _, _, err := p.ports(); err != nil {
		return "port_range", err
	}
	if err := (netaddr.Rules{Include: p.AddressInclude}).Check(); err != nil {
		return "address_include", err
	}
	return "address_exclude", netaddr.Rules{Exclude: p.AddressExclude}.Check()
}

// Probe always succeeds. Open lists the addresses, which is the expensive part.
func (component) Probe(context.Context, any) framework.Verdict { return framework.Usable() }

// Open opens the listening socket, without a message to any peer. It waits only for a tentative IPv6 address without
// an alternative.
func (component) Open(ctx context.Context, env btl.Env) (btl.Module, error) {
	p := env.Params.(*params)
	// The parameters may not come from Decode.
	if name, err := p.Check(); err != nil {
		return nil, fmt.Errorf("%w: btl.tcp.%s: %w", framework.ErrConfig, name, err)
	}
	low, high, _ := p.ports()
	m := &module{
		env:    env,
		config: p.config(),
		peers:  peerTable{byIncarnation: map[framework.Incarnation]*peerConn{}, lastDescriptions: map[framework.Incarnation]btl.Description{}},
		timers: timers{startedAt: time.Now(), nextAt: time.Hour},
		pacer:  pacer{socketPollInterval: 1},
	}
	if m.config.security != securityNone {
		rand.Read(m.cardKey[:])
	}
	var pin []byte
	if m.config.security == securityTLS {
		var err error
		if m.tlsIdentity, err = newIdentity(); err != nil {
			return nil, fmt.Errorf("btl tcp: btl.tcp.security=tls: %w", err)
		}
		pin = m.tlsIdentity.publicKey()
	}
	ifs, err := netaddr.Host()
	if err != nil {
		return nil, fmt.Errorf("btl tcp: %w", err)
	}
	if unmatched := m.config.addressRules.Unmatched(ifs); len(unmatched) > 0 {
		env.Logger.Info("btl tcp: address_exclude matches no interface or address of this host", "elements", unmatched)
	}
	kept, left := m.config.addressRules.Apply(ifs)
	m.host.allowedInterfaces, m.host.listedAt = kept, m.timers.startedAt
	if m.host.publishedAddrs, left = p.publishable(kept, left, env.Identity.IsSpread()); len(m.host.publishedAddrs) == 0 {
		return nil, noAddress(kept, left)
	}
	m.host.unpublishedAddrs = append(left, netaddr.Unpublished(kept, m.host.publishedAddrs)...)
	if m.poller.epollFD, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("btl tcp: %w", err)
	}
	fd, port, err := listen(ctx, m.host.publishedAddrs, low, high)
	if err == nil {
		m.host.listenPort, m.inbound.listener = port, &listener{module: m, fd: fd}
		if err = m.watchSocket(fd, m.inbound.listener); err != nil {
			unix.Close(fd)
		}
	}
	if err == nil && m.config.security == securityTLS {
		if m.tlsHandshakes.completed, err = newCompletedHandshakes(m); err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		unix.Close(m.poller.epollFD)
		return nil, fmt.Errorf("btl tcp: %w", err)
	}
	m.encodedCard = (&businessCard{security: m.config.security, listenPort: uint16(m.host.listenPort), authKey: m.cardKey, publishedAddrs: m.host.publishedAddrs, tlsKey: pin}).encode()
	return m, nil
}

// publishable returns the addresses to publish, and adds the others to left. It publishes loopback only
// without another address, and unless isSpread (bootstrap.Identity.IsSpread).
func (p *params) publishable(kept []netaddr.Interface, left []netaddr.LeftOut, isSpread bool) ([]netip.Addr, []netaddr.LeftOut) {
	addrs := netaddr.Publish(kept)
	if len(addrs) == 0 || !addrs[0].IsLoopback() || len(p.AddressInclude) > 0 {
		return addrs, left
	}
	// Without a number of local processes all may be local. The handshake refuses others.
	if isSpread {
		return nil, append(left, netaddr.LeftOut{What: "loopback", Why: "the job is on more than one node"})
	}
	return addrs, left
}

// noAddress returns the error of a host without an address to publish, with the reason for each address.
func noAddress(kept []netaddr.Interface, left []netaddr.LeftOut) error {
	return fmt.Errorf("btl tcp: this host has no address to publish: %s", reasons(append(left, netaddr.Unpublished(kept, nil)...)))
}

// reasons joins the reasons.
func reasons(left []netaddr.LeftOut) string {
	if len(left) == 0 {
		return "no interface has one"
	}
	all := make([]string, len(left))
	for i, l := range left {
		all[i] = l.String()
	}
	return strings.Join(all, "; ")
}
