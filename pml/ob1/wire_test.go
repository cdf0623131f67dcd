package ob1

import (
	"encoding/hex"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
)

var (
	goldenID     = cid.Extended{Base: 0x1817161514131211, Sub: 0x2827262524232221}
	goldenRemote = btl.Remote{0: 0x51, 31: 0x52}
)

// goldenFrames are one frame of each type, as docs/wire.md specifies it, and the encoder's output.
func goldenFrames() map[string]struct {
	want string
	got  []byte
} {
	control := func(c controlFrame) []byte { return c.bytes[:c.size] }
	message := func(typ byte, h header, rest int) []byte {
		b := make([]byte, matchSize+rest)
		putHeader(b, typ, h)
		return b
	}
	match := message(frameMatch, header{flags: 2, ctx: 0x44434241, tag: -2, source: 7, seq: 0x64636261}, 0)
	eager := make([]byte, matchSize)
	short := eagerHeader(eagerWord(0x44434241), 2, -2, 7, 0x64636261)
	le.PutUint64(eager[0:], short.First)
	le.PutUint64(eager[8:], short.Second)
	le.PutUint64(eager[16:], short.Third)
	extended := message(frameMatch, header{flags: flagExtended, tag: 5, source: 7, seq: 1, to: 0x0302, from: 0x0504}, extendedSize)
	putExtended(extended[matchSize:], goldenID, 0x74737271)
	rts := message(frameRTS, header{flags: flagRemote | flagPut | flagWindow, ctx: 0x44434241, tag: 5, source: 7, seq: 1}, rtsSize+remoteSize+2)
	putRTS(rts[matchSize:], 0x1000, 0x8887868584838281, 2, 3*time.Microsecond)
	copy(rts[matchSize+rtsSize:], goldenRemote[:])
	copy(rts[matchSize+rtsSize+remoteSize:], "hi")
	data := make([]byte, dataSize)
	putData(data, 0x9897969594939291, 0x100)
	member := memberFrame{flags: cidInquiry, to: cid.EndpointID{Extended: goldenID, Endpoint: 0x0302}, from: 0x0504, rank: 7, local: 0x74737271}
	closed := member
	closed.flags = closedReply | closedRefused
	cts := newCTS(0x8887868584838281, 0x9897969594939291, 0x1000)
	cts.bytes[1] = 0x09
	zeros := func(n int) string { return strings.Repeat("00", n) }
	ids := " 11121314 15161718 21222324 25262728"
	return map[string]struct {
		want string
		got  []byte
	}{
		"match":          {"01 02 0000 41424344 feffffff 07000000 61626364 0000 0000", match},
		"eager header":   {"01 02 0000 41424344 feffffff 07000000 61626364 0000 0000", eager},
		"match extended": {"01 04 0203 00000000 05000000 07000000 01000000 0405 0000" + ids + "71727374 00000000", extended},
		"RTS": {"02 38 0000 41424344 05000000 07000000 01000000 0000 0000" +
			"0010000000000000 8182838485868788 0200000000000000 b80b000000000000 51" + zeros(30) + "52 6869", rts},
		"CTS":         {"03 09" + zeros(6) + "8182838485868788 9192939495969798 0010000000000000", control(cts)},
		"CTS dropped": {"03 80" + zeros(6) + "8182838485868788" + zeros(16), control(newDroppedCTS(0x8887868584838281))},
		"data":        {"04" + zeros(7) + "9192939495969798 0001000000000000" + zeros(32), data},
		"cid":         {"05 01 0203 07000000 71727374 0405 0000" + ids, control(newMemberFrame(frameCID, member))},
		"withdraw":    {"06" + zeros(7) + "8182838485868788", control(newWithdraw(frameWithdraw, 0x8887868584838281))},
		"withdrawn":   {"07" + zeros(7) + "8182838485868788", control(newWithdraw(frameWithdrawn, 0x8887868584838281))},
		"credit":      {"08" + zeros(7) + "0010000000000000", control(newCredit(0x1000))},
		"closed":      {"09 03 0203 07000000 71727374 0405 0000" + ids, control(newMemberFrame(frameClosed, closed))},
		"share": {"0a" + zeros(7) + "8182838485868788 0010000000000000 0001000000000000 51" + zeros(30) + "52",
			control(newShare(share{0x8887868584838281, 0x100, 0x1000, goldenRemote}))},
	}
}

func TestWire_Encoders_WriteGoldenBytes(t *testing.T) {
	for name, f := range goldenFrames() {
		if want := strings.ReplaceAll(f.want, " ", ""); hex.EncodeToString(f.got) != want {
			t.Errorf("%s:\n% x, want\n%s", name, f.got, f.want)
		}
	}
}

func TestWire_Parsers_ReadGoldenBytes(t *testing.T) {
	frames := goldenFrames()
	m, err := parseMessage(frames["RTS"].got)
	if err != nil {
		t.Fatal(err)
	}
	if m.length != 0x1000 || m.handle != 0x8887868584838281 || m.packTime != 3000 || m.remote != goldenRemote || string(m.payload) != "hi" ||
		m.plane() != pml.PointToPoint || m.pattern() != windowed || m.ctx != 0x44434241 || m.tag != 5 || m.source != 7 || m.seq != 1 {
		t.Errorf("RTS: %+v", m)
	}
	if m, err = parseMessage(frames["match extended"].got); err != nil || m.id != goldenID || m.local != 0x74737271 || m.to != 0x0302 || m.from != 0x0504 {
		t.Errorf("match: %+v, %v", m, err)
	}
	word, tagAndSource, seq := parseEager((*[matchSize]byte)(frames["match"].got))
	if word != eagerWord(0x44434241)|2<<8 || int32(tagAndSource) != -2 || tagAndSource>>32 != 7 || seq != 0x64636261 {
		t.Errorf("eager: %#x %#x %#x", word, tagAndSource, seq)
	}
	if a := parseCTS(frames["CTS"].got); a != (cts{9, false, 0x8887868584838281, 0x9897969594939291, 0x1000}) {
		t.Errorf("CTS: %+v", a)
	}
	if a := parseCTS(frames["CTS dropped"].got); !a.isDropped || a.send != 0x8887868584838281 {
		t.Errorf("CTS: %+v", a)
	}
	if handle, offset := parseData(frames["data"].got); handle != 0x9897969594939291 || offset != 0x100 {
		t.Errorf("data: %#x %#x", handle, offset)
	}
	want := memberFrame{flags: cidInquiry, to: cid.EndpointID{Extended: goldenID, Endpoint: 0x0302}, from: 0x0504, rank: 7, local: 0x74737271}
	if m := parseMemberFrame(frames["cid"].got); m != want {
		t.Errorf("cid: %+v", m)
	}
	if s := parseShare(frames["share"].got); s != (share{0x8887868584838281, 0x100, 0x1000, goldenRemote}) {
		t.Errorf("share: %+v", s)
	}
	if send := parseWithdraw(frames["withdraw"].got); send != 0x8887868584838281 {
		t.Errorf("withdraw: %#x", send)
	}
	if bytes := parseCredit(frames["credit"].got); bytes != 0x1000 {
		t.Errorf("credit: %#x", bytes)
	}
}

// The page has a line for each control frame, with offsets, types and the size.
func TestWire_ControlFrames_HaveDocumentedSizes(t *testing.T) {
	page, err := os.ReadFile("../../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[int]int{}
	line := regexp.MustCompile(`(?m)^    (?:\w+ +)?0 u8 (\d+) +1.* (\d+) bytes$|^    0 u8 (\d+) +1.*\n.* (\d+) bytes$`)
	for _, m := range line.FindAllStringSubmatch(string(page), -1) {
		typ, _ := strconv.Atoi(m[1] + m[3])
		documented[typ], _ = strconv.Atoi(m[2] + m[4])
	}
	for typ, size := range frameSizes {
		if size > 0 && documented[typ] != size {
			t.Errorf("frame %s: docs/wire.md has %d bytes, and the code %d", frameNames[typ], documented[typ], size)
		}
	}
}
