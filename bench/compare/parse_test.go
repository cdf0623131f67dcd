package main

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

func fig(t *testing.T, name string) figure {
	t.Helper()
	list := matching(append(figures(), ownFigures()...), regexp.MustCompile("^"+regexp.QuoteMeta(name)+"$"), func(f figure) string { return f.Name })
	if len(list) != 1 {
		t.Fatalf("%d figures are called %s", len(list), name)
	}
	return list[0]
}

func TestParseSamples_ConvertsToUnitOfFigure(t *testing.T) {
	for _, c := range []struct {
		figure, output string
		value, hop     float64
	}{
		{"8 B latency", recorded, 0.21, 26.5},
		{"bandwidth 1 MiB", `{"bench":"bw","size":1048576,"ranks":2,"unit":"MB/s","avg":13200,"raw_hop_ns":50}`, 13.2, 50},
		{"8 B message rate", `{"bench":"mbw_mr","size":8,"ranks":2,"unit":"messages/s","avg":8700000,"raw_hop_ns":50}`, 8.7, 50},
		{"session + first communicator to MPI_Init, 32 ranks", `{"bench":"init","size":0,"ranks":32,"unit":"ms","avg":751.5,"raw_hop_ns":0}`, 751.5, 0},
	} {
		list, err := parseSamples(c.output, fig(t, c.figure))
		if err != nil || len(list) != 1 || math.Abs(list[0].Value-c.value) > 1e-9 || list[0].RawHopNS != c.hop {
			t.Errorf("%s: %+v, error %v", c.figure, list, err)
		}
	}
}

// A row of another benchmark, size or unit would be a wrong figure, silently.
func TestParseSamples_OtherRow_IsRefused(t *testing.T) {
	f := fig(t, "8 B latency")
	for _, c := range [][2]string{
		{`"latency"`, `"bw"`}, {`"size":8`, `"size":16`}, {`"ranks":2`, `"ranks":4`}, {`"us"`, `"ms"`},
		{`"avg":0.21`, `"avg":0`}, {`"avg":0.21`, `"avg":-1`}, {`"raw_hop_ns":26.5`, `"raw_hop_ns":0`},
		{recorded, recorded + recorded}, {recorded, ""}, {recorded, "mpirun has a warning\n" + recorded},
	} {
		changed := strings.Replace(recorded, c[0], c[1], 1)
		if changed == recorded {
			t.Fatalf("%q is not in the row", c[0])
		}
		if _, err := parseSamples(changed, f); err == nil {
			t.Errorf("accepted: %q", changed)
		}
	}
}

// A sweep that breaks off, or skips back, would be a curve of something else.
func TestParseSamples_Sweep_SizesAscend(t *testing.T) {
	f := fig(t, "8 B latency")
	f.upTo = 32
	sizes := func(list ...int) (out string) {
		for _, n := range list {
			out += strings.Replace(recorded, `"size":8`, fmt.Sprintf(`"size":%d`, n), 1)
		}
		return out
	}
	if list, err := parseSamples(sizes(8, 16, 24, 32), f); err != nil || len(list) != 4 || list[2].messageBytes != 24 {
		t.Errorf("%+v, error %v", list, err)
	}
	for _, bad := range []string{sizes(8), sizes(8, 16), sizes(16, 32), sizes(8, 16, 16, 32), sizes(8, 64, 32), sizes(8, 16, 32, 64)} {
		if list, err := parseSamples(bad, f); err == nil {
			t.Errorf("%q: %+v", bad, list)
		}
	}
}

func TestLargestTime_SlowestRank_IsTheFigure(t *testing.T) {
	if list, err := largestTime("1000000\n3500000\n2000000\n", 3); err != nil || len(list) != 1 || list[0].Value != 3.5 {
		t.Errorf("%+v, error %v", list, err)
	}
	for _, out := range []string{"", "1\n", "1\n2\nx\n", "1\n2\n-3\n", "1\n2\n3\n4\n"} {
		if list, err := largestTime(out, 3); err == nil {
			t.Errorf("%q: %+v", out, list)
		}
	}
}

func TestWorked_AllButIdleTime_IsCounted(t *testing.T) {
	if d := worked(procfs.CPUStat{User: 1, Nice: 0.1, System: 0.5, Idle: 90, Iowait: 4, IRQ: 0.05, SoftIRQ: 0.05, Steal: 0.3, Guest: 0.07}); d != 2*time.Second {
		t.Errorf("%v", d)
	}
	if n := others(1500*time.Millisecond, time.Second, time.Second); n != 0.5 {
		t.Errorf("%g processors", n)
	}
	if n := others(0, time.Second, 0); n != 0 {
		t.Errorf("%g processors", n)
	}
	if b, err := busy(); err != nil || b <= 0 {
		t.Errorf("%v, error %v", b, err)
	}
}

func FuzzOutput(f *testing.F) {
	for _, s := range []string{recorded, recorded + recorded, "1\n2\n", "{", `{"avg":1e400}`, ""} {
		f.Add(s)
	}
	figs := figures()
	f.Fuzz(func(t *testing.T, output string) {
		for _, x := range figs {
			list, err := parseSamples(output, x)
			for _, s := range list {
				if err == nil && (!(s.Value > 0) || math.IsInf(s.Value, 0) || s.RawHopNS < 0) {
					t.Errorf("%s: %+v", x.Name, s)
				}
			}
		}
		if list, err := largestTime(output, 2); err == nil && !(list[0].Value > 0) {
			t.Errorf("%+v", list)
		}
		if each, err := parseCounts(output); err == nil && !(each[countedPath{"cm", "agree"}] > 0) {
			t.Errorf("%v", each)
		}
		if rep, err := parseReport([]byte(output)); err == nil {
			_ = rep.text("results") // any report, no panic
			_ = rep.text("performance")
		}
	})
}

func FuzzPeers(f *testing.F) {
	f.Add([]byte(`[{"name":"a","title":"A","compiler":"c","launcher":"l","settings":[{"title":"as it comes"}]}]`))
	f.Add([]byte(`[{"name":"../a"}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		peers, err := parsePeers(b)
		for _, p := range peers {
			if err == nil && (strings.Contains(p.Name, "/") || len(p.Settings) == 0) {
				t.Errorf("%+v", p)
			}
		}
	})
}

// Under a launcher that is not its own, ferry's time beside the library of that
// launcher is the figure; any other library, or ferry run, would be another one.
func TestUnderLauncher_BothSides_UseIt(t *testing.T) {
	peers, err := loadPeers("../peers/peers.json")
	if err != nil {
		t.Fatal(err)
	}
	o := &options{ferryPath: "ferry", buildDir: "build"}
	launchers := map[string]string{"Hydra": "mpiexec.mpich", "mpirun": "mpirun.openmpi"}
	rows := 0
	for _, f := range figures() {
		_, name, under := strings.Cut(f.Name, ", under ")
		if !under || f.addedProcesses > 0 {
			continue
		}
		rows++
		list := o.series(f, peers)
		if len(list) != 1 {
			t.Fatalf("%s: %d series", f.Name, len(list))
		}
		ours, theirs := list[0].ours.args, list[0].theirs.args
		n := slices.Index(ours, "-n")
		if ours[0] != launchers[name] || n < 0 || !slices.Equal(ours[:n+2], theirs[:n+2]) || !slices.Equal(ours[n+2:], []string{"ferry", "bench", "init", "--rank"}) {
			t.Errorf("%s: %q beside %q", f.Name, ours, theirs)
		}
	}
	if rows != 4 {
		t.Errorf("%d rows under launchers", rows)
	}
	for _, f := range besideBefore("before") {
		if f.launcherPeer != "" {
			t.Errorf("%s: no launcher is there beside an earlier ferry", f.Name)
		}
	}
}

// MPICH 4.0.2 adds no processes under Hydra.
func TestGrowUnderLauncher_AnyLauncher_IsBesideOpenMPIUnderMpirun(t *testing.T) {
	peers, err := loadPeers("../peers/peers.json")
	if err != nil {
		t.Fatal(err)
	}
	o := &options{ferryPath: "ferry", buildDir: "build"}
	for name, launcher := range map[string]string{"mpirun": "mpirun.openmpi", "Hydra": "mpiexec.mpich"} {
		list := o.series(fig(t, "grow: add 4 processes to 2, under "+name), peers)
		if len(list) != 1 {
			t.Fatalf("%s: %d series", name, len(list))
		}
		ours, theirs := strings.Join(list[0].ours.args, " "), strings.Join(list[0].theirs.args, " ")
		if !strings.HasPrefix(ours, launcher+" ") || !strings.HasSuffix(ours, " -n 2 ferry bench grow -n 2 --add 4 -i 3 -x 1 --format json --rank") {
			t.Errorf("%s: ferry: %q", name, ours)
		}
		if !strings.HasPrefix(theirs, "mpirun.openmpi ") || !strings.Contains(theirs, " -n 2 build/openmpi grow/total -m 4 ") {
			t.Errorf("%s: peer: %q", name, theirs)
		}
	}
	if list := o.series(fig(t, "grow: add 4 processes to 2, under Hydra"), peers[:1]); len(list) > 0 {
		t.Errorf("without Hydra: %d series", len(list))
	}
}

// Beside the wrong setting a figure over TCP would be one over shared memory.
func TestOverTCP_BothSides_UseTCP(t *testing.T) {
	peers, err := loadPeers("../peers/peers.json")
	if err != nil {
		t.Fatal(err)
	}
	o, err := parse([]string{"-rows", "TCP"}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range matching(append(figures(), ownFigures()...), o.rowPattern, func(f figure) string { return f.Name }) {
		for _, s := range o.series(f, peers) {
			got[f.Name+" | "+s.peer.Title] = strings.Join(s.theirs.args, " ")
			if ours := strings.Join(s.ours.args, " "); !strings.Contains(ours, "btl=self,tcp") && !strings.Contains(ours, "btl=self,shm,tcp") {
				t.Errorf("%s: %s", f.Name, ours)
			}
		}
	}
	for name, part := range map[string]string{
		"8 B latency over TCP | Open MPI":                                              "--mca btl self,tcp",
		"8 B latency over TCP | MPICH":                                                 "UCX_TLS self,tcp",
		"8 B message rate over TCP | Open MPI":                                         "--mca btl self,tcp",
		"8 B message rate over TCP | MPICH":                                            "UCX_TLS self,tcp",
		"bandwidth 1 MiB over TCP | Open MPI":                                          "--mca btl self,tcp",
		"bandwidth 1 MiB over TCP | MPICH":                                             "UCX_TLS self,tcp",
		"8 B latency over TCP to C sockets | C sockets":                                "sockets latency",
		"bandwidth 1 MiB over TCP to C sockets | C sockets":                            "sockets bw",
		"8 B latency over TCP to cm over tcp;ofi_rxm | ferry":                          "provider_include=tcp;ofi_rxm",
		"8 B latency over shared memory beside connections over TCP, to alone | ferry": "-n 3 --bind-to core --set btl=self,shm ",
	} {
		if !strings.Contains(got[name], part) {
			t.Errorf("%s: %q, want %q in it", name, got[name], part)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("one more: %s", name)
	}
}

// By default, peers choose other classes.
func TestOverUCX_BothSides_HaveOneClass(t *testing.T) {
	peers, err := loadPeers("../peers/peers.json")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range figures() {
		class, ok := strings.CutPrefix(f.networkName, "UCX ")
		if !ok {
			continue
		}
		for _, s := range (&options{}).series(f, peers) {
			n++
			ours, theirs := strings.Join(s.ours.args, " "), strings.Join(s.theirs.args, " ")
			if !strings.Contains(ours, "mtl.ucx.provider_include="+class) || !strings.Contains(theirs, class+",self") || !strings.Contains(theirs, "UCX_TLS") {
				t.Errorf("%s: %s beside %s", f.Name, ours, theirs)
			}
		}
	}
	if n != 12 {
		t.Errorf("%d rows", n)
	}
}

// Beside the wrong side a ratio of goroutine ranks would be one of processes to themselves.
func TestGoroutineRows_EachSide_HasItsKindOfRanks(t *testing.T) {
	peers, err := loadPeers("../peers/peers.json")
	if err != nil {
		t.Fatal(err)
	}
	beside := map[string]int{}
	for _, f := range matching(append(figures(), ownFigures()...), regexp.MustCompile("goroutine"), func(f figure) string { return f.Name }) {
		for _, s := range (&options{ferryPath: "ferry", buildDir: "build"}).series(f, peers) {
			beside[s.peer.Title]++
			ours, theirs := s.ours.args, s.theirs.args
			n, m := slices.Index(ours, "-n"), slices.Index(ours, "--goroutines")
			if n < 0 || m < 0 {
				t.Fatalf("%s: no goroutine ranks in %q", f.Name, ours)
			}
			processes, _ := strconv.Atoi(ours[n+1])
			each, _ := strconv.Atoi(ours[m+1])
			if processes*each != f.Ranks || (processes == 2) != strings.Contains(f.Name, "in 2 processes") || slices.Contains(theirs, "--goroutines") {
				t.Errorf("%s: %q beside %q", f.Name, ours, theirs)
			}
			if slices.Contains(theirs, "build/threadcomm") && !slices.Contains(theirs, "1") {
				t.Errorf("%s: several processes in %q", f.Name, theirs)
			}
			if ints := strings.Contains(f.Name, "ints"); ints != slices.Contains(ours, "int") || ints && s.peer.Name != "openmp" {
				t.Errorf("%s: elements of %q beside %q", f.Name, ours, theirs)
			}
		}
	}
	want := map[string]int{"ferry": 5, "Open MPI": 1, "MPICH": 1, "OpenMP": 6, "MPICH's thread communicator": 3}
	if !maps.Equal(beside, want) {
		t.Errorf("series %v, want %v", beside, want)
	}
}

// TestStreamRows_BothSides_HaveTheSameThreads checks the lanes of each side, and that no process is bound.
func TestStreamRows_BothSides_HaveTheSameThreads(t *testing.T) {
	peers, err := loadPeers("../peers/peers.json")
	if err != nil {
		t.Fatal(err)
	}
	after := func(args []string, flag string) string {
		at := slices.Index(args, flag)
		if at < 0 {
			return ""
		}
		return args[at+1]
	}
	beside := map[string]int{}
	for _, f := range matching(append(figures(), ownFigures()...), regexp.MustCompile("stream"), func(f figure) string { return f.Name }) {
		for _, s := range (&options{ferryPath: "ferry", buildDir: "build"}).series(f, peers) {
			beside[s.peer.Title+", "+s.setting.Title]++
			ours, theirs := s.ours.args, s.theirs.args
			want, others := "2", slices.Contains(theirs, "--streams")
			if s.setting.Title == "1 stream" {
				want = "1"
			}
			if after(ours, "--threads") != "2" || after(theirs, "--threads") != want || slices.Contains(ours, "core") || slices.Contains(theirs, "core") {
				t.Errorf("%s: %q beside %q", f.Name, ours, theirs)
			}
			if hasStreams := strings.Contains(f.Name, "on streams") || strings.Contains(f.Name, "2 streams"); slices.Contains(ours, "--streams") != hasStreams ||
				others != (hasStreams && s.setting.Title != "dups") {
				t.Errorf("%s: %q beside %q", f.Name, ours, theirs)
			}
		}
	}
	want := map[string]int{"ferry, dups": 1, "ferry, 1 stream": 1, "Open MPI, as it comes": 1, "MPICH, as it comes": 1, "MPICH, MPIX_Stream": 1}
	if !maps.Equal(beside, want) {
		t.Errorf("series %v, want %v", beside, want)
	}
}

func TestBesideBefore_RowWithItsOwnCommand_HasItOnBothSides(t *testing.T) {
	o := &options{ferryPath: "ferry", buildDir: "build"}
	n := 0
	for _, f := range besideBefore("before") {
		s := o.series(f, nil)[0]
		if ours, theirs := s.ours.args, s.theirs.args; ours[0] != "ferry" || theirs[0] != "before" || f.commandLine != nil && !slices.Equal(ours[1:], theirs[1:]) {
			t.Errorf("%s: %q beside %q", f.Name, ours, theirs)
		}
		if f.commandLine != nil {
			n++
		}
	}
	if n == 0 {
		t.Error("no row has a command of its own")
	}
}

// TestPaperFigures_PeerWithoutSessions_HasNoRow checks that the other rows have the same benchmark on both sides.
func TestPaperFigures_PeerWithoutSessions_HasNoRow(t *testing.T) {
	peers, err := loadPeers("../peers/peers.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range paperFigures() {
		family, _, _ := strings.Cut(f.BenchName, "/")
		for _, s := range (&options{ferryPath: "ferry", buildDir: "build"}).series(f, peers) {
			if f.isStartup() && s.peer.Name != sessions {
				t.Errorf("%s: beside %s", f.Name, s.peer.Title)
			}
			if ours, theirs := s.ours.args, s.theirs.args; ours[2] != family || !slices.Contains(theirs, f.BenchName) {
				t.Errorf("%s: %q beside %q", f.Name, ours, theirs)
			}
		}
	}
}

// The rows are those of the issues on speed, libfabric, UCX, launchers, TCP and collectives; each side's command line has its loops.
func TestSeries_BothSides_RunTheSameLoops(t *testing.T) {
	figs := figures()
	if len(figs) != 89+len(paperFigures()) {
		t.Errorf("%d figures", len(figs))
	}
	peers, err := loadPeers("../peers/peers.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sweeps() {
		figs = append(figs, s.sizeRanges...)
	}
	r := &options{ferryPath: "ferry", buildDir: "build"}
	seen := map[string]bool{}
	for _, f := range figs {
		if f.upTo == 0 && (seen[f.Name] || f.WantedDefault == 0 || f.WantedBest == 0 || f.Aim == "") {
			t.Errorf("%s: there twice: %t, wanted %g, %g, aim %q", f.Name, seen[f.Name], f.WantedDefault, f.WantedBest, f.Aim)
		}
		seen[f.Name] = true
		if units[f.Unit].each == 0 {
			t.Errorf("%s: unit %q", f.Name, f.Unit)
		}
		ours := r.ours(r.ferryPath, f, nil)
		for _, p := range peers {
			theirs := r.theirs(p, p.Settings[0], f)
			if f.BenchName == "init" || f.BenchName == "hello" {
				continue // once on both sides
			}
			flags := []string{"-i", "-x", "-n"}
			if p.Launcher == "" || p.HasThreadRanks { // it has two ranks, and binds them itself
				flags = flags[:2]
			}
			for _, flag := range flags {
				a, b := slices.Index(ours, flag), slices.Index(theirs, flag)
				if a < 0 || b < 0 || ours[a+1] != theirs[b+1] {
					t.Errorf("%s: %s differs: %v, %v", f.Name, flag, ours, theirs)
				}
			}
			if bound := slices.Contains(theirs, "core"); bound != f.bound() && p.Launcher != "" && !p.HasThreadRanks {
				t.Errorf("%s: bound is %t in %v", f.Name, bound, theirs)
			}
		}
	}
}

func TestSettings_OfUser_DoNotReachSamples(t *testing.T) {
	got := plainEnvironment([]string{"HOME=/x", "FERRY_BTL_SHM_EAGER_LIMIT=1", "OMPI_MCA_btl=tcp,self", "MPIR_CVAR_NOLOCAL=1", "GOGC=off", "PATH=/y"})
	if !slices.Equal(got, []string{"HOME=/x", "PATH=/y"}) {
		t.Errorf("%q", got)
	}
}

// Figures of an unknown setting would be those of the default.
func TestSettings_FollowVersionOfPeer(t *testing.T) {
	peers, err := loadPeers("../peers/peers.json")
	if err != nil {
		t.Fatal(err)
	}
	titles := func(version string) (list []string) {
		for _, s := range peers[0].of(version).Settings {
			list = append(list, s.Title)
		}
		return list
	}
	for version, want := range map[string]string{"4.1.4": "single_copy none", "5.0.7": "smsc none", "10.1": "smsc none", "of unknown version": "single_copy none"} {
		got := titles(version)
		gone := 1 // The name of one setting changes in version 5, and ULFM comes.
		if strings.HasPrefix(want, "single") {
			gone = 2
		}
		if len(got) != len(peers[0].Settings)-gone || got[1] != want {
			t.Errorf("%s: %q", version, got)
		}
	}
	for _, c := range []struct {
		a, b string
		want bool
	}{{"4.1.4", "5", true}, {"5", "5", false}, {"5.0.7", "5", false}, {"5", "5.0.1", true}, {"10.0", "9.9", false}, {"9.9", "10", true}, {"", "1", true}} {
		if older(c.a, c.b) != c.want {
			t.Errorf("%q before %q: want %t", c.a, c.b, c.want)
		}
	}
}

// Without the flag, a value would be measured with the protocol of another one.
func TestProtocolRows_ForceEachValue(t *testing.T) {
	o := &options{ferryPath: "ferry"}
	rows := map[string]bool{}
	for _, x := range protocolRows() {
		rows[x.name] = true
		if x.copyValues[0] != "auto" || len(x.copyValues) < 3 {
			t.Errorf("%s: %q", x.name, x.copyValues)
		}
		for _, way := range x.copyValues {
			for _, cv := range o.curves(x.sizeRanges, nil, append(slices.Clone(x.ferryFlags), "--set", copyParam+"="+way)...) {
				for _, s := range cv.sidesByPart {
					line := strings.Join(s.args, " ")
					if !strings.HasSuffix(line, "--set btl.shm.single_copy="+way) || strings.Contains(line, "--alloc-mem") != strings.Contains(x.name, "AllocMem") {
						t.Errorf("%s, %s: %s", x.name, way, line)
					}
				}
			}
		}
	}
	if len(rows) != 8 {
		t.Errorf("%d rows", len(rows))
	}
}

func TestProtocolRows_CompareWithBestOfEachSize(t *testing.T) {
	x := protocolRows()[0]
	at := func(values ...float64) *curve {
		cv := &curve{Unit: "us"}
		for i, v := range values {
			if v > 0 {
				cv.Points = append(cv.Points, point{MessageBytes: 8192 << i, Value: v})
			}
		}
		return cv
	}
	rows, why := x.rows([]*curve{at(1, 5, 9), at(2, 4, 8), at(3, 8, 0)}, at(2, 0, 9), bests{})
	if why != "" || len(rows) != 3 || rows[0].RatioToItself != 2 || rows[1].Noise() != "-" || rows[2].Noise() != "1.00" || rows[0].BestFixed != "off" || rows[0].Ratio != 2 || rows[1].Ratio != 0.8 || rows[2].BestFixed != "off" {
		t.Errorf("%+v %s", rows, why)
	}
	x.sizeRanges[0].LowerIsBetter = false
	if rows, _ = x.rows([]*curve{at(1), at(2), at(4)}, at(1), bests{}); len(rows) != 1 || rows[0].BestFixed != "cma" || rows[0].Ratio != 0.25 {
		t.Errorf("%+v", rows)
	}
	refused := &curve{NotMeasured: "cma is refused here"}
	if rows, why = x.rows([]*curve{at(1), at(2), refused}, at(1), bests{}); why != "" || len(rows) != 1 || rows[0].Value("cma") != "-" {
		t.Errorf("%+v %s", rows, why)
	}
	if rows, why = x.rows([]*curve{at(1), refused, refused}, at(1), bests{}); why != refused.NotMeasured || len(rows) != 0 {
		t.Errorf("%+v %s", rows, why)
	}
}

// Medians over two states of the machine would compare different states.
func TestProtocolRows_CompareRoundByRound(t *testing.T) {
	curveOf := func(values ...float64) *curve {
		cv := &curve{Unit: "GB/s", samplesBySize: map[int][]sample{}}
		for round, v := range values {
			if v > 0 { // else that sample failed
				cv.samplesBySize[8192] = append(cv.samplesBySize[8192], sample{Value: v, messageBytes: 8192, sweepRound: round})
			}
		}
		cv.Points = []point{{MessageBytes: 8192, Value: median(slices.Clone(values))}}
		return cv
	}
	x := protocolRows()[1]
	x.sizeRanges[0].LowerIsBetter = false
	// The choice is a tenth slower in each round, and there were more of it in the slow state.
	rows, _ := x.rows([]*curve{curveOf(9, 9, 0, 27, 9), curveOf(10, 10, 30, 30, 10), curveOf(8, 8, 24, 24, 8)}, curveOf(10, 9, 0, 27, 8), bests{})
	if len(rows) != 1 || rows[0].BestFixed != "off" || rows[0].Ratio != 0.9 || rows[0].RatioToItself != 1 {
		t.Errorf("%+v", rows)
	}
}
