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

// machineInfo describes the run: its time, machine and software.
type machineInfo struct {
	Date           string  `json:"date"`
	ElapsedSeconds float64 `json:"seconds"`
	ProcessorModel string  `json:"processor"`
	ProcessorCount int     `json:"processors"`
	Memory         string  `json:"memory"`
	Kernel         string  `json:"kernel"`
	System         string  `json:"system"`
	// Release of the system, as in "debian 12", which determines the versions of peers.
	Release string `json:"release"`
	// Load average of the minute before, because other work disturbs in every state of the machine.
	LoadAverage string `json:"load"`
	// Commit of ferry, or empty.
	Commit   string    `json:"commit"`
	Versions []version `json:"versions"`
}

type version struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// proc reads /proc. Without that folder, its calls fail.
var proc, _ = procfs.NewDefaultFS()

// describe returns the description of the machine and the versions of the programs, and selects the settings of
// each peer's version.
func (c *comparison) describe(ctx context.Context) (machineInfo, error) {
	a := machineInfo{Date: time.Now().UTC().Format("2006-01-02 15:04 UTC"), ProcessorCount: runtime.NumCPU(), ProcessorModel: "unknown", System: "unknown"}
	cpus, err := proc.CPUInfo()
	memory, err2 := proc.Meminfo()
	load, err3 := proc.LoadAvg()
	kernel, err4 := proc.SysctlStrings("kernel/osrelease")
	if err := errors.Join(err, err2, err3, err4); err != nil {
		return a, fmt.Errorf("this machine: %w", err)
	}
	if len(cpus) > 0 && cpus[0].ModelName != "" {
		a.ProcessorModel = cpus[0].ModelName
		// In a virtual machine, several generations may have the same name.
		if family, model := cpus[0].CPUFamily, cpus[0].Model; family != "" && model != "" {
			a.ProcessorModel += fmt.Sprintf(" (family %s, model %s)", family, model)
		}
	}
	if system, err := os.ReadFile("/etc/os-release"); err == nil {
		a.System = cmp.Or(released(system, "PRETTY_NAME"), a.System)
		a.Release = strings.TrimSpace(released(system, "ID") + " " + released(system, "VERSION_ID"))
	}
	if memory.MemTotalBytes != nil {
		a.Memory = framework.Size(*memory.MemTotalBytes >> 30 << 30).String()
	}
	a.Kernel, a.LoadAverage = strings.Join(kernel, " "), fmt.Sprintf("%.2f", load.Load1)
	ask := func(title, program string) (string, error) {
		out, _, err := c.command(ctx, []string{program, "--version"})
		v := number(out)
		a.Versions = append(a.Versions, version{title, v})
		return v, err
	}
	mine, err := ask("ferry", c.ferryPath)
	_, a.Commit, _ = strings.Cut(mine, "+")
	a.Versions = append(a.Versions, version{"Go", strings.TrimPrefix(runtime.Version(), "go")})
	if c.beforePath != "" {
		_, failed := ask("ferry before", c.beforePath)
		err = errors.Join(err, failed)
	}
	for i, p := range c.comparedPeers {
		v, failed := ask(p.Title, cmp.Or(p.Launcher, p.Compiler))
		c.comparedPeers[i], err = p.of(v), errors.Join(err, failed)
	}
	return a, err
}

// released returns a value of /etc/os-release, or an empty string.
func released(system []byte, name string) string {
	m := regexp.MustCompile(`(?m)^` + name + `="?([^"\n]*)`).FindSubmatch(system)
	if m == nil {
		return ""
	}
	return string(m[1])
}

// Title names the machine with its system. New results replace those of the same title.
func (a machineInfo) Title() string {
	return fmt.Sprintf("%s, %d processors, %s", a.ProcessorModel, a.ProcessorCount, a.System)
}

// Key is the title as a file name, without the minor release of the system.
func (a machineInfo) Key() string {
	text := fmt.Sprintf("%s x%d %s", a.ProcessorModel, a.ProcessorCount, cmp.Or(a.Release, a.System))
	return strings.Trim(regexp.MustCompile(`[^a-z0-9.]+`).ReplaceAllString(strings.ToLower(text), "-"), "-.")
}

func number(s string) string {
	if v := regexp.MustCompile(`\d+\.\d+(\.\d+)*[^\s)]*`).FindString(s); v != "" {
		return v
	}
	return "of unknown version"
}

// busy returns the working time of all processors since the start of the machine, including time stolen by the
// host.
func busy() (time.Duration, error) {
	stat, err := proc.Stat()
	if err != nil {
		return 0, fmt.Errorf("load of the processors: %w", err)
	}
	return worked(stat.CPUTotal), nil
}

// worked excludes idle time. User includes guests.
func worked(c procfs.CPUStat) time.Duration {
	return time.Duration((c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal) * float64(time.Second))
}

// others returns the number of processors that worked for other processes during a job, which used the time own itself.
// The kernel's resolution of 10 ms makes it coarse for a job of some milliseconds; use medians.
func others(all, own, whole time.Duration) float64 {
	return max(0, float64(all-own)/float64(max(whole, 1)))
}
