package tcp_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/test/nettest"
)

// Pending data arrives once and in order when the links are back.
func TestTwoHosts_BothLinksDown_LosesNothing(t *testing.T) {
	for _, c := range []struct {
		how      string
		down, up func(h *nettest.Hosts, link int)
		dark     time.Duration
		long     bool
	}{
		{"cut", (*nettest.Hosts).Cut, (*nettest.Hosts).Join, size(3*time.Second, time.Second), false},
		// Long enough for a reconnect.
		{"cut for long", (*nettest.Hosts).Cut, (*nettest.Hosts).Join, 8 * time.Second, true},
		// One of the interfaces of each link is down, so that the hosts notice.
		{"interfaces down", func(h *nettest.Hosts, link int) { h.Down(link, link) }, (*nettest.Hosts).Up, 3 * time.Second, true},
	} {
		t.Run(c.how, func(t *testing.T) {
			if c.long && !*full {
				t.Skip("it takes more than 5 s: -full")
			}
			whole(t)
			h := nettest.New(t, nettest.Link{BitsPerSecond: 1e9}, nettest.Link{BitsPerSecond: 1e9})
			j := start(t, h, nil, rank("talk")...)
			j.until(2, "talking")
			for link := range 2 {
				c.down(h, link)
			}
			time.Sleep(c.dark)
			for link := range 2 {
				c.up(h, link)
			}
			time.Sleep(size(2*time.Second, 300*time.Millisecond))
			j.signal()
			rights(t, j.well())
		})
	}
}

// rights checks that both ranks have received all data intact.
func rights(t *testing.T, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "right: ") {
			t.Log(strings.TrimSpace(line))
		}
	}
	if strings.Count(out, "right: ") != 2 {
		t.Error(out)
	}
}

// failure is an error that a rank has printed.
type failure struct {
	at          time.Duration
	class, text string
}

// failures waits until both ranks have printed their error.
func (j *job) failures() (all []failure) {
	j.t.Helper()
	for _, line := range j.until(2, "error ") {
		words := strings.SplitN(line, " ", 3)
		at, err := strconv.ParseInt(words[0], 10, 64)
		if err != nil {
			j.t.Fatal(err)
		}
		all = append(all, failure{time.Duration(at), words[1], words[2]})
	}
	return all
}

// The errors have both names.
func TestTwoHosts_OneIsSilent_BothFailAfterRetryTimeout(t *testing.T) {
	for _, links := range size([]int{1, 2}, []int{1}) {
		for _, retry := range size([]time.Duration{5 * time.Second, 30 * time.Second}, []time.Duration{5 * time.Second}) {
			t.Run(fmt.Sprintf("links=%d,retry_timeout=%v", links, retry), func(t *testing.T) {
				whole(t)
				h := nettest.New(t, make([]nettest.Link, links)...)
				j := start(t, h, []string{"--set", "btl.tcp.retry_timeout=" + retry.String()}, rank("talk")...)
				j.until(2, "talking")
				before := now()
				for link := range links {
					h.Cut(link)
				}
				after := now()
				for _, f := range j.failures() {
					t.Logf("%v after the cut: %s: %s", (f.at - after).Round(time.Millisecond), f.class, f.text)
					if f.class != "ErrTransport" || !strings.Contains(f.text, "rank 0") || !strings.Contains(f.text, "rank 1") {
						t.Error("want ErrTransport with both ranks")
					}
					if f.at-before < retry {
						t.Errorf("%v too early", retry-(f.at-before))
					}
					// The bootstrap has 0.8 s of it to report the death of the process.
					if late := f.at - after - retry; late > size(time.Second, 20*time.Second) {
						t.Errorf("%v late", late)
					}
				}
				j.signal()
				j.well()
			})
		}
	}
}

// Small packets pass, so that every handshake succeeds, and large ones are dropped without
// notice.
func TestTwoHosts_MTUBlackHole_BothFailAfterRetryTimeout(t *testing.T) {
	whole(t)
	const retry = time.Second
	before := now()
	h := nettest.New(t, nettest.Link{MTU: 9000, Faults: &nettest.PacketFaults{LargestPacket: 1500}})
	j := start(t, h, []string{"--set", "btl.tcp.retry_timeout=" + retry.String()}, rank("talk")...)
	for _, f := range j.failures() {
		t.Logf("%v after the start: %s: %s", (f.at - before).Round(time.Millisecond), f.class, f.text)
		if f.class != "ErrTransport" || !strings.Contains(f.text, "check the path MTU") {
			t.Error("want ErrTransport that names the path MTU")
		}
		if f.at-before < retry {
			t.Errorf("%v too early", retry-(f.at-before))
		}
	}
	j.signal()
	if out := j.well(); !strings.Contains(out, "lost a connection and reconnected") {
		t.Errorf("the first reconnect is not logged:\n%s", out)
	}
}

// Three links are cut, joined, and taken down and up at random, at times all at once, for shorter and
// longer than a TCP connection survives.
func TestTwoHosts_RandomCuts_LosesNothing(t *testing.T) {
	whole(t)
	rng := rand.New(rand.NewPCG(*seed, 14))
	h := nettest.New(t, nettest.Link{BitsPerSecond: 3e8}, nettest.Link{BitsPerSecond: 3e8}, nettest.Link{UsesIPv6: true})
	j := start(t, h, nil, rank("talk")...)
	j.until(2, "talking")
	var off [3]func(*nettest.Hosts, int) // Undo functions by link.
	for end := time.Now().Add(size(3*time.Minute, time.Second)); time.Now().Before(end); {
		link := rng.IntN(3)
		switch {
		case off[link] != nil:
			off[link](h, link)
			off[link] = nil
		case rng.IntN(2) == 0:
			h.Cut(link)
			off[link] = (*nettest.Hosts).Join
		default:
			h.Down(rng.IntN(2), link)
			off[link] = (*nettest.Hosts).Up
		}
		longest := []time.Duration{10 * time.Millisecond, 300 * time.Millisecond, size(5*time.Second, 300*time.Millisecond)}[rng.IntN(3)]
		time.Sleep(time.Duration(rng.Int64N(int64(longest))))
	}
	for link, undo := range off {
		if undo != nil {
			undo(h, link)
		}
	}
	j.signal()
	rights(t, j.well())
}
