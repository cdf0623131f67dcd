package main

import (
	"context"
	"fmt"
)

// Rows that compare calls of ferry with other calls for the same exchange.

// exchangeRows are the rows of calls that two jobs alternate. The medians count. In an average of operations of half a
// microsecond, an interruption of a rank is most of the figure.
func exchangeRows() (list []figure) {
	row := func(name string, f figure, flags []string, title string, other []string, most float64) {
		f.Name, f.ferryFlags, f.versusVariant, f.wantedBound, f.usesMedian = name, flags, &variant{Title: title, ferryFlags: other}, bound{AtMost: most}, true
		list = append(list, f)
	}
	const separate = "Isend and Irecv"
	byMessages := []string{"--isend-irecv"}
	halo := func(size int) figure {
		f := collective("", "halo", size, 2, 0, 0, "")
		f.iterations, f.warmupIterations = 1000, 100 // The protocols of large messages are selected in the warm-up.
		return f
	}
	exchange := latency("", 8, 0, 0, "")
	exchange.BenchName = "isendrecv"
	row("halo: NeighborAlltoall of 8 B, to "+separate, halo(8), nil, separate, byMessages, 1.05)
	row("halo: NeighborAlltoall of 64 KiB, to "+separate, halo(64<<10), nil, separate, byMessages, 1.05)
	row("Isendrecv of 8 B, to "+separate, exchange, nil, separate, byMessages, 1.02)
	row("persistent Allreduce of 8 B, to Allreduce", collective("", "allreduce", 8, 2, 0, 0, ""), []string{"--persistent"}, "Allreduce", nil, 0.95)
	return list
}

// partitioned compares a partitioned send of a buffer that goroutines fill with a Send after all of them. A job measures both.
func (c *comparison) partitioned(ctx context.Context) (ratio float64, of string, err error) {
	f := window("", "partitioned", "us", 1<<20, 0, 0, "")
	f.iterations, f.warmupIterations = 100, 10
	var parts, whole []float64
	for range c.pairCount {
		output, _, err := c.command(ctx, c.ours(c.ferryPath, f, nil))
		if err != nil {
			return 0, "", err
		}
		row, err := parsePartitioned(output, f)
		if err != nil {
			return 0, "", err
		}
		parts, whole = append(parts, row.Avg), append(whole, row.PureMicros)
	}
	x, y := median(parts), median(whole)
	return x / y, fmt.Sprintf("%s / %s %s", digits(x), digits(y), f.Unit), nil
}

// parsePartitioned reads the row of a job.
func parsePartitioned(output string, f figure) (row benchRow, err error) {
	rows, err := parseRows[benchRow](output)
	if err != nil {
		return row, err
	}
	row = rows[0]
	if len(rows) != 1 || row.Bench != f.BenchName || row.Size != f.MessageBytes || row.Ranks != f.Ranks || row.Unit != f.Unit || !(row.Avg > 0) || !(row.PureMicros > 0) {
		return row, fmt.Errorf("want one row of %s, %d bytes, %d ranks, with both times, got %.200q", f.BenchName, f.MessageBytes, f.Ranks, output)
	}
	return row, nil
}
