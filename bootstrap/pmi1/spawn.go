package pmi1

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/mesh"
	"github.com/ferrympi/ferry/bootstrap/pmi1/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// Spawned processes have a new key space at the server. It has the hand-over from its beginning,
// under handOverKey, as hexadecimal text in segments. Their entries are not published, because rank
// 0 of the job is the address book of added processes. The name service is common to all jobs of a
// server, so all find published names and the entries of the first processes.

// handOverKey is the key of the hand-over.
const handOverKey = "ferry-hand-over"

// Spawn implements mesh.Spawner. The server passes no environment of the caller. It accepts a
// program that its node does not have, and Hydra ends the job for a directory that its node does
// not have, so both are checked on this node.
func (l *launcher) Spawn(ctx context.Context, s mesh.SpawnRequest) error {
	const op = "start processes"
	if err := l.checkUsable(op, "the launcher"); err != nil {
		return err
	}
	err := s.CheckProgram()
	if err == nil && l.proc.isSlurm() {
		err = checkSlurm(s.N, os.LookupEnv)
	}
	if err != nil {
		return fmt.Errorf("%w: bootstrap pmi1: %s: %w", framework.ErrUnsupported, op, err)
	}
	return l.proc.wire.Spawn(ctx, wire.SpawnRequest{
		N: s.N, Program: s.Program, Args: s.Args, Dir: s.Dir,
		Key: handOverKey, Text: hex.EncodeToString(s.HandOver),
	})
}

// isSlurm reports whether Slurm serves this process. Its key spaces have the number of the job.
func (p *process) isSlurm() bool {
	job, _, isStep := strings.Cut(p.address.slurmStep, ".")
	kvs, _, _ := strings.Cut(p.wire.KVSName(), ".")
	return isStep && job == kvs
}

// LauncherName returns the name of the launcher for errors.
func (l *launcher) LauncherName() string {
	if l.proc.isSlurm() {
		return "srun --mpi=pmi2"
	}
	return "mpiexec.hydra"
}

// HandOver implements mesh.Added.
func (l *launcher) HandOver() (h mesh.HandOver, ok bool) {
	if l.proc.handOver == nil {
		return mesh.HandOver{}, false
	}
	return *l.proc.handOver, true
}

// readHandOver reads the hand-over of this process. It is nil in a process that no ferry program
// has spawned.
func (p *process) readHandOver(ctx context.Context, size int) (*mesh.HandOver, error) {
	if !p.address.isSpawned {
		return nil, nil
	}
	text, ok, err := p.wire.Get(ctx, handOverKey)
	if err != nil || !ok {
		return nil, err
	}
	h, err := decodeHandOver(text, size)
	if err != nil {
		return nil, fmt.Errorf("bootstrap pmi1: %s from the launcher: %w", handOverKey, err)
	}
	return &h, nil
}

// decodeHandOver decodes the text of the key space of size processes. Errors are ErrConfig.
func decodeHandOver(text string, size int) (mesh.HandOver, error) {
	b, err := hex.DecodeString(text)
	if err != nil {
		return mesh.HandOver{}, fmt.Errorf("%w: %s: it was not put by a ferry program", framework.ErrConfig, wire.Quote("value="+text))
	}
	h, err := mesh.DecodeHandOver(b)
	if err == nil && h.Size != size {
		err = fmt.Errorf("%w: it is for %d processes, and the launcher has started %d", framework.ErrConfig, h.Size, size)
	}
	return h, err
}

// jobIdentity returns the identity of a rank of the launcher, without nodes.
func jobIdentity(kvsName string, rank, size int, h *mesh.HandOver) bootstrap.Identity {
	if h == nil {
		return bootstrap.Identity{Proc: framework.Proc{Namespace: kvsName, Rank: uint32(rank)}, Size: size}
	}
	return bootstrap.Identity{
		Proc:      framework.Proc{Namespace: h.Namespace, Rank: uint32(h.FirstRank + rank)},
		FirstRank: h.FirstRank, Size: h.Size, MaxSize: h.MaxSize,
	}
}
