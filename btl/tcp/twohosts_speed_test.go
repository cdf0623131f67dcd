package tcp_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/test/nettest"
)

// It compares `ferry bench bw` over one link and over two.
func TestTwoHosts_TwoLinks_AreNearlyTwiceAsFast(t *testing.T) {
	whole(t)
	rate := size(1_000_000_000, 200_000_000) // bits per second
	h := nettest.New(t, nettest.Link{BitsPerSecond: rate}, nettest.Link{BitsPerSecond: rate})
	bandwidth := func(links int) float64 {
		out := start(t, h, []string{"--set", fmt.Sprint("btl.tcp.links=", links)},
			ferry(t, "bench", "bw", "-m", size("1MiB:1MiB", "128KiB:128KiB"), "-x", size("3", "1"), "-i", size("10", "3"), "--format", "json")...).well()
		var row struct {
			Unit string
			Avg  float64
		}
		if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &row); err != nil || row.Unit != "MB/s" {
			t.Fatalf("%v: %s", err, out)
		}
		return row.Avg
	}
	one, two := bandwidth(1), bandwidth(2)
	t.Logf("links of %d Mbit/s: one %.1f MB/s, two %.1f MB/s: %.2f times", rate/1e6, one, two, two/one)
	if one > 1.1*float64(rate)/8e6 {
		t.Errorf("by one link %.1f MB/s: it is not shaped", one)
	}
	if two < size(1.8, 1.3)*one { // a short one has its neighbours' noise
		t.Error("two links are too slow")
	}
	if *full {
		own := bandwidth(0)
		t.Logf("without btl.tcp.links: %.1f MB/s, %.2f times", own, own/one)
		if own < 1.8*one {
			t.Error("two networks are not used as they come")
		}
	}
}

// Every byte is right, and each cut costs little.
func TestTwoHosts_OneLinkIsCut_TransferContinues(t *testing.T) {
	whole(t)
	rate, mib, cuts, dark := size(2_000_000_000, 200_000_000), size(10<<10, 64), size(5, 1), size(3*time.Second, time.Second)
	h := nettest.New(t, nettest.Link{BitsPerSecond: rate}, nettest.Link{BitsPerSecond: rate})
	run := func(mib, cuts int) time.Duration {
		j := start(t, h, nil, rank("transfer", fmt.Sprint(mib), fmt.Sprint(cuts+1))...)
		for k := range cuts {
			j.until(1, "part ")
			h.Cut(k % 2)
			time.Sleep(dark)
			h.Join(k % 2)
		}
		out := j.well()
		return took(t, out)
	}
	// Time for the bytes at the rate of two links, or of the machine if that is lower.
	sample := mib / 10
	shaped := time.Duration(float64(mib) * (1 << 20) * 8 / float64(2*rate) * float64(time.Second))
	need := max(shaped, run(sample, 0)*time.Duration(mib)/time.Duration(sample))
	all := run(mib, cuts)
	t.Logf("%d MiB by two links of %d Mbit/s: the links need %v, this machine %v; with %d cuts of %v %v, so %v for each cut",
		mib, rate/1e6, shaped.Round(time.Millisecond), need.Round(time.Millisecond), cuts, dark, all.Round(time.Millisecond),
		((all - need) / time.Duration(cuts)).Round(time.Millisecond))
	if all > need+time.Duration(cuts)*5*time.Second+size(0, 20*time.Second) {
		t.Error("a cut costs more than 5 s")
	}
}

// took reads how long a transfer has taken.
func took(t *testing.T, out string) time.Duration {
	t.Helper()
	_, rest, _ := strings.Cut(out, "took ")
	text, _, _ := strings.Cut(rest, "\n")
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, rest, _ = strings.Cut(out, "mended ")
	text, _, _ = strings.Cut(rest, "\n")
	t.Logf("%v, %s", d.Round(time.Millisecond), text)
	return d
}
