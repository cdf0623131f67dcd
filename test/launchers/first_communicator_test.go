package launchers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

const envMembers = "LAUNCHERS_MEMBERS" // Members of the communicator, "all" or "pair" (ranks 1 and 3).

// BenchmarkFirstCommunicator measures the first and the second communicator of a job under each
// launcher with each exchange. All ranks open their sessions and begin at the same moment. The
// result is the median over b.N jobs of the time of the slowest rank.
//
//	go test ./test/launchers -run '^$' -bench FirstCommunicator -benchtime 15x
func BenchmarkFirstCommunicator(b *testing.B) {
	for _, launcher := range All() {
		for _, exchange := range []string{"meet", "groups", "all"} {
			if launcher.Interface == Local && exchange != "meet" {
				continue
			}
			for _, c := range []struct {
				members string
				size    int
			}{{"all", 2}, {"all", 32}, {"pair", 4}} {
				b.Run(fmt.Sprintf("%s/%s/%s of %d", launcher.Name, exchange, c.members, c.size), func(b *testing.B) {
					s := launcher.Start(b)
					var times [2][]time.Duration
					for range b.N {
						for i, t := range s.measureFirst(b, exchange, c.members, c.size) {
							times[i] = append(times[i], t)
						}
					}
					for i, name := range []string{"µs/first", "µs/second"} {
						slices.Sort(times[i])
						b.ReportMetric(float64(times[i][len(times[i])/2].Microseconds()), name)
					}
				})
			}
		}
	}
}

// measureFirst runs one job.
func (s *Started) measureFirst(b *testing.B, exchange, members string, size int) (slowest [2]time.Duration) {
	b.Helper()
	job := Job{Size: size, Program: "first", ExtraEnv: []string{envMembers + "=" + members}}
	if s.Interface != Local {
		job.ExtraEnv = append(job.ExtraEnv, "FERRY_BOOTSTRAP_"+strings.ToUpper(string(s.Interface))+"_EXCHANGE="+exchange)
	}
	res := s.Begin(b, job).Wait()
	if strings.Contains(fmt.Sprint(res), "speaks PMI 1.1") {
		b.Skip("the launcher has PMI 1.1, without group barriers")
	}
	if err := res.Failures(job.Program); err != nil {
		b.Fatal(err, res)
	}
	for i, rank := range res.Ranks {
		if members == "pair" && i%2 == 0 {
			continue
		}
		var took [2]int64
		if _, err := fmt.Sscan(rank.Output, &took[0], &took[1]); err != nil {
			b.Fatal(err, res)
		}
		for i := range slowest {
			slowest[i] = max(slowest[i], time.Duration(took[i]))
		}
	}
	return slowest
}

func firstCommunicators(ctx context.Context) error {
	s, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	g, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	size := g.Size()
	if os.Getenv(envMembers) == "pair" {
		if g, err = g.Incl(1, 3); err != nil {
			return err
		}
	}
	for range 2 {
		begin, err := awaitAllRanks(ctx, size)
		if err != nil {
			return err
		}
		c, err := mpi.CommFromGroup(ctx, g, "first")
		took := time.Since(begin)
		switch {
		case g.Rank() == mpi.Undefined && strings.Contains(fmt.Sprint(err), "is not in it"):
			continue
		case err != nil:
			return err
		}
		fmt.Println(took.Nanoseconds())
		if err := c.Close(); err != nil {
			return err
		}
	}
	return s.Close()
}

// awaitAllRanks returns at about the same time in all ranks of the job, some time after the last one has
// called it. Each call is another rendezvous.
func awaitAllRanks(ctx context.Context, size int) (time.Time, error) {
	const after = 150 * time.Millisecond
	rendezvousCount++
	n, err := Number()
	if err != nil {
		return time.Time{}, err
	}
	file := func(rank int) string {
		return filepath.Join(os.Getenv(envDir), fmt.Sprintf("%d.at%d", rank, rendezvousCount))
	}
	if err := os.WriteFile(file(n), nil, 0o600); err != nil {
		return time.Time{}, err
	}
	var last time.Time
	for rank := 0; rank < size; {
		info, err := os.Stat(file(rank))
		if err == nil {
			if at := info.ModTime(); at.After(last) {
				last = at
			}
			rank++
			continue
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("rank %d is missing: %w", rank, context.Cause(ctx))
		}
	}
	time.Sleep(time.Until(last.Add(after)))
	return time.Now(), nil
}

var rendezvousCount int
