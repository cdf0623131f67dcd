package wireup

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
)

const fuzzMembers = 3

func FuzzTable(f *testing.F) {
	table, err := somePart(f, fuzzMembers).Decide(5, fuzzMembers, name)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(table)
	for _, at := range []int{0, 4, 8, 16, 24, len(table) - 60} {
		changed := slices.Clone(table)
		changed[at] ^= 0x11
		f.Add(changed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		table, err := OpenTable(b, fuzzMembers)
		if err != nil {
			return
		}
		for rank := range fuzzMembers {
			if r, err := table.Record(rank, nil); err == nil && r.Nonce == 0 {
				t.Errorf("record %+v", r)
			} else if err == nil && table.Nonce(rank) != r.Nonce {
				t.Errorf("nonce %#x of record %+v", table.Nonce(rank), r)
			}
			if found := table.Find(uint64(rank) + 7); found >= 0 && table.Nonce(found) != uint64(rank)+7 {
				t.Errorf("found %d", found)
			}
		}
		for rank := range fuzzMembers {
			if found := table.Find(table.Nonce(rank)); found != rank && table.CheckOrder() == nil {
				t.Errorf("the nonce of rank %d is that of rank %d", rank, found)
			}
		}
		for _, p := range table.Decision().ReconnectPairs {
			if p.LowerRank >= p.HigherRank || p.HigherRank >= fuzzMembers {
				t.Errorf("pair %+v", p)
			}
		}
	})
}

// FuzzSummary decodes a part, merges it with another one, and decides.
func FuzzSummary(f *testing.F) {
	b, err := somePart(f, fuzzMembers).encode(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePart(slices.Clone(b), fuzzMembers)
		if err != nil {
			return
		}
		if encoded, err := p.encode(nil); err != nil {
			t.Errorf("encode: %v", err)
		} else if _, err := decodePart(encoded, fuzzMembers); err != nil {
			t.Errorf("decode again: %v", err)
		}
		both := *somePart(t, 1)
		if err := both.Merge(p); err == nil {
			_, _ = both.Decide(1, fuzzMembers, name)
		}
		if table, err := p.Decide(1, fuzzMembers, name); err == nil {
			if _, err := OpenTable(table, fuzzMembers); err != nil {
				t.Errorf("table: %v", err)
			}
		}
	})
}

// FuzzMap makes a layout of a map and a group in bytes.
func FuzzMap(f *testing.F) {
	f.Add([]byte{0, 4, 0, 4, 4, 1}, []byte{0, 1, 2, 3, 7, 5})
	f.Add([]byte{2, 4, 0, 6, 4, 1, 10, 1, 0}, []byte{9, 7, 5, 10})
	f.Fuzz(func(t *testing.T, nodes, ranks []byte) {
		var runs []bootstrap.NodeRun
		for ; len(nodes) >= 3; nodes = nodes[3:] {
			runs = append(runs, bootstrap.NodeRun{First: uint32(nodes[0]), Count: uint32(nodes[1]), Node: uint32(nodes[2])})
		}
		size := 0
		for _, r := range runs {
			size += int(r.Count)
		}
		if len(runs) == 0 || size == 0 {
			return
		}
		m, err := bootstrap.MakeNodeMap(int(runs[0].First), size, runs)
		if err != nil {
			return
		}
		var members []uint32
		for _, b := range ranks {
			members = append(members, uint32(b))
		}
		l := NewLayout(group(members...), "job", m)
		if l == nil {
			return
		}
		for i := range l.Size() {
			if _, ok := m.Node(l.Proc(i).Rank); !ok {
				t.Fatalf("member %d is %v, which is not in the map", i, l.Proc(i))
			}
			for _, level := range l.Levels(i) {
				if level.Members[level.SelfIndex] != i {
					t.Fatalf("level %+v of member %d", level, i)
				}
			}
		}
	})
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte(faultMessage(Abort, fault(3, Garbage, "text"))))
	f.Add([]byte(newMessage(Commit, nil)))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, fs, err := decodeMessage(b, Commit)
		if err != nil {
			return
		}
		if isFault := m.kind() == Abort || m.kind() == Lost; isFault != (len(fs) > 0) {
			t.Errorf("%v with %v", m.kind(), fs)
		}
		_ = fs.err("job", "tag")
	})
}

func FuzzPayload(f *testing.F) {
	b, err := somePayload(f).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(binary.LittleEndian.AppendUint64(nil, 0x9fff))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := DecodePayload(b)
		if err != nil {
			return
		}
		if offers, err := DecodeCapabilities(p.Capabilities); err == nil && (len(offers) == 0 || len(offers) > maxModules) {
			t.Errorf("%d offers", len(offers))
		}
		if card, err := DecodeCard(p.Card); err == nil && len(card) > maxAddresses {
			t.Errorf("%d addresses", len(card))
		}
		_, _ = NewPart(0, p)
	})
}
