package soak

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/internal/needs"
)

// A storm is a random program of 3 to 8 ranks with a fault at a random point. Afterwards the
// reports of both ends of each pair are compared. Each operation has ended, accepted messages were
// received in order and complete, errors have the right class and name the right rank, and both
// ends have an error or none. No rank crashes, and nothing remains.
//
//	go test ./test/soak -v -run Storm                               a few of each
//	go test ./test/soak -v -full -run Storm -timeout 1h             the full number
//	go test ./test/soak -v -run StormKill/cm -storm.seed 17         one of them again, with its reports
var (
	stormSeed  = flag.Int64("storm.seed", -1, "run the storm of this seed only")
	stormCount = flag.Int("storm.count", 0, "how many storms to run of each kind and stack")
	stormTimes = flag.Int("storm.times", 1, "how often to run each storm")
	stormWait  = flag.Duration("storm.wait", 15*time.Second, "how long an operation of a storm may take")
)

// A rank dies by a signal, an exit or a panic.
func TestStormKill(t *testing.T) {
	needs.Time(t)
	storms(t, "kill", size(600, 3))
}

// A rank closes communicators and session while others send it messages or wait for its own.
func TestStormClose(t *testing.T) { storms(t, "close", size(600, 3)) }

// Space for segments, descriptors or address space run out, in one rank or in all.
func TestStormShortage(t *testing.T) { storms(t, "shortage", size(100, 3)) }

// A rank or all of them lose their launcher.
func TestStormCut(t *testing.T) {
	needs.Time(t)
	storms(t, "cut", size(40, 3))
}

// A frame that arrives through a socket after its receive has failed must not be delivered to the
// next receive. One of three runs of this storm failed.
func TestStorm_LateFrameOfDeadRank_KeepsOrder(t *testing.T) {
	needs.Time(t)
	overNetwork(t)
	g := &stormSeries{t: t, counts: map[string][]uint64{}}
	start := time.Now()
	for range size(40, 8) {
		g.runOnce(newStorm("kill", "cm", 20))
	}
	g.report(time.Since(start))
}

// storms runs n storms of a kind over all stacks.
func storms(t *testing.T, kind string, n int) {
	names := slices.Sorted(maps.Keys(stacks))
	for i, stack := range names {
		t.Run(stack, func(t *testing.T) {
			t.Parallel()
			if strings.HasPrefix(stack, "cm") {
				overNetwork(t)
			}
			g := &stormSeries{t: t, counts: map[string][]uint64{}}
			start := time.Now()
			if *stormSeed >= 0 {
				g.run(newStorm(kind, stack, uint64(*stormSeed)))
			} else {
				n := cmp.Or(*stormCount, (n+len(names)-1-i)/len(names))
				for seed := 0; seed < n; seed++ {
					g.run(newStorm(kind, stack, uint64(seed)))
				}
			}
			g.report(time.Since(start))
		})
	}
}

// stormSeries is a series of storms of a kind over one stack.
type stormSeries struct {
	t      *testing.T
	done   int
	failed int
	// Seeds of each kind of finding.
	counts map[string][]uint64
	// Longest time from a fault to an error.
	longestDelay time.Duration
	// The operation with that time.
	longestDelayOp string
}

// maxPrinted is the number of failed storms that are printed in full.
const maxPrinted = 3

func (g *stormSeries) run(s *storm) {
	for range *stormTimes {
		g.runOnce(s)
	}
}

func (g *stormSeries) runOnce(s *storm) {
	t := g.t
	dir, stop := s.directories(t)
	defer stop()
	env := append(slices.Clone(s.env), envStorm+"="+s.String(), envStormWait+"="+stormWait.String(), envStormDir+"="+dir,
		"FERRY_BTL_SHM_DIR="+filepath.Join(dir, "shm"), "FERRY_SESSION_LINGER=1s")
	if !s.noFallback {
		env = append(env, "FERRY_BTL_SHM_FALLBACK_DIR="+filepath.Join(dir, "fallback"))
	} else {
		env = append(env, "FERRY_BTL_SHM_FALLBACK_DIR=", "FERRY_FLAGS=btl.shm.fallback_dir") // An empty variable counts only as a flag.
	}
	if s.kind == "cut" {
		env = append(env, "FERRY_BOOTSTRAP_TIMEOUT=1s")
	}
	nodes := 1
	if s.hasTwoNodes {
		nodes = 2
	}
	r := localtest.RunJob(t, localtest.Job{Size: s.ranks, Nodes: nodes, Program: "storm", Env: env, MayFail: true, Timeout: 10 * *stormWait})
	var ends []rankExit
	for rank := range s.ranks {
		ends = append(ends, rankExit{r.Exit[rank], r.Output[rank]})
	}
	findings, stories := compareReports(s, ends)
	if !slices.ContainsFunc(stories, func(st *rankReport) bool { return st != nil && len(st.Hangs) > 0 }) {
		findings = append(findings, s.leftovers(t, dir, stories)...)
	}
	if after, what := latestError(stories, faultTime(dir)); after > g.longestDelay {
		g.longestDelay, g.longestDelayOp = after, fmt.Sprintf("seed %d: %s", s.seed, what)
	}
	g.done++
	if len(findings) == 0 {
		if *stormSeed >= 0 && *stormTimes == 1 {
			g.printStorm(s, nil, stories, ends)
		}
		return
	}
	kinds := map[string]bool{}
	for _, f := range findings {
		kinds[f.kind] = true
	}
	for k := range kinds {
		g.counts[k] = append(g.counts[k], s.seed)
	}
	if g.failed++; g.failed <= maxPrinted {
		g.printStorm(s, findings, stories, ends)
	} else {
		t.Logf("storm %s: %s: %s: %s", s, s.fault, findings[0].kind, findings[0].text)
	}
}

// printStorm prints a storm with its outcome.
func (g *stormSeries) printStorm(s *storm, findings []finding, stories []*rankReport, ends []rankExit) {
	var b strings.Builder
	fmt.Fprintf(&b, "storm %s: %d ranks, %d communicators, steps %v; %s; nodes: %t; %s\n", s, s.ranks, s.comms, s.steps, s.fault, s.hasTwoNodes, strings.Join(s.env, " "))
	for i, f := range findings {
		if i == 10 {
			fmt.Fprintf(&b, "  and %d more\n", len(findings)-i)
			break
		}
		fmt.Fprintf(&b, "  %s: %s\n", f.kind, f.text)
	}
	for rank, st := range stories {
		text, err := json.Marshal(st)
		fmt.Fprintf(&b, "  rank %d: %s, %v, exit %v\n", rank, text, err, ends[rank].err)
		if st != nil && len(st.Hangs) > 0 {
			before, _, _ := strings.Cut(ends[rank].out, "\n"+reportPrefix)
			fmt.Fprintf(&b, "    %s\n", strings.ReplaceAll(before, "\n", "\n    "))
		}
	}
	g.t.Log(b.String())
}

// report logs the results of the storms.
func (g *stormSeries) report(took time.Duration) {
	t := g.t
	t.Logf("%d storms in %v; the last error came %v after the fault: %s", g.done, took.Round(time.Millisecond), g.longestDelay.Round(10*time.Microsecond), g.longestDelayOp)
	kinds := slices.SortedFunc(maps.Keys(g.counts), func(a, b string) int { return cmp.Compare(len(g.counts[b]), len(g.counts[a])) })
	for _, k := range kinds {
		t.Logf("%4d storms: %s: seeds %v", len(g.counts[k]), k, g.counts[k][:min(len(g.counts[k]), 12)])
	}
	if g.failed > 0 {
		t.Errorf("%d of %d storms failed", g.failed, g.done)
	}
}

// directories creates the directories of one storm. They are shm and fallback for segments, and
// their parent.
func (s *storm) directories(t *testing.T) (dir string, remove func()) {
	t.Helper()
	dir = segments(t)
	for _, name := range []string{"shm", "fallback"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	small := filepath.Join(dir, "shm")
	room := s.tmpfsSize()
	if room > 0 {
		if err := unix.Mount("tmpfs", small, "tmpfs", 0, fmt.Sprint("size=", room)); err != nil {
			needs.Missing(t, "no tmpfs can be mounted: %v", err)
		}
	}
	return dir, func() {
		if room > 0 {
			if err := unix.Unmount(small, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
		os.RemoveAll(dir)
	}
}

// leftovers returns findings about remaining files.
func (s *storm) leftovers(t *testing.T, dir string, stories []*rankReport) (found []finding) {
	look := func(what string) {
		for _, name := range append(files(t, filepath.Join(dir, "shm")), files(t, filepath.Join(dir, "fallback"))...) {
			if !strings.Contains(name, fillerPrefix) {
				found = append(found, finding{what, name})
			}
		}
	}
	if !slices.Contains(stories, nil) {
		look("left by ranks that ended in good order")
	}
	// The launcher removes the files of dead ranks.
	if _, err := shm.RemoveDeadSegments(filepath.Join(dir, "shm"), filepath.Join(dir, "fallback")); err != nil {
		found = append(found, finding{"left", err.Error()})
	}
	if found == nil {
		look("left behind, although nobody uses it")
	}
	return found
}

// faultTime returns the time of the first fault, 0 if there was none.
func faultTime(dir string) (at int64) {
	names, _ := filepath.Glob(filepath.Join(dir, "fault-*"))
	for _, name := range names {
		if m := readTime(name); at == 0 || m < at {
			at = m
		}
	}
	return at
}
