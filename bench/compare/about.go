package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/framework"
)

// about says when, where and with what the figures were taken.
type about struct {
	Date       string    `json:"date"`
	Seconds    float64   `json:"seconds"`
	Processor  string    `json:"processor"`
	Processors int       `json:"processors"`
	Memory     string    `json:"memory"`
	Kernel     string    `json:"kernel"`
	System     string    `json:"system"`
	Load       string    `json:"load"`   // the minute before: other work disturbs, however near the processors are
	Commit     string    `json:"commit"` // of the sources, where git knows it
	Versions   []version `json:"versions"`
}

type version struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// describe looks at the machine and asks the programs for their versions.
func (r *runner) describe(ctx context.Context, peers []peer) (about, error) {
	a := about{
		Date: time.Now().UTC().Format("2006-01-02 15:04 UTC"), Processors: runtime.NumCPU(),
		Processor: firstField("/proc/cpuinfo", `(?m)^model name\s*:\s*(.+)$`),
		System:    firstField("/etc/os-release", `(?m)^PRETTY_NAME="?([^"\n]+)`),
		Kernel:    firstField("/proc/sys/kernel/osrelease", `(\S+)`),
		Load:      firstField("/proc/loadavg", `(\S+)`),
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return a, fmt.Errorf("memory of this machine: %w", err)
	}
	a.Memory = framework.Size(info.Totalram * uint64(info.Unit) >> 30 << 30).String()
	if commit, _, err := r.command(ctx, []string{"git", "rev-parse", "--short=12", "HEAD"}); err == nil {
		a.Commit = strings.TrimSpace(commit)
	}
	out, _, err := r.command(ctx, []string{r.ferry, "--version"})
	if err != nil {
		return a, err
	}
	a.Versions = []version{{"ferry", strings.TrimSpace(strings.TrimPrefix(out, "ferry version "))}, {"Go", strings.TrimPrefix(runtime.Version(), "go")}}
	for _, p := range peers {
		out, _, err := r.command(ctx, []string{p.Launcher, "--version"})
		if err != nil {
			return a, err
		}
		a.Versions = append(a.Versions, version{p.Title, number(out)})
	}
	return a, nil
}

// number finds the first version number in a text.
func number(s string) string {
	if v := regexp.MustCompile(`\d+\.\d+(\.\d+)*\S*`).FindString(s); v != "" {
		return v
	}
	return "of unknown version"
}

// firstField returns the first match in a file; "unknown" without one.
func firstField(file, pattern string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	m := regexp.MustCompile(pattern).FindSubmatch(b)
	if m == nil {
		return "unknown"
	}
	return strings.TrimSpace(string(m[1]))
}
