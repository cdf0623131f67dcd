package udp

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/btltest"
	"github.com/ferrympi/ferry/framework/kittest"
)

// weather has a network that loses one datagram of 20, doubles one of 30, and holds one of
// 10 back until the next one.
type weather struct{ component }

func (w weather) Open(ctx context.Context, env btl.Env) (btl.Module, error) {
	opened, err := w.component.Open(ctx, env)
	if err != nil {
		return nil, err
	}
	m := opened.(*module)
	random, send := rand.New(rand.NewPCG(1, env.Self.Nonce)), m.send
	var held func() error
	m.send = func(b []byte, to unix.Sockaddr) error {
		switch before := held; {
		case random.IntN(20) == 0:
			return nil
		case random.IntN(30) == 0:
			_ = send(b, to)
		case before != nil:
			held = nil
			defer before()
		case random.IntN(10) == 0:
			b := bytes.Clone(b)
			held = func() error { return send(b, to) }
			return nil
		}
		return send(b, to)
	}
	return m, nil
}

func (w weather) Unwrap() any { return w.component }

// Frames arrive whole, in order and once, though datagrams don't. One case is left out: it
// wants room while the receiver does not poll, whose last confirmation may have been lost.
func TestContractInBadWeather(t *testing.T) {
	all := btltest.Cases(btltest.Subject{Component: weather{}})
	slices.DeleteFunc(all, func(c kittest.Case) bool { return c.Name == "ShortSendIsTheWholeFrameOrNothing" }).Run(t)
}
