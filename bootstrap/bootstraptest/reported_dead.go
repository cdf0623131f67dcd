package bootstraptest

import (
	"errors"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

func reportedDeadCases() claimList {
	return claimList{
		kittest.New("ReportedDeadProcessReceivesTheEvent", Want{Size: 4, Timeout: longTimeout, Needs: Deaths | Subsets, Reports: true}, (*job).liveProcessReportedDead),
	}
}

// liveProcessReportedDead checks that a live process that is reported dead receives its own
// PeerFailed, that its calls end, and that the others receive nothing more from it.
func (j *job) liveProcessReportedDead() {
	if j.ReportDead == nil {
		j.Skipf("the kit can't report a process of this implementation dead")
	}
	const victim, incarnation = 3, 77
	dead, c := j.group(victim)[0], j.Clients[victim]
	optional[bootstrap.EventSource](j, victim).BeginIncarnation(incarnation)
	optional[bootstrap.EventSource](j, 0).BeginIncarnation(5)
	j.fenceAll("begun")
	own, first, last := j.collectEvents(victim), j.collectEvents(0), j.collectEvents(2)
	waiting := j.Go(func() {
		err := c.Fence(j.Context(), j.group(victim, 0), "never")
		j.Is("the waiting fence of the dead process", err, framework.ErrProcFailed)
	})
	reason, err := j.ReportDead(victim)
	j.Check(err)
	died := bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: dead, Nonce: incarnation, Reason: reason}
	j.checkNextOf(own, died)
	waiting()
	j.checkNextOf(first, died)
	j.checkNextOf(last, died)
	j.sendFromDead(victim)
	for _, w := range waitingCalls[:2] {
		j.Is(w.name+" of the dead process", w.call(j.Context(), c, j, 0), framework.ErrProcFailed)
		j.checkMissing(w.name, w.call(j.Context(), j.Clients[0], j, victim), nil, j.group(victim))
	}
	j.Each(victim, func(r int) { j.fence(r, "live", j.ranks()[:victim]...) })
	j.checkNoEvent(first)
	j.checkNoEvent(last)
	if err := c.Close(); err != nil {
		j.Errorf("Close of the dead process: %v", err)
	}
	j.checkNoEvent(own)
}

// sendFromDead makes all calls of a dead process that others would observe.
func (j *job) sendFromDead(rank int) {
	c, to := j.Clients[rank], j.group(0)
	source := optional[bootstrap.EventSource](j, rank)
	if n, ok := framework.As[bootstrap.Noter](c); ok {
		if err := n.Note(to[0], 5, []byte("dead")); err != nil && !errors.Is(err, framework.ErrProcFailed) {
			j.Errorf("a note of the dead process: %v", err)
		}
	}
	if r, ok := framework.As[bootstrap.Revoker](c); ok {
		j.Is("a revocation of the dead process", r.Revoke(cid.Extended{Base: 9}, j.world()), framework.ErrProcFailed)
	}
	source.Disconnect(to[0], 5, "dead")
	source.ReportBroken(cid.Extended{Base: 8}, j.world(), "dead")
	source.BeginIncarnation(78)
	source.EndIncarnation()
	j.Is("a value of the dead process", c.Put(j.Context(), "dead", nil), framework.ErrProcFailed)
}
