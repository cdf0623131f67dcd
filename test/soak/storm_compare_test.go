package soak

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

// finding is an error that a storm has shown.
type finding struct {
	// Category for counting.
	kind string
	text string
}

// rankExit is the exit of a rank, as seen by its launcher.
type rankExit struct {
	err error
	out string
}

// crossCheck compares the reports of a storm's ranks.
type crossCheck struct {
	*storm
	// Nil for a dead rank.
	reports  []*rankReport
	findings []finding
	// Whether a rank has crashed or found a hang, which explains the errors of others.
	hasEarlyEnd bool
}

func (j *crossCheck) addFinding(kind, format string, args ...any) {
	j.findings = append(j.findings, finding{kind, fmt.Sprintf(format, args...)})
}

// compareReports returns the findings and reports of a storm's ranks.
func compareReports(s *storm, ends []rankExit) ([]finding, []*rankReport) {
	j := &crossCheck{storm: s, reports: make([]*rankReport, s.ranks)}
	for rank, e := range ends {
		j.checkExit(rank, e)
	}
	j.hasEarlyEnd = j.countHang() || len(j.findings) > 0
	for rank, st := range j.reports {
		if st != nil {
			j.checkReport(rank, st)
		}
	}
	if j.hasEarlyEnd {
		return j.findings, j.reports
	}
	// When a rank dies in the first barrier, the barrier fails in some ranks, which leave. The
	// others continue and get their end. There is nothing to compare.
	if s.fault.fromStart && slices.ContainsFunc(j.reports, func(st *rankReport) bool { return st != nil && st.OpenError != "" }) {
		return j.findings, j.reports
	}
	for rank, st := range j.reports {
		if st != nil && st.OpenError == "" {
			j.checkErrors(rank, st)
		}
	}
	for i := range s.streams {
		j.compareStream(i)
	}
	if s.kind == "shortage" {
		j.findOneSidedErrors()
	}
	return j.findings, j.reports
}

// checkExit records the exit of a rank.
func (j *crossCheck) checkExit(rank int, e rankExit) {
	st := reportIn(e.out)
	switch dies := j.kind == "kill" && j.isFaulty(rank); {
	case dies && e.err == nil && j.fault.variant != "exit 0", dies && st != nil:
		j.addFinding("fault", "rank %d was to die (%s) and did not", rank, j.fault)
	case dies:
	case st == nil && j.fault.variant == "address space" && isOutOfMemory(e.out):
	case st == nil:
		j.addFinding("crash: "+fmt.Sprint(e.err), "rank %d: %v:\n%s", rank, e.err, outputTail(e.out))
	case e.err != nil:
		j.addFinding("exit: "+fmt.Sprint(e.err), "rank %d: %v after its report:\n%s", rank, e.err, outputTail(e.out))
		j.reports[rank] = st
	default:
		j.reports[rank] = st
	}
}

// outputTail returns the end of an output, or that of the first goroutine's trace in it.
func outputTail(out string) string {
	if i := strings.Index(out, "SIG"); i >= 0 {
		out = out[i:]
		return out[:min(len(out), 3000)]
	}
	return out[max(0, len(out)-3000):]
}

// textWithoutNumbers returns the beginning of a text without its numbers, for counting.
func textWithoutNumbers(text string) string {
	i := strings.IndexFunc(text, unicode.IsDigit)
	if i < 0 {
		i = len(text)
	}
	return strings.TrimSpace(text[:i])
}

// countHang counts a storm by the first operation that hangs, because others may wait for that one.
func (j *crossCheck) countHang() bool {
	var first outcome
	var where int
	for rank, st := range j.reports {
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
		j.addFinding("hang: "+textWithoutNumbers(first.Op), "rank %d hangs first, in %s", where, first.Op)
	}
	return first.At != 0
}

// checkReport checks the report of a rank alone.
func (j *crossCheck) checkReport(rank int, st *rankReport) {
	for _, w := range st.Wrong {
		what, _, _ := strings.Cut(w, ":")
		if j.hasEarlyEnd && what != "contents" {
			continue
		}
		j.addFinding("wrong: "+what, "rank %d: %s", rank, w)
	}
	if _, class, _ := strings.Cut(st.OpenError, ": "); st.OpenError != "" && j.kind != "shortage" && !(j.fault.fromStart && class[0] == outcomeProcFailed) {
		j.addFinding("open", "rank %d: %s", rank, st.OpenError)
	}
}

// checkErrors checks the errors of a rank.
func (j *crossCheck) checkErrors(rank int, st *rankReport) {
	short := j.kind == "shortage"
	for peer, ch := range st.Peers {
		if ch.Class != "" && !short && !j.isFaulty(peer) && !j.isFaulty(rank) {
			j.addFinding("innocent pair: "+ch.Class, "rank %d got an error about %d: %s: %s", rank, peer, ch.Op, ch.Err)
		}
	}
	for _, ch := range st.Late {
		switch {
		case ch.Class == string(outcomeTooLate):
			j.addFinding("late "+ch.Op+" accepted", "rank %d: late %s with %d succeeds after its end was reported", rank, ch.Op, ch.Peer)
		case !strings.Contains(string(outcomeSent)+string(outcomeHung)+j.allowedClasses(rank, ch.Peer), ch.Class):
			j.addFinding("class of late "+ch.Op+": "+ch.Class, "rank %d: late %s with %d: %s", rank, ch.Op, ch.Peer, ch.Err)
		}
	}
	if k := st.Collectives.Class; k != "" && !short && !strings.HasPrefix(st.Collectives.Op, "barrier after") {
		want := string(outcomeBroken) // Another rank may have noticed first and notified this one.
		for peer := range j.ranks {
			want += j.allowedClasses(rank, peer)
		}
		if !strings.Contains(want+string([]byte{outcomeWithdrawn, outcomePendingAtClose}), k) {
			j.addFinding("class of a collective: "+k, "rank %d: %s: %s", rank, st.Collectives.Op, st.Collectives.Err)
		}
	}
	if short {
		return
	}
	for peer, k := range st.Farewell {
		if k != "" {
			j.addFinding("no farewell: "+k, "rank %d: farewell with %d: %s", rank, peer, st.Peers[peer].Err)
		}
	}
	if st.RestError != "" {
		j.addFinding("no communicator of the rest", "rank %d: %s", rank, st.RestError)
	}
	if st.CloseError != "" && !(j.kind == "close" && j.isFaulty(rank) && strings.Contains(st.CloseError, "session.linger")) {
		j.addFinding("close", "rank %d: %s", rank, st.CloseError)
	}
}

// allowedClasses returns the errors that a rank may get about a peer.
func (j *crossCheck) allowedClasses(rank, peer int) string {
	switch {
	case rank == peer || !j.isFaulty(rank) && !j.isFaulty(peer) && j.kind != "shortage":
		return ""
	case j.kind == "kill" && j.mayHaveClosed(peer):
		return string([]byte{outcomeProcFailed, outcomePeerClosed})
	case j.kind == "kill":
		return string(outcomeProcFailed)
	case j.kind == "close":
		return string(outcomePeerClosed)
	case j.kind == "cut" && j.fault.rank == everywhere:
		return string([]byte{outcomeTransport, outcomeProcFailed, outcomePeerClosed}) // One is cut before the other.
	case j.kind == "cut" && j.isFaulty(rank): // The others end meanwhile.
		return string([]byte{outcomeTransport, outcomePeerClosed})
	case j.kind == "cut":
		return string(outcomeProcFailed)
	}
	return string([]byte{outcomeTransport, outcomeProcFailed, outcomePeerClosed}) // In a shortage, some ranks die and some leave.
}

// compareStream compares the outcomes at both ends of a stream.
func (j *crossCheck) compareStream(at int) {
	s := &j.streams[at]
	from, to := j.reports[s.from], j.reports[s.to]
	if from != nil && from.OpenError != "" {
		from = nil
	}
	if to != nil && to.OpenError != "" {
		to = nil
	}
	whole := j.kind != "shortage" && !j.isFaulty(s.from) && !j.isFaulty(s.to)
	for i, m := range s.messages {
		name := fmt.Sprintf("message %d of stream %d (%d to %d, communicator %d, tag %d, %d bytes, %s, %s)",
			i, at, s.from, s.to, s.comm, m.tag, m.size, sendNames[m.send], recvNames[m.recv])
		if from != nil {
			k := from.Sent[at][i]
			good := string([]byte{outcomeSent, outcomeNotReceived, outcomeHung}) + j.allowedClasses(s.from, s.to)
			if j.kind == "close" && j.isFaulty(s.from) {
				good += string([]byte{outcomeWithdrawn, outcomePendingAtClose})
			}
			if !whole || len(from.Hangs) > 0 {
				good += string(outcomeUntried)
			}
			switch {
			case k == outcomeTooLate:
				j.addFinding("late "+sendNames[m.send]+" accepted", "%s was sent after the end of its receiver had been reported", name)
			case !strings.ContainsRune(good, rune(k)):
				j.addFinding(fmt.Sprintf("class of a send: %c", k), "%s: the sender says %c", name, k)
			}
		}
		if to != nil {
			k := to.Received[at][i]
			good := string([]byte{outcomeReceived, outcomeNotReceived, outcomeHung}) + j.allowedClasses(s.to, s.from)
			if j.kind == "close" && j.isFaulty(s.to) {
				good += string([]byte{outcomeWithdrawn, outcomePendingAtClose, outcomeUntried})
			}
			if len(to.Hangs) > 0 || s.isAnySource && !whole {
				good += string(outcomeUntried)
			}
			if !whole {
				good += string(outcomeMissed)
			}
			if !strings.ContainsRune(good, rune(k)) {
				j.addFinding(fmt.Sprintf("class of a receive: %c", k), "%s: the receiver says %c", name, k)
			}
		}
		if from != nil && to != nil {
			j.compareMessage(name, &m, from, to, from.Sent[at][i], to.Received[at][i])
		}
	}
}

// compareMessage compares the outcomes of one message.
func (j *crossCheck) compareMessage(name string, m *envelope, from, to *rankReport, sent, got byte) {
	ends := fmt.Sprintf("%s: %c at its sender, %c at its receiver", name, sent, got)
	if got == outcomeReceived {
		if sent == outcomeUntried || sent == outcomeWithdrawn {
			j.addFinding("received, not sent", "%s", ends)
		}
		return
	}
	if got == outcomeNotReceived || got == outcomeHung || m.receivedAfter == never {
		return
	}
	promised := sent == outcomeSent || sent == outcomeTooLate
	switch {
	case j.kind == "close" && j.isFaulty(to.Rank): // The receiver closed before it wanted the message.
		return
	case j.kind == "close" && j.isFaulty(from.Rank):
		// A successful close has delivered all messages in flight.
		promised = promised && (m.send != bsend || from.CloseError == "") || sent == outcomePendingAtClose && from.CloseError == ""
	case j.kind != "close" && got != outcomeUntried && from.Peers[to.Rank].Class != "":
		return // The path was lost with its frames, and both ends have an error.
	}
	if promised && len(to.Hangs) == 0 {
		j.addFinding("lost", "%s", ends)
	}
}

// findOneSidedErrors finds pairs with an error at one end only.
func (j *crossCheck) findOneSidedErrors() {
	for a, x := range j.reports {
		for b, y := range j.reports {
			if x == nil || y == nil || x.OpenError != "" || y.OpenError != "" || a == b || len(x.Hangs)+len(y.Hangs) > 0 {
				continue
			}
			if ch := x.Peers[b]; ch.Class != "" && y.Peers[a].Class == "" {
				j.addFinding("one end", "rank %d got an error about %d (%s: %s), which got none about it", a, b, ch.Op, ch.Err)
			}
		}
	}
}

// latestError returns the time between the fault and the last error, and the error.
func latestError(stories []*rankReport, at int64) (worst time.Duration, what string) {
	if at == 0 {
		return 0, ""
	}
	for rank, st := range stories {
		if st == nil {
			continue
		}
		for _, ch := range append(slices.Clone(st.Peers), st.Collectives) {
			if after := time.Duration(ch.At - at); ch.At != 0 && after > worst {
				worst, what = after, fmt.Sprintf("rank %d: %s: %s", rank, ch.Op, ch.Err)
			}
		}
	}
	return worst, what
}
