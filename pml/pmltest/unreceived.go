package pmltest

import (
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

// unreceivedCases cover synchronous sends to receivers that close the communicator.
func unreceivedCases() claims {
	return claims{
		kittest.New("SynchronousSendFailsExactlyIfItsMessageIsDropped", 2, (*fixture).someDropped),
		kittest.New("SynchronousSendToAClosingMemberThatReceivesYet", 2, (*fixture).droppedWhileReceiving),
		kittest.New("SynchronousSendsOfTwoMembersThatCloseFail", 2, (*fixture).bothDrop),
		kittest.New("SynchronousSendToItselfFailsIfItsMessageIsDropped", 1, (*fixture).ownDropped),
	}
}

// isDropped checks the outcome of a synchronous send.
func (f *fixture) isDropped(what string, p pending) {
	_, err := p.wait(f.Context())
	f.Is(what, err, framework.ErrCommClosed)
}

// someDropped alternates two tags and both modes. The receiver receives the first messages of each tag, and then
// closes.
func (f *fixture) someDropped() {
	const sends = 12
	for round := range 9 {
		comms := f.comm()
		var all [sends]pending
		var lengths [sends]int
		for i := range sends {
			mode := pml.Synchronous
			if i%3 == 2 {
				mode = pml.Standard
			}
			lengths[i] = [...]int{10, 0, 5000, 61, 100000}[i%5]
			all[i] = f.isend(comms[0], 1, 1+i%2, data(i, lengths[i]), mode)
		}
		// Tag 1 has the even ones, and tag 2 the odd ones.
		received := [...]int{2 * (round % 3), 2*(round/3) + 1}
		for i := range sends {
			if i < received[i%2] {
				f.want(comms[1], 0, 1+i%2, data(i, lengths[i]), 0, 1+i%2)
			}
		}
		comms[1].Close()
		for i, p := range all {
			if i < received[i%2] || i%3 == 2 {
				f.wait(p)
			} else {
				f.isDropped("an unreceived message", p)
			}
		}
		comms[0].Close()
	}
}

// droppedWhileReceiving closes with a posted receive, beside a message that it does not match. The sender is blocked
// in that message. A network that matches cannot report it as dropped before the receive
// ends.
func (f *fixture) droppedWhileReceiving() {
	for _, size := range []int{100, 1 << 20} {
		for _, mode := range []pml.Mode{pml.Synchronous, pml.Standard} {
			f.sendWhileReceiving(size, mode)
		}
	}
}

func (f *fixture) sendWhileReceiving(size int, mode pml.Mode) {
	comms := f.comm()
	f.connectAll(comms)
	buf := make([]byte, 100)
	r := f.irecv(comms[1], 0, 1, buf)
	dropped := f.isend(comms[0], 1, 2, data(2, size), mode)
	comms[1].Close()
	_, err := dropped.wait(f.Context())
	if isReported := mode == pml.Synchronous && f.caps().Arrivals; isReported || err != nil {
		f.Is("a message that the receive does not match", err, framework.ErrCommClosed)
	}
	received := f.isend(comms[0], 1, 1, data(1, 100), pml.Synchronous)
	f.got(r, buf, data(1, 100), 0, 1)
	f.wait(received)
	comms[0].Close()
}

// bothDrop closes two members with a pending send to each other.
func (f *fixture) bothDrop() {
	for range 5 {
		comms := f.comm()
		f.connectAll(comms)
		one, other := f.isend(comms[0], 1, 1, data(1, 10), pml.Synchronous), f.isend(comms[1], 0, 1, data(1, 10), pml.Synchronous)
		f.each(comms, func(_ int, c pml.Comm) { c.Close() })
		f.isDropped("the first member's message", one)
		f.isDropped("the second member's message", other)
	}
}

func (f *fixture) ownDropped() {
	c := f.comm()[0]
	received, dropped := f.isend(c, 0, 1, data(1, 10), pml.Synchronous), f.isend(c, 0, 1, data(2, 10), pml.Synchronous)
	f.want(c, 0, 1, data(1, 10), 0, 1)
	c.Close()
	f.wait(received)
	f.isDropped("a message to itself", dropped)
}
