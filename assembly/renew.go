package assembly

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// When a process has given another up, nothing goes between them on the communicators that
// they have. With the next one that they make they begin afresh, over what their cards have
// now: a transport may have been started again, or another one takes its place.
//
// Both have to do so at the same time, and none may send before the other has done it. So
// each member of a new communicator says which of the others it exchanges nothing with, and
// where any does, all meet a second time: by then each has ended what was before. A process
// that is given up hears of that from the bootstrap, which may be late; the second meeting
// says how often there is something to hear, and that much is taken for the past's.

// renewal is how two processes stand with each other.
type renewal struct {
	times       uint32 // how often they have begun afresh
	told, heard int    // since then, how often this one has given up the other, and the reverse
	past        struct {
		told, heard int // likewise, before
		open        bool
	}
}

// lateWord is how long to wait for the bootstrap's word that the other end has given this one
// up, which a busy bootstrap may lose.
const lateWord = 2 * time.Second

// present returns the process's card as it is now.
func (a *Assembly) present() (card, error) {
	a.presenting.Lock() // two that run at the same time agree on which card is newer
	defer a.presenting.Unlock()
	_, now, err := encodeCard(a.pmls, a.Card())
	if err == nil && !bytes.Equal(now, a.card.bytes) {
		a.card = card{now, a.card.edition + 1}
	}
	return a.card, err
}

// endedWith returns those of a group with whom nothing is exchanged any more. Under a
// bootstrap that needs everyone for each construct they stay so.
func (a *Assembly) endedWith(group []framework.Proc) (all []wireup.Ended) {
	if _, everyone := framework.As[bootstrap.Bystander](a.client); everyone {
		return nil
	}
	for _, m := range a.pmls {
		r, ok := framework.As[pml.Renewer](m.Module)
		if !ok {
			continue
		}
		for _, life := range r.Over() {
			rank := slices.Index(group, a.env.Worlds.Proc(life.ID))
			a.mu.Lock()
			known, ok := a.known.get(life)
			a.mu.Unlock()
			if ok && rank >= 0 && len(all) < wireup.MaxEnded {
				all = append(all, wireup.Ended{Rank: uint32(rank), Nonce: life.Nonce, Times: known.times})
			}
		}
	}
	return all
}

// gaveUp notes that this process gives up another one. The engine's lock is held.
func (a *Assembly) gaveUp(peer framework.Life) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known, ok := a.known.get(peer); ok {
		known.told++
		a.known.set(peer, known)
	}
}

// givenUp has PMLs told that a process has given up this one, unless that is past.
// Streams exchange messages all the same. upcalls is locked.
func (a *Assembly) givenUp(ev bootstrap.Event, how error) {
	for _, life := range a.lives(ev) {
		a.mu.Lock()
		known, ok := a.known.get(life)
		if past := ok && known.past.open; past {
			known.past.heard++
			a.known.set(life, known)
			a.mu.Unlock()
			continue
		} else if ok {
			known.heard++
			known.hasEnded = true
			known.leaveTable() // The record stays, because the process goes on.
			a.known.set(life, known)
		}
		a.mu.Unlock()
		a.passes(news{peer: life, gone: how, times: known.times})
	}
}

// tellGone tells a PML that nothing more is exchanged with a process, unless that has begun
// afresh since.
func (a *Assembly) tellGone(m PML, n news) {
	if errors.Is(n.gone, framework.ErrGivenUp) {
		a.learning.Lock()
		defer a.learning.Unlock()
		a.mu.Lock()
		known, _ := a.known.get(n.peer)
		a.mu.Unlock()
		if known.times != n.times {
			return
		}
	}
	m.PeerGone(n.peer, n.gone)
}

// renew begins afresh with the members of a new communicator who say that they exchange nothing
// with this process any more, and with those that it has named itself. All members call it.
func (a *Assembly) renew(ctx context.Context, group []framework.Proc, rank int, id uint64, payloads []wireup.Payload) error {
	lives := func(e wireup.Ended) bool { return int(e.Rank) < len(group) && payloads[e.Rank].Nonce == e.Nonce } // it has no newer life
	if !slices.ContainsFunc(payloads, func(p wireup.Payload) bool { return slices.ContainsFunc(p.Ended, lives) }) {
		return nil
	}
	pairs := map[int]framework.Life{}
	for i, times := range a.pairs(group, rank, payloads) {
		pairs[i] = framework.Life{ID: a.env.Worlds.ID(group[i]), Nonce: payloads[i].Nonce}
		a.beginAfresh(pairs[i], times)
	}
	told, err := a.meetAfresh(ctx, group, rank, id, pairs)
	for i, life := range pairs {
		a.settlePast(ctx, life, told[i])
	}
	return err
}

// meetAfresh is the second meeting. It returns how often those with whom this process begins
// afresh had given it up.
func (a *Assembly) meetAfresh(ctx context.Context, group []framework.Proc, rank int, id uint64, pairs map[int]framework.Life) (map[int]int, error) {
	mine := make([]wireup.Ended, 0, len(pairs))
	a.mu.Lock()
	for i, life := range pairs {
		if len(mine) == wireup.MaxEnded {
			break
		}
		known, _ := a.known.get(life)
		mine = append(mine, wireup.Ended{Rank: uint32(i), Nonce: life.Nonce, Times: uint32(known.past.told)})
	}
	a.mu.Unlock()
	body, err := wireup.EncodeEnded(mine)
	if err != nil {
		return nil, err
	}
	made, err := a.Construct(ctx, group, fmt.Sprintf("afresh %x", id), body)
	if err != nil {
		return nil, err
	}
	told := map[int]int{}
	for i := range pairs {
		theirs, err := wireup.DecodeEnded(made.Payloads[i])
		if err != nil {
			return told, badMember(group[i], err)
		}
		for _, e := range theirs {
			if int(e.Rank) == rank && e.Nonce == a.env.Self.Nonce {
				told[i] = int(e.Times)
			}
		}
	}
	return told, nil
}

// pairs returns the members with whom this one exchanges nothing any more, as one of both
// says, and how often they have begun afresh before.
func (a *Assembly) pairs(group []framework.Proc, rank int, payloads []wireup.Payload) map[int]uint32 {
	pairs := map[int]uint32{}
	for _, e := range payloads[rank].Ended {
		if i := int(e.Rank); i < len(group) && i != rank && payloads[i].Nonce == e.Nonce {
			pairs[i] = e.Times
		}
	}
	for i, p := range payloads {
		for _, e := range p.Ended {
			if i != rank && int(e.Rank) == rank && e.Nonce == a.env.Self.Nonce {
				pairs[i] = max(pairs[i], e.Times)
			}
		}
	}
	return pairs
}

// beginAfresh ends what was with a life, once: another communicator may have done so already.
func (a *Assembly) beginAfresh(life framework.Life, times uint32) {
	a.learning.Lock()
	defer a.learning.Unlock()
	a.mu.Lock()
	known, _ := a.known.get(life) // Empty if its card has never come.
	a.mu.Unlock()
	if known.times > times {
		return
	}
	a.env.Logger.Info("a process is met afresh, after one of both had given up the other", "proc", a.env.Worlds.Proc(life.ID).String())
	for _, m := range a.pmls {
		if r, ok := framework.As[pml.Renewer](m.Module); ok {
			r.Renew(life)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	known, _ = a.known.get(life)
	known.past.told, known.past.heard, known.past.open = known.told, known.heard, true
	known.times, known.told, known.heard = times+1, 0, 0
	known.card, known.table, known.hasEnded = nil, nil, false
	a.known.set(life, known)
}

// settlePast waits until what the bootstrap has to say of the time before has come, and has been
// passed on: that the other end has given this one up, so often. What comes later is news, and
// concerns the new communicator.
func (a *Assembly) settlePast(ctx context.Context, life framework.Life, told int) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(lateWord); ; {
		a.upcalls.Lock()
		telling := a.upcalls.telling
		a.upcalls.Unlock()
		a.mu.Lock()
		known, _ := a.known.get(life)
		if known.past.heard >= told && !telling || time.Now().After(late) || ctx.Err() != nil {
			if known.past.open {
				known.past.open = false
				a.known.set(life, known)
			}
			a.mu.Unlock()
			return
		}
		a.mu.Unlock()
		<-tick.C
	}
}
