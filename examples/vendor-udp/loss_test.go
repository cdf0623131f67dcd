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

// lossyComponent drops one datagram of 20, duplicates one of 30, and delays one of 10 until the next send.
type lossyComponent struct{ component }

func (w lossyComponent) Open(ctx context.Context, env btl.Env) (btl.Module, error) {
	mod, err := w.component.Open(ctx, env)
	if err != nil {
		return nil, err
	}
	m := mod.(*module)
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

func (w lossyComponent) Unwrap() any { return w.component }

func TestComponent_LossyNetwork_PassesContractKit(t *testing.T) {
	btltest.Cases(btltest.Subject{Component: lossyComponent{}}).Run(t)
}
