package localtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/framework"
)

func TestMain(m *testing.M) {
	localtest.Main(m, map[string]localtest.Program{
		"echo": func(context.Context) error {
			_, err := fmt.Println(os.Getenv("FERRY_BOOTSTRAP_LOCAL_RANK"), os.Getenv("WORD"))
			return err
		},
		"fail": func(context.Context) error { return errors.New("as it should") },
		"hang": func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("stuck here: %w", ctx.Err())
		},
		"deaf": func(context.Context) error {
			select {} // Only a kill ends it.
		},
		"elastic": elastic,
		"leak": func(context.Context) error {
			go func() { select {} }()
			return nil
		},
	})
}

func TestRun_Output_IsKeptByRank(t *testing.T) {
	r := localtest.Run(t, 3, "echo", "WORD=hello")
	for rank, out := range r.Output {
		if out != fmt.Sprintf("%d hello\n", rank) {
			t.Errorf("rank %d: %q", rank, out)
		}
	}
}

func TestRun_FailingRanks_AreReported(t *testing.T) {
	for program, want := range map[string]string{
		"fail": "as it should", "hang": "stuck here", "deaf": "", "leak": "unexpected goroutines", "unknown": "no program",
	} {
		r := localtest.RunJob(t, localtest.Job{Size: 2, Program: program, Timeout: 2 * time.Second, MayFail: true})
		for rank, err := range r.Exit {
			if err == nil || !strings.Contains(r.Output[rank], want) {
				t.Errorf("%s: rank %d: %v, %q", program, rank, err, r.Output[rank])
			}
		}
	}
}

// elastic takes part in changes until it leaves. Rank 0 grows the job from 1 to 4 processes, and
// back to itself.
func elastic(ctx context.Context) error {
	client, err := local.Dial(ctx, os.Environ(), bootstrap.Env{})
	if err != nil {
		return err
	}
	defer client.Close()
	c, ok := framework.As[bootstrap.Changer](client)
	if !ok {
		return errors.New("the client can't change the job")
	}
	if client.Identity().FirstRank > 0 {
		return follow(ctx, c)
	}
	main := bootstrap.PsetWorld
	for _, step := range []struct {
		op   bootstrap.PsetOp
		args bootstrap.PsetArgs
	}{
		{bootstrap.PsetGrow, bootstrap.PsetArgs{Add: 3}}, {bootstrap.PsetReplace, bootstrap.PsetArgs{Add: 2, Sub: 2}}, {bootstrap.PsetShrink, bootstrap.PsetArgs{Sub: 3}},
	} {
		names, err := c.Operate(ctx, step.op, []string{main}, step.args)
		if err != nil {
			return err
		}
		if _, err := c.Integrate(ctx, names[0], ""); err != nil {
			return err
		}
		main = names[len(names)-1]
		if err := c.FinishChange(ctx, names[0]); err != nil {
			return err
		}
	}
	fmt.Println("the main set is", main)
	return nil
}

// follow integrates changes until one removes the process.
func follow(ctx context.Context, c bootstrap.Changer) error {
	for pset := bootstrap.PsetSelf; ; {
		change, _, err := c.Query(ctx, pset, true)
		if err != nil {
			return err
		}
		got, err := c.Integrate(ctx, change.Delta, "")
		if err != nil || got.Terminate {
			return err
		}
		pset = got.Pset
	}
}

func TestChange_AddedProcesses_ArePartOfTheResult(t *testing.T) {
	r := localtest.RunJob(t, localtest.Job{Size: 1, MaxProcs: 4, Program: "elastic"})
	if len(r.Exit) != 6 || !strings.Contains(r.Output[0], "the main set is") {
		t.Errorf("%d ranks, %q", len(r.Exit), r.Output)
	}
}
