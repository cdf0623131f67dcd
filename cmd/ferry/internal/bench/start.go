package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/explain"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/progressline"
)

// starter runs benchmarks of whole jobs.
type starter struct {
	o              *options
	rankSettings   *settings.Ranks
	stdout, stderr io.Writer
}

// record adds the times of a job to the sample. Of hello that is the time of the whole job, of
// init that of each rank for a session and its first communicator, and of recover a single one.
func (s *starter) record(whole time.Duration, output string, sample *sample) error {
	if s.o.name == "hello" {
		sample.add(whole, 1)
		return nil
	}
	lines, want := strings.Fields(output), s.o.rankCount
	if s.o.name == "recover" {
		want = 1
	}
	if len(lines) != want {
		return fmt.Errorf("%d ranks gave %d times", s.o.rankCount, len(lines))
	}
	for _, l := range lines {
		ns, err := strconv.ParseInt(l, 10, 64)
		if err != nil {
			return fmt.Errorf("time of a rank: %w", err)
		}
		sample.add(time.Duration(ns), 1)
	}
	return nil
}

// jobs runs the benchmark's job again and again, and makes one row of all. Jobs have
// no OSU numbers: 10 after 1 for warm-up.
func (s *starter) jobs(ctx context.Context) (err error) {
	l := s.o.loop(0, 10, 1, 0, 0)
	table, err := s.o.begin(s.stdout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.close()) }()
	line := progressline.Start(s.stderr, "ferry bench "+s.o.name, "measuring the processors")
	defer line.Close()
	before, err := s.rawHop(ctx)
	if err != nil {
		return err
	}
	sample := newSample()
	for i := range l.warmupIterations + l.iterations {
		line.Update(i, l.warmupIterations+l.iterations, fmt.Sprintf("a job of %d ranks", s.o.rankCount))
		start := time.Now()
		output, err := s.output(ctx, s.o.name, s.o.rankCount, s.o.rankFlags)
		whole := time.Since(start)
		if err != nil {
			return err
		}
		if i < l.warmupIterations {
			continue
		}
		if err := s.record(whole, output, sample); err != nil {
			return err
		}
	}
	after, err := s.rawHop(ctx)
	if err != nil {
		return err
	}
	line.Close() // the row may go to the same terminal
	row := sample.times(Row{Bench: s.o.name, RankCount: s.o.rankCount, Unit: "ms", RawHop: max(before, after)}, 1e-6)
	return table.row(row)
}

// run runs a job of processes of this program itself.
func (s *starter) run(ctx context.Context, stdout io.Writer, note func(string), bench string, processes int, flags []string) error {
	j := s.rankSettings.Self(processes, append([]string{"bench", bench, "--rank", "-n", strconv.Itoa(processes)}, flags...)...)
	j.BindsOneCore, j.CoresPerRank = s.o.binding(cpu.Available())
	if bench == s.o.name { // And not the raw hop.
		j.NodeCount = s.o.nodeCount
	}
	if s.o.isElastic {
		j.MaxRanks = processes + s.o.changedProcesses
	}
	j.Stdout, j.Stderr, j.Note = stdout, s.stderr, note
	if !j.BindsOneCore && j.CoresPerRank == 0 && note != nil {
		note(fmt.Sprintf("%d goroutine ranks share %d cores: they are not bound", s.o.rankCount, cpu.Available()))
	}
	if bench == "recover" {
		j.ContinuesOnFailure, j.ToleratedFailures = true, 1
	}
	res, err := j.Run(ctx)
	if err != nil {
		return err
	}
	if bench == s.o.name && !s.o.fromOutside() { // The routes of many short jobs would hide the results.
		err = explain.PrintReported(s.stderr, res.Reports)
	}
	return cmp.Or(exit.Status(res.Status), err) // A rank has printed the reason of its status.
}

// output runs a job and returns its output. The launcher writes whole lines.
func (s *starter) output(ctx context.Context, bench string, ranks int, flags []string) (string, error) {
	var out bytes.Buffer
	err := s.run(ctx, &out, nil, bench, ranks, flags)
	return out.String(), err
}

// rawHop measures by a job of two ranks.
func (s *starter) rawHop(ctx context.Context) (float64, error) {
	out, err := s.output(ctx, "hop", 2, []string{"--format=json", "-i", "5", "-x", "1"})
	var row Row
	if err == nil {
		err = json.Unmarshal([]byte(out), &row)
	}
	if err != nil {
		err = fmt.Errorf("raw hop: %w", err)
	}
	return row.P50, err
}
