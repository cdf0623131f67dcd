package bootstraptest

import (
	"slices"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework/kittest"
)

func revocationCases() claims {
	return claims{
		kittest.New("RevocationReachesEachMemberOnce", Want{Size: 4, Timeout: long}, (*job).revokeOnce),
		kittest.New("RevocationOfAClosedClientReachesAllMembers", Want{Size: 4, Timeout: long}, (*job).revokeAndClose),
		kittest.New("RevocationOfADeadProcessReachesAllMembersOrNone", Want{Size: 5, Timeout: long}, (*job).revokeAndDie),
		kittest.New("RevocationOfAProcessThatDiesAtOnceReachesAllMembers", Want{Size: 5, Timeout: long}, (*job).revokeAndDieAtOnce),
		kittest.New("ThousandRevocationsReachEachMember", Want{Size: 3, Timeout: long}, (*job).revokeMany),
	}
}

// revokeOnce checks that members receive one event for each communicator, although several members revoke it,
// several times, and one member is in another incarnation. Other processes receive none.
func (j *job) revokeOnce() {
	first, second := ability[bootstrap.Revoker](j, 0), ability[bootstrap.Revoker](j, 1)
	ability[bootstrap.EventSource](j, 0).Begin(5)
	ability[bootstrap.EventSource](j, 1).Begin(6)
	ability[bootstrap.EventSource](j, 2).Begin(7)
	j.meet("begun")
	ability[bootstrap.EventSource](j, 2).Begin(8)
	j.meet("begun again")
	members := j.group(2, 0, 1)
	at := []<-chan bootstrap.Event{j.listen(0), j.listen(1), j.listen(2), j.listen(3)}
	id, other := cid.Extended{Base: 7, Sub: 1 << 48}, cid.Extended{Base: 7}
	j.Check(first.Revoke(id, members))
	j.Check(first.Revoke(id, members))
	revoked := bootstrap.Event{Kind: bootstrap.Revoked, Proc: j.group(0)[0], Nonce: 5, Comm: id}
	j.nextOf(at[1], revoked)
	j.nextOf(at[2], revoked)
	j.Check(second.Revoke(id, members))
	j.Check(second.Revoke(other, members))
	revoked = bootstrap.Event{Kind: bootstrap.Revoked, Proc: j.group(1)[0], Nonce: 6, Comm: other}
	j.nextOf(at[0], revoked)
	j.nextOf(at[2], revoked)
	j.meet("revoked")
	for _, ch := range at {
		j.noRevocation(ch)
	}
}

// revokeAndClose checks that Close does not overtake a revocation.
func (j *job) revokeAndClose() {
	ability[bootstrap.EventSource](j, 0).Begin(5)
	j.meet("begun")
	id := cid.Extended{Base: 7}
	at := []<-chan bootstrap.Event{j.listen(1), j.listen(2), j.listen(3)}
	j.Check(ability[bootstrap.Revoker](j, 0).Revoke(id, j.world()))
	j.Check(j.Clients[0].Close())
	for _, ch := range at {
		j.nextOf(ch, bootstrap.Event{Kind: bootstrap.Revoked, Proc: j.group(0)[0], Nonce: 5, Comm: id})
	}
}

// revokeAndDie checks that a revocation that one member has received reaches the others although its
// caller has died.
func (j *job) revokeAndDie() {
	j.mortal()
	ability[bootstrap.EventSource](j, 0).Begin(5)
	j.meet("begun")
	id := cid.Extended{Base: 7}
	at := []<-chan bootstrap.Event{j.listen(1), j.listen(2), j.listen(3), j.listen(4)}
	revoked := bootstrap.Event{Kind: bootstrap.Revoked, Proc: j.group(0)[0], Nonce: 5, Comm: id}
	j.Check(ability[bootstrap.Revoker](j, 0).Revoke(id, j.world()))
	j.nextOf(at[3], revoked)
	j.Check(j.Kill(0))
	for _, ch := range at[:3] {
		j.nextOf(ch, revoked)
	}
}

// revokeAndDieAtOnce checks that a process may die as soon as Revoke has returned.
func (j *job) revokeAndDieAtOnce() {
	j.mortal()
	revoker := ability[bootstrap.Revoker](j, 0)
	ability[bootstrap.EventSource](j, 0).Begin(5)
	j.meet("begun")
	id := cid.Extended{Base: 7}
	at := []<-chan bootstrap.Event{j.listen(1), j.listen(2), j.listen(3), j.listen(4)}
	j.Check(revoker.Revoke(id, j.world()))
	j.Check(j.Kill(0))
	for _, ch := range at {
		j.nextOf(ch, bootstrap.Event{Kind: bootstrap.Revoked, Proc: j.group(0)[0], Nonce: 5, Comm: id})
	}
}

// revokeMany checks that none of many revocations is lost.
func (j *job) revokeMany() {
	const n = 1000
	ability[bootstrap.EventSource](j, 0).Begin(5)
	j.meet("begun")
	received := make([]chan uint64, 2)
	for i := range received {
		ch := make(chan uint64, n+1)
		received[i] = ch
		ability[bootstrap.EventSource](j, i+1).OnEvent(func(e bootstrap.Event) {
			if e.Kind == bootstrap.Revoked {
				ch <- e.Comm.Sub
			}
		})
	}
	revoker := ability[bootstrap.Revoker](j, 0)
	for sub := range uint64(n) {
		j.Check(revoker.Revoke(cid.Extended{Base: 7, Sub: sub}, j.world()))
	}
	for i, ch := range received {
		var subs []uint64
		for len(subs) < n {
			select {
			case sub := <-ch:
				subs = append(subs, sub)
			case <-j.Context().Done():
				j.Fatalf("rank %d: %d of %d revocations have arrived", i+1, len(subs), n)
			}
		}
		slices.Sort(subs)
		if subs = slices.Compact(subs); len(subs) != n {
			j.Fatalf("rank %d: %d different revocations, want %d", i+1, len(subs), n)
		}
	}
}

// nextOf fails unless the next event of the kind is the given one.
func (j *job) nextOf(ch <-chan bootstrap.Event, want bootstrap.Event) {
	for {
		select {
		case e := <-ch:
			if e == want {
				return
			}
			if e.Kind == want.Kind {
				j.Fatalf("event %+v, want %+v", e, want)
			}
		case <-j.Context().Done():
			j.Fatalf("no event %+v", want)
		}
	}
}

// noRevocation fails if a revocation has arrived.
func (j *job) noRevocation(ch <-chan bootstrap.Event) {
	for {
		select {
		case e := <-ch:
			if e.Kind == bootstrap.Revoked {
				j.Fatalf("an extra event: %+v", e)
			}
		default:
			return
		}
	}
}
