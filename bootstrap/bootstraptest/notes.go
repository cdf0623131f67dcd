package bootstraptest

import (
	"errors"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// noteReachesIncarnation checks that notes keep their order and their bytes, that another
// incarnation receives none, and that the length is limited.
func (j *job) noteReachesIncarnation() {
	from, to := optional[bootstrap.Noter](j, 0), optional[bootstrap.Noter](j, 1)
	optional[bootstrap.EventSource](j, 0).BeginIncarnation(5)
	optional[bootstrap.EventSource](j, 1).BeginIncarnation(6)
	j.fenceAll("begun")
	sender, receiver := j.group(0)[0], j.group(1)[0]
	events, replies := j.collectEvents(1), j.collectEvents(0)
	long := strings.Repeat("\x00\xff", bootstrap.MaxPayload/2)
	j.Check(from.Note(receiver, 99, []byte("for another incarnation")))
	for _, body := range []string{"first", "", long, "last"} {
		j.Check(from.Note(receiver, 6, []byte(body)))
	}
	for _, body := range []string{"first", "", long, "last"} {
		j.checkNext(events, bootstrap.Event{Kind: bootstrap.NoteReceived, Proc: sender, Nonce: 5, Body: body})
	}
	if err := from.Note(receiver, 6, []byte(long+"x")); !errors.Is(err, framework.ErrUnsupported) {
		j.Errorf("a note over the limit: %v, want ErrUnsupported", err)
	}
	j.Check(to.Note(sender, 5, []byte("reply")))
	j.checkNext(replies, bootstrap.Event{Kind: bootstrap.NoteReceived, Proc: receiver, Nonce: 6, Body: "reply"})
	j.checkNoEvent(events)
}
