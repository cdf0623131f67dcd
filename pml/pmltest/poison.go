package pmltest

import (
	"context"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// Poisoned wraps a BTL and overwrites a frame's bytes as soon as Frame or Place has returned. A PML that keeps
// memory of the module then delivers wrong contents.
func Poisoned(c btl.Component) btl.Component { return poisoned{c} }

type poisoned struct{ btl.Component }

func (p poisoned) Open(ctx context.Context, env btl.Env) (btl.Module, error) {
	env.Upcall = poisonReceiver{env.Upcall}
	return p.Component.Open(ctx, env)
}

type poisonReceiver struct{ btl.Receiver }

// Unwrap lets framework.As find the optional interfaces of the receiver.
func (p poisonReceiver) Unwrap() any { return p.Receiver }

func (p poisonReceiver) Accept(peer framework.Incarnation) btl.Inbound {
	return &poisonInbound{upperInbound: p.Receiver.Accept(peer)}
}

type poisonInbound struct {
	upperInbound btl.Inbound
	lentCopy     []byte
}

// lend calls f with a copy of frame, and overwrites the copy afterwards.
func (p *poisonInbound) lend(frame []byte, f func([]byte)) {
	p.lentCopy = append(p.lentCopy[:0], frame...)
	f(p.lentCopy[:len(frame):len(frame)])
	for i := range p.lentCopy {
		p.lentCopy[i] = 0xdb
	}
}

func (p *poisonInbound) Frame(frame []byte) (err error) {
	p.lend(frame, func(b []byte) { err = p.upperInbound.Frame(b) })
	return err
}

// Place implements btl.Inbound.
func (p *poisonInbound) Place(header []byte, size int) (dst []byte) {
	p.lend(header, func(b []byte) { dst = p.upperInbound.Place(b, size) })
	return dst
}

// Placed implements btl.Inbound.
func (p *poisonInbound) Placed(header []byte, size int) (err error) {
	p.lend(header, func(b []byte) { err = p.upperInbound.Placed(b, size) })
	return err
}
