package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// A job grows if its launcher is a Spawner and constructs need no Exchange. Added processes have the
// ranks that follow the highest one, in the same namespace, so everything else treats them like the
// first processes. Rank 0 assigns the ranks, and refuses one that it has not assigned. The other
// processes accept any rank from a peer that has proved a key of the job.
//
// Rank 0 is the address book of added processes. An added process has rank 0's entry from its
// hand-over, and sends its own entry first on each connection to rank 0. All others look it up
// there. docs/decisions/added-processes.md has the reasons.

// growth is the ability of a job to grow, and the origin of this process.
type growth struct {
	isPossible bool
	// Limit of the processes at a time, for changes that rank 0 makes.
	most int
	// nil in the first processes of a job.
	handOver *HandOver
	// Entry of rank 0 from handOver.
	rank0 entry
}

func (g growth) isAdded() bool { return g.handOver != nil }

// growthFactor is the default limit of the processes at a time, as a multiple of the first number.
const growthFactor = 4

// growthOf returns the identity of the process that l describes, and its growth. It returns
// ErrConfig for an identity outside its job, or one that contradicts its hand-over. It returns
// ErrUnsupported for an added process with an Exchange.
func growthOf(l Launcher, env bootstrap.Env) (id bootstrap.Identity, g growth, err error) {
	id = l.Identity()
	if err := checkJob(id); err != nil {
		return id, g, err
	}
	id.MaxSize, g.most = id.Size, id.Size
	_, hasExchange := framework.As[Exchange](l)
	if a, ok := framework.As[Added](l); ok {
		if h, isAdded := a.HandOver(); isAdded {
			if hasExchange {
				return id, g, fmt.Errorf("%w: %s: an added process has no barriers with the first processes of its job; set the exchange to meet", framework.ErrUnsupported, component)
			}
			g.handOver, g.isPossible, id.MaxSize = &h, true, max(h.MaxSize, id.Size)
			if id.Proc.Namespace != h.Namespace || id.FirstRank != h.FirstRank || id.Size != h.Size {
				return id, g, fmt.Errorf("%w: %s: the launcher reports %v of %d processes from rank %d on, but the hand-over has %d from rank %d of %s on",
					framework.ErrConfig, component, id.Proc, id.Size, id.FirstRank, h.Size, h.FirstRank, h.Namespace)
			}
			if g.rank0, err = decodeEntry(h.Entry); err != nil {
				return id, g, fmt.Errorf("%w: %s: hand-over: the entry of rank 0: %w", framework.ErrConfig, component, err)
			}
			return id, g, nil
		}
	}
	if id.FirstRank != 0 {
		return id, g, fmt.Errorf("%w: %s: the launcher reports processes from rank %d on, without a hand-over", framework.ErrConfig, component, id.FirstRank)
	}
	_, canSpawn := framework.As[Spawner](l)
	if g.isPossible = canSpawn && !hasExchange; g.isPossible {
		g.most = min(max(cmp.Or(env.MaxRanks, growthFactor*id.Size), id.Size), wire.MaxElements)
		if env.MaxRanks > 0 {
			id.MaxSize = g.most
		}
	}
	return id, g, nil
}

// initGrowth sets the fields of a new endpoint that depend on the growth of its job.
func (p *endpoint) initGrowth(g growth) {
	limit := p.id.Size
	if g.isPossible && p.id.Proc.Rank != 0 {
		limit = wire.MaxElements
	}
	p.rankLimit.Store(int64(limit))
	if g.isAdded() {
		p.entries[0] = g.rank0
	}
}

// isRank reports whether another process may name a rank.
func (p *endpoint) isRank(rank uint32) bool { return int64(rank) < p.rankLimit.Load() }

// findEntry returns the entry of a process from the launcher or from rank 0. ok is false while there
// is none. An error that the dialer must not retry wraps errPermanent.
func (c *client) findEntry(ctx context.Context, rank uint32) (entry []byte, ok bool, err error) {
	if !c.growth.isAdded() && int64(rank) < int64(c.id.Size) {
		entry, ok, err = c.launcher.Find(ctx, c.id.Procs([]uint32{rank})[0])
		if err != nil && !errors.Is(err, ErrLauncherLeft) {
			err = fmt.Errorf("%w: %w", err, errPermanent)
		}
		return entry, ok, err
	}
	if c.id.Proc.Rank == 0 { // The process sends it when it connects.
		return nil, false, nil
	}
	c.mu.Lock()
	c.peerOf(rank).lastDialErr = errAwaitsRank0
	c.mu.Unlock()
	entry, ok, err = c.requestEntry(ctx, 0, rank)
	if errors.Is(err, framework.ErrProcFailed) || errors.Is(err, framework.ErrRank) {
		err = fmt.Errorf("%w: %w", err, errPermanent)
	}
	return entry, ok, err
}

// requestEntry requests the entry of rank from rank 0 or from rank itself.
func (c *client) requestEntry(ctx context.Context, holder, rank uint32) (entry []byte, ok bool, err error) {
	body, err := wire.EncodeChange(wire.FindEntry, wire.RankBody{Rank: rank})
	if err != nil {
		return nil, false, err
	}
	m, err := c.roundTrip(ctx, "look up the entry of", c.procName(rank), holder, wire.Change, body)
	if err != nil {
		return nil, false, err
	}
	b, err := wire.Decode[wire.ValueBody](m.Body)
	return b.Value, b.Found, err
}

var errAwaitsRank0 = errors.New("its entry is at rank 0, which has not answered")

// sendOwnEntry sends the entry of this process on a new connection to rank 0, if it was added. The
// caller holds endpoint.mu.
func (c *client) sendOwnEntry(l *link) {
	if l.rank == 0 && c.growth.isAdded() {
		l.send(encodeFrame(wire.OwnEntry, 0, wire.EntryBody{Entry: c.ownEntry.encode()}))
	}
}

// receiveOwnEntry records the entry of an added process.
func (c *client) receiveOwnEntry(from uint32, b wire.EntryBody) error {
	e, err := decodeEntry(b.Entry)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known, isKnown := c.entries[from]
	switch {
	case c.id.Proc.Rank != 0 || int64(from) < int64(c.id.Size):
		return errors.New("only an added process sends its entry, and only to rank 0")
	case isKnown && known.nonce != e.nonce:
		return fmt.Errorf("the entry of %s is that of another process", c.procName(from))
	}
	c.entries[from] = e
	return nil
}

// serveFind answers with the entry of this process. Rank 0 answers with that of any process, which it
// looks up for one of the first processes.
func (c *client) serveFind(r request, rank uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, isKnown := c.entries[rank]
	switch {
	case c.isClosed || r.link.isLost:
	case c.id.Proc.Rank != 0 && rank != c.id.Proc.Rank:
		r.Answer(wire.Failure, wire.EncodeBody(wire.FailureBody{Code: wire.CodeRank, Text: "rank 0 has the entries of others"}))
	case !c.isRank(rank):
		r.Answer(wire.Failure, wire.EncodeBody(wire.FailureBody{Code: wire.CodeRank, Text: fmt.Sprintf("the job has %d ranks", c.rankLimit.Load())}))
	case c.hasEnded(rank):
		r.Answer(wire.Failure, wire.EncodeBody(wire.FailureBody{Code: wire.CodeMissing, Failed: []uint32{rank}}))
	case rank == c.id.Proc.Rank:
		r.answerWith(wire.ValueBody{Found: true, Value: c.ownEntry.encode()})
	case isKnown:
		r.answerWith(wire.ValueBody{Found: true, Value: e.encode()})
	case int64(rank) >= int64(c.id.Size):
		r.answerWith(wire.ValueBody{})
	default:
		r.SetWithdraw(func(bool) wire.FailureBody { return wire.FailureBody{Code: wire.CodeWithdrawn} })
		c.wg.Go(func() { c.serveFindElsewhere(r, rank) })
	}
}

// serveFindElsewhere answers with the entry of one of the first processes from the launcher, or from
// that process if this one has left its launcher. On an error there is none.
func (c *client) serveFindElsewhere(r request, rank uint32) {
	ctx, cancel := context.WithTimeout(c.ctx, c.timeouts.lookup)
	defer cancel()
	if err := c.lookUpEntry(ctx, rank); errors.Is(err, ErrLauncherLeft) {
		b, ok, err := c.requestEntry(ctx, rank, rank)
		c.recordEntry(rank, b, ok && err == nil)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, isWaiting := r.link.pendingRequests[r.id]; !isWaiting {
		return
	}
	r.ClearWithdraw()
	e, ok := c.entries[rank]
	b := wire.ValueBody{Found: ok}
	if ok {
		b.Value = e.encode()
	}
	r.answerWith(b)
}
