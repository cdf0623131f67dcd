package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Rows about transports from elsewhere.

// elsewheres are the rows. A null transport returns frames to the rank that has sent them, so
// that the rank and its plugin have a processor each, as two ranks have.
func (c *comparison) elsewheres() []ownRow {
	const mib = 1 << 20
	null := func(f figure) func(context.Context) (float64, string, error) {
		return func(ctx context.Context) (float64, string, error) { return c.null(ctx, f) }
	}
	return []ownRow{
		{"plugin: 8 B to a null transport and back, to one way over shared memory", bound{AtMost: 2.5}, "", null(latency("", 8, 0, 0, ""))},
		{"plugin: bandwidth of 1 MiB to a null transport and back, to shared memory", bound{AtLeast: 0.5}, "", null(window("", "bw", "GB/s", mib, 0, 0, ""))},
		{"plugin: 8 B latency over UDP, compiled in, to TCP", bound{AtMost: 1.3}, "", c.udp},
	}
}

// null measures a message of one rank through a plugin, the one in C, beside that of two ranks.
func (c *comparison) null(ctx context.Context, f figure) (ratio float64, of string, err error) {
	binary, err := filepath.Abs(filepath.Join(c.buildDir, "btl-c"))
	if err != nil {
		return 0, "", err
	}
	if _, _, err = c.command(ctx, []string{"gcc", "-O2", "-pthread", "-o", binary, "examples/plugin-c/plugin.c"}); err != nil {
		return 0, "", err
	}
	file := filepath.Join(filepath.Dir(binary), "plugins.yaml")
	text := fmt.Sprintf("plugins: [{kind: btl, name: plugin, command: [%q, \"null\"], protocol: ferry}]\n", binary)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return 0, "", err
	}
	alone := f
	alone.Ranks = 1
	args := append([]string{"env", "FERRY_CONFIG=" + file}, c.ours(c.ferryPath, alone, []string{"--set", "btl=plugin"})...)
	return c.ratio(ctx, alone, args, f, c.ours(c.ferryPath, f, nil))
}

// udp measures a ferry with examples/vendor-udp compiled in.
func (c *comparison) udp(ctx context.Context) (ratio float64, of string, err error) {
	vendor, err := install(c.vendorPath, filepath.Join(c.buildDir, "ferry-udp"), "build-vendor")
	if err != nil {
		return 0, "", err
	}
	f := latency("", 8, 0, 0, "")
	return c.ratio(ctx, f, c.ours(vendor, f, []string{"--set", "btl=self,udp"}), f, c.ours(c.ferryPath, f, viaTCP))
}

// ratio alternates two commands, and compares their medians.
func (c *comparison) ratio(ctx context.Context, f figure, ours []string, g figure, theirs []string) (ratio float64, of string, err error) {
	var a, b []float64
	for range c.pairCount {
		for _, s := range []struct {
			f    figure
			args []string
			to   *[]float64
		}{{f, ours, &a}, {g, theirs, &b}} {
			list, err := c.between(ctx, s.f, side{s.args, ferryRanks})
			if err != nil {
				return 0, "", err
			}
			*s.to = append(*s.to, list[0].Value)
		}
	}
	x, y := median(a), median(b)
	return x / y, fmt.Sprintf("%s / %s %s", digits(x), digits(y), f.Unit), nil
}
