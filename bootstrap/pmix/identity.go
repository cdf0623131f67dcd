package pmix

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/pmixc"
)

// identify determines the identity of this process. handOver is the parameter.
func (p *process) identify(ctx context.Context, handOver string) error {
	var err error
	if p.handOver, p.isAdded, err = handOverFor(handOver, serverNamespace(os.Getenv), p.self); err != nil {
		return err
	}
	if p.id, err = requestIdentity(ctx, p.lib, p.self); err == nil && p.isAdded {
		p.id, err = joinJob(p.id, p.handOver)
	}
	return err
}

// requestIdentity requests the identity of this process at the launcher. The answers are in
// libpmix's memory after Init, or at the server of this node. It does not request the parent of the
// job, because spawned processes under mpirun do not find PMIX_PARENT_ID.
func requestIdentity(ctx context.Context, lib *pmixc.Library, me pmixc.Proc) (bootstrap.Identity, error) {
	job := pmixc.Proc{Namespace: me.Namespace, Rank: pmixc.Wildcard}
	size, err := lib.Get(ctx, job, pmixc.JobSize, 0)
	if err != nil {
		return bootstrap.Identity{}, fmt.Errorf("the size of the job: %w", err)
	}
	peers, err := lib.Get(ctx, job, pmixc.LocalPeers, 0)
	if isNotFound(err) {
		peers, err = pmixc.Value{}, nil // The server may not know them.
	}
	if err != nil {
		return bootstrap.Identity{}, fmt.Errorf("the processes of this node: %w", err)
	}
	return identity(me, size, string(peers.Bytes))
}

// isNotFound reports whether a Get has found no value.
func isNotFound(err error) bool { return pmixc.Is(err, pmixc.NotFound) || pmixc.Is(err, pmixc.Timeout) }

// identity checks the answers of the server. peers is a list such as "0,1,5", or empty if the
// processes of this node are unknown.
func identity(me pmixc.Proc, size pmixc.Value, peers string) (bootstrap.Identity, error) {
	var id bootstrap.Identity
	switch {
	case me.Namespace == "":
		return id, errors.New("the server reports that this process has no namespace")
	case size.Kind != pmixc.KindNumber || size.Number < 1 || size.Number > math.MaxInt32:
		return id, fmt.Errorf("the server reports that the job has %d processes (type %d)", size.Number, size.Type)
	case int64(me.Rank) >= size.Number:
		return id, fmt.Errorf("the server reports that this is rank %d, and that the job has %d processes", me.Rank, size.Number)
	}
	id.Proc = framework.Proc{Namespace: me.Namespace, Rank: me.Rank}
	id.Size = int(size.Number)
	if peers == "" {
		return id, nil
	}
	locals, err := parseLocalPeers(peers, uint32(id.Size))
	if err != nil {
		return id, err
	}
	at, ok := slices.BinarySearch(locals, me.Rank)
	if !ok {
		return id, fmt.Errorf("the server reports that %s are on this node, but not this process, rank %d", quote(peers), me.Rank)
	}
	id.LocalRanks, id.LocalRank, id.LocalSize = locals, at, len(locals)
	return id, nil
}

// parseLocalPeers parses a list of ranks below size, and sorts it.
func parseLocalPeers(list string, size uint32) ([]uint32, error) {
	var all []uint32
	for item := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(item), 10, 32)
		if err != nil || n >= uint64(size) {
			return nil, fmt.Errorf("the server reports that %s are on this node: %s is not a rank of %d", quote(list), quote(item), size)
		}
		all = append(all, uint32(n))
	}
	slices.Sort(all)
	if len(slices.Compact(slices.Clone(all))) != len(all) {
		return nil, fmt.Errorf("the server reports that %s are on this node: one is listed twice", quote(list))
	}
	return all, nil
}

// quote shortens and quotes a text of the server.
func quote(s string) string {
	const most = 100
	if len(s) > most {
		return strconv.Quote(s[:most]) + "..."
	}
	return strconv.Quote(s)
}
