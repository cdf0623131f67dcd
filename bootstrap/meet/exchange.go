package meet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// An Exchange is what a Launcher may have besides its address book, found by framework.As:
// a store, and a barrier. The fences and constructs of a client with one go through it, and
// all else stays between the members. Such a construct is this: each member stores its
// part, all go through a barrier, and each fetches the parts of the others; the first
// member's holds the id. A fence is the same without payload, and a group of one process
// needs nobody. All processes of a job have the same kind of Exchange, or none.
//
// What a fence or construct then does not keep of bootstrap.Client's contract:
//
//   - One that is given up, because its context has ended or the client closes, has been
//     entered all the same: others that come may have it, and this process can't enter the
//     same one again before it is over. Close may wait for it.
//   - Whether a deadline names who is missing depends on whether Fetch finds something
//     before the barrier is over.
//   - A launcher's barrier may not end with the death of a member. The call does, once the
//     death is heard of; what it has entered ends with its deadline.
//   - What a process stores stays for as long as the job.
//   - A barrier is for a group, and for nothing else that it could be told by. So a process
//     is in one of a group at a time, and the members make those in the same order: else
//     they are ErrUnsupported. Groups may overlap, if the launcher serves several barriers
//     of a process at a time.
//   - With a barrier of all processes the same goes for the whole job, and who is not of a
//     construct's group stands by (bootstrap.Bystander).
//
// The methods may be called concurrently.
type Exchange interface {
	// Everyone reports whether barriers take all processes of the job.
	RequiresAllProcesses() bool
	// Store stores value, of up to MaxContribution bytes, under key in this process's name. A Fetch
	// that begins after a barrier in which both took part finds it. A key, of up to MaxKey
	// letters, digits and a dot, is stored once, unless the barrier fails.
	Store(ctx context.Context, key string, value []byte) error
	// Fetch returns what p has stored under key; ok is false if there is nothing, or it
	// can't be seen yet. The result is the caller's.
	Fetch(ctx context.Context, p framework.Proc, key string) (value []byte, ok bool, err error)
	// Barrier returns when all of group, two or more processes and this one among them, have
	// called it with the same group in the same order. The group is all processes, by rank,
	// if Everyone. It can't be withdrawn, and ends by itself: with ErrTimeout after limit, or
	// when the launcher does not wait for longer; with ErrProcFailed because one of the group
	// has gone, in whatever way; or otherwise.
	Barrier(group []framework.Proc, limit time.Duration) error
}

const (
	// MaxKey is the most that a key takes, in bytes.
	MaxKey = len("0123456789abcdef.3w5e11264sgsf")

	// MaxContribution is the most that a part takes, in bytes.
	MaxContribution = bootstrap.MaxPayload + 128
)

// part is what one member stores.
type contribution struct {
	_           struct{} `cbor:",toarray"`
	CallDigest  []byte   // the digest of what the member has called, and with which group and tag
	Incarnation uint64   // that the member has begun; 0: none
	ContextID   uint64   // the id of a construct: the first member's counts
	Payload     []byte
}

// stream is the barriers of one group, of which a process enters one after the other. It
// lasts as long as the process: who counts anew finds what was stored before.
type barrierStream struct {
	name      string
	busy      chan struct{} // held from a barrier's begin to its end
	completed uint64        // the number of barriers that are through; guarded by place.mu
}

// barrierStreamOf returns the stream of the barriers of a group, encoded. The caller holds place.mu.
func (p *endpoint) barrierStreamOf(group string) *barrierStream {
	sum := sha256.Sum256([]byte(group))
	name := hex.EncodeToString(sum[:8])
	s := p.barrierStreams[name]
	if s == nil {
		s = &barrierStream{name: name, busy: make(chan struct{}, 1)}
		if p.barrierStreams == nil {
			p.barrierStreams = map[string]*barrierStream{}
		}
		p.barrierStreams[name] = s
	}
	return s
}

// bystander is a client whose constructs take everyone.
type bystander struct {
	wrapped
	c *client
}

// StandBy implements bootstrap.Bystander.
func (b *bystander) StandBy(ctx context.Context, group []framework.Proc, tag string) error {
	const op = "group construct of others"
	runs := wire.MakeRuns(group)
	err := runs.Check(b.c.id.Proc.Namespace, b.c.id.Size)
	if err == nil && runs.Index(b.c.id.Proc.Rank) >= 0 {
		err = errors.New("the caller is a member")
	}
	if err != nil {
		return join.OpError(op, tag, fmt.Errorf("%w: %w", framework.ErrGroup, err))
	}
	_, err = b.c.runExchange(ctx, exchangeRound{op: op, kind: wire.Construct, group: group, runs: runs, tag: tag})
	return err
}
