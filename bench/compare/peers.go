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
	Name           string    `json:"name"`
	Title          string    `json:"title"`
	Compiler       string    `json:"compiler"`
	Flags          []string  `json:"flags"`          // of the compiler, besides those of all
	Sources        []string  `json:"sources"`        // patterns, in the folder of peers.json; none: all of MPI's
	Launcher       string    `json:"launcher"`       // empty: the program starts its ranks itself
	Threads        bool      `json:"threads"`        // the launcher starts one process, whose threads are the ranks
	Bound          []string  `json:"bound"`          // arguments that give each rank a core
	Oversubscribed []string  `json:"oversubscribed"` // arguments for more ranks than cores
	AsRoot         []string  `json:"as_root"`        // arguments that root needs
	Settings       []setting `json:"settings"`
}

// A setting is a way to run a peer.
type setting struct {
	Title     string   `json:"title"`
	Default   bool     `json:"default"`    // as it comes, without arguments
	Args      []string `json:"args"`       // of the launcher
	FromBytes int      `json:"from_bytes"` // the size of messages from which it changes anything
	Only      string   `json:"only"`       // for figures over that network alone
	From      string   `json:"from"`       // the version of the peer from which on it is there; empty: any
	Below     string   `json:"below"`      // the version from which on it is not; empty: none
}

// of leaves a peer the settings of its version: names of parameters change.
func (p peer) of(version string) peer {
	p.Settings = slices.DeleteFunc(slices.Clone(p.Settings), func(s setting) bool {
		return s.From != "" && older(version, s.From) || s.Below != "" && !older(version, s.Below)
	})
	return p
}

// older says whether version a comes before b, number by number: "4.1.4" before "5".
// What is no number, as in an unknown version, comes first.
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
	if len(p.Sources) == 0 {
		p.Sources = []string{"*.c"}
	}
	var sources []string
	for _, pattern := range p.Sources {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(found) == 0 {
			return fmt.Errorf("no C sources %s in %s", pattern, dir)
		}
		sources = append(sources, found...)
	}
	if err := os.MkdirAll(o.build, 0o755); err != nil {
		return err
	}
	args := append([]string{p.Compiler, "-O2", "-std=gnu11", "-Wall", "-Wextra", "-o", o.program(p)}, slices.Concat(p.Flags, sources)...)
	if _, _, err := o.command(ctx, args); err != nil {
		return fmt.Errorf("compile the programs for %s: %w", p.Title, err)
	}
	return nil
}

func (o *options) program(p peer) string { return filepath.Join(o.build, p.Name) }

// plain is the setting for figures over no network in particular, if there is one.
func (p peer) plain() (setting, bool) {
	i := slices.IndexFunc(p.Settings, func(s setting) bool { return s.Only == "" })
	if i < 0 {
		return setting{}, false
	}
	return p.Settings[i], true
}

// launch is a peer's launcher with what it needs to start the ranks of a sample.
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
		args = append(args, p.Bound...)
	} else {
		args = append(args, p.Oversubscribed...)
	}
	processes := f.Ranks
	if p.Threads {
		processes = 1
	}
	return append(args, "-n", strconv.Itoa(processes))
}

// theirs is the command line of a peer's sample.
func (o *options) theirs(p peer, s setting, f figure) []string {
	sizes := strconv.Itoa(f.Size)
	if f.upTo > f.Size {
		sizes += ":" + strconv.Itoa(f.upTo)
	}
	args := append(p.launch(f, s.Args...), o.program(p), f.Bench, "-m", sizes,
		"-i", strconv.Itoa(f.iterations), "-x", strconv.Itoa(f.warmup))
	if f.hopInside() {
		args = append(args, "--hop")
	}
	return append(args, f.peerFlags...)
}

// oursUnder is the command line of a sample of ours whose ranks a peer's launcher
// starts.
func (o *options) oursUnder(p peer, f figure) []string {
	return append(p.launch(f), o.ferry, "bench", f.Bench, "--rank")
}

// job is the command line of a sample of a ferry, by itself or as a figure asks for.
func (o *options) job(program string, f figure, flags []string, more jobOf) []string {
	if more != nil {
		return more(program)
	}
	return o.ours(program, f, flags)
}

// ours is the command line of a sample of a ferry, with flags of its own. Jobs are timed
// from the launcher's start to its end on both sides, so both have a launcher.
func (o *options) ours(program string, f figure, flags []string) []string {
	var args []string
	switch {
	case f.Bench == "init" || f.Bench == "hello" || !f.bound():
		args = []string{program, "run", "-n", strconv.Itoa(f.Ranks)}
		if f.bound() {
			args = append(args, "--bind-to", "core")
		}
		args = append(args, program, "bench", f.Bench)
		if f.Bench == "init" || f.Bench == "hello" {
			return append(args, "--rank")
		}
	default:
		args = []string{program, "bench", f.Bench, "-n", strconv.Itoa(f.Ranks)}
	}
	args = append(args, "-m", fmt.Sprintf("%d:%d", f.Size, f.largest()),
		"-i", strconv.Itoa(f.iterations), "-x", strconv.Itoa(f.warmup), "--format", "json")
	return append(args, flags...)
}
