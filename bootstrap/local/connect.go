package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// handshakeTimeout limits the connection and the handshake.
const handshakeTimeout = 10 * time.Second

// dial connects to the launcher's socket. It tries again while the backlog is full (EAGAIN), as
// when more ranks start at once than it holds.
func dial(ctx context.Context, path string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	var d net.Dialer
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		conn, err := d.DialContext(ctx, "unix", path)
		if err == nil || !errors.Is(err, syscall.EAGAIN) {
			return conn, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// Dial opens a client as Open does, for the process that environ identifies. Launchers whose ranks
// are goroutines use it.
func Dial(ctx context.Context, environ []string, env bootstrap.Env) (bootstrap.Client, error) {
	p, err := paramsFrom(environ)
	if err != nil {
		return nil, err
	}
	env.Params = p
	return component{}.Open(ctx, env)
}

// paramsFrom reads the component's parameters from environ.
func paramsFrom(environ []string) (*Params, error) {
	reg := framework.NewRegistry()
	reg.Register(component{})
	var set []framework.Setting
	for _, entry := range environ {
		variable, value, _ := strings.Cut(entry, "=")
		if name, ok := reg.EnvParam(variable); ok {
			set = append(set, framework.Setting{Name: name, Value: value, Source: variable})
		}
	}
	values, err := reg.Defaults()
	if err == nil {
		values, err = values.Set(set...)
	}
	if err != nil {
		return nil, err
	}
	p := new(Params)
	return p, values.Decode("bootstrap.local", p)
}

// connect performs the handshake and starts the client. The client owns conn, and connect closes it
// on an error.
func connect(ctx context.Context, conn net.Conn, id bootstrap.Identity, token string, env bootstrap.Env) (*client, error) {
	c := newClient(conn, id, env)
	r := wire.NewReader(conn, wire.MaxFrame)
	welcome, err := c.handshake(ctx, r, token)
	if err != nil {
		conn.Close()
		return nil, launcherError("handshake", err)
	}
	c.learnNodes(welcome)
	for _, d := range welcome.Dead {
		c.receiveEvent(d)
	}
	c.wg.Go(func() { c.read(r) })
	return c, nil
}

func (c *client) handshake(ctx context.Context, r *wire.Reader, token string) (w wire.WelcomeBody, err error) {
	if _, err := wire.CheckPeer(c.conn); err != nil {
		return w, err
	}
	if err := c.conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return w, err
	}
	// The end of ctx fails the reads and writes below.
	stop := context.AfterFunc(ctx, func() { c.conn.SetDeadline(time.Unix(1, 0)) })
	w, err = c.greet(r, token)
	if !stop() {
		return w, context.Cause(ctx)
	}
	return w, cmp.Or(err, c.conn.SetDeadline(time.Time{}))
}

func (c *client) greet(r *wire.Reader, token string) (w wire.WelcomeBody, err error) {
	hello, err := wire.Encode(wire.Hello, 0, wire.HelloBody{
		Version: wire.Version, Token: token, Namespace: c.id.Proc.Namespace, Rank: c.id.Proc.Rank,
	})
	if err == nil {
		_, err = c.conn.Write(hello)
	}
	if err != nil {
		return w, err
	}
	m, err := r.Next()
	if err != nil {
		return w, err
	}
	switch m.Kind {
	case wire.Refused:
		b, err := wire.Decode[wire.RefusedBody](m.Body)
		if err == nil {
			err = fmt.Errorf("the launcher refused rank %d: %s", c.id.Proc.Rank, b.Reason)
		}
		return w, err
	case wire.Welcome:
		w, err = wire.Decode[wire.WelcomeBody](m.Body)
		if err == nil {
			err = c.checkWelcome(w)
		}
		return w, err
	}
	return w, fmt.Errorf("message kind %d instead of a welcome", m.Kind)
}

// learnNodes adds the map of the nodes to the identity. An invalid map is dropped and logged once
// for all sessions of this process, and the processes of this node are then unknown.
func (c *client) learnNodes(w wire.WelcomeBody) {
	m, err := w.NodeMap()
	if err != nil {
		if bootstrap.FirstReport(c.id.Proc, "map of the nodes") {
			c.log.Warn("bootstrap local: the launcher's map of the nodes is dropped", "error", err)
		}
		return
	}
	c.id = c.id.OnNode(m)
	c.id.IsDivided = w.Divided
}

// checkWelcome compares the job in the Welcome with the environment.
func (c *client) checkWelcome(w wire.WelcomeBody) error {
	for _, v := range []struct {
		variable string
		own      int
		launcher uint32
	}{
		{wire.EnvFirst, c.id.FirstRank, w.First}, {wire.EnvSize, c.id.Size, w.Size}, {wire.EnvMost, c.id.MaxSize, w.Most},
	} {
		if int64(v.own) != int64(v.launcher) {
			return fmt.Errorf("%s is %d, but the launcher has %d", v.variable, v.own, v.launcher)
		}
	}
	return nil
}
