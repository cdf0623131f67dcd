package pmix

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/launched"
	"github.com/ferrympi/ferry/bootstrap/mesh"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/pmixc"
)

// handOverText is the hand-over of a spawned process in its environment. Child processes of a
// spawned process inherit the variable, possibly as ranks of another launcher. So it has the
// namespace of the launcher's servers, which is equal on all nodes and differs from that of other
// launchers, and the namespace of the parent, which differs from that of spawned processes.
type handOverText struct {
	server, parent string
	handOver       []byte
}

var handOverEncoding = base64.RawURLEncoding

func (t handOverText) String() string {
	return handOverEncoding.EncodeToString([]byte(t.server)) + "." + handOverEncoding.EncodeToString([]byte(t.parent)) + "." + handOverEncoding.EncodeToString(t.handOver)
}

// parseHandOver parses the text of String.
func parseHandOver(text string) (handOverText, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return handOverText{}, fmt.Errorf("%d parts: want 3", len(parts))
	}
	var decoded [3][]byte
	for i, part := range parts {
		var err error
		if decoded[i], err = handOverEncoding.DecodeString(part); err != nil {
			return handOverText{}, fmt.Errorf("part %d: %w", i+1, err)
		}
	}
	return handOverText{server: string(decoded[0]), parent: string(decoded[1]), handOver: decoded[2]}, nil
}

// handOverFor returns the hand-over of the process me of the servers with that namespace. ok is
// false if text is empty or belongs to another process.
func handOverFor(text, server string, me pmixc.Proc) (h mesh.HandOver, ok bool, err error) {
	if text == "" {
		return mesh.HandOver{}, false, nil
	}
	t, err := parseHandOver(text)
	if err != nil {
		return mesh.HandOver{}, false, fmt.Errorf("%w: %s: %s: %w; it is set for processes that a job adds, remove it", framework.ErrConfig, componentName, launched.PMIxHandOver, err)
	}
	if t.server != server || t.parent == me.Namespace {
		return mesh.HandOver{}, false, nil
	}
	h, err = mesh.DecodeHandOver(t.handOver)
	return h, err == nil, err
}

// joinJob returns the identity in the job of a process that has identity id at the launcher.
func joinJob(id bootstrap.Identity, h mesh.HandOver) (bootstrap.Identity, error) {
	if id.Size != h.Size {
		return id, fmt.Errorf("%w: the launcher has started %d processes, and the hand-over is for %d; remove %s where another launcher is started",
			framework.ErrConfig, id.Size, h.Size, launched.PMIxHandOver)
	}
	if h.Namespace == id.Proc.Namespace {
		return id, errors.New("the namespace of the job is that of the added processes")
	}
	first := uint32(h.FirstRank)
	id.Proc = framework.Proc{Namespace: h.Namespace, Rank: id.Proc.Rank + first}
	id.FirstRank, id.MaxSize = h.FirstRank, h.MaxSize
	for i := range id.LocalRanks {
		id.LocalRanks[i] += first
	}
	return id, nil
}

// HandOver implements mesh.Added.
func (p *process) HandOver() (h mesh.HandOver, ok bool) { return p.handOver, p.isAdded }

// serverProc returns the identity of a process at the launcher. ok is false if only another
// namespace of the launcher has it, because servers fail to find values of other namespaces.
func (p *process) serverProc(proc framework.Proc) (_ pmixc.Proc, ok bool) {
	if !p.isAdded {
		return pmixc.Proc{Namespace: proc.Namespace, Rank: proc.Rank}, true
	}
	first, size := uint32(p.id.FirstRank), uint32(p.id.Size)
	if proc.Namespace != p.id.Proc.Namespace || proc.Rank < first || proc.Rank-first >= size {
		return pmixc.Proc{}, false
	}
	return pmixc.Proc{Namespace: p.self.Namespace, Rank: proc.Rank - first}, true
}

// jobProc returns the identity in the job of a process of the launcher. ok is false for a process
// that is not known to be of the job. p.mu is held.
func (p *process) jobProc(at pmixc.Proc) (_ framework.Proc, ok bool) {
	own := spawnedJob{namespace: p.self.Namespace, firstRank: uint32(p.id.FirstRank), size: uint32(p.id.Size)}
	for _, j := range append([]spawnedJob{own}, p.spawnedJobs...) {
		if at.Namespace == j.namespace && at.Rank < j.size {
			return framework.Proc{Namespace: p.id.Proc.Namespace, Rank: at.Rank + j.firstRank}, true
		}
	}
	proc := framework.Proc{Namespace: at.Namespace, Rank: at.Rank}
	return proc, at.Namespace == p.id.Proc.Namespace
}
