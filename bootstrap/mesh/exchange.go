package mesh

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

// An Exchange is an optional interface of a Launcher, found by framework.As, that has a store and a
// barrier. Fences and constructs of a client with an Exchange use it, and everything else runs
// between the members. Each member stores its contribution, all members enter a barrier, and each
// fetches the contributions of the others. The first member's has the context id. A fence has no
// payload, and a group of one process sends nothing. All processes of a job have the same kind of
// Exchange, or none.
//
// Such fences and constructs deviate from the contract of bootstrap.Client:
//
//   - One that ends because of its context or of Close still counts as entered. Other members may
//     complete it, and this process cannot enter the same one again before it ends. Close may
//     wait for it.
//   - An error at the deadline names the missing members only if Fetch works before the barrier
//     ends.
//   - A launcher's barrier may not end with the death of a member. The call ends when the death
//     is reported, and the barrier ends at its deadline.
//   - Stored values stay until the end of the job.
//   - A barrier is identified by its group only. So a process is in one barrier of a group at a
//     time, and all members enter these in the same order, or the result is ErrUnsupported.
//     Groups may overlap if the launcher serves several barriers of a process at a time.
//   - If barriers require all processes, this applies to the whole job, and processes outside the
//     group of a construct call StandBy (bootstrap.Bystander).
//
// The methods may be called concurrently.
type Exchange interface {
	// RequiresAllProcesses reports whether every barrier includes all processes of the job.
	RequiresAllProcesses() bool
	// Store stores value, of up to MaxContribution bytes, under key for this process. Fetch finds
	// it after a barrier that both processes were in. A key has up to MaxKey letters, digits and
	// dots. It is stored once, unless the barrier fails.
	Store(ctx context.Context, key string, value []byte) error
	// Fetch returns the value of p under key. ok is false if there is none, or it is not visible
	// yet. The caller owns the result.
	Fetch(ctx context.Context, p framework.Proc, key string) (value []byte, ok bool, err error)
	// Barrier returns when all members of group have called it with the same group in the same
	// order. The group has two or more processes, and includes the caller. With
	// RequiresAllProcesses it is all processes by rank. Barrier cannot be withdrawn. It returns
	// ErrTimeout after limit or after a shorter limit of the launcher, and ErrProcFailed if a
	// member has ended.
	Barrier(group []framework.Proc, limit time.Duration) error
}

const (
	// MaxKey is the largest length of a key, in bytes.
	MaxKey = len("0123456789abcdef.3w5e11264sgsf")

	// MaxContribution is the largest length of a contribution, in bytes.
	MaxContribution = bootstrap.MaxPayload + 128
)

// contribution is the value that one member stores.
type contribution struct {
	_ struct{} `cbor:",toarray"`
	// Digest of the call with its group and tag.
	CallDigest []byte
	// Nonce of the member's incarnation, 0 if there is none.
	Incarnation uint64
	// Id of a construct. The first member's counts.
	ContextID uint64
	Payload   []byte
}

// barrierStream is the sequence of barriers of one group. A process enters one after the other. A
// stream lasts as long as the process, because the keys of stored values contain the count.
type barrierStream struct {
	name string
	// Holds a value from the start to the end of a barrier.
	busy chan struct{}
	// Guarded by endpoint.mu.
	completed uint64
}

// barrierStreamOf returns the stream of an encoded group. The caller holds endpoint.mu.
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

// bystander is a client whose constructs require all processes.
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
