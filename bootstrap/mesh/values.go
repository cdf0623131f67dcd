package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// A process serves its own values. For the time after its death or while it has no open client,
// another process keeps a replica. This is the first other member of each group. It receives new
// values before the process enters a fence or construct of the group, so values that were put
// before can be read after it. A job without Put has no cost.

// replica has the values of another process.
type replica struct {
	// All values up to this version are present.
	version uint64
	values  map[string][]byte
}

const (
	// ownerGrace is the time for which a Get waits for a connection to the owner before it queries
	// the replicas.
	ownerGrace = 100 * time.Millisecond

	// replicaGrace limits that query.
	replicaGrace = 2 * time.Second
)

// ownValues has the values of this process. endpoint.mu guards it.
type ownValues struct {
	store join.ValueStore[request]
	// Version of each value, by name.
	versions    map[string]uint64
	lastVersion uint64
}

// set stores a value in its next version.
func (v *ownValues) set(key string, value join.Value) {
	v.lastVersion++
	v.versions[key] = v.lastVersion
	v.store.Set(key, value)
}

// Put stores value in this process before it returns.
func (c *client) Put(ctx context.Context, key string, value []byte) error {
	err := wire.CheckSizes(key, value, bootstrap.MaxValue)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return join.OpError("put", key, err)
	}
	v := join.EncodeValue(value)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return closedError("put")
	}
	if err := c.isolationError(); err != nil {
		return join.OpError("put", key, err)
	}
	c.ownValues.set(key, v)
	return nil
}

func (c *client) Get(ctx context.Context, p framework.Proc, key string) ([]byte, error) {
	const op = "get"
	switch {
	case p.Namespace != c.id.Proc.Namespace:
		return nil, join.OpError(op, key, fmt.Errorf("%w: %s is not in this job (%s)", framework.ErrRank, p, c.id.Proc.Namespace))
	case !c.isRank(p.Rank):
		return nil, join.OpError(op, key, fmt.Errorf("%w: the job has %d processes", framework.ErrRank, c.rankLimit.Load()))
	}
	callCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var value []byte
	found := make(chan bool, 1)
	if c.isConnected(p.Rank) {
		found <- false
	} else {
		go func() {
			v, ok := c.getReplica(callCtx, p.Rank, key, ownerGrace)
			if ok {
				value = v
				cancel(errReplicaFound)
			}
			found <- ok
		}()
	}
	m, err := c.roundTrip(callCtx, op, key, p.Rank, wire.Get, wire.GetBody{Rank: p.Rank, Key: key})
	cancel(nil)
	if err != nil && <-found { // The query of the replicas may still succeed.
		return value, nil
	}
	if errors.Is(err, framework.ErrProcFailed) {
		if v, ok := c.getReplica(ctx, p.Rank, key, 0); ok {
			return v, nil
		}
	}
	if err != nil {
		return nil, err
	}
	v, err := wire.Decode[wire.ValueBody](m.Body)
	if err != nil {
		return nil, c.peerError(p.Rank, op, err)
	}
	return v.Value, nil
}

// errReplicaFound ends a call once a replica has the value.
var errReplicaFound = errors.New("a replica has the value")

// isConnected reports whether a request to rank is sent without waiting.
func (c *client) isConnected(rank uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[rank]
	return rank == c.id.Proc.Rank || p != nil && (len(p.links) > 0 || p.state == peerEnded)
}

// getReplica queries the replicas of rank after d, unless rank is connected then. The newest
// version wins.
func (c *client) getReplica(ctx context.Context, rank uint32, key string, d time.Duration) (value []byte, found bool) {
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return nil, false
		}
		if c.isConnected(rank) {
			return nil, false
		}
	}
	ctx, cancel := context.WithTimeout(ctx, replicaGrace)
	defer cancel()
	var newest uint64
	for _, holder := range c.replicaHolders(rank) {
		m, err := c.roundTrip(ctx, "get a replicated value", key, holder, wire.GetReplica, wire.GetBody{Rank: rank, Key: key})
		if err != nil {
			continue
		}
		b, err := wire.Decode[wire.ReplicaBody](m.Body)
		if err == nil && b.Version >= max(newest, 1) {
			newest, value, found = b.Version, b.Value, b.Found
		}
	}
	return value, found
}

// replicaHolders returns the processes that replicate the values of rank, one for each common
// group.
func (c *client) replicaHolders(rank uint32) []uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []uint32
	for _, m := range c.memberships {
		if m.members.Index(rank) < 0 {
			continue
		}
		k, ok := firstMember(m.members, func(r uint32) bool { return r != rank })
		if ok && !slices.Contains(out, k) && (k == c.id.Proc.Rank || !c.hasEnded(k)) {
			out = append(out, k)
		}
	}
	return out
}

// serveGet serves a Get of a value of this process.
func (c *client) serveGet(r request, b wire.GetBody) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch v, ok := c.ownValues.store.Get(b.Key); {
	case c.isClosed || r.link.isLost:
	case b.Rank != c.id.Proc.Rank:
		join.Fail(r, wire.FailureBody{Code: wire.CodeRank, Text: "a Get goes to the process that put the value"})
	case ok:
		r.Answer(wire.Reply, v)
	default:
		c.ownValues.store.AwaitOwner(b.Key, r, b.Rank)
	}
}

// serveReplica serves a Get of a value of another process.
func (c *client) serveReplica(r request, b wire.GetBody) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var answer wire.ReplicaBody
	if k := c.replicas[b.Rank]; k != nil {
		answer.Version = k.version
		answer.Value, answer.Found = k.values[b.Key]
	}
	r.answerWith(answer)
}

// storeReplica stores a value of another process.
func (c *client) storeReplica(rank uint32, b wire.ReplicateBody) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.replicas[rank]
	if k == nil {
		k = &replica{values: map[string][]byte{}}
		c.replicas[rank] = k
	}
	k.values[b.Name] = b.Value
	if b.Last {
		k.version = max(k.version, b.Version)
	}
}

// replicateValues sends the values of this process that the peer lacks. They precede all later
// frames. The caller holds endpoint.mu.
func (c *client) replicateValues(l *link) {
	if l.replicatedVersion == c.ownValues.lastVersion {
		return
	}
	var names []string
	for name, v := range c.ownValues.versions {
		if v > l.replicatedVersion {
			names = append(names, name)
		}
	}
	for i, name := range names {
		encoded, _ := c.ownValues.store.Get(name)
		v, err := wire.Decode[wire.ValueBody]([]byte(encoded))
		if err != nil {
			panic(err) // It was encoded here.
		}
		l.sendUnlimited(encodeFrame(wire.Replicate, 0, wire.ReplicateBody{Version: c.ownValues.lastVersion, Last: i == len(names)-1, Name: name, Value: v.Value}))
	}
	l.replicatedVersion = c.ownValues.lastVersion
}

// replicateToSecond replicates the values of the coordinator of a group to the second member. The
// caller holds endpoint.mu.
func (c *client) replicateToSecond(group wire.Runs) {
	if c.ownValues.lastVersion == 0 || group[0].First != c.id.Proc.Rank {
		return
	}
	if k, ok := firstMember(group, func(r uint32) bool { return r != c.id.Proc.Rank }); ok {
		if p := c.peerOf(k); len(p.links) > 0 {
			c.replicateValues(p.links[0])
		}
	}
}

// firstMember returns the first eligible member of a group.
func firstMember(runs wire.Runs, isEligible func(rank uint32) bool) (uint32, bool) {
	for _, rank := range runs.All() {
		if isEligible(rank) {
			return rank, true
		}
	}
	return 0, false
}
