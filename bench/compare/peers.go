package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A peer is another MPI library, or a program without any, as peers.json describes it.
type peer struct {
	Name          string   `json:"name"`
	Title         string   `json:"title"`
	Compiler      string   `json:"compiler"`
	CompilerFlags []string `json:"flags"` // besides those of all
	// Patterns in the folder of peers.json; by default all MPI programs.
	SourcePatterns []string `json:"sources"`
	// Empty if the program starts its ranks itself.
	Launcher string `json:"launcher"`
	// The launcher starts one process with threads as ranks.
	HasThreadRanks     bool      `json:"threads"`
	BoundArgs          []string  `json:"bound"`          // arguments that give each rank a core
	OversubscribedArgs []string  `json:"oversubscribed"` // arguments for more ranks than cores
	AsRoot             []string  `json:"as_root"`        // arguments that root needs
	Settings           []setting `json:"settings"`
}

// A setting is a way to run a peer.
type setting struct {
	Title        string   `json:"title"`
	IsDefault    bool     `json:"default"` // as it comes, without arguments
	LauncherArgs []string `json:"args"`
	// Smallest size of messages that it affects.
	FromBytes   int    `json:"from_bytes"`
	OnlyNetwork string `json:"only"` // for figures over that network alone
	// First version of the peer with the setting, or empty.
	FromVersion string `json:"from"`
	// First later version without it, or empty.
	BelowVersion string `json:"below"`
}

// of returns the peer with the settings of its version.
func (p peer) of(version string) peer {
	p.Settings = slices.DeleteFunc(slices.Clone(p.Settings), func(s setting) bool {
		return s.FromVersion != "" && older(version, s.FromVersion) || s.BelowVersion != "" && !older(version, s.BelowVersion)
	})
	return p
}

// older reports whether version a precedes b, number by number: "4.1.4" precedes "5".
// Text precedes numbers.
func older(a, b string) bool {
	return slices.Compare(numbers(a), numbers(b)) < 0
}

func numbers(version string) (list []int) {
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return list
		}
		list = append(list, n)
	}
	return list
}

func loadPeers(path string) ([]peer, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("list of peers: %w", err)
	}
	return parsePeers(b)
}

func parsePeers(b []byte) ([]peer, error) {
	var peers []peer
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&peers); err != nil {
		return nil, fmt.Errorf("list of peers: %w", err)
	}
	if len(peers) == 0 {
		return nil, errors.New("list of peers: it is empty")
	}
	for _, p := range peers {
		if p.Name == "" || p.Name != filepath.Base(p.Name) || p.Title == "" || p.Compiler == "" || len(p.Settings) == 0 {
			return nil, fmt.Errorf("list of peers: %q needs a name (of a file), a title, a compiler and settings", p.Name)
		}
	}
	return peers, nil
}

// compile makes a peer's program from our sources.
func (o *options) compile(ctx context.Context, dir string, p peer) error {
	if len(p.SourcePatterns) == 0 {
		p.SourcePatterns = []string{"*.c"}
	}
	var sources []string
	for _, pattern := range p.SourcePatterns {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(found) == 0 {
			return fmt.Errorf("no C sources %s in %s", pattern, dir)
		}
		sources = append(sources, found...)
	}
	if err := os.MkdirAll(o.buildDir, 0o755); err != nil {
		return err
	}
	args := append([]string{p.Compiler, "-O2", "-std=gnu11", "-Wall", "-Wextra", "-o", o.program(p)}, slices.Concat(p.CompilerFlags, sources)...)
	if _, _, err := o.command(ctx, args); err != nil {
		return fmt.Errorf("compile the programs for %s: %w", p.Title, err)
	}
	return nil
}

func (o *options) program(p peer) string { return filepath.Join(o.buildDir, p.Name) }

// plain is the setting for figures over no network in particular, if there is one.
func (p peer) plain() (setting, bool) {
	i := slices.IndexFunc(p.Settings, func(s setting) bool { return s.OnlyNetwork == "" })
	if i < 0 {
		return setting{}, false
	}
	return p.Settings[i], true
}

// launch returns the command line of a peer's launcher for the ranks of a sample.
func (p peer) launch(f figure, more ...string) []string {
	if p.Launcher == "" {
		return nil
	}
	args := []string{p.Launcher}
	if os.Geteuid() == 0 {
		args = append(args, p.AsRoot...)
	}
	args = append(args, more...)
	if f.bound() {
		args = append(args, p.BoundArgs...)
	} else {
		args = append(args, p.OversubscribedArgs...)
	}
	processes := f.Ranks
	if p.HasThreadRanks {
		processes = 1
	}
	return append(args, "-n", strconv.Itoa(processes))
}

// theirs is the command line of a peer's sample.
func (o *options) theirs(p peer, s setting, f figure) []string {
	sizes := strconv.Itoa(f.MessageBytes)
	if f.upTo > f.MessageBytes {
		sizes += ":" + strconv.Itoa(f.upTo)
	}
	args := append(p.launch(f, s.LauncherArgs...), o.program(p), f.BenchName, "-m", sizes,
		"-i", strconv.Itoa(f.iterations), "-x", strconv.Itoa(f.warmupIterations))
	if f.hopInside() {
		args = append(args, "--hop")
	}
	return append(args, f.peerFlags...)
}

// oursUnder returns the command line of a sample of ferry under a peer's
// launcher.
func (o *options) oursUnder(p peer, f figure) []string {
	job := []string{o.ferryPath, "bench", f.BenchName}
	if f.commandLine != nil {
		job = f.commandLine(o.ferryPath)
	}
	return append(append(p.launch(f), job...), "--rank")
}

// job returns the command line of a sample of a ferry: that of more, if it is not nil.
func (o *options) job(program string, f figure, flags []string, more jobOf) []string {
	if more != nil {
		return more(program)
	}
	return o.ours(program, f, flags)
}

// ours returns the command line of a sample of a ferry with flags. Both sides have a launcher, because jobs are
// timed from the launcher's start to its end.
func (o *options) ours(program string, f figure, flags []string) []string {
	var args []string
	switch {
	case f.BenchName == "init" || f.BenchName == "hello" || !f.bound():
		args = []string{program, "run", "-n", strconv.Itoa(f.Ranks)}
		if f.bound() {
			args = append(args, "--bind-to", "core")
		}
		args = append(args, program, "bench", f.BenchName)
		if f.BenchName == "init" || f.BenchName == "hello" {
			return append(args, "--rank")
		}
	default:
		args = []string{program, "bench", f.BenchName, "-n", strconv.Itoa(f.Ranks)}
	}
	args = append(args, "-m", fmt.Sprintf("%d:%d", f.MessageBytes, f.largest()),
		"-i", strconv.Itoa(f.iterations), "-x", strconv.Itoa(f.warmupIterations), "--format", "json")
	return append(args, flags...)
}
