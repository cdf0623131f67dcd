package soak

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

// Outcomes of a storm's operations in the report of a rank.
const (
	outcomeSent           = 'a' // A successful send.
	outcomeReceived       = 'r' // A successful receive with the right contents.
	outcomeUntried        = '.'
	outcomeNotReceived    = 'n' // A message that is deliberately not received, and its send.
	outcomeWithdrawn      = 'x' // Canceled by the rank itself, because it closes.
	outcomeMissed         = 'm' // Another message of the stream arrived instead, or a later one for any source.
	outcomePendingAtClose = 'q' // A send that was pending at the rank's own close.
	outcomeTooLate        = 'L' // A send that succeeded after the end of the peer had been reported.
	outcomeProcFailed     = 'P'
	outcomePeerClosed     = 'C'
	outcomeTransport      = 'T' // Any other transport error.
	outcomeBroken         = 'B' // A collective after a failed one, or a communicator that was not created then.
	outcomeHung           = 'H'
	outcomeOther          = 'X' // Any other error.
)

// rankReport is the report of a rank at its end about all its operations.
type rankReport struct {
	Rank int
	// Reason of a failed start.
	OpenError string
	// Time of the fault, if this rank had it.
	FaultAt     int64
	Sent        map[int]string
	Received    map[int]string
	Collectives outcome
	// First error with each peer.
	Peers []outcome
	// Last calls with the faulty rank.
	Late     []outcome
	Farewell map[int]string
	// Error of a new communicator of the others.
	RestError string
	// Error of its own close.
	CloseError string
	Hangs      []outcome
	Wrong      []string
	Elapsed    time.Duration
}

// outcome is the outcome of an operation.
type outcome struct {
	Completed int    `json:",omitempty"`
	Op        string `json:",omitempty"`
	Class     string `json:",omitempty"`
	Err       string `json:",omitempty"`
	At        int64  `json:",omitempty"`
	Peer      int    `json:",omitempty"`
}

// recorder records a report. Its methods may be called concurrently.
type recorder struct {
	mu sync.Mutex
	rankReport
	storm *storm
	// Ends all calls.
	cancelAll context.CancelCauseFunc
}

// hangGrace is the time for which a rank continues after it found a hang. Others may wait for the
// same operation, and each would take its timeout.
const hangGrace = 200 * time.Millisecond

// recordHang records an operation that has not ended in time.
func (t *recorder) recordHang(what string, since int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Hangs = append(t.Hangs, outcome{Op: what, At: since})
	if len(t.Hangs) == 1 {
		time.AfterFunc(hangGrace, func() { t.cancelAll(errHung) })
	}
}

func (t *recorder) recordWrong(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Wrong = append(t.Wrong, fmt.Sprintf(format, args...))
}

// Causes of the end of contexts.
var (
	errHung    = errors.New("timeout: the operation hangs")
	errClosing = errors.New("the rank closes")
)

// classify returns the class of an error, 0 for none. Errors that name ranks must name the faulty
// one. members are the communicator's ranks in the world, nil for all.
func (t *recorder) classify(err error, what string, members []int) byte {
	if err == nil {
		return 0
	}
	if p, ok := errors.AsType[*mpi.ProcFailedError](err); ok {
		for _, rank := range p.Ranks {
			if members != nil {
				rank = members[rank]
			}
			if t.storm.kind != "shortage" && !t.storm.isFaulty(rank) {
				t.recordWrong("innocent: %s: rank %d is named: %v", what, rank, err)
			}
		}
	}
	var pending *mpi.PendingError
	switch {
	case errors.Is(err, errHung):
		return outcomeHung
	case errors.Is(err, errClosing):
		if errors.As(err, &pending) {
			return outcomePendingAtClose
		}
		return outcomeWithdrawn
	case errors.Is(err, mpi.ErrBroken), errors.Is(err, framework.ErrNotMember): // On a communicator that this rank had not created at the notification.
		return outcomeBroken
	case errors.Is(err, mpi.ErrProcFailed), errors.Is(err, mpi.ErrProcFailedPending):
		return outcomeProcFailed
	case errors.Is(err, framework.ErrPeerClosed):
		return outcomePeerClosed
	case errors.Is(err, mpi.ErrTransport):
		return outcomeTransport
	}
	return outcomeOther
}

// recordError records an error of an operation with a peer, and returns its class.
func (t *recorder) recordError(peer int, what string, err error) byte {
	k := t.classify(err, what, nil)
	switch k {
	case 0, outcomeWithdrawn, outcomePendingAtClose, outcomeHung:
		return k
	case outcomeOther:
		t.recordWrong("unnamed: %s: %v", what, err)
	}
	if errors.Is(err, framework.ErrCommClosed) { // The peer has closed one communicator, and exists.
		return k
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if peer >= 0 && t.Peers[peer].Class == "" {
		t.Peers[peer] = outcome{Op: what, Class: string(rune(k)), Err: err.Error(), At: monotonicNow()}
	}
	return k
}

// hasError reports whether an operation with the peer has ended with an error.
func (t *recorder) hasError(peer int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.Peers[peer].Class != ""
}

// streamOutcomes has the outcomes of a stream's operations at one end.
type streamOutcomes struct {
	mu       sync.Mutex
	outcomes []byte
}

func newStreamOutcomes(n int) *streamOutcomes {
	return &streamOutcomes{outcomes: []byte(strings.Repeat(string(outcomeUntried), n))}
}

func (l *streamOutcomes) set(i int, k byte) {
	l.mu.Lock()
	l.outcomes[i] = k
	l.mu.Unlock()
}

func (l *streamOutcomes) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.outcomes)
}

// withPatience returns the context of an operation, with the timeout after which it counts as hung.
func withPatience(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, errHung)
}
