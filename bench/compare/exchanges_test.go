package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const partitionedRecorded = `{"bench":"partitioned","size":1048576,"ranks":2,"unit":"us","avg":800,"p50":700,"raw_hop_ns":30,"pure_us":1600}` + "\n"

func TestPartitioned_RowWithoutOneOfTheTimes_IsRejected(t *testing.T) {
	f := window("", "partitioned", "us", 1<<20, 0, 0, "")
	row, err := parsePartitioned(partitionedRecorded, f)
	if err != nil || row.Avg != 800 || row.PureMicros != 1600 {
		t.Errorf("%+v, %v; want both times", row, err)
	}
	for _, change := range [][2]string{
		{`"pure_us":1600`, `"pure_us":0`}, {`"avg":800`, `"avg":0`}, {`1048576`, `8`}, {`"ranks":2`, `"ranks":4`}, {`"partitioned"`, `"isend"`},
		{`"us"`, `"ms"`}, {"\n", "\n" + partitionedRecorded},
	} {
		changed := strings.Replace(partitionedRecorded, change[0], change[1], 1)
		if _, err := parsePartitioned(changed, f); err == nil {
			t.Errorf("%q was accepted", changed)
		}
	}
}

func TestExchangeRows_TwoForms_AlternateWithTheirFlags(t *testing.T) {
	needTwoProcessors(t)
	log := filepath.Join(t.TempDir(), "log")
	row := func(bench string, p50 string) string {
		row := strings.Replace(strings.Replace(recorded, "latency", bench, 1), `"p50":0.21`, `"p50":`+p50, 1)
		return "echo '" + strings.TrimSpace(row) + "'"
	}
	args := world(t, `case "$*" in
*partitioned*) echo '`+strings.TrimSpace(partitionedRecorded)+`';;
*allreduce*--persistent*) echo persistent >>`+log+`; `+row("allreduce", "0.18")+`;;
*allreduce*) echo plain >>`+log+`; `+row("allreduce", "0.2")+`;;
*isendrecv*--isend-irecv*) `+row("isendrecv", "0.2")+`;;
*isendrecv*) `+row("isendrecv", "0.21")+`;;
esac`, "exit 1")
	args[len(args)-1] = "^Isendrecv|^persistent|^partitioned"
	if err := run(t.Context(), args, t.Output()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if strings.ReplaceAll(string(b), "persistent\nplain\n", "") != "" {
		t.Errorf("order of samples: %q", b)
	}
	_, md := results(t, args)
	for _, want := range []string{
		"| Isendrecv of 8 B, to Isend and Irecv | **1.05** short | 0.210 / 0.200 us | <= 1.02 |",
		"| persistent Allreduce of 8 B, to Allreduce | **0.90** met | 0.180 / 0.200 us | <= 0.95 |",
		"| partitioned send of 1 MiB that 4 goroutines fill, to a Send after all of them | **0.50** met | 800 / 1600 us | <= 1.10 |",
	} {
		if !strings.Contains(md, want) {
			t.Errorf("the results lack %q:\n%s", want, md)
		}
	}
}
