package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/ferrympi/ferry/internal/procstat"
	"github.com/ferrympi/ferry/mpi"
)

// Environment of the ranks of an elastic job, which has the directory of its files and the seed of
// its changes.
const (
	envElasticDir  = "SOAK_ELASTIC_DIR"
	envElasticSeed = "SOAK_ELASTIC_SEED"
)

// The teams of an elastic job change concurrently and independently.
const (
	elasticTeams    = 3
	elasticTeamSize = 2 // Initial members.
	maxTeamSize     = 4 // Maximum members of a team.
)

// stopFile ends the job as soon as it exists.
const stopFile = "stop"

// turn is an integration as observed by one rank.
type turn struct {
	// Set before the integration.
	From  string `json:"from"`
	Delta string `json:"delta"`
	Type  string `json:"type"`
	// Set after it, empty if the change was undone.
	To    string   `json:"to"`
	Ranks []uint32 `json:"ranks"` // Members of To.
	// Error of an undone change.
	Gives string `json:"gives"`
}

// elasticRank is a rank of an elastic job.
type elasticRank struct {
	s       *mpi.Session
	dir     string
	rank    int
	history *os.File

	// Set of the rank's team.
	team   string
	change *mpi.Future[mpi.Change]
	comm   *mpi.Comm
	rounds int
}

// elasticProgram is the program of an elastic job.
func elasticProgram(ctx context.Context) error {
	rank, err := strconv.Atoi(os.Getenv("FERRY_BOOTSTRAP_LOCAL_RANK"))
	if err != nil {
		return err
	}
	e := &elasticRank{dir: os.Getenv(envElasticDir), rank: rank}
	fmt.Printf("rank %d pid %d\n", rank, os.Getpid())
	if e.history, err = os.Create(filepath.Join(e.dir, fmt.Sprintf("history-%d", rank))); err != nil {
		return err
	}
	defer e.history.Close()
	if e.s, err = mpi.OpenSession(ctx); err != nil {
		return err
	}
	if err := e.join(ctx); err != nil {
		if e.isStopped() || errors.Is(err, errUndone) {
			return e.s.Close()
		}
		return fmt.Errorf("join: %w", err)
	}
	err = e.run(ctx)
	if e.comm != nil {
		err = errors.Join(err, e.comm.Close())
	}
	return errors.Join(err, e.s.Close())
}

// isStopped reports whether the job ends.
func (e *elasticRank) isStopped() bool {
	_, err := os.Stat(filepath.Join(e.dir, stopFile))
	return err == nil
}

// errUndone ends an added rank after its change was undone.
var errUndone = errors.New("the change was undone")

// join finds the rank's team, or takes part in the change that has added the rank.
func (e *elasticRank) join(ctx context.Context) error {
	if e.rank >= elasticTeams*elasticTeamSize {
		c, ok, err := e.s.ResourceChange(ctx, "mpi://SELF")
		if err != nil || !ok {
			return fmt.Errorf("%w: %v, %w", errUndone, ok, err)
		}
		if leaves, err := e.integrate(ctx, c); leaves || err != nil {
			return fmt.Errorf("%w: %w", errUndone, err)
		}
		return nil
	}
	if e.rank == 0 {
		sizes := slices.Repeat([]int{elasticTeamSize}, elasticTeams)
		names, err := e.s.PsetOp(ctx, mpi.PsetSplit, []string{"mpi://WORLD"}, mpi.PsetArgs{Sizes: sizes})
		if err != nil {
			return err
		}
		text, err := json.Marshal(names)
		if err != nil {
			return err
		}
		if err := e.s.PublishData(ctx, "mpi://WORLD", "teams", text); err != nil {
			return err
		}
	}
	text, err := e.s.LookupData(ctx, "mpi://WORLD", "teams")
	if err != nil {
		return err
	}
	var names []string
	if err := json.Unmarshal(text, &names); err != nil {
		return err
	}
	e.team = names[e.rank/elasticTeamSize]
	return nil
}

// run works and takes part in changes until the rank leaves or the job ends.
func (e *elasticRank) run(ctx context.Context) error {
	failures := 0
	for {
		c, ok, err := e.s.ResourceChange(ctx, e.team)
		var leaves, ends bool
		switch {
		case err != nil:
		case ok && c.Type == mpi.ChangeFailed:
			err = e.repair(ctx, c)
		case ok:
			leaves, err = e.integrate(ctx, c)
		default:
			ends, err = e.exchangeUntilChange(ctx)
		}
		if leaves || ends || err != nil && e.isStopped() {
			return nil
		}
		if failures++; err == nil {
			failures = 0
		}
		if failures > 100 {
			return fmt.Errorf("team %q: %w", e.team, err)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("team %q hangs: %w", e.team, err)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "rank %d: team %s: %v\n", e.rank, e.team, err)
			time.Sleep(time.Millisecond)
		}
	}
}

// integrate takes part in a change. leaves is set if the rank must end.
func (e *elasticRank) integrate(ctx context.Context, c mpi.Change) (leaves bool, err error) {
	e.closeComm()
	from := e.team
	result, err := e.s.Integrate(ctx, c.Delta, "")
	if err != nil {
		return false, errors.Join(err, e.log(turn{From: from, Delta: c.Delta, Type: c.Type.String(), Gives: err.Error()}))
	}
	t := turn{From: from, Delta: c.Delta, Type: c.Type.String(), To: result.Pset}
	group, err := e.s.Group(ctx, result.Pset)
	if err != nil && !errors.Is(err, mpi.ErrPset) { // A later change may have removed the set.
		return false, err
	}
	if err == nil {
		for _, p := range group.Members() {
			t.Ranks = append(t.Ranks, p.Rank)
		}
	}
	if err := e.log(t); err != nil || result.Terminate {
		return result.Terminate, err
	}
	e.team, e.change = result.Pset, nil
	if err == nil && e.isLeader(group, nil) {
		err = e.finish(ctx, c, from, t.Ranks)
	}
	return false, err
}

// finish ends a change and deletes the replaced sets.
func (e *elasticRank) finish(ctx context.Context, c mpi.Change, from string, ranks []uint32) error {
	if err := e.s.FinishChange(ctx, c.Delta); err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	text, err := json.Marshal(turn{From: from, Delta: c.Delta, Type: c.Type.String(), To: e.team, Ranks: ranks})
	if err != nil {
		return err
	}
	fmt.Printf("change %s\n", text)
	if e.rank == 0 {
		fmt.Printf("resident %d\n", procstat.Measure().Resident)
	}
	_ = e.s.DeletePset(ctx, from)
	return nil
}

// isLeader reports whether the rank is the first member of a group that has not ended.
func (e *elasticRank) isLeader(group, ended *mpi.Group) bool {
	for _, p := range group.Members() {
		if ended == nil || !slices.Contains(ended.Members(), p) {
			return int(p.Rank) == e.rank
		}
	}
	return false
}

// repair removes the ended members of the team, or waits for another rank to do that.
func (e *elasticRank) repair(ctx context.Context, c mpi.Change) error {
	e.closeComm()
	all, err := e.s.Group(ctx, e.team)
	if err != nil {
		return err
	}
	ended, err := e.s.Group(ctx, c.Delta)
	if err != nil {
		return err
	}
	if !e.isLeader(all, ended) {
		_, err := e.nextChange().Wait(ctx)
		return err
	}
	op, args := mpi.PsetShrink, mpi.PsetArgs{}
	if rng := e.newRand(); rng.IntN(2) == 0 {
		op, args = mpi.PsetReplace, mpi.PsetArgs{Add: ended.Size(), Partial: true}
	}
	err = e.request(ctx, op, args)
	if err != nil && op == mpi.PsetReplace {
		err = e.request(ctx, mpi.PsetShrink, mpi.PsetArgs{})
	}
	return err
}

// request begins a change of the team.
func (e *elasticRank) request(ctx context.Context, op mpi.PsetOp, args mpi.PsetArgs) error {
	_, err := e.s.PsetOp(ctx, op, []string{e.team}, args)
	if err != nil {
		return fmt.Errorf("%v of %s %+v: %w", op, e.team, args, err)
	}
	return nil
}

// nextChange returns the Future of the team's next change.
func (e *elasticRank) nextChange() *mpi.Future[mpi.Change] {
	if e.change != nil {
		select {
		case <-e.change.Done():
		default:
			return e.change
		}
	}
	e.change = e.s.ResourceChangeAsync(e.team)
	return e.change
}

// newRand returns random numbers that depend on the seed and the team only.
func (e *elasticRank) newRand() *rand.Rand {
	h := fnv.New64()
	fmt.Fprint(h, os.Getenv(envElasticSeed), e.team)
	return rand.New(rand.NewPCG(h.Sum64(), uint64(e.rounds)))
}

func (e *elasticRank) closeComm() {
	if e.comm != nil {
		_ = e.comm.Close()
		e.comm = nil
	}
}

func (e *elasticRank) log(t turn) error {
	text, err := json.Marshal(t)
	if err == nil {
		_, err = e.history.Write(append(text, '\n'))
	}
	return err
}
