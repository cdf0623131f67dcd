package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"al.essio.dev/pkg/shellescape"
)

// A sample is one run of one benchmark.
type sample struct {
	Value           float64 `json:"value"`          // in the figure's unit
	RawHopNS        float64 `json:"raw_hop_ns"`     // between ranks 0 and 1, the larger of before and after; 0: not taken
	OutsideHopNS    float64 `json:"outside_hop_ns"` // around the job, the larger of before and after
	OtherProcessors float64 `json:"others"`         // processors that worked for others meanwhile
	// State of the machine, by all raw hops of the run.
	IsNear        bool   `json:"near"`
	hopInstrument string // of RawHopNS
	messageBytes  int
	sweepRound    int
}

// MarshalJSON keeps five digits, which is more than the machine does.
func (s sample) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, `{"value":%.5g,"raw_hop_ns":%.5g,"outside_hop_ns":%.5g,"others":%.2g,"near":%t}`,
		s.Value, s.RawHopNS, s.OutsideHopNS, s.OtherProcessors, s.IsNear), nil
}

// marker is an environment variable that identifies the processes of a sample in any
// session and group.
const marker = "COMPARE_SAMPLE="

const (
	termGrace = 3 * time.Second // from SIGTERM to SIGKILL
	maxError  = 2000            // Bytes of a failed command's output.
)

// usage is the time of a command.
type usage struct {
	elapsedTime time.Duration
	// Includes children.
	processorTime time.Duration
}

// command runs a command with a time limit, and returns its output and usage. After a failure, none of its
// processes is left.
func (o *options) command(ctx context.Context, args []string) (output string, u usage, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.sampleTimeout, fmt.Errorf("not done within %v", o.sampleTimeout))
	defer cancel()
	mark := marker + rand.Text()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(plainEnvironment(os.Environ()), mark)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt from the terminal is ours
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = termGrace
	var out, words bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &words
	start := time.Now()
	err = cmd.Run()
	u.elapsedTime = time.Since(start)
	if err == nil {
		u.processorTime = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		return out.String(), u, nil
	}
	killMarked(mark)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	said := strings.TrimSpace(words.String())
	if len(said) > maxError {
		said = "..." + said[len(said)-maxError:]
	}
	return "", u, fmt.Errorf("%s: %w: %s", shellescape.QuoteCommand(args), err, said)
}

// settings matches variables that change defaults of either side.
var settings = regexp.MustCompile("^(FERRY_|OMPI_|PMIX_|PRTE_|MPICH_|MPIR_|HYDRA_|PMI_|UCX_|FI_|GOMAXPROCS|GOGC|GODEBUG|GOMEMLIMIT)")

// plainEnvironment drops them.
func plainEnvironment(env []string) []string { return slices.DeleteFunc(env, settings.MatchString) }

// killMarked kills the processes that have the mark in their environment.
func killMarked(mark string) {
	all, _ := proc.AllProcs() // Fails without /proc.
	for _, p := range all {
		// Environ fails for ended processes and those of other users.
		if env, err := p.Environ(); err == nil && slices.Contains(env, mark) {
			_ = syscall.Kill(p.PID, syscall.SIGKILL) // it may have ended meanwhile
		}
	}
}

// take runs a side's command and makes a sample of each row that it prints.
func (o *options) take(ctx context.Context, f figure, from side) ([]sample, error) {
	before, err := busy()
	if err != nil {
		return nil, err
	}
	output, u, err := o.command(ctx, from.args)
	if err != nil {
		return nil, err
	}
	after, err := busy()
	if err != nil {
		return nil, err
	}
	var list []sample
	switch {
	case f.fromOutside():
		list = []sample{{Value: float64(u.elapsedTime.Nanoseconds()) * 1e-6}}
	case f.BenchName == "init" && from.hopInstrument == ferryRanks:
		list, err = largestTime(output, f.Ranks)
	default:
		list, err = parseSamples(output, f)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shellescape.QuoteCommand(from.args), err)
	}
	for i := range list {
		list[i].hopInstrument, list[i].OtherProcessors = from.hopInstrument, others(after-before, u.processorTime, u.elapsedTime)
	}
	return list, nil
}

// benchRow is a line of JSON of `ferry bench` and of the peers' programs.
type benchRow struct {
	Bench string
	Size  int
	Ranks int
	Unit  string
	Avg   float64
	P50   float64 // of ours only
	// Of ours only, see bench.Row.
	PureMicros float64 `json:"pure_us"`
	RawHopNS   float64 `json:"raw_hop_ns"`
}

// parseRows reads lines of JSON; there is at least one.
func parseRows[T any](output string) ([]T, error) {
	var rows []T
	for d := json.NewDecoder(strings.NewReader(output)); ; {
		var row T
		err := d.Decode(&row)
		switch {
		case err == io.EOF && len(rows) > 0:
			return rows, nil
		case err != nil:
			return nil, fmt.Errorf("no row of JSON in %.200q: %w", output, err)
		}
		rows = append(rows, row)
	}
}

// parseSamples returns a sample per row, in the figure's unit: one, or those of
// growing sizes from the smallest to the largest.
func parseSamples(output string, f figure) ([]sample, error) {
	rows, err := parseRows[benchRow](output)
	if err != nil {
		return nil, err
	}
	if rows = rowsOf(rows, f.BenchName); len(rows) == 0 {
		return nil, fmt.Errorf("no row of %s in %.200q", f.BenchName, output)
	}
	if first, last := rows[0].Size, rows[len(rows)-1].Size; f.MessageBytes != 0 && (first != f.MessageBytes || last != f.largest()) {
		return nil, fmt.Errorf("got rows of %d to %d bytes, want %d to %d", first, last, f.MessageBytes, f.largest())
	}
	u := units[f.Unit]
	var list []sample
	for i, row := range rows {
		value := row.Avg
		if f.usesMedian {
			value = row.P50
		}
		switch {
		case i > 0 && row.Size <= rows[i-1].Size:
			return nil, fmt.Errorf("a row of %d bytes after one of %d", row.Size, rows[i-1].Size)
		case row.Bench != f.BenchName || row.Ranks != f.Ranks || row.Unit != u.printed:
			return nil, fmt.Errorf("got a row of %s, %d ranks, %s, want %s, %d ranks, %s",
				row.Bench, row.Ranks, row.Unit, f.BenchName, f.Ranks, u.printed)
		case !(value > 0) || math.IsInf(value, 0):
			return nil, fmt.Errorf("figure %g is not a measurement", value)
		case f.hopInside() && !(row.RawHopNS > 0):
			return nil, errors.New("the raw hop is missing")
		}
		s := sample{Value: value / u.each, messageBytes: row.Size}
		if f.hopInside() {
			s.RawHopNS = row.RawHopNS
		}
		list = append(list, s)
	}
	return list, nil
}

// rowsOf leaves out the rows of other figures of the same benchmark, such as grow/calls beside grow/total.
func rowsOf(rows []benchRow, bench string) []benchRow {
	family, _, isOneOfSeveral := strings.Cut(bench, "/")
	return slices.DeleteFunc(rows, func(r benchRow) bool {
		return isOneOfSeveral && r.Bench != bench && strings.HasPrefix(r.Bench, family+"/")
	})
}

// largestTime reads a number of nanoseconds of each rank and makes a sample of the
// largest, in ms.
func largestTime(output string, ranks int) ([]sample, error) {
	lines := strings.Fields(output)
	if len(lines) != ranks {
		return nil, fmt.Errorf("%d ranks gave %d times", ranks, len(lines))
	}
	var largest int64
	for _, l := range lines {
		ns, err := strconv.ParseInt(l, 10, 64)
		if err != nil || ns <= 0 {
			return nil, fmt.Errorf("time of a rank: %q is not a number of nanoseconds", l)
		}
		largest = max(largest, ns)
	}
	return []sample{{Value: float64(largest) * 1e-6}}, nil
}
