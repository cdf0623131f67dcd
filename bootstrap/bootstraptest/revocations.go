package bootstraptest

import (
	"slices"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework/kittest"
)

func revocationCases() claimList {
	return claimList{
		kittest.New("RevocationReachesEachMemberOnce", Want{Size: 4, Timeout: longTimeout}, (*job).revokeOnce),
		kittest.New("RevocationOfClosedClientReachesAllMembers", Want{Size: 4, Timeout: longTimeout}, (*job).revokeAndClose),
		kittest.New("RevocationOfDeadProcessReachesAllMembersOrNone", Want{Size: 5, Timeout: longTimeout}, (*job).revokeAndDie),
		kittest.New("RevocationBeforeDeathReachesAllMembers", Want{Size: 5, Timeout: longTimeout}, (*job).revokeAndDieAtOnce),
		kittest.New("ThousandRevocationsReachEachMember", Want{Size: 3, Timeout: longTimeout}, (*job).revokeMany),
	}
}

// revokeOnce checks that members receive one event for each communicator, although several members revoke it,
// several times, and one member is in another incarnation. Other processes receive none.
func (j *job) revokeOnce() {
	first, second := optional[bootstrap.Revoker](j, 0), optional[bootstrap.Revoker](j, 1)
	optional[bootstrap.EventSource](j, 0).BeginIncarnation(5)
	optional[bootstrap.EventSource](j, 1).BeginIncarnation(6)
	optional[bootstrap.EventSource](j, 2).BeginIncarnation(7)
	j.fenceAll("begun")
	optional[bootstrap.EventSource](j, 2).BeginIncarnation(8)
	j.fenceAll("begun again")
	members := j.group(2, 0, 1)
	at := []<-chan bootstrap.Event{j.collectEvents(0), j.collectEvents(1), j.collectEvents(2), j.collectEvents(3)}
	id, other := cid.Extended{Base: 7, Sub: 1 << 48}, cid.Extended{Base: 7}
	j.Check(first.Revoke(id, members))
	j.Check(first.Revoke(id, members))
	revoked := bootstrap.Event{Kind: bootstrap.CommRevoked, Proc: j.group(0)[0], Nonce: 5, Comm: id}
	j.checkNextOf(at[1], revoked)
	j.checkNextOf(at[2], revoked)
	j.Check(second.Revoke(id, members))
	j.Check(second.Revoke(other, members))
	revoked = bootstrap.Event{Kind: bootstrap.CommRevoked, Proc: j.group(1)[0], Nonce: 6, Comm: other}
	j.checkNextOf(at[0], revoked)
	j.checkNextOf(at[2], revoked)
	j.fenceAll("revoked")
	for _, ch := range at {
		j.checkNoRevocation(ch)
	}
}

// revokeAndClose checks that Close does not overtake a revocation.
func (j *job) revokeAndClose() {
	optional[bootstrap.EventSource](j, 0).BeginIncarnation(5)
	j.fenceAll("begun")
	id := cid.Extended{Base: 7}
	at := []<-chan bootstrap.Event{j.collectEvents(1), j.collectEvents(2), j.collectEvents(3)}
	j.Check(optional[bootstrap.Revoker](j, 0).Revoke(id, j.world()))
	j.Check(j.Clients[0].Close())
	for _, ch := range at {
		j.checkNextOf(ch, bootstrap.Event{Kind: bootstrap.CommRevoked, Proc: j.group(0)[0], Nonce: 5, Comm: id})
	}
}

// revokeAndDie checks that a revocation that one member has received reaches the others although its
// caller has died.
func (j *job) revokeAndDie() {
	j.needKill()
	optional[bootstrap.EventSource](j, 0).BeginIncarnation(5)
	j.fenceAll("begun")
	id := cid.Extended{Base: 7}
	at := []<-chan bootstrap.Event{j.collectEvents(1), j.collectEvents(2), j.collectEvents(3), j.collectEvents(4)}
	revoked := bootstrap.Event{Kind: bootstrap.CommRevoked, Proc: j.group(0)[0], Nonce: 5, Comm: id}
	j.Check(optional[bootstrap.Revoker](j, 0).Revoke(id, j.world()))
	j.checkNextOf(at[3], revoked)
	j.Check(j.Kill(0))
	for _, ch := range at[:3] {
		j.checkNextOf(ch, revoked)
	}
}

// revokeAndDieAtOnce checks that a process may die as soon as Revoke has returned.
func (j *job) revokeAndDieAtOnce() {
	j.needKill()
	revoker := optional[bootstrap.Revoker](j, 0)
	optional[bootstrap.EventSource](j, 0).BeginIncarnation(5)
	j.fenceAll("begun")
	id := cid.Extended{Base: 7}
	at := []<-chan bootstrap.Event{j.collectEvents(1), j.collectEvents(2), j.collectEvents(3), j.collectEvents(4)}
	j.Check(revoker.Revoke(id, j.world()))
	j.Check(j.Kill(0))
	for _, ch := range at {
		j.checkNextOf(ch, bootstrap.Event{Kind: bootstrap.CommRevoked, Proc: j.group(0)[0], Nonce: 5, Comm: id})
	}
}

// revokeMany checks that none of many revocations is lost.
func (j *job) revokeMany() {
	const n = 1000
	optional[bootstrap.EventSource](j, 0).BeginIncarnation(5)
	j.fenceAll("begun")
	received := make([]chan uint64, 2)
	for i := range received {
		ch := make(chan uint64, n+1)
		received[i] = ch
		optional[bootstrap.EventSource](j, i+1).OnEvent(func(e bootstrap.Event) {
			if e.Kind == bootstrap.CommRevoked {
				ch <- e.Comm.Sub
			}
		})
	}
	revoker := optional[bootstrap.Revoker](j, 0)
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

// checkNextOf fails unless the next event of the kind is the given one.
func (j *job) checkNextOf(ch <-chan bootstrap.Event, want bootstrap.Event) {
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

// checkNoRevocation fails if a revocation has arrived.
func (j *job) checkNoRevocation(ch <-chan bootstrap.Event) {
	for {
		select {
		case e := <-ch:
			if e.Kind == bootstrap.CommRevoked {
				j.Fatalf("an extra event: %+v", e)
			}
		default:
			return
		}
	}
}
