package tcp

import "testing"

// The last process to close has no links left.
func TestDescribe_PeerHasClosed_HasItsLastLinks(t *testing.T) {
	j, a, b := twoNetworks(t, nil)
	j.met()
	b.connect(a)
	b.cut()
	j.until("the link is there again", func() bool {
		return b.peers.byIncarnation[a.incarnation].reconnectCount == 1 && a.peers.byIncarnation[b.incarnation].reconnectCount == 1 && a.peers.byIncarnation[b.incarnation].path.isIdle()
	})
	was := b.Describe(a.card())
	a.end()
	j.until("the bye", func() bool { return len(b.peers.byIncarnation) == 0 })
	d := b.Describe(a.card())
	if d.Device != was.Device || d.Reconnects != 1 || len(d.Notes) == 0 || len(d.Unused) != len(was.Unused) {
		t.Errorf("%+v, and before the bye %+v", d, was)
	}
	if b.Forget(a.incarnation); b.Describe(a.card()).Reconnects > 0 {
		t.Error("it is kept for ever")
	}
}
