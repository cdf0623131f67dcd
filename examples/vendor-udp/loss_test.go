package udp

import (
	"bytes"
	"context"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/btltest"
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
	m.send = func(b []byte, to syscall.Sockaddr) error {
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

// Frames arrive whole, in order and once, though datagrams don't.
func TestContractInBadWeather(t *testing.T) {
	btltest.Cases(btltest.Subject{Component: weather{}}).Run(t)
}
