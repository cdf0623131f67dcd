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

// How an operation of a storm ended, in a rank's story.
const (
	accepted   = 'a' // a send is complete, with no error
	received   = 'r' // a receive likewise, and the contents are right
	untried    = '.'
	left       = 'n' // a message that is not received on purpose, and its send
	withdrawn  = 'x' // canceled by the rank itself, because it closes
	missed     = 'm' // another message of the stream came in its place, or for any source a later one
	open       = 'q' // a send that the rank's own close left pending
	tooLate    = 'L' // a send that was accepted after the end of the peer had been told
	procFailed = 'P'
	peerClosed = 'C'
	transport  = 'T' // any other transport error
	broken     = 'B' // a collective after one that has failed, or a communicator that wasn't made then
	hung       = 'H'
	strange    = 'X' // an error that is none of these
)

// story is what a rank tells at its end of all that it has done.
type story struct {
	Rank   int
	Opened string // why not, if it could not
	Fault  int64  // when it came, if it was here
	Sent   map[int]string
	Got    map[int]string
	Coll   chapter
	Peers  []chapter // the first error with each
	Late   []chapter // calls that concern the faulty rank, after everything else
	Bye    map[int]string
	Rest   string // what is wrong with a new communicator of the others
	Closed string // what is wrong with its own close
	Hangs  []chapter
	Wrong  []string
	Took   time.Duration
}

// chapter is how something ended.
type chapter struct {
	Done  int    `json:",omitempty"`
	Op    string `json:",omitempty"`
	Class string `json:",omitempty"`
	Err   string `json:",omitempty"`
	At    int64  `json:",omitempty"`
	Peer  int    `json:",omitempty"`
}

// teller collects a story. Its methods may be called concurrently.
type teller struct {
	mu sync.Mutex
	story
	storm *storm
	stop  context.CancelCauseFunc // ends all calls
}

// afterHang is how long a rank goes on that has found a hang: others may wait for what
// hangs, and would each be waited for.
const afterHang = 200 * time.Millisecond

// hangs notes an operation that has not ended in time.
func (t *teller) hangs(what string, since int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Hangs = append(t.Hangs, chapter{Op: what, At: since})
	if len(t.Hangs) == 1 {
		time.AfterFunc(afterHang, func() { t.stop(errHung) })
	}
}

func (t *teller) wrong(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Wrong = append(t.Wrong, fmt.Sprintf(format, args...))
}

// Why contexts of a storm end.
var (
	errHung    = errors.New("it hangs")
	errClosing = errors.New("this rank closes")
)

// classify returns the class of an error, 0 for none. Errors that name ranks must name
// the faulty one. members are the communicator's ranks in the world; nil: all.
func (t *teller) classify(err error, what string, members []int) byte {
	if err == nil {
		return 0
	}
	if p, ok := errors.AsType[*mpi.ProcFailedError](err); ok {
		for _, rank := range p.Ranks {
			if members != nil {
				rank = members[rank]
			}
			if t.storm.kind != "shortage" && !t.storm.faulty(rank) {
				t.wrong("innocent: %s: rank %d is named: %v", what, rank, err)
			}
		}
	}
	var pending *mpi.PendingError
	switch {
	case errors.Is(err, errHung):
		return hung
	case errors.Is(err, errClosing):
		if errors.As(err, &pending) {
			return open
		}
		return withdrawn
	case errors.Is(err, mpi.ErrBroken), errors.Is(err, framework.ErrNotMember): // in one that it had not made when it heard
		return broken
	case errors.Is(err, mpi.ErrProcFailed), errors.Is(err, mpi.ErrProcFailedPending):
		return procFailed
	case errors.Is(err, framework.ErrPeerClosed):
		return peerClosed
	case errors.Is(err, mpi.ErrTransport):
		return transport
	}
	return strange
}

// ends notes an error of an operation with a peer, and returns its class.
func (t *teller) ends(peer int, what string, err error) byte {
	k := t.classify(err, what, nil)
	switch k {
	case 0, withdrawn, open, hung:
		return k
	case strange:
		t.wrong("unnamed: %s: %v", what, err)
	}
	if errors.Is(err, framework.ErrCommClosed) { // The peer has closed one communicator, and exists.
		return k
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if peer >= 0 && t.Peers[peer].Class == "" {
		t.Peers[peer] = chapter{Op: what, Class: string(rune(k)), Err: err.Error(), At: now()}
	}
	return k
}

// told reports whether an operation with the peer has ended with an error.
func (t *teller) told(peer int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.Peers[peer].Class != ""
}

// ledger is the outcomes of a stream's operations at one end.
type ledger struct {
	mu   sync.Mutex
	line []byte
}

func newLedger(n int) *ledger { return &ledger{line: []byte(strings.Repeat(string(untried), n))} }

func (l *ledger) set(i int, k byte) {
	l.mu.Lock()
	l.line[i] = k
	l.mu.Unlock()
}

func (l *ledger) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.line)
}

// patience is how long an operation of a storm may take before it counts as hung.
func patience(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, errHung)
}
