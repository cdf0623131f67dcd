package pmltest

import (
	"context"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// Poisoned wraps a BTL so that a frame's bytes change as soon as Frame has
// returned: a PML that keeps what belongs to the module then delivers garbage.
func Poisoned(c btl.Component) btl.Component { return poisoned{c} }

type poisoned struct{ btl.Component }

func (p poisoned) Open(ctx context.Context, env btl.Env) (btl.Module, error) {
	env.Upcall = poisonReceiver{env.Upcall}
	return p.Component.Open(ctx, env)
}

type poisonReceiver struct{ btl.Receiver }

func (p poisonReceiver) Accept(peer framework.Life) btl.Inbound {
	return &poisonInbound{up: p.Receiver.Accept(peer)}
}

type poisonInbound struct {
	up    btl.Inbound
	frame []byte
}

func (p *poisonInbound) Frame(frame []byte) error {
	p.frame = append(p.frame[:0], frame...)
	err := p.up.Frame(p.frame[:len(frame):len(frame)])
	for i := range p.frame {
		p.frame[i] = 0xdb
	}
	return err
}
