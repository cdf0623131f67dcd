package conform_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/cmd/ferry/internal/conform"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/internal/libfabric/testprov"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

func TestMain(m *testing.M) {
	localtest.Main(m, map[string]localtest.Program{"suite": suite})
}

// envGoroutines makes suite run on that many goroutine ranks of each process.
const envGoroutines = "CONFORM_GOROUTINES"

// envStream makes suite run on a stream of each process.
const envStream = "CONFORM_STREAM"

// envDeaths makes suite run only the family ft, with its fatal cases.
const envDeaths = "CONFORM_DEATHS"

// suiteCases returns the cases of suite. A rank that dies would fail the job.
func suiteCases() []conform.Case {
	hasDeaths := os.Getenv(envDeaths) != ""
	return slices.DeleteFunc(conform.Cases(), func(c conform.Case) bool {
		return hasDeaths && !strings.HasPrefix(c.Name, "ft/") || !hasDeaths && c.KillsRank
	})
}

// suite runs every case; the error has those that failed in this rank.
func suite(ctx context.Context) error {
	var mu sync.Mutex
	var errs []error
	passed, skipped := 0, 0
	session, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	if isAdded, err := conform.RunIfAdded(ctx, session, conform.Limit); isAdded || err != nil {
		return errors.Join(err, session.Close())
	}
	world, err := settings.World(ctx, session, "test")
	if err != nil {
		return err
	}
	report := func(r conform.Result) {
		mu.Lock()
		defer mu.Unlock()
		switch r.Status {
		case conform.Pass:
			passed++
		case conform.Skip:
			skipped++
		case conform.Fail:
			errs = append(errs, fmt.Errorf("%s (%s) failed in ranks %v: %w", r.Case.Name, r.Case.Source(), r.FailedRanks, r.Err))
		}
	}
	if os.Getenv(envStream) != "" {
		err = conform.RunStream(ctx, session, world, suiteCases(), conform.Limit, report)
	} else if goroutines, _ := strconv.Atoi(os.Getenv(envGoroutines)); goroutines > 0 {
		err = conform.RunGoroutines(ctx, session, world, goroutines, suiteCases(), conform.Limit, report)
	} else {
		err = conform.Run(ctx, session, world, suiteCases(), conform.Limit, report)
	}
	if os.Getenv("CONFORM_COUNT") != "" {
		fmt.Printf("%d passed, %d skipped\n", passed, skipped)
	}
	return errors.Join(append(errs, err, world.Close(), session.Close())...)
}

func TestSuite(t *testing.T) {
	sizes := []int{1, 2, 4, 8}
	if testing.Short() {
		sizes = sizes[:3]
	}
	for _, n := range sizes {
		for _, policy := range []string{"auto", "gather", "lazy"} {
			t.Run(fmt.Sprintf("%d ranks, %s", n, policy), func(t *testing.T) {
				r := localtest.RunJob(t, localtest.Job{Size: n, MaxProcs: n + conform.Room, Program: "suite", Env: []string{"FERRY_CID_POLICY=" + policy, "CONFORM_COUNT=yes"}})
				if want := fmt.Sprintf(" %d skipped", needMore(n)); !strings.Contains(r.Output[0], want) {
					t.Errorf("rank 0: %q, want%s", r.Output[0], want)
				}
			})
		}
	}
}

func TestSuite_GoroutineRanks_Passes(t *testing.T) {
	for _, n := range [][2]int{{1, 1}, {1, 5}, {2, 2}, {3, 1}} {
		t.Run(fmt.Sprintf("%d in each of %d processes", n[1], n[0]), func(t *testing.T) {
			localtest.Run(t, n[0], "suite", fmt.Sprintf("%s=%d", envGoroutines, n[1]))
		})
	}
}

func TestSuite_Stream_Passes(t *testing.T) {
	const provider, cm = "tcp;ofi_rxm", "cm"
	stacks := map[string][]string{
		"ob1 shm": {"FERRY_BTL=self,shm"}, "ob1 tcp": {"FERRY_BTL=self,tcp"},
		cm: {"FERRY_PML=cm", "FERRY_MTL=ofi", "FERRY_MTL_OFI_PROVIDER_INCLUDE=" + provider, "FERRY_PML_CM_SHARED_MEMORY=false"},
	}
	for _, n := range []int{1, 2, 4} {
		for name, env := range stacks {
			if name == cm && n != 2 { // It takes ten times as long.
				continue
			}
			t.Run(fmt.Sprintf("%d ranks, %s", n, name), func(t *testing.T) {
				if name == cm {
					testprov.Need(t, provider)
				}
				r := localtest.RunJob(t, localtest.Job{Size: n, MaxProcs: n + conform.Room, Program: "suite", Env: append([]string{envStream + "=yes", "CONFORM_COUNT=yes"}, env...)})
				if want := fmt.Sprintf(" %d skipped", needMore(n)); !strings.Contains(r.Output[0], want) {
					t.Errorf("rank 0: %q, want%s", r.Output[0], want)
				}
			})
		}
	}
}

// The last ranks die, one in each case, until one is left. The others run the next case.
func TestSuite_RanksDie_ContinuesWithTheOthers(t *testing.T) {
	deaths := 0
	for _, c := range conform.Cases() {
		if c.KillsRank {
			deaths++
		}
	}
	for _, n := range []int{2, 4, 8} {
		for _, stack := range []string{"FERRY_BTL=self,shm", "FERRY_BTL=self,tcp"} {
			t.Run(fmt.Sprintf("%d ranks, %s", n, stack), func(t *testing.T) {
				t.Parallel()
				r := localtest.RunJob(t, localtest.Job{Size: n, Program: "suite", MayFail: true, Env: []string{envDeaths + "=yes", "CONFORM_COUNT=yes", stack}})
				survivors := max(1, n-deaths)
				for rank, err := range r.Exit {
					if (err == nil) != (rank < survivors) || rank >= survivors && !strings.Contains(err.Error(), "killed") {
						t.Errorf("rank %d of %d: %v\n%s", rank, n, err, r.Output[rank])
					}
				}
				if want := fmt.Sprintf(" %d skipped", deaths-(n-survivors)); !strings.Contains(r.Output[0], want) {
					t.Errorf("rank 0: %q, want%s", r.Output[0], want)
				}
			})
		}
	}
}

// Without room, and in a job of one process, the cases that add processes are skipped.
func TestSuite_NoRoom_SkipsCasesThatAdd(t *testing.T) {
	adding := 0
	for _, c := range conform.Cases() {
		if c.AddsProcesses {
			adding++
		}
	}
	r := localtest.Run(t, 2, "suite", "CONFORM_COUNT=yes")
	if want := fmt.Sprintf(" %d skipped", adding+needMore(2)); !strings.Contains(r.Output[0], want) {
		t.Errorf("rank 0: %q, want%s", r.Output[0], want)
	}
}

// needMore is the number of cases that need more ranks.
func needMore(ranks int) (n int) {
	for _, c := range suiteCases() {
		if c.MinRanks > ranks {
			n++
		}
	}
	return n
}

// With tiny rings, every limit is reached.
func TestSuite_TinyRings_Passes(t *testing.T) {
	localtest.Run(t, 3, "suite", "FERRY_BTL_SHM_RING_SIZE=16KiB", "FERRY_BTL_SHM_EAGER_LIMIT=64", "FERRY_PML_OB1_UNEXPECTED_LIMIT=16KiB")
}

func TestSuite_EachPathForLargeMessages_Passes(t *testing.T) {
	for _, path := range []string{"off", "cma", "memory"} {
		t.Run(path, func(t *testing.T) { localtest.Run(t, 3, "suite", "FERRY_BTL_SHM_SINGLE_COPY="+path) })
	}
}

// failing checks that a case that fails in one rank fails in all, and that the next one runs.
func failing(ctx context.Context) error {
	sour := errors.New("as it should")
	cases := []conform.Case{
		{Name: "fails in rank 1", MinRanks: 1, Run: func(_ context.Context, e conform.Env) error {
			if e.Comm.Rank() == 1 {
				return sour
			}
			return nil
		}},
		{Name: "needs more", MinRanks: 99, Run: func(context.Context, conform.Env) error { return sour }},
		{Name: "works", MinRanks: 2, Run: func(ctx context.Context, e conform.Env) error { return mpi.Barrier(ctx, e.Comm) }},
	}
	return on(ctx, func(s *mpi.Session, world *mpi.Comm) error {
		var got []string
		err := conform.Run(ctx, s, world, cases, conform.Limit, func(r conform.Result) { got = append(got, fmt.Sprint(r.Case.Name, " ", r.Status, r.FailedRanks)) })
		if want := "[fails in rank 1 fail[1] needs more skip[] works pass[]]"; fmt.Sprint(got) != want {
			return fmt.Errorf("%v, want %s", got, want)
		}
		return err
	})
}

func TestRun_CaseFailsInOneRank_FailsInAll(t *testing.T) {
	mpitest.Job{Size: 3}.RunSessions(t, failing)
}

// skipping runs cases that all ranks skip, or some of them, and one that fails in another rank.
func skipping(ctx context.Context) error {
	skip := fmt.Errorf("%w: no room", kittest.ErrSkip)
	sour := errors.New("as it should")
	var cases []conform.Case
	for _, outcomes := range [][3]error{{skip, skip, skip}, {nil, skip, nil}, {skip, sour, nil}} {
		cases = append(cases, conform.Case{MinRanks: 1, Run: func(_ context.Context, e conform.Env) error { return outcomes[e.Comm.Rank()] }})
	}
	return on(ctx, func(s *mpi.Session, world *mpi.Comm) error {
		var got []string
		err := conform.Run(ctx, s, world, cases, conform.Limit, func(r conform.Result) {
			got = append(got, fmt.Sprint(r.Status, r.FailedRanks, " ", r.SkipReason))
		})
		second := "skip[] rank 1 skips it"
		if world.Rank() == 1 {
			second = "skip[] no room"
		}
		if want := []string{"skip[] no room", second, "fail[1] "}; !slices.Equal(got, want) {
			return fmt.Errorf("%q, want %q", got, want)
		}
		return err
	})
}

func TestRun_RankSkipsCase_CaseIsSkippedUnlessOneFails(t *testing.T) {
	mpitest.Job{Size: 3}.RunSessions(t, skipping)
}

// onGoroutines skips a case about processes. A failure is that of all goroutine ranks.
func onGoroutines(ctx context.Context) error {
	cases := []conform.Case{
		{Name: "of processes", MinRanks: 1, IsOfProcesses: true, Run: func(context.Context, conform.Env) error { return errors.New("it ran") }},
		{Name: "fails in rank 1", MinRanks: 3, Run: func(_ context.Context, e conform.Env) error {
			if e.Comm.Rank() == 1 {
				return errors.New("as it should")
			}
			return nil
		}},
		{Name: "works", MinRanks: 1, Run: func(ctx context.Context, e conform.Env) error { return mpi.Barrier(ctx, e.Comm) }},
	}
	return on(ctx, func(s *mpi.Session, world *mpi.Comm) error {
		var mu sync.Mutex
		got := make([]string, 3)
		err := conform.RunGoroutines(ctx, s, world, 3, cases, conform.Limit, func(r conform.Result) {
			mu.Lock()
			defer mu.Unlock()
			got[r.Rank] += fmt.Sprintf("%s%v%t%t ", r.Status, r.FailedRanks, r.Err != nil, r.SkipReason != "")
		})
		const others = "skip[]falsetrue fail[1]falsefalse pass[]falsefalse "
		if want := []string{others, strings.Replace(others, "fail[1]false", "fail[1]true", 1), others}; !slices.Equal(got, want) {
			return fmt.Errorf("%q, want %q", got, want)
		}
		return err
	})
}

func TestRunGoroutines_CaseFailsInOneRank_FailsInAll(t *testing.T) {
	mpitest.Job{Size: 1}.RunSessions(t, onGoroutines)
}

// hanging checks that a case that hangs in rank 1 ends there, and fails in all.
func hanging(ctx context.Context) error {
	return on(ctx, func(s *mpi.Session, world *mpi.Comm) error {
		cases := []conform.Case{{Name: "hangs", MinRanks: 1, Run: func(ctx context.Context, e conform.Env) error {
			if e.Comm.Rank() != 1 {
				return nil
			}
			_, err := e.Comm.Recv(ctx, nil, 0, 0)
			return err
		}}}
		var got conform.Result
		err := conform.Run(ctx, s, world, cases, time.Second, func(r conform.Result) { got = r })
		if got.Status != conform.Fail || !slices.Equal(got.FailedRanks, []int{1}) || errors.Is(got.Err, conform.ErrHung) != (got.Rank == 1) {
			return fmt.Errorf("%+v", got)
		}
		return err
	})
}

func TestRun_CaseHangsInOneRank_Ends(t *testing.T) { mpitest.Job{Size: 3}.RunSessions(t, hanging) }

// leaving checks that a rank that does not return ends the suite for the others, with the name of the
// case.
func leaving(ctx context.Context) error {
	return on(ctx, func(s *mpi.Session, world *mpi.Comm) error {
		if world.Rank() == 1 {
			return nil
		}
		cases := []conform.Case{
			{Name: "alone", MinRanks: 1, Run: func(context.Context, conform.Env) error { return nil }},
			{Name: "after that", MinRanks: 1, Run: func(context.Context, conform.Env) error { return nil }},
		}
		var got []conform.Result
		err := conform.Run(ctx, s, world, cases, 100*time.Millisecond, func(r conform.Result) { got = append(got, r) })
		if err == nil || len(got) != 1 || got[0].Status != conform.Fail || !errors.Is(got[0].Err, err) {
			return fmt.Errorf("%v %+v", err, got)
		}
		return nil
	})
}

func TestRun_RankDoesNotReturn_SuiteEnds(t *testing.T) { mpitest.Job{Size: 2}.RunSessions(t, leaving) }

// on calls f with a session and a communicator of all.
func on(ctx context.Context, f func(*mpi.Session, *mpi.Comm) error) error {
	s, err := mpitest.Open(ctx)
	if err != nil {
		return err
	}
	all, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	world, err := mpi.CommFromGroup(ctx, all, "test")
	if err != nil {
		return err
	}
	return errors.Join(f(s, world), world.Close(), s.Close())
}
