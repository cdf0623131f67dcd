package soak

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/needs"
)

// An elastic job has three teams. Each of them grows, shrinks and replaces members at random, while
// ranks are killed at random moments. At the end all ranks have observed the same changes, no rank
// hangs, and the memory of rank 0 and of the launcher has not grown. A seed determines the
// requested changes, and which ranks are killed after how many changes. The timing is random.
//
//	go test ./test/soak -v -run Elastic                              a few changes
//	go test ./test/soak -v -full -run Elastic -timeout 2h            the full number
//	go test ./test/soak -v -run Elastic/tcp -elastic.seed 17 -elastic.changes 100
var (
	elasticSeed    = flag.Uint64("elastic.seed", 0, "the seed of elastic jobs; 0: a random one")
	elasticChanges = flag.Int("elastic.changes", 0, "changes of an elastic job; 0: 20, or 500 with -full")
)

// elasticSettled is the number of changes before the first measurement of memory.
const elasticSettled = 50

func TestElastic(t *testing.T) {
	for _, stack := range []struct {
		name string
		env  []string
	}{
		{"ob1", nil},
		{"tcp", overSockets},
		{"cm", nil}, // See overNetwork.
	} {
		t.Run(stack.name, func(t *testing.T) {
			if stack.name == "cm" {
				needs.Time(t)
				stack.env = overNetwork(t)
			}
			seed := *elasticSeed
			if seed == 0 {
				seed = rand.Uint64()>>1 + 1
			}
			t.Logf("-elastic.seed %d", seed)
			changes := size(500, 20)
			if *elasticChanges > 0 {
				changes = *elasticChanges
			}
			j := &elasticJob{t: t, dir: t.TempDir(), seed: seed, changes: changes, rng: rand.New(rand.NewPCG(seed, 1)), pids: map[int]int{}, teams: map[string][]uint32{}}
			j.run(stack.env)
		})
	}
}

// elasticJob is the harness of an elastic job.
type elasticJob struct {
	t    *testing.T
	dir  string
	seed uint64
	// Number of changes to make.
	changes int
	rng     *rand.Rand
	cmd     *exec.Cmd
	stderr  bytes.Buffer

	done  int
	kills sync.WaitGroup
	// Resident memory of the launcher and of rank 0.
	launcher, rank0 samples

	mu sync.Mutex
	// Members of the current sets.
	teams  map[string][]uint32
	pids   map[int]int // By rank.
	killed []int       // Killed ranks.
}

// run runs the job to its end, and checks history, memory and files.
func (j *elasticJob) run(env []string) {
	t := j.t
	shm, runtimeDir := segments(t), t.TempDir()
	limit := time.Duration(60+4*j.changes) * time.Second // Generous, for a busy machine.
	ctx, cancel := context.WithTimeout(t.Context(), limit+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "run", "-n", fmt.Sprint(elasticTeams*elasticTeamSize), "--max-ranks", fmt.Sprint(elasticTeams*maxTeamSize+2),
		"--on-failure", "continue", "--timeout", limit.String(), "-x", envFerry+"=0", os.Args[0])
	cmd.Env = append(os.Environ(), envFerry+"=1", "XDG_RUNTIME_DIR="+runtimeDir, "FERRY_BTL_SHM_DIR="+shm, "LOCALTEST_PROGRAM=elastic", "LOCALTEST_TIMEOUT="+limit.String(),
		envElasticDir+"="+j.dir, envElasticSeed+"="+fmt.Sprint(j.seed))
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = &j.stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	j.cmd = cmd
	began := time.Now()
	j.readEvents(out)
	err = cmd.Wait()
	j.kills.Wait()
	final := j.compareHistories()
	unanswered := slices.DeleteFunc(slices.Clone(j.killed), func(rank int) bool { return !slices.Contains(final, uint32(rank)) })
	if (err == nil) != (len(unanswered) == 0) || j.done < j.changes {
		t.Errorf("killed ranks in the last sets: %v", unanswered)
		t.Errorf("%d of %d changes: %v\n%s", j.done, j.changes, err, lastLines(j.stderr.String(), 200))
	}
	t.Logf("%d changes and %d kills in %v", j.done, len(j.killed), time.Since(began).Round(time.Millisecond))
	j.checkMemory()
	if left := append(files(t, shm), files(t, runtimeDir)...); len(left) > 0 {
		t.Errorf("remaining at the end: %v", left)
	}
}

// readEvents reads the lines of the ranks, which report a new process or a finished change.
func (j *elasticJob) readEvents(out interface{ Read([]byte) (int, error) }) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		kind, text, _ := strings.Cut(lines.Text(), " ")
		switch kind {
		case "rank":
			var rank, pid int
			if _, err := fmt.Sscanf(text, "%d pid %d", &rank, &pid); err != nil {
				j.t.Errorf("%q: %v", lines.Text(), err)
			}
			j.mu.Lock()
			j.pids[rank] = pid
			j.mu.Unlock()
			continue
		case "resident":
			var n int64
			fmt.Sscan(text, &n)
			j.rank0 = append(j.rank0, sample{j.done, n})
			continue
		case "change":
			j.recordChange(text)
		default:
			j.t.Log(lines.Text())
			continue
		}
		j.launcher = append(j.launcher, sample{j.done, residentOf(j.cmd.Process.Pid)})
		switch {
		case j.done == j.changes:
			if err := os.WriteFile(filepath.Join(j.dir, stopFile), nil, 0o600); err != nil {
				j.t.Error(err)
			}
		case j.done%10 == 5 && j.done < j.changes-10, j.done == 12:
			j.killRandom()
		}
	}
}

// recordChange records a finished change.
func (j *elasticJob) recordChange(text string) {
	var x turn
	if err := json.Unmarshal([]byte(text), &x); err != nil {
		j.t.Errorf("%q: %v", text, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.teams, x.From)
	j.teams[x.To] = x.Ranks
	j.done++
}

// killableRanks returns the ranks of teams with other members, except 0.
func (j *elasticJob) killableRanks() (ranks []int) {
	for _, team := range j.teams {
		alive := slices.DeleteFunc(slices.Clone(team), func(rank uint32) bool { return parentOf(j.pids[int(rank)]) != j.cmd.Process.Pid })
		for _, rank := range alive {
			if rank > 0 && len(alive) > 1 {
				ranks = append(ranks, int(rank))
			}
		}
	}
	slices.Sort(ranks)
	return ranks
}

// killRandom kills a random rank.
func (j *elasticJob) killRandom() {
	after := time.Duration(j.rng.IntN(50_000)) * time.Microsecond
	choice := j.rng.Float64()
	j.kills.Go(func() {
		time.Sleep(after)
		j.mu.Lock()
		defer j.mu.Unlock()
		ranks := j.killableRanks()
		if len(ranks) == 0 {
			return
		}
		rank := ranks[int(choice*float64(len(ranks)))]
		if syscall.Kill(j.pids[rank], syscall.SIGKILL) == nil {
			j.killed = append(j.killed, rank)
		}
	})
}

// parentOf returns the parent of a process, or 0.
func parentOf(pid int) (parent int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	var state string
	fmt.Sscan(rest, &state, &parent)
	return parent
}

// residentOf returns the resident memory of a process in bytes.
func residentOf(pid int) int64 {
	var all, resident int64
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	fmt.Sscan(string(b), &all, &resident)
	return resident * int64(os.Getpagesize())
}

// samples are measurements of the resident memory of a process.
type samples []sample

type sample struct {
	changes int
	bytes   int64
}

// least returns the smallest sample in a range of changes. The number of connected peers varies.
func (all samples) least(from, to int) (n int64) {
	for _, s := range all {
		if s.changes >= from && s.changes <= to && (n == 0 || s.bytes < n) {
			n = s.bytes
		}
	}
	return n
}

// checkMemory compares the resident memory at the end with that after elasticSettled changes.
func (j *elasticJob) checkMemory() {
	if j.done < 4*elasticSettled {
		return
	}
	for _, p := range []struct {
		name string
		samples
	}{{"the launcher", j.launcher}, {"rank 0", j.rank0}} {
		first, last := p.least(elasticSettled-20, elasticSettled+20), p.least(j.done-40, j.done)
		j.t.Logf("resident memory of %s after %d changes %.1f MiB, at the end %.1f MiB, ratio %.3f", p.name, elasticSettled, mebibytes(first), mebibytes(last), float64(last)/float64(first))
		if last*10 > first*11 {
			j.t.Errorf("%s grows", p.name)
		}
	}
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

// lastLines returns the last lines of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
