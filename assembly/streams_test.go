package assembly

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// goneWatcher records the processes with which all exchange has ended.
type goneWatcher struct {
	watcher
	gone []framework.Life
}

func (w *goneWatcher) Gone(peer framework.Life, _ error) { w.gone = append(w.gone, peer) }

// givesUp is a client that records the disconnects of this process.
type givesUp struct {
	*eventful
	sent []bootstrap.Event
}

func (c *givesUp) GiveUp(p framework.Proc, nonce uint64, reason string) {
	c.sent = append(c.sent, bootstrap.Event{Kind: bootstrap.GivenUp, Proc: p, Nonce: nonce, Reason: reason})
}

func TestStream_Disconnect_EndsExchangeOfTwoStacks(t *testing.T) {
	ofProcess := new(goneWatcher)
	a, events := newHanging().open(t, ofProcess)
	defer a.Close()
	var streams [2]*Assembly
	var watchers [2]goneWatcher
	var guests [2]guest
	for i := range streams {
		s, err := a.OpenStream(t.Context(), &watchers[i])
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		streams[i], guests[i] = s, joins(t, s, 7)
	}
	inProcess := joins(t, a, 7)
	recorder := &givesUp{eventful: events}
	streams[0].client = recorder
	streams[0].tellGivenUp(guests[0].life, errors.New("no path"))
	if len(recorder.sent) != 1 || recorder.sent[0].Proc != guests[0].proc || recorder.sent[0].Nonce != 7 {
		t.Fatalf("disconnects: %+v", recorder.sent)
	}
	to, from, ok := streamDisconnect(&recorder.sent[0])
	if !ok || to != 7 || from != streams[0].env.Self.Nonce || recorder.sent[0].Reason != "no path" {
		t.Fatalf("disconnect of %x to %x, %t, %q", from, to, ok, recorder.sent[0].Reason)
	}
	end := func(reason string) {
		t.Helper()
		events.event(bootstrap.Event{Kind: bootstrap.GivenUp, Proc: guests[0].proc, Nonce: 7, Reason: reason})
		for _, x := range append(streams[:], a) {
			x.await()
		}
	}
	end(fmt.Sprintf(streamReason, 7, streams[0].env.Self.Nonce) + "no path")
	if !slices.Equal(watchers[0].gone, []framework.Life{guests[0].life}) || len(watchers[1].gone)+len(ofProcess.gone) > 0 {
		t.Errorf("disconnected are %v, in another stream %v, in the process %v", watchers[0].gone, watchers[1].gone, ofProcess.gone)
	}
	end("no path")
	if !slices.Equal(ofProcess.gone, []framework.Life{inProcess.life}) || len(watchers[0].gone) > 1 || len(watchers[1].gone) > 0 {
		t.Errorf("disconnected are %v, in the streams %v and %v", ofProcess.gone, watchers[0].gone, watchers[1].gone)
	}
}
