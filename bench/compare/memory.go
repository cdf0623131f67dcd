package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// memoryRow is the memory of a rank of a job in MiB, as the mean of all ranks.
type memoryRow struct {
	PrivateMiB float64 `json:"private_mib"`
	// Private memory, and shared memory divided by the number of its users.
	ShareMiB float64 `json:"pss_mib"`
	ShmMiB   float64 `json:"shm_mib"` // in /dev/shm, of all ranks together
	Ranks    int     `json:"ranks"`
	// To neighbors, or to all ranks.
	EarlierMessages string `json:"messages"`
	ProgramTitle    string `json:"of"`
	NotMeasured     string `json:"not_measured,omitempty"`
}

const toNeighbours = "to neighbours"

// memories measures each job once, because memory does not vary.
func (c *comparison) memories(ctx context.Context) error {
	for _, job := range []struct {
		ranks           int
		bench, messages string
	}{
		{2, "memory", toNeighbours}, {32, "memory", toNeighbours}, {130, "memory", toNeighbours}, {32, "memory_all", "to everyone"},
	} {
		f := figure{BenchName: job.bench, Ranks: job.ranks, loop: loop{iterations: 1}}
		take := func(of string, args []string) error {
			m := memoryRow{Ranks: job.ranks, EarlierMessages: job.messages, ProgramTitle: of}
			err := c.memory(ctx, &m, args)
			c.memoryRows = append(c.memoryRows, m)
			return err
		}
		if err := take("ferry", c.ours(c.ferryPath, f, nil)); err != nil {
			return err
		}
		for _, p := range c.comparedPeers {
			plain, ok := p.plain()
			if !ok {
				continue
			}
			if err := take(p.Title, c.theirs(p, plain, f)); err != nil {
				return err
			}
		}
	}
	return nil
}

// memory runs a job. A failed job is recorded in m; an error ends the comparison.
func (c *comparison) memory(ctx context.Context, m *memoryRow, args []string) error {
	before, err := shmInUse()
	if err != nil {
		return err
	}
	output, _, err := c.command(ctx, args)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var rows []benchRow
	if err == nil {
		rows, err = parseRows[benchRow](output)
	}
	if err == nil {
		err = m.fill(rows, before)
	}
	if err != nil {
		m.NotMeasured = err.Error()
		c.note("memory of %d ranks of %s: %v", m.Ranks, m.ProgramTitle, err)
	}
	return nil
}

// privateOverTCP is how much memory a rank of two has for itself over btl/tcp, to
// how much through libfabric.
func (c *comparison) privateOverTCP(ctx context.Context) (ratio float64, of string, err error) {
	f := figure{BenchName: "memory", Ranks: 2, loop: loop{iterations: 1}}
	var each []float64
	for _, flags := range [][]string{viaTCP, throughOFI(f).ferryFlags} {
		m := memoryRow{Ranks: f.Ranks, ProgramTitle: "ferry " + strings.Join(flags, " ")}
		if err := c.memory(ctx, &m, c.ours(c.ferryPath, f, flags)); err != nil {
			return 0, "", err
		}
		if m.NotMeasured != "" {
			return 0, "", errors.New(m.NotMeasured)
		}
		each = append(each, m.PrivateMiB)
	}
	return each[0] / each[1], fmt.Sprintf("%s / %s MiB", digits(each[0]), digits(each[1])), nil
}

// fill sets the figures of a job. before is the memory in /dev/shm without it.
func (m *memoryRow) fill(rows []benchRow, before float64) error {
	const kib = 1024
	got := map[string]float64{}
	for _, row := range rows {
		_, what, _ := strings.Cut(row.Bench, "/")
		if row.Ranks != m.Ranks || row.Unit != "KiB" || !(row.Avg > 0) {
			return fmt.Errorf("row %+v is not the memory of %d ranks", row, m.Ranks)
		}
		got[what] = row.Avg / kib
	}
	if got["private"] == 0 || got["pss"] == 0 || got["shm"] == 0 {
		return fmt.Errorf("want rows private, pss and shm, got %v", got)
	}
	m.PrivateMiB, m.ShareMiB, m.ShmMiB = got["private"], got["pss"], max(0, got["shm"]-before)
	return nil
}

// shmInUse is how much of /dev/shm is used now, in MiB.
func shmInUse() (float64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &fs); err != nil {
		return 0, fmt.Errorf("use of /dev/shm: %w", err)
	}
	return float64(fs.Blocks-fs.Bfree) * float64(fs.Bsize) / (1 << 20), nil
}

// growth is how much more of /dev/shm each rank of ours has in a job of 130 ranks
// than in one of 32: a little, since a barrier has more partners. Segments for
// every pair of ranks would make it 4.
func growth(all []memoryRow) (ratio float64, of string, err error) {
	per := map[int]float64{}
	for _, m := range all {
		if m.ProgramTitle == "ferry" && m.EarlierMessages == toNeighbours {
			if m.NotMeasured != "" {
				return 0, "", errors.New(m.NotMeasured)
			}
			per[m.Ranks] = m.ShmMiB / float64(m.Ranks)
		}
	}
	if per[32] == 0 {
		return 0, "", errors.New("nothing of ours was in /dev/shm")
	}
	return per[130] / per[32], fmt.Sprintf("%s / %s MiB", digits(per[130]), digits(per[32])), nil
}
