package bench

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
)

// options of one run; all ranks have the same.
type options struct {
	benchmark
	rankOptions
	sizeOptions
	loopOptions
	matchOptions
	changeOptions
	tailOptions

	outputFormat string
	jsonOutput   settings.JSON
	// Of reductions.
	elementType string
	// The blocking call of idle.
	idleCall     string
	settingFlags *[]string
	isRank       bool

	// isPersistent makes a collective one of Start and Wait.
	isPersistent bool
	// isSeparate makes halo and isendrecv messages of Isend and Irecv.
	isSeparate bool

	// The flag is on the command line.
	isGiven func(flag string) bool
	// Given flags that ranks get.
	rankFlags []string
}

// rankOptions are those of the ranks and their goroutines.
type rankOptions struct {
	// Value of -n, which is the number of ranks, or of the processes of goroutine ranks.
	processCount int
	// Blocks of processes that share no memory; 0: not given.
	nodeCount int
	// Goroutine ranks; with 0, processes are the ranks.
	goroutinesPerProcess int
	// Follows from both.
	rankCount int
	// Of latency_mt, or of mbw_mr if isPaired.
	goroutinesPerRank int
	// Goroutines are paired, in mbw_mr with --threads.
	isPaired bool
	// Each pair of goroutines has a stream.
	onStreams bool
	// Promised by the ranks.
	threadLevel string
	// Of any_lat and latency; 0 for all.
	connectedRanks int
}

// sizeOptions are those of the sizes of messages, and of their buffers.
type sizeOptions struct {
	sizeRange string
	// Parsed sizeRange.
	minSize, maxSize int
	halfSteps        bool
	// Of a rank's buffers.
	memoryLimit string
	allocMem    bool
}

// loopOptions replace the iterations of OSU.
type loopOptions struct {
	// 0: OSU's.
	iterations int
	// -1: OSU's.
	warmupIterations int
}

// matchOptions are those of match.
type matchOptions struct {
	// Empty for all.
	onlyQueue  string
	depthRange string
	// Parsed depthRange.
	depthMin, depthMax int
}

// changeOptions are those of change, and of grow and shrink.
type changeOptions struct {
	// Change of change, or empty for all.
	onlyChange string
	// Processes that grow and shrink add and remove.
	changedProcesses int
	// They compute during a change.
	isAsync bool
}

// tailOptions are those of the garbage collection during latency.
type tailOptions struct {
	liveSize string
	// Per message.
	allocSize string
	// nil without both.
	parsedTail *tail
}

func (o *rankOptions) addFlags(f *pflag.FlagSet) {
	f.IntVarP(&o.processCount, "n", "n", o.processCount, "number of ranks `N`, or of processes with --goroutines")
	f.IntVar(&o.nodeCount, "nodes", 0, "divide the processes into `K` blocks that share no memory, as on K nodes")
	f.IntVar(&o.goroutinesPerProcess, "goroutines", 0, "ranks are `M` goroutines of each process")
	f.IntVar(&o.goroutinesPerRank, "threads", 2, "for latency_mt and mbw_mr: `T` goroutines of each rank")
	f.BoolVar(&o.onStreams, "streams", false, "for mbw_mr --threads: a stream for each pair of goroutines, in place of a dup")
	f.StringVar(&o.threadLevel, "thread-level", "multiple", "`LEVEL` of threads that ranks promise: single, funneled, serialized or multiple")
	f.IntVar(&o.connectedRanks, "connected", 0, "for any_lat and latency: `N` ranks, instead of all, connect to the two that are measured")
	f.Lookup("n").DefValue, f.Lookup("nodes").DefValue = "2", "1"
	f.Lookup("connected").DefValue = "0"
}

func (o *sizeOptions) addFlags(f *pflag.FlagSet) {
	f.StringVarP(&o.sizeRange, "m", "m", "1:4MiB", "message sizes, doubling from `MIN:MAX`")
	f.BoolVar(&o.halfSteps, "half-steps", false, "also the sizes between, each half as large again as the size below it")
	f.StringVarP(&o.memoryLimit, "mem-limit", "M", "512MiB", "refuse sizes for which the buffers of a rank would take more than `SIZE`")
	f.BoolVar(&o.allocMem, "alloc-mem", false, "buffers that other processes of the node read directly")
}

func (o *loopOptions) addFlags(f *pflag.FlagSet) {
	f.IntVarP(&o.iterations, "i", "i", 0, "iterations `N`, in place of OSU's")
	f.IntVarP(&o.warmupIterations, "x", "x", -1, "warm-up iterations `N`, in place of OSU's")
	f.Lookup("i").DefValue, f.Lookup("x").DefValue = "0", "0" // The help omits zero defaults.
}

func (o *matchOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.onlyQueue, "queue", "", "for match: only this `QUEUE`, such as posted/backwards")
	f.StringVar(&o.depthRange, "depth", "10:100000", "for match: queue depths from `MIN:MAX`, each ten times the one before")
}

func (o *changeOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.onlyChange, "to", "", "for change: only this `CHANGE`, "+strings.Join(changesTo, " or "))
	f.IntVar(&o.changedProcesses, "add", 8, "for grow and shrink: add and remove `N` processes")
	f.BoolVar(&o.isAsync, "async", false, "for grow and shrink: ranks compute during the change")
}

func (o *tailOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.liveSize, "live", "0B", "for latency: ranks keep `SIZE` of objects that point to one another")
	f.StringVar(&o.allocSize, "alloc", "0B", "for latency: ranks allocate `SIZE` for each message")
}
