package watch

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local/control"
	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
	"github.com/ferrympi/ferry/test/browsertest"
)

var update = flag.Bool("update", false, "write the golden file of the page again")

// fixedJob is a job with the state that a test determines.
type fixedJob struct {
	mu       sync.Mutex
	page     *Page
	snapshot server.Snapshot
	ms       int
	isEnding bool
	isSilent bool
}

func (j *fixedJob) IsEnding() bool               { return j.isEnding }
func (j *fixedJob) Snapshot(int) server.Snapshot { return j.snapshot }

// RequestTraffic answers for each open rank, unless the job is silent. Rank n sends n+1 thousand messages to the next rank per second.
func (j *fixedJob) RequestTraffic() (ranks []int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range j.snapshot.Procs {
		if p.State == server.ProcOpen {
			ranks = append(ranks, p.Rank)
			if j.isSilent {
				continue
			}
			n := (p.Rank + 1) * j.ms
			j.page.ObserveTraffic(p.Rank, body(j.ms, peer(p.Rank+1, "shm", n)))
		}
	}
	return ranks
}

// fixedPage is a page of a job after a grow, a failure, an undone change and a change in progress. Its clock stands still after the second poll.
func fixedPage(t *testing.T) *Page {
	p := openPage(t, defaultBounds)
	j := &fixedJob{page: p, snapshot: server.Snapshot{
		Procs: []server.ProcInfo{
			{Rank: 0, State: server.ProcOpen, PID: 100}, {Rank: 1, State: server.ProcOpen, PID: 101}, {Rank: 2, State: server.ProcFailed, PID: 102},
			{Rank: 3, State: server.ProcOpen, PID: 103}, {Rank: 4, State: server.ProcStarting}, {Rank: 5, State: server.ProcClosed, PID: 105},
		},
		Psets:      []server.PsetInfo{{Name: "mpi://WORLD", Ranks: []uint32{0, 1, 2}}, {Name: "<b>half & \"half\"</b>", Ranks: []uint32{0, 1}}, {Name: "ferry://delta/2", Ranks: []uint32{3}}, {Name: "main", Ranks: []uint32{0, 1, 2, 3}}},
		OlderPsets: 3,
	}}
	p.liveJob, p.commandLine, p.startedAt = j, "bin/<i>elastic</i> -for 20s", at(0)
	p.currentTime = func() time.Time { return at(65000 + j.ms) }
	for _, ms := range []int{1000, 2000} {
		j.ms = ms
		p.requestTraffic(j)
	}
	p.currentTime = func() time.Time { return at(3000) }
	grow := server.PsetEvent{Op: bootstrap.PsetGrow, Operands: []string{"mpi://WORLD"}, Results: []string{"ferry://delta/2", "main"}, Joining: 1, Text: "main"}
	for grow.Kind = server.ChangeBegun; grow.Kind <= server.ChangeFinished; grow.Kind++ {
		p.ObservePset(grow)
	}
	p.ObserveProc(server.ProcEvent{Rank: 2, State: server.ProcFailed, Reason: "signal: killed"})
	undone := server.PsetEvent{Op: bootstrap.PsetShrink, Operands: []string{"main"}, Results: []string{"gone"}, Leaving: 1, Kind: server.ChangeBegun, IsOfUser: true}
	p.ObservePset(undone)
	undone.Kind, undone.Text = server.ChangeUndone, "ranks [2] have failed"
	p.ObservePset(undone)
	p.ObservePset(server.PsetEvent{Kind: server.ChangeBegun, Op: bootstrap.PsetReplace, Operands: []string{"main"}, Results: []string{"a", "b", "c"}, Joining: 1, Leaving: 1, IsOfUser: true})
	p.currentTime = func() time.Time { return at(67000) }
	return p
}

// showPage opens a page in a browser, and waits for its first state.
func showPage(b *browsertest.Browser, p *Page) {
	b.Open(p.URL())
	b.Until(`document.getElementById("status").textContent !== "Connecting"`)
}

func TestPage_InBrowser(t *testing.T) {
	b := browsertest.Start(t)
	p := fixedPage(t)
	b.Run("ShowsTheGoldenPage", func(t *testing.T) {
		showPage(b, p)
		got := browsertest.Eval[string](b, `document.body.outerHTML.replace(/<style>.*<\/style>|<script>.*<\/script>/gs, "").replace(/></g, ">\n<")`) + "\n"
		golden := filepath.Join("testdata", "page.html")
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("the page differs from %s (-update writes it again): %s", golden, firstDifference(got, string(want)))
		}
		b.CheckQuiet(p.URL())
	})
	b.Run("HasContrastInBothSchemes", func(t *testing.T) {
		showPage(b, p)
		ground := map[string]string{}
		for _, scheme := range []string{"light", "dark"} {
			b.EmulateMedia("", scheme)
			ground[scheme] = browsertest.Eval[string](b, `getComputedStyle(document.body).backgroundColor`)
			b.CheckContrast()
		}
		if ground["light"] == ground["dark"] {
			t.Error("both schemes look the same")
		}
	})
	b.Run("FitsAPhone", func(t *testing.T) {
		b.Resize(400, 800)
		showPage(b, p)
		if width := browsertest.Eval[int](b, `document.scrollingElement.scrollWidth`); width > 400 {
			t.Errorf("the page is %d wide", width)
		}
		if wide := browsertest.Eval[[]string](b, `[...document.querySelectorAll("body *")].filter(e => e.checkVisibility() && !e.closest(".wide, .skip") &&
			e.getBoundingClientRect().right > 400).map(e => e.outerHTML.slice(0, 100))`); len(wide) > 0 {
			t.Errorf("wider than the screen: %q", wide)
		}
	})
	b.Run("WorksWithTheKeyboard", func(t *testing.T) {
		showPage(b, p)
		focused := func() string {
			return browsertest.Eval[string](b, `document.activeElement.dataset.name ?? document.activeElement.id ?? ""`)
		}
		var stops []string
		for range 9 {
			b.Press("Tab", 9, "")
			stops = append(stops, focused())
		}
		if want := []string{"", "pause", "graph", "mpi://WORLD", `<b>half & "half"</b>`, "ferry://delta/2", "main", "a", "b"}; !slices.Equal(stops, want) {
			t.Errorf("stops %q, want %q", stops, want)
		}
		browsertest.Eval[bool](b, `document.querySelector("[data-name=main]").focus(), true`)
		b.Press("Enter", 13, "\r")
		if text := browsertest.Eval[string](b, `document.getElementById("set").textContent`); text != "main: ranks 0-3, grow of mpi://WORLD" {
			t.Errorf("the selected set is described as %q", text)
		}
		b.Press(" ", 32, " ")
		if text := browsertest.Eval[string](b, `document.getElementById("set").textContent`); !strings.HasPrefix(text, "Select") {
			t.Errorf("after a second key the description is %q", text)
		}
	})
	b.Run("NamesEverythingForAScreenReader", func(t *testing.T) {
		showPage(b, p)
		count := map[string]int{}
		for _, n := range b.AccessibleNodes() {
			if count[n.Role]++; n.Name == "" && slices.Contains([]string{"button", "link", "region", "heading", "columnheader", "rowheader"}, n.Role) {
				t.Errorf("a %s has no name", n.Role)
			}
		}
		for role, least := range map[string]int{"heading": 5, "region": 4, "table": 2, "columnheader": 14, "rowheader": 9, "status": 1, "button": 8, "main": 1, "listitem": 8} {
			if count[role] < least {
				t.Errorf("%d of role %s, want %d; there are %v", count[role], role, least, count)
			}
		}
	})
	b.Run("ShowsNoCountsBeforeAnAnswer", func(t *testing.T) {
		silent := openPage(t, defaultBounds)
		silent.liveJob = &fixedJob{page: silent, snapshot: server.Snapshot{Procs: []server.ProcInfo{{Rank: 0, State: server.ProcOpen, PID: 100}}}, isSilent: true}
		showPage(b, silent)
		cells := browsertest.Eval[[]string](b, `[...document.querySelectorAll("#ranks tbody tr > *")].map(e => e.textContent)`)
		if want := []string{"0", "running", "–", "–", "–", "–", "–", "100"}; !slices.Equal(cells, want) {
			t.Errorf("cells %q, want %q", cells, want)
		}
		if text := browsertest.Eval[string](b, `document.getElementById("more-pairs").textContent`); text != "" {
			t.Errorf("the note on pairs is %q", text)
		}
	})
	b.Run("RequestsNothingWhilePaused", func(t *testing.T) {
		showPage(b, p)
		b.Click("#pause")
		before := countRequests(b, p)
		if name := browsertest.Eval[string](b, `document.getElementById("pause").textContent`); name != "Resume" {
			t.Errorf("the button of a paused page is named %q", name)
		}
		browsertest.Eval[bool](b, `new Promise(resolve => setTimeout(() => resolve(true), 2200))`)
		if n := countRequests(b, p); n != before {
			t.Errorf("%d requests while the page is paused", n-before)
		}
		if text := browsertest.Eval[string](b, `document.getElementById("status").textContent`); text != "Paused" {
			t.Errorf("the status of a paused page is %q", text)
		}
		b.Click("#pause")
		await(t, "a request", func() bool { return countRequests(b, p) > before })
	})
	b.Run("PolicyForbidsOtherSources", func(t *testing.T) {
		showPage(b, p)
		blocked := b.BlockedDirectives()
		if !slices.Equal(blocked, []string{"connect-src", "img-src", "script-src-elem"}) {
			t.Errorf("blocked: %q", blocked)
		}
	})
	b.Run("ReportsTheEndOfTheJob", func(t *testing.T) {
		ended := fixedPage(t)
		showPage(b, ended)
		if err := ended.Close(); err != nil {
			t.Error(err)
		}
		b.Until(`document.getElementById("status").textContent.startsWith("The job has ended")`)
		if text := browsertest.Eval[string](b, `document.getElementById("status").textContent`); !strings.HasPrefix(text, "The job has ended") {
			t.Errorf("the status is %q", text)
		}
		if rows := b.CountShown("#ranks tbody tr"); rows != 6 {
			t.Errorf("%d ranks are shown after the end", rows)
		}
	})
}

// countRequests counts the requests for the state since the page was opened.
func countRequests(b *browsertest.Browser, p *Page) (n int) {
	for _, e := range b.Events() {
		if e.Method == "Network.requestWillBeSent" && strings.Contains(string(e.Params), p.URL()+statePath) {
			n++
		}
	}
	return n
}

func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d:\n%s\nwant\n%s", i+1, a[i], b[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(a), len(b))
}

func TestPage_JobGrowsShrinksAndLosesARank_BrowserShowsIt(t *testing.T) {
	b := browsertest.Start(t)
	j := startJob(t, "elastic", launch.Job{Part: launch.Part{RankCount: 2}, MaxRanks: 4, FailurePolicy: launch.FailurePolicy{ContinuesOnFailure: true}})
	showPage(b, j.page)
	until := func(what, expression string) {
		t.Helper()
		b.Until(expression)
		if !browsertest.Eval[bool](b, "Boolean("+expression+")") {
			t.Fatalf("no %s: %s", what, browsertest.Eval[string](b, `document.body.innerText`))
		}
	}
	row := func(table, key string) string {
		return fmt.Sprintf(`document.querySelector("#%s tr[data-key='%s']")`, table, key)
	}
	change := func(text string) string {
		return fmt.Sprintf(`[...document.querySelectorAll("#log li")].some(e => e.textContent.includes(%q))`, text)
	}
	edge := func(op string) string {
		return fmt.Sprintf(`[...document.querySelectorAll("#graph .edge:not(.is-unfinished) text")].some(e => e.textContent === %q)`, op)
	}
	until("traffic of the pair", row("pairs", "0 1 shm")+`?.cells[2].textContent.match(/^[0-9]/)`)
	until("rates of rank 1", row("ranks", "1")+`.cells[2].textContent !== "–"`)
	j.resize(control.Add, 2)
	until("new rank", row("ranks", "3")+`?.cells[1].textContent === "running"`)
	until("grow", edge("grow")+" && "+change("grow of mpi://WORLD finished"))
	j.resize(control.Sub, 1)
	until("rank that has left", row("ranks", "3")+" === null")
	until("shrink", edge("shrink"))
	process, err := os.FindProcess(j.pid(2))
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	until("failed rank", row("ranks", "2")+`.cells[1].textContent === "failed" && `+change("rank 2 failed: signal: killed"))
	j.resize(control.Sub, 0)
	until("removal of the failed rank", row("ranks", "2")+` === null && document.getElementById("count").textContent === "2"`)
	b.CheckQuiet(j.page.URL())
}
