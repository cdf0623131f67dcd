package launchers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

// A sequence is the list of sessions of a job of four ranks, separated by spaces. Each session is
// opened for one group (self, world, or ranks separated by commas), creates a communicator of the
// group, and is closed. A rank skips the sessions of groups without it.
const (
	envSequence = "LAUNCHERS_SEQUENCE"
	envLate     = "LAUNCHERS_LATE" // The rank that starts last, see awaitOthers; "" if there is none.

	sequenceSize = 4
)

// sequences cover sessions of one process, of some and of all, every pair, groups whose coordinator
// is not the lowest rank, and ranks that end while others open further sessions.
var sequences = []string{
	"self world",
	"1,3 world",
	"1,3 0,2 world",
	"world world",
	"self self world self world",
	"0,1 2,3 0,2 1,3 0,3 1,2 world",
	"self 3,0 2,1,0 3,2,1,0",
	"1,2,3 world 0,2",
	"self 1,3",
	"self",
}

// The test also runs each sequence with a rank that opens its first session after the others have
// closed theirs.
func TestSessions_AnySequenceOfGroups_Reopens(t *testing.T) {
	all, lateRanks := sequences, []string{"", "0", "3"}
	if testing.Short() {
		all, lateRanks = sequences[:3], []string{"0"}
	}
	Each(t, append(All(), hydraNodes), func(t *testing.T, l *Started) {
		for _, sequence := range all {
			for _, late := range lateRanks {
				name := strings.ReplaceAll(sequence, " ", "_")
				if late != "" {
					name += "/rank_" + late + "_late"
				}
				t.Run(name, func(t *testing.T) {
					res := l.RunToEnd(t, Job{Size: sequenceSize, Program: "sequence", ExtraEnv: []string{envSequence + "=" + sequence, envLate + "=" + late}})
					for i, rank := range res.Ranks {
						if rank.Output != "done\n" {
							t.Errorf("rank %d printed %q", i, rank.Output)
						}
					}
				})
			}
		}
	})
}

// hydraNodes simulates two nodes on this machine with two processes each.
var hydraNodes = Launcher{Name: "hydra-nodes", Interface: PMI1, Need: mpichPrograms, RankVariable: "PMI_RANK",
	commandPrefix: func(n int) []string {
		return []string{"mpiexec.hydra", "-launcher", "fork", "-hosts", "one,two", "-ppn", "2", "-n", strconv.Itoa(n)}
	}}

// runSequence opens the sessions of the job's sequence.
func runSequence(ctx context.Context) error {
	me, err := Number()
	if err != nil {
		return err
	}
	steps := strings.Fields(os.Getenv(envSequence))
	if os.Getenv(envLate) == strconv.Itoa(me) {
		if err := awaitOthers(ctx, me, steps); err != nil {
			return err
		}
	}
	for i, step := range steps {
		if ranks := ranksOf(step, me); slices.Contains(ranks, me) {
			if err := oneSession(ctx, ranks); err != nil {
				return fmt.Errorf("session %d (%s): %w", i, step, err)
			}
		}
		if err := os.WriteFile(stepFile(me, i), nil, 0o600); err != nil {
			return err
		}
	}
	fmt.Println("done")
	return nil
}

// ranksOf returns the ranks of the group of a session of rank me.
func ranksOf(step string, me int) (ranks []int) {
	switch step {
	case "self":
		return []int{me}
	case "world":
		step = "0,1,2,3"
	}
	for text := range strings.SplitSeq(step, ",") {
		rank, _ := strconv.Atoi(text) // An invalid number becomes rank 0.
		ranks = append(ranks, rank)
	}
	return ranks
}

// oneSession opens a session, uses a communicator of ranks, and closes both.
func oneSession(ctx context.Context, ranks []int) error {
	s, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	c, err := commOf(ctx, s, ranks)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	sum := []int{ranks[c.Rank()]}
	err = mpi.Allreduce(ctx, c, nil, sum, mpi.Sum[int]())
	want := 0
	for _, rank := range ranks {
		want += rank
	}
	if err == nil && sum[0] != want {
		err = fmt.Errorf("the sum of %v is %d", ranks, sum[0])
	}
	return errors.Join(err, c.Close(), s.Close())
}

func commOf(ctx context.Context, s *mpi.Session, ranks []int) (*mpi.Comm, error) {
	pset := "mpi://WORLD"
	if len(ranks) == 1 {
		pset = "mpi://SELF"
	}
	g, err := s.Group(ctx, pset)
	if err == nil && len(ranks) > 1 {
		g, err = g.Incl(ranks...)
	}
	if err != nil {
		return nil, err
	}
	return mpi.CommFromGroup(ctx, g, "sequence")
}

// stepFile returns the file that a rank creates after a session of the sequence.
func stepFile(rank, step int) string {
	return filepath.Join(os.Getenv(envDir), fmt.Sprintf("%d.step%d", rank, step))
}

// awaitOthers waits until every other rank has closed the sessions before the first one that it
// shares with rank me.
func awaitOthers(ctx context.Context, me int, steps []string) error {
	for i, step := range steps {
		if step != "self" && slices.Contains(ranksOf(step, me), me) {
			return nil
		}
		for rank := range sequenceSize {
			if rank == me {
				continue
			}
			if err := awaitFile(ctx, stepFile(rank, i)); err != nil {
				return fmt.Errorf("session %d of rank %d: %w", i, rank, err)
			}
		}
	}
	return nil
}

func awaitFile(ctx context.Context, path string) error {
	for !isFile(path) {
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Rank 2 ends after a session for SELF, and the others then open one for all.
func TestSession_MemberEndedAfterItsOwn_IsAnErrorThatNamesIt(t *testing.T) {
	eachConnected(t, func(t *testing.T, l *Started) {
		l.RunToEnd(t, Job{Size: sequenceSize, Program: "deserted", ExtraEnv: []string{"FERRY_BOOTSTRAP_TIMEOUT=2s"}})
	})
}

func groupWithEndedMember(ctx context.Context) error {
	const deserter = 2
	me, err := Number()
	if err != nil {
		return err
	}
	if err := oneSession(ctx, []int{me}); err != nil || me == deserter {
		return errors.Join(err, os.WriteFile(stepFile(me, 0), nil, 0o600))
	}
	if err := awaitFile(ctx, stepFile(deserter, 0)); err != nil {
		return err
	}
	err = oneSession(ctx, []int{0, 1, 2, 3})
	missing, ok := errors.AsType[*framework.MissingError](err)
	if !ok {
		return fmt.Errorf("group with an ended member: %w", err)
	}
	// The coordinator may end the construct and exit before the others reach it.
	named := slices.Concat(missing.Missing, missing.Failed)
	if me == 0 && !slices.ContainsFunc(named, func(p framework.Proc) bool { return p.Rank == deserter }) {
		return fmt.Errorf("missing members %v at the coordinator: %w", named, err)
	}
	return nil
}
