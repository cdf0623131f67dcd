package mpi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/stderr"
	"github.com/ferrympi/ferry/internal/text"
	"github.com/ferrympi/ferry/pml"
)

// A hang report lists the operations that a process waits for. The launcher combines the reports of all processes and finds cycles. A launcher without
// this ability gets the report on standard error.

// A hangReport is the content of the report. Package launch reads it.
type hangReport struct {
	Waits []wait `json:"waits"`
	// Waits that are not listed.
	More int `json:"more,omitempty"`
	// Of all communicators.
	Queues string `json:"queues"`
	// Of all goroutines.
	Stacks string `json:"stacks,omitempty"`
}

// wait is one call that does not return.
type wait struct {
	What string `json:"what"` // "waits in Recv for rank 1, tag 7"
	// Processes of the job that must all act to end the wait.
	On []int `json:"on,omitempty"`
}

// Names that the launcher knows, too.
const (
	waitsReport  = "waits"
	reportWaits  = "report" // Argument of Dump.
	reportStacks = "stacks"
)

const (
	mostWaits   = 64        // Reported waits.
	mostStacks  = 256 << 10 // Bytes. A report has room for more, but would not be readable.
	reportGrace = time.Second
)

// Dump implements assembly.Watcher for a request of the launcher, because of a hang or a user. Standard error may block.
func (e *process) Dump(how string) {
	if how == trafficName {
		if e.isOpened.Load() {
			e.sendTraffic()
		}
		return
	}
	if !e.isOpened.Load() { // Waiting for the end of the opening could deadlock.
		go io.WriteString(stderr.Writer{}, "ferry: this process is opening its first session\n")
		return
	}
	w := e.hangReport()
	if strings.Contains(how, reportStacks) {
		stacks := make([]byte, mostStacks)
		w.Stacks = string(stacks[:runtime.Stack(stacks, true)])
	}
	if to, ok := framework.As[bootstrap.Reporter](e.Client()); ok && strings.Contains(how, reportWaits) {
		body, err := json.Marshal(w)
		if err == nil && len(body) <= bootstrap.MaxValue {
			ctx, cancel := context.WithTimeout(context.Background(), reportGrace)
			defer cancel()
			if to.Report(ctx, waitsReport, body) == nil {
				return
			}
		}
	}
	var b strings.Builder
	for _, one := range w.Waits {
		fmt.Fprintf(&b, "ferry: %s %s\n", e.identity.Proc, one.What)
	}
	b.WriteString(w.Queues)
	b.WriteString(w.Stacks)
	go io.WriteString(stderr.Writer{}, b.String())
}

// addQueues adds the group constructs and the queues of a process's own stack, or of a stream.
func (e *process) addQueues(w *hangReport, b *strings.Builder, comms map[cid.EndpointID]*Comm) {
	for _, what := range e.Constructs() {
		w.Waits = append(w.Waits, wait{What: "waits in CommFromGroup for the others to create " + what})
		fmt.Fprintf(b, "  waits for the others to create %s\n", what)
	}
	for _, m := range e.Upper() {
		x, err := e.inspect(m)
		if err != nil {
			w.Waits = append(w.Waits, wait{What: fmt.Sprintf("hangs in a transport: the queues of pml %s are unknown", m.Name)})
			fmt.Fprintf(b, "the queues of pml %s are unknown: %v\n", m.Name, err)
			continue
		}
		w.Waits = append(w.Waits, waitsOf(x, comms)...)
		writeInspection(b, x, comms)
		withheld, live, quarantined := m.CIDs().Counts()
		fmt.Fprintf(b, "  ids of pml %s: %d in use, %d quarantined until all members have closed, %d reserved for creations in progress\n", m.Name, live, quarantined, withheld)
	}
}

// hangReport returns the pending operations of this process.
func (e *process) hangReport() hangReport {
	var w hangReport
	var b strings.Builder
	fmt.Fprintf(&b, "ferry: %s: state of the communicators\n", e.identity.Proc)
	e.mu.Lock()
	comms := maps.Clone(e.openComms)
	e.mu.Unlock()
	for _, c := range comms {
		w.Waits = append(w.Waits, c.agreementWaits()...)
	}
	e.addQueues(&w, &b, comms)
	for _, st := range e.streams() {
		st.commSession.process.WhileOpen(func() {
			fmt.Fprintf(&b, "%v:\n", st)
			st.commSession.process.addQueues(&w, &b, comms)
		})
	}
	if len(e.openTeams()) > 0 {
		x := e.inspectRanks()
		w.Waits = slices.Concat(w.Waits, e.idleRanks(x, comms), waitsOf(x, comms))
		b.WriteString("goroutine ranks:\n")
		writeInspection(&b, x, comms)
	}
	if n := e.notesDropped.Load(); n > 0 {
		fmt.Fprintf(&b, "  notes dropped: %d\n", n)
	}
	if w.More = len(w.Waits) - mostWaits; w.More > 0 {
		w.Waits = w.Waits[:mostWaits]
	} else {
		w.More = 0
	}
	w.Queues = b.String()
	return w
}

// agreementWaits returns the call of Agree or Shrink that waits for notes of members, if there is one.
func (c *Comm) agreementWaits() []wait {
	a := c.agreements.Load()
	if a == nil {
		return nil
	}
	a.mu.Lock()
	ranks, call, isWaiting := a.machine.Awaited(), a.callOperation, a.stage == stageAwaited
	a.mu.Unlock()
	if !isWaiting || len(ranks) == 0 {
		return nil
	}
	w := wait{What: fmt.Sprintf("waits in %v for %s, communicator %s", call, listRanks(ranks), c.label())}
	if c.threadRank != nil {
		w.What = c.threadRank.describe() + " " + w.What
		return []wait{w}
	}
	for _, rank := range ranks {
		w.On = append(w.On, int(c.group.members.at(rank).Rank))
	}
	return []wait{w}
}

// listRanks is "rank 1", or "ranks 1, 2 and 4", and shorter for many.
func listRanks(ranks []int) string {
	last := len(ranks) - 1
	if last == 0 || last >= mostListed {
		return text.Ranks(ranks)
	}
	text := make([]string, last)
	for i, rank := range ranks[:last] {
		text[i] = fmt.Sprint(rank)
	}
	return fmt.Sprintf("ranks %s and %d", strings.Join(text, ", "), ranks[last])
}

// mostListed is the number of ranks that listRanks lists.
const mostListed = 8

// waitsOf returns the operations for which a goroutine waits, the receives first.
func waitsOf(x pml.Inspection, comms map[cid.EndpointID]*Comm) (all []wait) {
	for _, i := range x.Comms {
		c := comms[cid.EndpointID{Extended: i.ID, Endpoint: i.Endpoint}]
		for n, p := range slices.Concat(i.Posted, i.Sends) {
			if p.Wait == pml.NotAwaited {
				continue
			}
			one := wait{What: waitText(c, i, p, n >= len(i.Posted) && p.State != "receiving")}
			if c != nil && c.threadRank != nil { // A cycle of processes would not prove a deadlock.
				one.What = c.threadRank.describe() + " " + one.What
			} else if c != nil && p.Peer >= 0 && p.Peer < c.size && !strings.HasSuffix(p.State, partitionsUnready) {
				one.On = []int{int(c.group.members.at(p.Peer).Rank)}
			}
			all = append(all, one)
		}
	}
	return all
}

func waitText(c *Comm, i pml.CommInspection, p pml.Pending, send bool) string {
	text, peer := "waits in ", "rank "+peerName(c, p.Peer)
	if p.Peer == AnySource {
		peer = peerName(c, p.Peer)
	}
	tag := fmt.Sprintf("tag %d", p.Tag)
	if p.Tag == AnyTag {
		tag = "any tag"
	}
	switch {
	case p.Plane == pml.Collective && p.Wait == pml.AwaitedLater:
		text += "Wait of a collective for " + peer
	case p.Plane == pml.Collective:
		text += "a collective for " + peer
	case p.Plane == pml.Control:
		text += "the creation of a communicator for " + peer
	case send && p.Wait == pml.AwaitedInCall:
		text += "Send for " + peer + ", " + tag
	case p.Wait == pml.AwaitedInCall:
		text += "Recv for " + peer + ", " + tag
	case send:
		text += "Wait for its send to " + peer + ", " + tag
	default:
		text += "Wait for its receive from " + peer + ", " + tag
	}
	if strings.HasPrefix(p.State, partitionedState) {
		text += " (" + p.State + ")"
	}
	name := i.Name
	if c != nil {
		name = c.Name()
	}
	if name == "" {
		return text + fmt.Sprintf(", communicator %s", i.ID)
	}
	return text + fmt.Sprintf(", communicator %q", name)
}
