package soak

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

// finding is something that a storm has shown to be wrong.
type finding struct {
	kind string // for counting
	text string
}

// ending is how a rank ended, for its launcher.
type ending struct {
	err error
	out string
}

// judge compares the stories of a storm's ranks.
type judge struct {
	*storm
	stories  []*story // nil: the rank died
	findings []finding
	gone     bool // a rank has crashed, or found a hang and ended: what others say follows from that
}

func (j *judge) find(kind, format string, args ...any) {
	j.findings = append(j.findings, finding{kind, fmt.Sprintf(format, args...)})
}

// compare returns what is wrong with the ends of a storm's ranks.
func compare(s *storm, ends []ending) ([]finding, []*story) {
	j := &judge{storm: s, stories: make([]*story, s.ranks)}
	for rank, e := range ends {
		j.end(rank, e)
	}
	j.gone = j.hangs() || len(j.findings) > 0
	for rank, st := range j.stories {
		if st != nil {
			j.own(rank, st)
		}
	}
	if j.gone {
		return j.findings, j.stories
	}
	// When a rank dies in the first barrier, the barrier fails in some ranks, which leave. The
	// others go on, and are told that those have left: there is nothing to compare.
	if s.fault.early && slices.ContainsFunc(j.stories, func(st *story) bool { return st != nil && st.Opened != "" }) {
		return j.findings, j.stories
	}
	for rank, st := range j.stories {
		if st != nil && st.Opened == "" {
			j.errors(rank, st)
		}
	}
	for i := range s.streams {
		j.stream(i)
	}
	if s.kind == "shortage" {
		j.bothEnds()
	}
	return j.findings, j.stories
}

// end takes how a rank ended.
func (j *judge) end(rank int, e ending) {
	st := storyOf(e.out)
	switch dies := j.kind == "kill" && j.faulty(rank); {
	case dies && e.err == nil && j.fault.how != "exit 0", dies && st != nil:
		j.find("fault", "rank %d was to die (%s) and did not", rank, j.fault)
	case dies:
	case st == nil && j.fault.how == "address space" && starved(e.out):
	case st == nil:
		j.find("crash: "+fmt.Sprint(e.err), "rank %d: %v:\n%s", rank, e.err, tail(e.out))
	case e.err != nil:
		j.find("exit: "+fmt.Sprint(e.err), "rank %d: %v after its story:\n%s", rank, e.err, tail(e.out))
		j.stories[rank] = st
	default:
		j.stories[rank] = st
	}
}

// tail is the end of an output, or of the first goroutine's trace in it.
func tail(out string) string {
	if i := strings.Index(out, "SIG"); i >= 0 {
		out = out[i:]
		return out[:min(len(out), 3000)]
	}
	return out[max(0, len(out)-3000):]
}

// words is the beginning of a text without its numbers, for counting.
func words(text string) string {
	i := strings.IndexFunc(text, unicode.IsDigit)
	if i < 0 {
		i = len(text)
	}
	return strings.TrimSpace(text[:i])
}

// hangs counts a storm by the first operation that hangs: others may wait for that one.
func (j *judge) hangs() bool {
	var first chapter
	var where int
	for rank, st := range j.stories {
		if st == nil {
			continue
		}
		for _, h := range st.Hangs {
			if first.At == 0 || h.At < first.At {
				first, where = h, rank
			}
		}
	}
	if first.At != 0 {
		j.find("hang: "+words(first.Op), "rank %d hangs first, in %s", where, first.Op)
	}
	return first.At != 0
}

// own checks what a rank says of itself.
func (j *judge) own(rank int, st *story) {
	for _, w := range st.Wrong {
		what, _, _ := strings.Cut(w, ":")
		if j.gone && what != "contents" {
			continue
		}
		j.find("wrong: "+what, "rank %d: %s", rank, w)
	}
	if _, class, _ := strings.Cut(st.Opened, ": "); st.Opened != "" && j.kind != "shortage" && !(j.fault.early && class[0] == procFailed) {
		j.find("open", "rank %d: %s", rank, st.Opened)
	}
}

// errors checks which errors a rank was told.
func (j *judge) errors(rank int, st *story) {
	short := j.kind == "shortage"
	for peer, ch := range st.Peers {
		if ch.Class != "" && !short && !j.faulty(peer) && !j.faulty(rank) {
			j.find("innocent pair: "+ch.Class, "rank %d was told an error about %d: %s: %s", rank, peer, ch.Op, ch.Err)
		}
	}
	for _, ch := range st.Late {
		switch {
		case ch.Class == string(tooLate):
			j.find("late "+ch.Op+" accepted", "rank %d: late %s with %d succeeds after its end was told", rank, ch.Op, ch.Peer)
		case !strings.Contains(string(accepted)+string(hung)+j.classes(rank, ch.Peer), ch.Class):
			j.find("class of late "+ch.Op+": "+ch.Class, "rank %d: late %s with %d: %s", rank, ch.Op, ch.Peer, ch.Err)
		}
	}
	if k := st.Coll.Class; k != "" && !short && !strings.HasPrefix(st.Coll.Op, "barrier after") {
		want := string(broken) // somebody else may have heard first, and say so
		for peer := range j.ranks {
			want += j.classes(rank, peer)
		}
		if !strings.Contains(want+string([]byte{withdrawn, open}), k) {
			j.find("class of a collective: "+k, "rank %d: %s: %s", rank, st.Coll.Op, st.Coll.Err)
		}
	}
	if short {
		return
	}
	for peer, k := range st.Bye {
		if k != "" {
			j.find("no farewell: "+k, "rank %d: farewell with %d: %s", rank, peer, st.Peers[peer].Err)
		}
	}
	if st.Rest != "" {
		j.find("no communicator of the rest", "rank %d: %s", rank, st.Rest)
	}
	if st.Closed != "" && !(j.kind == "close" && j.faulty(rank) && strings.Contains(st.Closed, "session.linger")) {
		j.find("close", "rank %d: %s", rank, st.Closed)
	}
}

// classes are the errors that a rank may be told about a peer.
func (j *judge) classes(rank, peer int) string {
	switch {
	case rank == peer || !j.faulty(rank) && !j.faulty(peer) && j.kind != "shortage":
		return ""
	case j.kind == "kill" && j.orderly(peer):
		return string([]byte{procFailed, peerClosed})
	case j.kind == "kill":
		return string(procFailed)
	case j.kind == "close":
		return string(peerClosed)
	case j.kind == "cut" && j.fault.rank == everywhere:
		return string([]byte{transport, procFailed, peerClosed}) // one is cut before the other
	case j.kind == "cut" && j.faulty(rank): // the others end meanwhile
		return string([]byte{transport, peerClosed})
	case j.kind == "cut":
		return string(procFailed)
	}
	return string([]byte{transport, procFailed, peerClosed}) // shortage: some died of it, and some left
}

// stream compares what both ends of a stream say of each message.
func (j *judge) stream(at int) {
	s := &j.streams[at]
	from, to := j.stories[s.from], j.stories[s.to]
	if from != nil && from.Opened != "" {
		from = nil
	}
	if to != nil && to.Opened != "" {
		to = nil
	}
	whole := j.kind != "shortage" && !j.faulty(s.from) && !j.faulty(s.to)
	for i, m := range s.messages {
		name := fmt.Sprintf("message %d of stream %d (%d to %d, communicator %d, tag %d, %d bytes, %s, %s)",
			i, at, s.from, s.to, s.comm, m.tag, m.size, sendNames[m.send], recvNames[m.recv])
		if from != nil {
			k := from.Sent[at][i]
			good := string([]byte{accepted, left, hung}) + j.classes(s.from, s.to)
			if j.kind == "close" && j.faulty(s.from) {
				good += string([]byte{withdrawn, open})
			}
			if !whole || len(from.Hangs) > 0 {
				good += string(untried)
			}
			switch {
			case k == tooLate:
				j.find("late "+sendNames[m.send]+" accepted", "%s was sent after the end of its receiver had been told", name)
			case !strings.ContainsRune(good, rune(k)):
				j.find(fmt.Sprintf("class of a send: %c", k), "%s: the sender says %c", name, k)
			}
		}
		if to != nil {
			k := to.Got[at][i]
			good := string([]byte{received, left, hung}) + j.classes(s.to, s.from)
			if j.kind == "close" && j.faulty(s.to) {
				good += string([]byte{withdrawn, open, untried})
			}
			if len(to.Hangs) > 0 || s.wild && !whole {
				good += string(untried)
			}
			if !whole {
				good += string(missed)
			}
			if !strings.ContainsRune(good, rune(k)) {
				j.find(fmt.Sprintf("class of a receive: %c", k), "%s: the receiver says %c", name, k)
			}
		}
		if from != nil && to != nil {
			j.message(name, &m, from, to, from.Sent[at][i], to.Got[at][i])
		}
	}
}

// message compares the ends of one message.
func (j *judge) message(name string, m *envelope, from, to *story, sent, got byte) {
	ends := fmt.Sprintf("%s: %c at its sender, %c at its receiver", name, sent, got)
	if got == received {
		if sent == untried || sent == withdrawn {
			j.find("received, not sent", "%s", ends)
		}
		return
	}
	if got == left || got == hung || m.hold == never {
		return
	}
	promised := sent == accepted || sent == tooLate
	switch {
	case j.kind == "close" && j.faulty(to.Rank): // it did not want it
		return
	case j.kind == "close" && j.faulty(from.Rank):
		// A close that returned nil has brought everything on its way.
		promised = promised && (m.send != bsend || from.Closed == "") || sent == open && from.Closed == ""
	case j.kind != "close" && got != untried && from.Peers[to.Rank].Class != "":
		return // the path was lost, with what was on it, and both know
	}
	if promised && len(to.Hangs) == 0 {
		j.find("lost", "%s", ends)
	}
}

// bothEnds looks for a pair of which one end was told an error, and the other was not.
func (j *judge) bothEnds() {
	for a, x := range j.stories {
		for b, y := range j.stories {
			if x == nil || y == nil || x.Opened != "" || y.Opened != "" || a == b || len(x.Hangs)+len(y.Hangs) > 0 {
				continue
			}
			if ch := x.Peers[b]; ch.Class != "" && y.Peers[a].Class == "" {
				j.find("one end", "rank %d was told an error about %d (%s: %s), and that none about it", a, b, ch.Op, ch.Err)
			}
		}
	}
}

// latest returns how long after the fault the last rank heard of it, and who was told
// what.
func latest(stories []*story, at int64) (worst time.Duration, what string) {
	if at == 0 {
		return 0, ""
	}
	for rank, st := range stories {
		if st == nil {
			continue
		}
		for _, ch := range append(slices.Clone(st.Peers), st.Coll) {
			if after := time.Duration(ch.At - at); ch.At != 0 && after > worst {
				worst, what = after, fmt.Sprintf("rank %d: %s: %s", rank, ch.Op, ch.Err)
			}
		}
	}
	return worst, what
}
