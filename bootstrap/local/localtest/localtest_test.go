package localtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/localtest"
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
			select {} // beyond any context: only a kill ends it
		},
		"leak": func(context.Context) error {
			go func() { select {} }()
			return nil
		},
	})
}

func TestOutputIsKeptByRank(t *testing.T) {
	r := localtest.Run(t, 3, "echo", "WORD=hello")
	for rank, out := range r.Output {
		if out != fmt.Sprintf("%d hello\n", rank) {
			t.Errorf("rank %d: %q", rank, out)
		}
	}
}

func TestRanksThatGoWrongAreSeen(t *testing.T) {
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
