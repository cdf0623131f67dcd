package ob1

import "github.com/ferrympi/ferry/pml/ob1/choose"

// lines are the lines of memory into which the sender copies a frame of a large message. The
// receiver advises: in byte 1 of a frameCTS the lowest two bits are for the part that comes with
// the next RTS of that kind, and the next two for what is left of this message.
type lines uint8

const (
	nearLines  lines = iota // few, which caches hold
	noLines                 // no part had better come: the message will be copied
	wideLines               // all that the path has, by turns
	pastLines               // past the caches
	linesKinds              // how many there are
)

// linesOf returns the lines for messages that go a way.
func linesOf(w choose.Way) lines {
	switch w {
	case choose.Frames:
		return nearLines
	case choose.Wide:
		return wideLines
	case choose.Streamed:
		return pastLines
	}
	return noLines
}

// advise puts into an answer how this message and the next one of its kind had better come.
func (r *request) advise(cts *control) {
	if r.counted {
		cts.b[1] = byte(linesOf(r.later) | linesOf(r.way)<<2)
	}
}

// advised takes that advice from the receiver of a send.
func (r *request) advised(b byte) {
	r.lines = lines(b >> 2 & 3)
	if r.described && r.p.proc.out != nil && r.p.proc.out.copier != nil {
		*r.p.proc.partOf(r) = advice{lines(b & 3), followed}
	}
}

// advice is what the receiver of a message has said of the next one of its kind.
type advice struct {
	lines lines // for the part beside the RTS
	fresh uint8 // how many messages that come may follow it
}

// followed is how many messages may come between two that go.
const followed = 64

// partOf returns the advice for a described message. Lock held.
func (p *proc) partOf(r *request) *advice {
	return &p.parts[r.offeredAs][r.depth][classOf(int64(len(r.buf.Bytes)))]
}
