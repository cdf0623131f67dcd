package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/procfs"

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
	Release    string    `json:"release"` // of the system, as in "debian 12": which peers there are depends on it
	Load       string    `json:"load"`    // the minute before: other work disturbs, however near the processors are
	Commit     string    `json:"commit"`  // of ferry, if it knows it
	Versions   []version `json:"versions"`
}

type version struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// proc is what the kernel tells of this machine. Where there is no such folder, all
// that is asked of it fails.
var proc, _ = procfs.NewDefaultFS()

// describe looks at the machine and asks the programs for their versions, which tell
// what settings a peer has.
func (c *comparison) describe(ctx context.Context) (about, error) {
	a := about{Date: time.Now().UTC().Format("2006-01-02 15:04 UTC"), Processors: runtime.NumCPU(), Processor: "unknown", System: "unknown"}
	cpus, err := proc.CPUInfo()
	memory, err2 := proc.Meminfo()
	load, err3 := proc.LoadAvg()
	kernel, err4 := proc.SysctlStrings("kernel/osrelease")
	if err := errors.Join(err, err2, err3, err4); err != nil {
		return a, fmt.Errorf("this machine: %w", err)
	}
	if len(cpus) > 0 && cpus[0].ModelName != "" {
		a.Processor = cpus[0].ModelName
		// In a virtual machine the name may be that of many generations.
		if family, model := cpus[0].CPUFamily, cpus[0].Model; family != "" && model != "" {
			a.Processor += fmt.Sprintf(" (family %s, model %s)", family, model)
		}
	}
	if system, err := os.ReadFile("/etc/os-release"); err == nil {
		a.System = cmp.Or(released(system, "PRETTY_NAME"), a.System)
		a.Release = strings.TrimSpace(released(system, "ID") + " " + released(system, "VERSION_ID"))
	}
	if memory.MemTotalBytes != nil {
		a.Memory = framework.Size(*memory.MemTotalBytes >> 30 << 30).String()
	}
	a.Kernel, a.Load = strings.Join(kernel, " "), fmt.Sprintf("%.2f", load.Load1)
	ask := func(title, program string) (string, error) {
		out, _, err := c.command(ctx, []string{program, "--version"})
		v := number(out)
		a.Versions = append(a.Versions, version{title, v})
		return v, err
	}
	mine, err := ask("ferry", c.ferry)
	_, a.Commit, _ = strings.Cut(mine, "+")
	a.Versions = append(a.Versions, version{"Go", strings.TrimPrefix(runtime.Version(), "go")})
	if c.before != "" {
		_, failed := ask("ferry before", c.before)
		err = errors.Join(err, failed)
	}
	for i, p := range c.list {
		v, failed := ask(p.Title, cmp.Or(p.Launcher, p.Compiler))
		c.list[i], err = p.of(v), errors.Join(err, failed)
	}
	return a, err
}

// released is a value of /etc/os-release, or empty.
func released(system []byte, name string) string {
	m := regexp.MustCompile(`(?m)^` + name + `="?([^"\n]*)`).FindSubmatch(system)
	if m == nil {
		return ""
	}
	return string(m[1])
}

// Title names a machine with its system: results of another one stand beside these, and
// those of the same one take their place.
func (a about) Title() string {
	return fmt.Sprintf("%s, %d processors, %s", a.Processor, a.Processors, a.System)
}

// key is the title as a file's name. A release of the system that mends it is the same
// system.
func (a about) Key() string {
	text := fmt.Sprintf("%s x%d %s", a.Processor, a.Processors, cmp.Or(a.Release, a.System))
	return strings.Trim(regexp.MustCompile(`[^a-z0-9.]+`).ReplaceAllString(strings.ToLower(text), "-"), "-.")
}

func number(s string) string {
	if v := regexp.MustCompile(`\d+\.\d+(\.\d+)*[^\s)]*`).FindString(s); v != "" {
		return v
	}
	return "of unknown version"
}

// busy is how long all processors together have worked since the machine started,
// or were taken away by the host, for whomever.
func busy() (time.Duration, error) {
	stat, err := proc.Stat()
	if err != nil {
		return 0, fmt.Errorf("load of the processors: %w", err)
	}
	return worked(stat.CPUTotal), nil
}

// worked leaves out waiting. Guests are part of User.
func worked(c procfs.CPUStat) time.Duration {
	return time.Duration((c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal) * float64(time.Second))
}

// others is how many processors worked for others than a job, while it ran and
// used the given time itself. The kernel's hundredths of a second make it coarse
// for a job of some milliseconds; medians tell.
func others(all, own, whole time.Duration) float64 {
	return max(0, float64(all-own)/float64(max(whole, 1)))
}
