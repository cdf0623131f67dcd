package main

import (
	"fmt"
	"runtime"
	"slices"
)

// A figure is one row of the results.
type figure struct {
	Name string `json:"figure"`
	// Name in `ferry bench` and in bench/peers.
	BenchName string `json:"bench"`
	// Smallest size with upTo.
	MessageBytes  int    `json:"size"`
	Ranks         int    `json:"ranks"`
	Unit          string `json:"unit"` // A key of units.
	LowerIsBetter bool   `json:"lower_is_better"`

	loop
	counterpart

	ferryFlags []string
	// Paired threads of each rank on both sides, or 0 for paired ranks.
	threadPairs int
	peerFlags   []string
	// Command line of ferry, or nil for `ferry bench`.
	commandLine jobOf
	// Network instead of shared memory, as in setting.OnlyNetwork, or empty.
	networkName string
	// The median of batches is the figure, because disturbances dominate the average.
	usesMedian bool
	// They are added to Ranks, or removed again.
	addedProcesses int
	// Ranks 0 and 1 have cores of their own, and all others sleep.
	isPairOnly bool

	// Wanted ratios of ferry to the peer: at most for times, at least for rates.
	WantedDefault float64 `json:"wanted,omitempty"` // To the best of the peers as they come.
	// To the best of all their settings.
	WantedBest float64 `json:"wanted_best,omitempty"`
	// A better ratio than the wanted one.
	Aim string `json:"aim"`
}

// loop has the sizes and iterations of a benchmark.
type loop struct {
	// Largest size in bytes, or 0 for a single size.
	upTo             int
	iterations       int
	warmupIterations int
}

// counterpart chooses the other side of a figure. The zero value is all peers with their own launchers.
type counterpart struct {
	// Name of the only peer with the benchmark, or empty.
	onlyPeer string
	// Peer with the launcher that starts ferry, or empty for ferry's own.
	launcherPeer string
	// Ferry in another variant instead of the peers, or nil.
	versusVariant *variant
	// Ratio to versusVariant.
	wantedBound bound
}

// A jobOf returns the command line of a job of a ferry program.
type jobOf func(program string) []string

// A variant is ferry with other flags, or another ferry.
type variant struct {
	Title       string
	ferryFlags  []string
	commandLine jobOf
	// Path of a ferry, or empty for the measured one.
	programPath string
	// Describes the rows of its job. It is nil if they are those of the figure.
	rowFigure *figure
}

// largeMessage is the size above which OSU's loops are shorter.
const largeMessage = 8192

// through returns the figure for sizes up to upTo, with the loops of the largest size.
func (f figure) through(upTo int) figure {
	if upTo > f.MessageBytes {
		f.upTo = upTo
	}
	switch large := upTo > largeMessage; {
	case f.LowerIsBetter && large:
		f.iterations, f.warmupIterations = 1000, 10
	case f.LowerIsBetter:
		f.iterations, f.warmupIterations = 10000, 100
	case large:
		f.iterations, f.warmupIterations = 20, 2
	default:
		f.iterations, f.warmupIterations = 100, 10
	}
	return f
}

func latency(name string, size int, def, best float64, aim string) figure {
	f := window(name+" latency", "latency", "us", size, def, best, aim)
	f.LowerIsBetter = true
	return f.through(size)
}

func window(name, bench, unit string, size int, def, best float64, aim string) figure {
	return figure{Name: name, BenchName: bench, MessageBytes: size, Ranks: 2, Unit: unit, WantedDefault: def, WantedBest: best, Aim: aim}.through(size)
}

func job(name, bench string, ranks int, wanted float64, aim string) figure {
	return figure{Name: name, BenchName: bench, Ranks: ranks, Unit: "ms", LowerIsBetter: true, WantedDefault: wanted, WantedBest: wanted, Aim: aim, loop: loop{iterations: 1}}
}

// underLauncher is a figure beside one peer alone, with both sides started by its
// launcher.
func underLauncher(f figure, launcher, peer string) figure {
	return underAnother(f, launcher, peer, peer)
}

// underAnother is a figure beside the peer only, which its own launcher starts. The launcher
// of the peer under starts ferry.
func underAnother(f figure, launcher, under, only string) figure {
	f.launcherPeer, f.onlyPeer = under, only
	f.Name += ", under " + launcher
	return f
}

// collective has fewer iterations for oversubscribed ranks: MPICH's barrier then
// takes 40 ms, and OSU's 1100 of them would take a minute.
func collective(name, bench string, size, ranks int, def, best float64, aim string) figure {
	f := figure{
		Name: name, BenchName: bench, MessageBytes: size, Ranks: ranks, Unit: "us", LowerIsBetter: true,
		WantedDefault: def, WantedBest: best, Aim: aim, loop: loop{iterations: 1000, warmupIterations: 100},
	}
	if ranks > 2 || size > largeMessage {
		f.iterations, f.warmupIterations = 100, 10
	}
	return f
}

// collectives returns the figures of collectives, for several sizes, and for 8 B with oversubscribed ranks.
func collectives() (list []figure) {
	const kib = 1 << 10
	for _, bench := range []string{"bcast", "reduce", "allreduce", "allgather", "alltoall"} {
		for _, size := range []struct {
			name  string
			bytes int
		}{{"8 B", 8}, {"1 KiB", kib}, {"64 KiB", 64 * kib}, {"1 MiB", kib * kib}} {
			list = append(list, collective(bench+" "+size.name+", 2 ranks", bench, size.bytes, 2, 0.9, 1.0, "0.7"))
		}
		list = append(list, collective(bench+" 8 B, 8 ranks", bench, 8, 8, 0.9, 0.9, "0.7"))
	}
	for _, bench := range []string{"iallreduce", "ibcast"} {
		list = append(list, collective(bench+" 64 KiB under computation, 2 ranks", bench, 64*kib, 2, 1.0, 1.0, "0.8"))
	}
	return list
}

// matchDepths are the depths of the queues, with the wanted ratio to the better peer.
var matchDepths = []struct {
	depth      int
	name       string
	wanted     float64
	iterations int
}{{1000, "1,000", 0.2, 10}, {10_000, "10,000", 0.05, 3}}

// matchRows returns the figures of messages behind a queue, in the opposite order.
func matchRows() (list []figure) {
	for _, queue := range []string{"posted", "unexpected"} {
		for _, at := range matchDepths {
			f := figure{
				Name: "match behind " + at.name + " " + queue, BenchName: "match/" + queue + "/backwards", MessageBytes: at.depth, Ranks: 2, Unit: "ns", LowerIsBetter: true,
				WantedDefault: at.wanted, WantedBest: at.wanted, Aim: "0.02", loop: loop{iterations: at.iterations, warmupIterations: 1},
			}
			f.commandLine = func(program string) []string {
				return []string{program, "bench", "match", "--queue", queue + "/backwards", "--depth", fmt.Sprintf("%d:%d", at.depth, at.depth),
					"-i", fmt.Sprint(at.iterations), "-x", "1", "--format", "json"}
			}
			list = append(list, f)
		}
	}
	return list
}

// throughOFI is a figure over libfabric on both sides, between two ranks of this
// machine that use no shared memory.
func throughOFI(f figure) figure {
	f.networkName = "tcp;ofi_rxm"
	f.Name += " over " + f.networkName
	f.ferryFlags = []string{"--set", "pml=cm", "--set", "pml.cm.shared_memory=off", "--set", "mtl.ofi.provider_include=" + f.networkName}
	return f
}

// overUCX is a figure over a class of UCX's transports on both sides, likewise. Wanted is that to Open MPI,
// WantedBest that to the better peer.
func overUCX(f figure, class string) figure {
	f.networkName = "UCX " + class
	f.Name += " over " + f.networkName
	f.ferryFlags = []string{"--set", "pml=cm", "--set", "pml.cm.shared_memory=off", "--set", "mtl=ucx", "--set", "mtl.ucx.provider_include=" + class}
	if class == "tcp" {
		f.ferryFlags = append(f.ferryFlags, "--set", "mtl.ucx.device_include=lo")
	}
	return f
}

// viaTCP are ferry's settings without shared memory.
var viaTCP = []string{"--set", "btl=self,tcp"}

// overTCP is a figure over TCP of this machine on both sides. Wanted is that to Open
// MPI, WantedBest that to the better of it and MPICH.
func overTCP(f figure) figure {
	f.networkName, f.ferryFlags = "TCP", viaTCP
	f.Name += " over TCP"
	return f
}

// besideSockets returns a figure over TCP beside a program without any library.
func besideSockets(f figure) figure {
	f = overTCP(f)
	f.networkName = "sockets"
	f.Name += " to C sockets"
	return f
}

// figures are the rows beside the peers. Iterations, warm-up and windows are
// those of OSU's micro-benchmarks.
func figures() []figure {
	const kib, mib = 1 << 10, 1 << 20
	alloc := window("bandwidth 1 MiB between AllocMem buffers", "bw", "GB/s", mib, 2, 1.3, "2.5")
	alloc.ferryFlags = []string{"--alloc-mem"}
	return slices.Concat([]figure{
		latency("8 B", 8, 0.70, 0.70, "1.5 raw hops"),
		latency("4 KiB", 4*kib, 0.75, 0.75, "0.5"),
		latency("64 KiB", 64*kib, 0.70, 0.85, "0.5"),
		latency("1 MiB", mib, 0.50, 0.80, "0.5"),
		window("8 B message rate", "mbw_mr", "million/s", 8, 1.2, 1.2, "2"),
		window("bandwidth 8 KiB", "bw", "GB/s", 8*kib, 1.2, 1.2, "1.5"),
		window("bandwidth 64 KiB", "bw", "GB/s", 64*kib, 1.5, 1.1, "1.3"),
		window("bandwidth 1 MiB", "bw", "GB/s", mib, 1.7, 1.1, "1.3"),
		window("bandwidth 4 MiB", "bw", "GB/s", 4*mib, 1.7, 1.1, "1.3"),
		alloc,
		window("bidirectional bandwidth 64 KiB", "bibw", "GB/s", 64*kib, 1.2, 1.0, "1.4"),
		window("bidirectional bandwidth 1 MiB", "bibw", "GB/s", mib, 1.2, 1.0, "1.4"),
		job("launch + init + finalize, 2 ranks", "hello", 2, 0.5, "0.3"),
		job("launch + init + finalize, 32 ranks", "hello", 32, 0.5, "0.3"),
		job("session + first communicator to MPI_Init, 2 ranks", "init", 2, 0.3, "0.1"),
		job("session + first communicator to MPI_Init, 32 ranks", "init", 32, 0.3, "0.1"),
		underLauncher(job("session + first communicator to MPI_Init, 2 ranks", "init", 2, 0.5, "0.2"), "Hydra", "mpich"),
		underLauncher(job("session + first communicator to MPI_Init, 32 ranks", "init", 32, 0.5, "0.2"), "Hydra", "mpich"),
		underLauncher(job("session + first communicator to MPI_Init, 2 ranks", "init", 2, 0.5, "0.2"), "mpirun", "openmpi"),
		underLauncher(job("session + first communicator to MPI_Init, 32 ranks", "init", 32, 0.5, "0.2"), "mpirun", "openmpi"),
		collective("comm dup", "dup", 0, 2, 0.5, 0.5, "0.05"),
		collective("barrier, 2 ranks", "barrier", 0, 2, 0.9, 1.0, "0.7"),
		collective("barrier, 8 ranks", "barrier", 0, 8, 0.9, 0.9, "0.7"),
	}, collectives(), []figure{
		throughOFI(latency("8 B", 8, 1.0, 1.0, "-")),
		throughOFI(window("8 B message rate", "mbw_mr", "million/s", 8, 1.0, 1.0, "-")),
		throughOFI(window("bandwidth 1 MiB", "bw", "GB/s", mib, 1.0, 1.0, "-")),
		overUCX(latency("8 B", 8, 1.5, 1.5, "-"), "shm"),
		overUCX(window("8 B message rate", "mbw_mr", "million/s", 8, 0.7, 0.7, "-"), "shm"),
		overUCX(window("bandwidth 1 MiB", "bw", "GB/s", mib, 0.95, 0.95, "-"), "shm"),
		overUCX(latency("8 B", 8, 1.1, 1.1, "-"), "tcp"),
		overUCX(window("8 B message rate", "mbw_mr", "million/s", 8, 0.9, 0.9, "-"), "tcp"),
		overUCX(window("bandwidth 1 MiB", "bw", "GB/s", mib, 0.95, 0.95, "-"), "tcp"),
		overTCP(latency("8 B", 8, 0.6, 1.0, "-")),
		overTCP(window("8 B message rate", "mbw_mr", "million/s", 8, 2, 1, "-")),
		overTCP(window("bandwidth 1 MiB", "bw", "GB/s", mib, 1.5, 1, "-")),
		besideSockets(latency("8 B", 8, 1.2, 1.2, "1.0")),
		besideSockets(window("bandwidth 1 MiB", "bw", "GB/s", mib, 0.9, 0.9, "1.0")),
	}, matchRows(), goroutineFigures(), elasticFigures(), failureFigures(), paperFigures(), streamFigures())
}

// besideBefore returns the figures beside the ferry of an earlier commit instead of the peers. A
// figure may be slower by 2 % at most. Rows under a peer's launcher are omitted.
func besideBefore(program string) []figure {
	figs := slices.DeleteFunc(figures(), func(f figure) bool { return f.launcherPeer != "" })
	for i := range figs {
		f := &figs[i]
		f.versusVariant = &variant{Title: "before", ferryFlags: f.ferryFlags, commandLine: f.commandLine, programPath: program}
		if f.wantedBound = f.Within(1.02); !f.LowerIsBetter {
			f.wantedBound = f.Within(1 / 1.02)
		}
	}
	return figs
}

func (f figure) largest() int { return max(f.MessageBytes, f.upTo) }

// fromOutside reports whether the time of the whole job is the figure.
func (f figure) fromOutside() bool { return f.BenchName == "hello" && f.commandLine == nil }

// bound reports whether each active rank can have a core.
func (f figure) bound() bool {
	return f.isPairOnly || f.threadPairs == 0 && f.Ranks+f.addedProcesses <= runtime.NumCPU()
}

// hopInside reports whether ranks 0 and 1 measure the raw hop around the loop. Single ranks,
// jobs that end with their initialization and changing jobs cannot. Between ranks that share
// cores a raw hop is meaningless.
func (f figure) hopInside() bool {
	return f.bound() && f.addedProcesses == 0 && f.Ranks > 1 && !f.isStartup() && f.BenchName != "recover"
}

// Within returns the bound of a ratio: at most for times, at least for rates.
func (f figure) Within(ratio float64) bound {
	if f.LowerIsBetter {
		return bound{AtMost: ratio}
	}
	return bound{AtLeast: ratio}
}

// better reports whether value a is better than b.
func (f figure) better(a, b float64) bool { return a != b && a < b == f.LowerIsBetter }

// units maps units of the results to printed units and their number in one unit of the results.
var units = map[string]struct {
	printed string
	each    float64
}{
	"us": {"us", 1}, "ms": {"ms", 1}, "GB/s": {"MB/s", 1000}, "million/s": {"messages/s", 1e6}, "MiB": {"KiB", 1024}, "%": {"%", 1}, "ns": {"ns", 1},
}
