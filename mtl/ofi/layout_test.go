package ofi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/mtl"
)

func TestLayout_AnyWidth_KeepsEveryField(t *testing.T) {
	for _, data := range []bool{true, false} {
		for width := 0; width <= 64; width++ {
			l, err := newLayout(width, data)
			if err != nil {
				if width >= 40 {
					t.Errorf("%d bits: %v", width, err)
				}
				continue
			}
			used := l.cidBits + l.endpointBits + l.tagBits
			if !data {
				used += l.sourceBits + 1
			}
			if used > width || l.tagBits < minTagBits || l.sourceBits < minSourceBits || l.cidBits < minCIDBits {
				t.Errorf("%d bits: %v uses %d", width, l, used)
			}
			check(t, l, width)
		}
	}
	l, err := parseLayout("12/18/31", 62)
	if err != nil {
		t.Fatal(err)
	}
	check(t, l, 62)
}

func check(t *testing.T, l layout, width int) {
	t.Helper()
	envelopes := []mtl.Envelope{{}, {CID: 1<<l.cidBits - 1}, {Source: 1<<l.sourceBits - 1}, {Tag: 1<<l.tagBits - 1}, {Endpoint: 1<<l.endpointBits - 1},
		{CID: 1<<l.cidBits - 1, Source: 1<<l.sourceBits - 1, Tag: 1<<l.tagBits - 1, Endpoint: 1<<l.endpointBits - 1}}
	for _, e := range envelopes {
		for _, mode := range []mtl.Mode{mtl.Standard, mtl.Synchronous} {
			tag, data := l.send(e, mode)
			if got, m := l.message(tag, data); got != e || m != mode {
				t.Errorf("%v: %+v %v became %+v %v", l, e, mode, got, m)
			}
			if width < 64 && tag>>width != 0 || data>>32 != 0 {
				t.Errorf("%v: tag %#x, data %#x", l, tag, data)
			}
			takes := func(r mtl.Envelope) bool {
				want, ignore := l.receive(r)
				return (want^tag)&^ignore == 0
			}
			for _, r := range []mtl.Envelope{
				e, {CID: e.CID, Source: mtl.AnySource, Tag: e.Tag}, {CID: e.CID, Source: e.Source, Tag: mtl.AnyTag, Endpoint: e.Endpoint},
				{CID: e.CID, Source: mtl.AnySource, Tag: mtl.AnyTag},
			} {
				if !takes(r) {
					t.Errorf("%v: a receive for %+v does not take %+v", l, r, e)
				}
			}
			if takes(mtl.Envelope{CID: e.CID ^ 1, Source: mtl.AnySource, Tag: mtl.AnyTag}) {
				t.Errorf("%v: a receive for another id takes %+v", l, e)
			}
			for bit := range l.endpointBits {
				if takes(mtl.Envelope{CID: e.CID, Source: e.Source, Tag: mtl.AnyTag, Endpoint: e.Endpoint ^ 1<<bit}) {
					t.Errorf("%v: a receive from another endpoint takes %+v", l, e)
				}
			}
		}
	}
}

func TestTagWidth_Formats_CountBits(t *testing.T) {
	for format, want := range map[uint64]int{0xaaaaaaaaaaaaaaaa: 64, 0x5555555555555555: 63, 0xffffffffffff: 48, 0: 0} {
		if got := tagWidth(format); got != want {
			t.Errorf("%#x: %d", format, got)
		}
	}
}

// cxi has 48 bits. Two bits of the id are for planes, which leaves 15 for communicators.
func TestNewLayout_48Bits_LeavesIds(t *testing.T) {
	cxi := device("cxi", "cxi0", "")
	cxi.TagFormat, cxi.CQData, cxi.HasDirectedReceive = 1<<48-1, 8, true
	for name, want := range map[string]string{
		"auto":     "[source in completion data, 17/31 packed 17/14/16]",
		"packed":   "[packed 17/14/16]",
		"22/10/15": "[packed 22/10/15]",
	} {
		all, _, err := candidateLayouts(&cxi, name, v1_17)
		if got := fmt.Sprint(all); got != want || err != nil {
			t.Errorf("%s: %s, %v; want %s", name, got, err, want)
		}
		for _, l := range all {
			check(t, l, 48)
		}
	}
	if all, _, err := candidateLayouts(&cxi, "22/18/23", v1_17); err == nil || !strings.Contains(err.Error(), "tags of 48 bits") {
		t.Errorf("%v, %v", all, err)
	}
}

// TestNewLayout_DataOfAnyWidth_DividesTheBits includes the widths in docs/wire.md.
func TestNewLayout_DataOfAnyWidth_DividesTheBits(t *testing.T) {
	for _, c := range []struct {
		width, cid, endpoint, tag int
		text                      string
		setting                   mtl.RankSetting
	}{
		{64, 22, 10, 31, "source in completion data, 22/10/31", mtl.RankSetting{Param: "mtl.ofi.layout=packed", CIDBits: 22, SourceBits: 18}},
		{62, 22, 9, 31, "source in completion data, 22/9/31", mtl.RankSetting{Param: "mtl.ofi.layout=packed", CIDBits: 22, SourceBits: 18}},
		{53, 22, 0, 31, "source in completion data, 22/31", mtl.RankSetting{Param: "mtl.ofi.layout=packed", CIDBits: 18, SourceBits: 18}},
		{48, 17, 0, 31, "source in completion data, 17/31", mtl.RankSetting{Param: "mtl.ofi.layout=packed", CIDBits: 17, SourceBits: 14}},
		{30, 15, 0, 15, "source in completion data, 15/15", mtl.RankSetting{}},
	} {
		l, err := newLayout(c.width, true)
		if err != nil || l.cidBits != c.cid || l.endpointBits != c.endpoint || l.tagBits != c.tag || l.String() != c.text {
			t.Errorf("%d bits: %v, %v, want %s", c.width, l, err, c.text)
		}
		if got := l.rankSetting(c.width); got != c.setting {
			t.Errorf("%d bits: %+v, want %+v", c.width, got, c.setting)
		}
	}
	packed, err := newLayout(64, false)
	if got := packed.rankSetting(64); err != nil || got != (mtl.RankSetting{}) {
		t.Errorf("packed: %+v, %v", got, err)
	}
}

// FuzzLayout decodes any tag and completion data. The parts fit into their widths.
func FuzzLayout(f *testing.F) {
	f.Add(uint8(64), true, ^uint64(0), ^uint64(0))
	f.Add(uint8(48), false, uint64(1)<<47, uint64(0))
	f.Fuzz(func(t *testing.T, width uint8, data bool, tag, more uint64) {
		l, err := newLayout(int(width%65), data)
		if err != nil {
			return
		}
		e, mode := l.message(tag, more)
		if e.Source < 0 || e.Source>>l.sourceBits != 0 || e.Tag < 0 || e.Tag>>l.tagBits != 0 || e.Endpoint>>l.endpointBits != 0 {
			t.Errorf("%v: tag %#x and data %#x are %+v", l, tag, more, e)
		}
		if tag>>(width%65) != 0 || data && more>>32 != 0 {
			return // no provider has more bits
		}
		if back, again := l.send(e, mode); uint64(e.CID)>>l.cidBits == 0 && (back != tag || data && again != more) {
			t.Errorf("%v: tag %#x and data %#x are %+v, which is %#x and %#x", l, tag, more, e, back, again)
		}
	})
}
