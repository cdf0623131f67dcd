package bootstraptest

import (
	"errors"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// notes checks that notes keep their order and their bytes, that another incarnation receives
// none, and that the length is limited.
func (j *job) notes() {
	from, to := ability[bootstrap.Noter](j, 0), ability[bootstrap.Noter](j, 1)
	ability[bootstrap.EventSource](j, 0).Begin(5)
	ability[bootstrap.EventSource](j, 1).Begin(6)
	j.meet("begun")
	sender, receiver := j.group(0)[0], j.group(1)[0]
	events, replies := j.listen(1), j.listen(0)
	long := strings.Repeat("\x00\xff", bootstrap.MaxPayload/2)
	j.Check(from.Note(receiver, 99, []byte("for another incarnation")))
	for _, body := range []string{"first", "", long, "last"} {
		j.Check(from.Note(receiver, 6, []byte(body)))
	}
	for _, body := range []string{"first", "", long, "last"} {
		j.next(events, bootstrap.Event{Kind: bootstrap.Noted, Proc: sender, Nonce: 5, Body: body})
	}
	if err := from.Note(receiver, 6, []byte(long+"x")); !errors.Is(err, framework.ErrUnsupported) {
		j.Errorf("a note over the limit: %v, want ErrUnsupported", err)
	}
	j.Check(to.Note(sender, 5, []byte("reply")))
	j.next(replies, bootstrap.Event{Kind: bootstrap.Noted, Proc: receiver, Nonce: 6, Body: "reply"})
	j.noEvent(events)
}
