package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

func TestFrame_EncodeAndDecode_AreEqual(t *testing.T) {
	var stream []byte
	var want []Message
	for i, b := range []any{
		Empty{}, HelloBody{Version: 1, Token: "t", Namespace: "n", Rank: 7},
		ConstructedBody{ContextID: 1 << 60, Payloads: [][]byte{{}, make([]byte, 200_000)}},
	} {
		id := uint64(i) << 40
		f, err := Encode(Reply, id, b)
		if err != nil {
			t.Fatal(err)
		}
		stream = append(stream, f...)
		want = append(want, Message{Kind: Reply, ID: id, Body: EncodeBody(b)})
	}
	r := NewReader(bytes.NewReader(stream), MaxFrame)
	for _, w := range want {
		m, err := r.Next()
		if err != nil || m.Kind != w.Kind || m.ID != w.ID || !bytes.Equal(m.Body, w.Body) {
			t.Fatalf("got kind %d id %d, %d bytes, %v", m.Kind, m.ID, len(m.Body), err)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("at the end: %v, want io.EOF itself", err)
	}
}

func TestFrame_OverLimit_IsNotSent(t *testing.T) {
	if _, err := Encode(Reply, 0, ValueBody{Value: make([]byte, MaxFrame)}); !errors.Is(err, ErrFrameSize) {
		t.Errorf("got %v", err)
	}
	if _, err := Header(Put, 0, MaxFrame-HeaderSize+4); err != nil {
		t.Errorf("the largest frame: %v", err)
	}
}

// A length alone must not allocate its memory.
func TestReader_LengthWithoutContent_AllocatesLittle(t *testing.T) {
	header := binary.BigEndian.AppendUint32(nil, MaxFrame)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		if _, err := NewReader(bytes.NewReader(header), MaxFrame).Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("got %v", err)
		}
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > MaxFrame {
		t.Errorf("10 headers took %d bytes", got)
	}
}

func TestDecode_DeviationFromFormat_IsAnError(t *testing.T) {
	body := func(b ...byte) []byte { return b }
	for what, b := range map[string][]byte{
		"trailing bytes":        body(0x83, 5, 0, 0x80, 0),
		"too few fields":        body(0x82, 5, 0),
		"too many fields":       body(0x84, 5, 0, 0x80, 0x80),
		"indefinite length":     body(0x9f, 5, 0, 0x80, 0xff),
		"a tag":                 body(0xc1, 0x83, 5, 0, 0x80),
		"no kind":               body(0x83, 0, 0, 0x80),
		"unknown kind":          body(0x83, 0x18, 24, 0, 0x80),
		"kind over 8 bits":      body(0x83, 0x19, 1, 5, 0, 0x80),
		"deep nesting":          append(bytes.Repeat([]byte{0x81}, 9), 0x80),
		"array longer than all": body(0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
		"empty":                 {},
	} {
		if m, err := DecodeMessage(b); err == nil {
			t.Errorf("%s: accepted as %+v", what, m)
		}
	}
}

func TestRuns_KeepOrder(t *testing.T) {
	proc := func(ranks ...uint32) (g []framework.Proc) {
		for _, r := range ranks {
			g = append(g, framework.Proc{Namespace: "job", Rank: r})
		}
		return g
	}
	for _, c := range []struct {
		ranks []uint32
		runs  int
	}{
		{[]uint32{0, 1, 2, 3}, 1},
		{[]uint32{3, 2, 1}, 1},
		{[]uint32{1, 4, 7}, 1},
		{[]uint32{0, 3, 1, 4, 2, 5}, 3},
		{[]uint32{4, 5, 0, 1, 7}, 3},
		{[]uint32{0}, 1},
	} {
		rs := MakeRuns(proc(c.ranks...))
		if len(rs) != c.runs || !slices.Equal(rs.Ranks(), c.ranks) {
			t.Errorf("%v became %v", c.ranks, rs)
		}
		if err := rs.Check("job", 8); err != nil {
			t.Errorf("%v: %v", c.ranks, err)
		}
		for i, r := range c.ranks {
			if rs.Index(r) != i {
				t.Errorf("%v: rank %d is at %d", c.ranks, r, rs.Index(r))
			}
		}
		if rs.Index(6) != -1 {
			t.Errorf("%v: rank 6 is at %d", c.ranks, rs.Index(6))
		}
	}
}

// Overlapping and overflowing runs must be refused.
func TestRuns_Hostile_AreRefused(t *testing.T) {
	for want, rs := range map[string]Runs{
		"empty":                        nil,
		"empty run":                    {{Namespace: "job", First: 1}},
		"not a process of":             {{Namespace: "other", Count: 1}},
		"twice":                        {{Namespace: "job", Stride: 1, Count: 3}, {Namespace: "job", First: 2, Count: 1}},
		"are beyond":                   {{Namespace: "job", First: 7, Stride: 1, Count: 2}},
		"to 8589934589 are":            {{Namespace: "job", First: 1<<32 - 1, Stride: 1, Count: 1<<32 - 1}},
		"ranks -1 to 1":                {{Namespace: "job", First: 1, Stride: -1, Count: 3}},
		"ranks -3 to 7":                {{Namespace: "job", First: 7, Stride: -10, Count: 2}},
		"3 processes with stride 0":    {{Namespace: "job", First: 1, Count: 3}},
		"1 processes with stride 1":    {{Namespace: "job", First: 1, Stride: 1, Count: 1}},
		"rank 6 is in the group twice": {{Namespace: "job", Stride: 3, Count: 3}, {Namespace: "job", First: 4, Stride: 1, Count: 3}},
		"ranks -6442450944 to 0":       {{Namespace: "job", First: 0, Stride: -1 << 31, Count: 4}},
	} {
		if err := rs.Check("job", 8); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", rs, err, want)
		}
	}
}

func TestRunsCheck_MemberTwice_NamesItInAnyOrder(t *testing.T) {
	for want, rs := range map[string]Runs{
		"":       {{Namespace: "job", First: 4, Stride: 1, Count: 2}, {Namespace: "job", First: 1, Stride: 1, Count: 3}, {Namespace: "job", First: 7, Count: 1}},
		"rank 2": {{Namespace: "job", First: 2, Count: 1}, {Namespace: "job", Stride: 1, Count: 3}},
		"rank 5": {{Namespace: "job", First: 5, Stride: 1, Count: 3}, {Namespace: "job", First: 1, Stride: 1, Count: 2}, {Namespace: "job", First: 5, Stride: 1, Count: 3}},
	} {
		given := slices.Clone(rs)
		if err := rs.Check("job", 8); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want+" is in the group twice") {
			t.Errorf("%v: got %v, want %q", rs, err, want)
		}
		if !slices.Equal(rs, given) {
			t.Errorf("%v became %v", given, rs)
		}
	}
}

// TestRunsCheck_AnyRuns_AreRefusedIfARankIsListedTwice includes runs that have a common interval but no common rank.
func TestRunsCheck_AnyRuns_AreRefusedIfARankIsListedTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var rs Runs
		seen, isTwice := map[uint32]bool{}, false
		for range rapid.IntRange(1, 4).Draw(t, "runs") {
			r := Run{Namespace: "job", First: uint32(rapid.IntRange(0, 99).Draw(t, "first")), Count: 1}
			stride, count := rapid.IntRange(-4, 4).Draw(t, "stride"), rapid.IntRange(1, 20).Draw(t, "count")
			if last := int(r.First) + stride*(count-1); stride != 0 && count > 1 && last >= 0 && last < 100 {
				r.Stride, r.Count = int32(stride), uint32(count)
			}
			for _, rank := range (Runs{r}).All() {
				isTwice = isTwice || seen[rank]
				seen[rank] = true
			}
			rs = append(rs, r)
		}
		if err := rs.Check("job", 100); (err != nil) != isTwice {
			t.Fatalf("%v: %v, want twice %t", rs, err, isTwice)
		}
	})
}

// After many changes a job has few processes with high ranks.
func TestRunsCheck_RanksAreHigh_AllocatesByMembers(t *testing.T) {
	rs := Runs{{Namespace: "job", Count: 1}, {Namespace: "job", First: MaxElements - 1, Count: 1}}
	const calls = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		if err := rs.Check("job", MaxElements); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if bytes := (after.TotalAlloc - before.TotalAlloc) / calls; bytes > 4096 {
		t.Errorf("%d bytes for each check of two members", bytes)
	}
}

func FuzzReader(f *testing.F) {
	for _, b := range []any{Empty{}, ValuedBody{Name: "k", Value: []byte("v")}, FailureBody{Code: CodeGroup, Missing: []uint32{1}},
		WelcomeBody{Size: 2, Dead: []EventBody{{Kind: 1, Rank: 1, Reason: "r"}}, Nodes: []NodeRun{{Count: 1}, {Count: 1, Node: 1}}},
		WelcomeBody{First: 1<<32 - 1, Size: 1<<32 - 1, Nodes: []NodeRun{{Count: 1<<32 - 1}, {Count: 2}}, Divided: true},
		ChangeBody{Op: Operate, Args: EncodeBody(OperateBody{Op: 7, Operands: []string{"s"}, Name: "n", Sizes: []int64{1}, Add: 2, Sub: -1})},
		NoteBody{Rank: 1, From: 2, To: 3, Body: []byte("b")},
		ChangeBody{Op: SetData, Args: EncodeBody(DataBody{Pset: "s", Key: "k", Value: []byte("v")})}} {
		frame, err := Encode(Put, 1, b)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame)
		f.Add(append(frame, frame[:len(frame)/2]...))
	}
	f.Add([]byte{0, 0, 0, 1, 0x9f})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b), 1<<16)
		for {
			m, err := r.Next()
			if err != nil {
				return
			}
			for _, decode := range []func() error{
				try[HelloBody](m), try[WelcomeBody](m), try[RefusedBody](m), try[GetBody](m), try[ValueBody](m),
				try[JoinBody](m), try[ConstructedBody](m), try[CancelBody](m), try[NameBody](m), try[ValuedBody](m),
				try[LookupBody](m), try[NamesBody](m), try[PsetBody](m), try[FailureBody](m), try[EventBody](m), try[ReplicateBody](m), try[ReplicaBody](m), try[RelayBody](m), try[CommEventBody](m), try[NoteBody](m),
				try[ChangeBody](m), try[OperateBody](m), try[QueriedBody](m), try[IntegrateBody](m), try[IntegratedBody](m), try[DataBody](m), try[KeyBody](m),
			} {
				if err := decode(); err != nil {
					t.Errorf("%x: %v", m.Body, err)
				}
			}
			if c, err := Decode[ChangeBody](m.Body); err == nil { // The arguments are a message's body, too.
				args := Message{Body: c.Args}
				for _, decode := range []func() error{try[OperateBody](args), try[DataBody](args), try[KeyBody](args), try[IntegrateBody](args)} {
					if err := decode(); err != nil {
						t.Errorf("%x: %v", c.Args, err)
					}
				}
			}
			if w, err := Decode[WelcomeBody](m.Body); err == nil {
				if nodes, err := w.NodeMap(); err == nil && !slices.Equal(nodes, mapOf(nodes)) {
					t.Errorf("%+v is the map %v", w, nodes)
				}
			}
			if rs, err := Decode[Runs](m.Body); err == nil && rs.Check("job", 1000) == nil {
				if got := rs.Ranks(); len(got) == 0 || len(got) > 1000 || len(got) != rs.Len() || rs.Index(got[len(got)-1]) != len(got)-1 {
					t.Errorf("runs %v are ranks %v", rs, got)
				}
			}
		}
	})
}

// mapOf returns the map of the ranks that a map has.
func mapOf(m bootstrap.NodeMap) bootstrap.NodeMap {
	size := 0
	for _, r := range m {
		size += int(r.Count)
	}
	if size == 0 {
		return m
	}
	again, _ := bootstrap.MakeNodeMap(int(m[0].First), size, m)
	return again
}

// try decodes m as a B, and encodes the result again.
func try[B any](m Message) func() error {
	return func() error {
		b, err := Decode[B](m.Body)
		if err != nil {
			return nil // It is refused.
		}
		once := EncodeBody(b)
		again, err := Decode[B](once)
		if err == nil && !bytes.Equal(once, EncodeBody(again)) {
			err = errors.New("a round trip changes it")
		}
		return err
	}
}

func FuzzParseRanks(f *testing.F) {
	for _, s := range []string{"0-3,7", "1", "3-1", "", ",", "0-4294967295", "-1", "1-2-3", " 1 , 2 - 3 ", "0,0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ranks, err := ParseRanks(s)
		if (err == nil) == (len(ranks) == 0) {
			t.Errorf("%q: %d ranks, %v", s, len(ranks), err)
		}
		seen := map[uint32]bool{}
		for _, r := range ranks {
			if r >= MaxElements || seen[r] {
				t.Errorf("%q: rank %d", s, r)
			}
			seen[r] = true
		}
	})
}

func TestChange_OverTheLimits_IsNeitherSentNorRead(t *testing.T) {
	long := strings.Repeat("n", bootstrap.MaxName+1)
	for what, args := range map[string]any{
		"operands":    OperateBody{Operands: make([]string, MaxOperands+1)},
		"sizes":       OperateBody{Sizes: make([]int64, MaxSizes+1)},
		"operand":     OperateBody{Operands: []string{"a", long}},
		"name":        OperateBody{Name: long},
		"delta":       IntegrateBody{Delta: long},
		"provided":    IntegrateBody{Provide: long},
		"set of data": DataBody{Pset: long},
		"key":         DataBody{Key: long},
		"value":       DataBody{Value: make([]byte, bootstrap.MaxValue+1)},
		"wanted key":  KeyBody{Key: long},
	} {
		if _, err := EncodeChange(Operate, args); !errors.Is(err, framework.ErrUnsupported) {
			t.Errorf("%s: sent, or %v", what, err)
		}
		var err error
		switch b := EncodeBody(args); args.(type) {
		case OperateBody:
			_, err = Decode[OperateBody](b)
		case IntegrateBody:
			_, err = Decode[IntegrateBody](b)
		case DataBody:
			_, err = Decode[DataBody](b)
		default:
			_, err = Decode[KeyBody](b)
		}
		if !errors.Is(err, framework.ErrUnsupported) {
			t.Errorf("%s: read, or %v", what, err)
		}
	}
}

func TestDecodeMessage_OwnHeader_CopiesNoBody(t *testing.T) {
	frame, err := Encode(Reply, 1<<40, ValueBody{Found: true, Value: make([]byte, 1<<10)})
	if err != nil {
		t.Fatal(err)
	}
	content := frame[4:]
	m, err := DecodeMessage(content)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Decode[Message](content)
	if err != nil || m.Kind != want.Kind || m.ID != want.ID || !bytes.Equal(m.Body, want.Body) {
		t.Errorf("message %v in place of %v, %v", m, want, err)
	}
	if &m.Body[0] != &content[len(content)-len(m.Body)] {
		t.Error("the body is a copy")
	}
	for end := range content {
		if m, err := DecodeMessage(content[:end]); err == nil {
			t.Errorf("%d bytes of %d: %v", end, len(content), m)
		}
	}
	if m, err := DecodeMessage(append(content, 0)); err == nil {
		t.Errorf("a byte too many: %v", m)
	}
}
