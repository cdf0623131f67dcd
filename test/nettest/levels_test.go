package nettest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/mpi"
)

// Environment of a rank of part "levels". It has the folder of steps and the prefix of the tag of
// the construct after which the rank waits.
const (
	envSteps  = "NETTEST_STEPS"
	envCutTag = "NETTEST_CUT_TAG"
)

// The link between two hosts is cut while a communicator is created in levels. The launcher still
// works, so that all constructs succeed and only messages are lost. Each member gets an error that
// names members behind the link. A later creation succeeds.
func TestLevels_LinkIsCut_AllMembersFail(t *testing.T) {
	needs.Time(t)
	for _, c := range []struct {
		name, tag    string
		ranks, nodes int
		// Number of ranks that wait for the cut.
		holding int
		timeout string
		// Returns the ranks that the error of a rank may name.
		names func(rank int) []int
	}{
		{"level 2", "\x00level 2 ", 66, 66, 2, "20s", namesOfBlocks},
		{"level 1", "\x00level 1 ", 4, 2, 2, "8s", otherRoot},
		{"table on its way down", "\x00base", 4, 2, 1, "8s", otherRoot},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h, steps := New(t), t.TempDir()
			line := []string{"run", "-n", fmt.Sprint(c.ranks), fmt.Sprint("--nodes=", c.nodes), "--timeout", "4m", "--set", "bootstrap.roots_from=0", "--set", "bootstrap.timeout=" + c.timeout,
				"-x", envFerry + "=0", "-x", envPart + "=levels", "-x", envSteps + "=" + steps, "-x", envCutTag + "=" + strings.TrimPrefix(c.tag, "\x00")}
			cmd := exec.CommandContext(t.Context(), os.Args[0], append(line, h.Command(os.Args[0])...)...)
			cmd.Env = append(os.Environ(), envFerry+"=1", "FERRY_CONFIG="+os.DevNull, "XDG_RUNTIME_DIR="+t.TempDir())
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			await := func(step string, n int) (files []string) {
				for len(files) < n {
					select {
					case err := <-ended:
						t.Fatalf("the job ended before %d ranks were at step %q: %v\n%s", n, step, err, out.String())
					case <-time.After(2 * time.Millisecond):
						files, _ = filepath.Glob(filepath.Join(steps, step+".*"))
					}
				}
				return files
			}
			await("holds", c.holding)
			h.Cut(0)
			complete(t, steps, "cut")
			for _, file := range await("failed", c.ranks) {
				checkFailure(t, file, c.names)
			}
			h.Join(0)
			complete(t, steps, "joined")
			if err := <-ended; err != nil {
				t.Errorf("%v\n%s", err, out.String())
			}
		})
	}
}

// otherRoot returns the root of the other one of two nodes with two ranks each.
func otherRoot(rank int) []int {
	if rank < 2 {
		return []int{2}
	}
	return []int{0}
}

// namesOfBlocks serves 66 nodes of one rank. Ranks from 33 on are on the second host. Rank 64 is
// the first member of the second block. A rank there names the next one on the path to the
// coordinator that has sent no error.
func namesOfBlocks(rank int) (names []int) {
	if rank < 33 {
		return []int{64}
	}
	for ; rank > 0; rank &= rank - 1 { // Ancestors in the binomial tree.
		names = append(names, rank&(rank-1))
	}
	return names
}

// complete writes the file of a step.
func complete(t *testing.T, steps, step string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(steps, step), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// failure is the error of a creation in one rank.
type failure struct {
	Rank int
	// Ranks in ErrTimeout or ErrTransport.
	Named   []int
	Text    string
	Elapsed time.Duration
}

// checkFailure checks the names in the error of a rank.
func checkFailure(t *testing.T, file string, names func(rank int) []int) {
	t.Helper()
	b, err := os.ReadFile(file)
	var f failure
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	if err != nil {
		t.Error(err)
		return
	}
	want := names(f.Rank)
	if len(f.Named) == 0 || slices.ContainsFunc(f.Named, func(rank int) bool { return !slices.Contains(want, rank) }) {
		t.Errorf("rank %d: error %q, want ErrTimeout or ErrTransport that names ranks of %v", f.Rank, f.Text, want)
	}
	if f.Rank == 0 || slices.Contains(want, 0) && len(want) == 1 {
		t.Logf("rank %d after %v: %s", f.Rank, f.Elapsed.Round(time.Millisecond), f.Text)
	}
}

// levels is the program of a rank. Its first creation fails, and the second or third one succeeds.
func levels() {
	if err := createTwice(context.Background(), os.Getenv(envSteps)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func createTwice(ctx context.Context, steps string) error {
	client, err := local.Dial(ctx, os.Environ(), bootstrap.Env{})
	if err != nil {
		return err
	}
	rank := int(client.Identity().Proc.Rank)
	s, err := mpi.OpenSession(ctx, mpi.WithBootstrap(&holdingClient{Client: client, steps: steps, tag: "\x00" + os.Getenv(envCutTag)}))
	if err != nil {
		return err
	}
	world, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	if err := client.Fence(ctx, world.Members(), "ready"); err != nil {
		return err
	}
	start := time.Now()
	_, err = mpi.CommFromGroup(ctx, world, "cut")
	if err == nil {
		return fmt.Errorf("rank %d has a communicator", rank)
	}
	b, err := json.Marshal(failure{Rank: rank, Named: named(err), Text: err.Error(), Elapsed: time.Since(start)})
	if err != nil {
		return err
	}
	if err := errors.Join(atStep(steps, "failed", rank, b), awaitStep(ctx, steps, "joined")); err != nil {
		return err
	}
	c, err := mpi.CommFromGroup(ctx, world, "joined")
	if err != nil { // The path is about to fail in all members.
		c, err = mpi.CommFromGroup(ctx, world, "again")
	}
	if err != nil {
		return fmt.Errorf("after the link was joined: %w", err)
	}
	return errors.Join(mpi.Barrier(ctx, c), c.Close(), s.Close(), client.Close())
}

// named returns the ranks that the error of a creation names.
func named(err error) (ranks []int) {
	if m, ok := errors.AsType[*mpi.MissingError](err); ok && errors.Is(err, mpi.ErrTimeout) {
		for _, p := range m.Missing {
			ranks = append(ranks, int(p.Rank))
		}
	}
	if e, ok := errors.AsType[*framework.TransportError](err); ok { // The connection failed before the deadline.
		var rank int
		if _, err := fmt.Sscanf(e.Peer, "rank %d", &rank); err == nil {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// atStep reports that a rank has reached a step.
func atStep(steps, step string, rank int, text []byte) error {
	file := filepath.Join(steps, fmt.Sprint(step, ".", rank))
	hidden := filepath.Join(steps, fmt.Sprint("-", step, rank))
	if err := os.WriteFile(hidden, text, 0o600); err != nil {
		return err
	}
	return os.Rename(hidden, file)
}

// awaitStep waits until the test has completed a step.
func awaitStep(ctx context.Context, steps, step string) error {
	for {
		if _, err := os.Stat(filepath.Join(steps, step)); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// holdingClient waits for step "cut" after the first construct with a tag.
type holdingClient struct {
	bootstrap.Client
	steps, tag string
	hasHeld    bool
}

func (c *holdingClient) Unwrap() any { return c.Client }

func (c *holdingClient) Construct(ctx context.Context, group []mpi.Proc, tag string, payload []byte) (bootstrap.Constructed, error) {
	made, err := c.Client.Construct(ctx, group, tag, payload)
	if err == nil && !c.hasHeld && strings.HasPrefix(tag, c.tag) {
		c.hasHeld = true
		err = errors.Join(atStep(c.steps, "holds", int(c.Identity().Proc.Rank), nil), awaitStep(ctx, c.steps, "cut"))
	}
	return made, err
}
