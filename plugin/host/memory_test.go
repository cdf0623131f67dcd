package host_test

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/plugin/host"
)

// With frames of a quarter of the ring, rank and plugin alternate, because each waits for the other one's cells.
func TestCaps_FrameLimit_LeavesRoomForBothSides(t *testing.T) {
	offers := func(e host.Entry) func(*testing.T) {
		return func(t *testing.T) {
			for cells, most := range map[string]int{"64": 256, "4096": 16 << 10, "32768": 64 << 10} {
				m, _, _, err := open(t, e, io.Discard, set(t, map[string]string{"btl.acme.ring_cells": cells}))
				if err != nil {
					t.Fatal(err)
				}
				if n := m.Caps().FrameLimit; n > most || n < most*9/10 {
					t.Errorf("rings of %s cells: frames of %d bytes, not almost %d", cells, n, most)
				}
			}
		}
	}
	t.Run("Go", offers(entry("null")))
	t.Run("C", func(t *testing.T) {
		e := inC(t, "null").(config.Plugged).Plugin()
		e.Name = "acme"
		offers(e)(t)
	})
}

func TestRing_Unused_NeedsNoMemory(t *testing.T) {
	if _, _, _, err := open(t, entry("null"), io.Discard, nil); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ours, size, used := false, 0, 0 // KiB
	for s := bufio.NewScanner(f); s.Scan(); {
		switch words := strings.Fields(s.Text()); {
		case strings.Contains(words[0], "-"):
			ours = strings.Contains(s.Text(), "memfd:ferry-plugin")
		case ours && words[0] == "Size:":
			n, _ := strconv.Atoi(words[1])
			size += n
		case ours && words[0] == "Rss:":
			n, _ := strconv.Atoi(words[1])
			used += n
		}
	}
	if size < 4<<10 || used > 600 {
		t.Errorf("rings of %d KiB, of which %d are in use before the first message", size, used)
	}
}
