package assembly

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"weak"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// someTable returns a table of the first ranks of a namespace, in reverse order. A rank has the nonce that nonce returns, and a card that
// names both.
func someTable(t testing.TB, members int, nonce func(rank uint32) uint64) (*wireup.Table, framework.Procs) {
	t.Helper()
	capabilities, err := wireup.EncodeCapabilities([]pml.Capabilities{{PML: "ob1", Version: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var part wireup.Part
	var group framework.ProcsBuilder
	for i := range members {
		rank := uint32(members - 1 - i)
		group.Add(framework.Proc{Namespace: "job", Rank: rank})
		one, err := wireup.NewPart(i, wireup.Payload{Nonce: nonce(rank), Capabilities: capabilities, Card: cardOf(t, rank, nonce(rank)),
			GroupIDs: cid.NewTable(10).WithholdCandidates(cid.PolicyAgree, 2, 100).Bytes()})
		if err == nil {
			err = part.Merge(one)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	procs := group.Procs()
	b, err := part.Decide(1, members, func(rank uint32) framework.Proc { return procs.At(int(rank)) })
	if err != nil {
		t.Fatal(err)
	}
	table, err := wireup.OpenTable(b, members)
	if err != nil {
		t.Fatal(err)
	}
	return table, procs
}

func cardOf(t testing.TB, rank uint32, nonce uint64) []byte {
	t.Helper()
	card, err := wireup.EncodeCard(framework.Card{{Component: "btl.x", Blob: fmt.Append(nil, rank, nonce)}}.WithNode(fmt.Sprint("node", rank/4)))
	if err != nil {
		t.Fatal(err)
	}
	return card
}

// scattered returns a nonce. The order of nonces is not that of ranks.
func scattered(rank uint32) uint64 { return uint64(rank)*0x9e3779b97f4a7c15 + 1 }

// listing returns peer records with a table of ranks 0 to members-1.
func listing(t testing.TB, members int) (*peerRecords, *nodeTable) {
	k := newPeerRecords()
	table, group := someTable(t, members, scattered)
	n := newNodeTable(table, 0, group, nil)
	k.liveTables.add(n)
	t.Cleanup(func() { runtime.KeepAlive(n) })
	return &k, n
}

func TestNodeTable_Members_AreThoseOfTheGroup(t *testing.T) {
	_, n := listing(t, 100)
	for rank := range n.Len() {
		m := n.Member(rank)
		if want := incarnationOf(uint32(99-rank), scattered(uint32(99-rank))); m.Incarnation != want || n.Rank(m) != rank || n.First(m.ID) != rank {
			t.Fatalf("rank %d is %v at %d and %d", rank, m, n.Rank(m), n.First(m.ID))
		}
	}
	other := n.Member(3)
	other.Nonce++
	if n.Rank(other) != -1 || n.First(framework.MakeProcID(1, 3)) != -1 || n.First(framework.MakeProcID(0, 100)) != -1 {
		t.Error("an incarnation, a namespace and a rank of another group are members")
	}
}

func TestPeerRecords_MemberOfTable_NeedsNoRecord(t *testing.T) {
	k, _ := listing(t, 100)
	for rank := range uint32(100) {
		incarnation := incarnationOf(rank, scattered(rank))
		known, ok := k.get(incarnation)
		if !ok || string(known.copyCard()) != string(cardOf(t, rank, incarnation.Nonce)) || known.nodeID != fmt.Sprint("node", rank/4) {
			t.Fatalf("rank %d: %t, %+v", rank, ok, known)
		}
		if id, ok := k.owner(incarnation.Nonce); !ok || id != incarnation.ID {
			t.Fatalf("nonce of rank %d is that of %v, %t", rank, id, ok)
		}
		if now, ok := k.currentIncarnation(incarnation.ID); !ok || now != incarnation {
			t.Fatalf("rank %d is %v, %t", rank, now, ok)
		}
	}
	if _, ok := k.get(incarnationOf(3, 5)); ok || k.len() != 0 {
		t.Errorf("an unknown incarnation is known: %t; %d records", ok, k.len())
	}
}

// A process has the node ids of thousands of nodes in a table.
func TestPeerRecords_NodesOfTable_AreNotKept(t *testing.T) {
	k, _ := listing(t, 100)
	for rank := range uint32(100) {
		if known, _ := k.get(incarnationOf(rank, scattered(rank))); known.nodeID != fmt.Sprint("node", rank/4) {
			t.Fatalf("rank %d is on node %q", rank, known.nodeID)
		}
	}
	if len(k.nodeIDs) > 0 {
		t.Errorf("node ids %v without a record", k.nodeIDs)
	}
	for rank := range uint32(8) {
		incarnation := incarnationOf(rank, scattered(rank))
		known, _ := k.get(incarnation)
		k.set(incarnation, known)
	}
	if len(k.nodeIDs) != 2 {
		t.Errorf("node ids %v of records on 2 nodes", k.nodeIDs)
	}
}

func TestPeerRecords_RecordOfMember_CountsBeforeTheTable(t *testing.T) {
	k, _ := listing(t, 8)
	old, now := incarnationOf(3, scattered(3)), incarnationOf(3, 77)
	k.set(now, peerEntry{record: record{encodedCard: cardOf(t, 3, 77)}})
	if _, ok := k.get(old); ok {
		t.Error("the earlier incarnation is known")
	}
	if _, ok := k.owner(old.Nonce); ok {
		t.Error("the earlier incarnation has its nonce")
	}
	if incarnation, _ := k.currentIncarnation(now.ID); incarnation != now {
		t.Errorf("present is %v", incarnation)
	}
	others := 0
	for incarnation := range k.tableOnlyIncarnations() {
		others++
		if incarnation.ID == now.ID {
			t.Error("the process is listed")
		}
	}
	if others != 7 {
		t.Errorf("%d listed", others)
	}
}

func TestPeerRecords_NewerTable_ReplacesIncarnations(t *testing.T) {
	k, _ := listing(t, 8)
	table, group := someTable(t, 4, func(rank uint32) uint64 { return uint64(rank) + 100 })
	second := newNodeTable(table, 0, group, nil)
	k.liveTables.add(second)
	if _, ok := k.get(incarnationOf(3, scattered(3))); ok {
		t.Error("the earlier incarnation is known")
	}
	for rank, nonce := range map[uint32]uint64{3: 103, 5: scattered(5)} {
		if id, ok := k.owner(nonce); !ok || id.Rank() != rank {
			t.Errorf("nonce of rank %d is that of %v, %t", rank, id, ok)
		}
	}
	listed := map[framework.ProcID]int{}
	for incarnation := range k.tableOnlyIncarnations() {
		listed[incarnation.ID]++
	}
	if len(listed) != 8 {
		t.Errorf("listed are %v", listed)
	}
	runtime.KeepAlive(second)
}

func TestPeerRecords_StateOfMember_CopiesCardUntilTheEnd(t *testing.T) {
	k, _ := listing(t, 8)
	for rank, hasEnded := range map[uint32]bool{1: false, 2: true} {
		incarnation := incarnationOf(rank, scattered(rank))
		known, _ := k.get(incarnation)
		known.hasEnded, known.disconnectsByUs = hasEnded, 1
		k.set(incarnation, known)
		known, _ = k.get(incarnation)
		if (known.cardTable != nil) != hasEnded || known.disconnectsByUs != 1 || string(known.copyCard()) != string(cardOf(t, rank, incarnation.Nonce)) {
			t.Errorf("rank %d: %+v", rank, known)
		}
	}
}

// accept accepts a table of 6 processes of this namespace. Those up to rank 3 are on this node. alter changes the table.
func accept(t *testing.T, a *Assembly, alter func(table []byte)) (*levelPort, error) {
	t.Helper()
	const members = 6
	p := &levelPort{Assembly: a, ctx: t.Context(), rank: int(a.env.Identity.Proc.Rank)}
	p.candidateIDs = a.pmls[0].CIDs().WithholdCandidates(cid.PolicyAgree, members, levelsRoom)
	ids := p.candidateIDs // The cleanup does not keep p.
	t.Cleanup(func() { a.pmls[0].CIDs().Release(ids) })
	var part wireup.Part
	for rank := range uint32(members) {
		nonce, node := scattered(rank), a.env.Node
		if int(rank) == p.rank {
			nonce = a.env.Self.Nonce
		}
		if rank > 3 {
			node = "another"
		}
		p.group = append(p.group, framework.Proc{Namespace: a.env.Identity.Proc.Namespace, Rank: rank})
		own := slices.DeleteFunc(a.Card(), func(e framework.Address) bool { return e.Component == framework.NodeEntry })
		card, err := wireup.EncodeCard(own.WithNode(node))
		if err != nil {
			t.Fatal(err)
		}
		one, err := wireup.NewPart(int(rank), wireup.Payload{Nonce: nonce, Capabilities: a.encodedCapabilities, Card: card, GroupIDs: p.candidateIDs.Bytes()})
		if err == nil {
			err = part.Merge(one)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b, err := part.Decide(1, members, func(rank uint32) framework.Proc { return p.group[rank] })
	if err != nil {
		t.Fatal(err)
	}
	alter(b)
	table, err := wireup.OpenTable(b, members)
	if err != nil {
		t.Fatal(err)
	}
	return p, p.Accept(table)
}

func TestAccept_MembersOfOtherNodes_HaveNoRecord(t *testing.T) {
	a, _ := newHanging().open(t, nil)
	defer a.Close()
	p, err := accept(t, a, func([]byte) {})
	if err != nil {
		t.Fatal(err)
	}
	for rank := range p.memberTable.Len() {
		incarnation := p.memberTable.Member(rank).Incarnation
		known, ok := a.peers.get(incarnation)
		if isOther := rank > 3; rank != p.rank && (!ok || (known.cardTable != nil) != isOther || a.IsOnNode(incarnation) == isOther) {
			t.Errorf("rank %d: %t, %+v, here %t", rank, ok, known, a.IsOnNode(incarnation))
		}
	}
	if unused, tables := a.explainTables(); len(unused) != 1 || unused[0].LowestRank != 4 || unused[0].ProcessCount != 2 || len(tables) != 1 || tables[0].IsShared || tables[0].MemberCount != 6 {
		t.Errorf("%v, %v", unused, tables)
	}
	incarnation := p.memberTable.Member(5).Incarnation
	if card, ok := a.cards.Card(incarnation); !ok || card.Node() != "another" {
		t.Errorf("card %v, %t", card, ok)
	}
	if unused, _ := a.explainTables(); len(unused) != 1 || unused[0].ProcessCount != 1 {
		t.Errorf("after the first use: %v", unused)
	}
	runtime.KeepAlive(p)
}

// The bootstrap may not name the incarnation in an event about this process.
func TestAccept_EventOfThisProcess_IsPassedOnce(t *testing.T) {
	a, _ := newHanging().open(t, nil)
	defer a.Close()
	p, err := accept(t, a, func([]byte) {})
	if err != nil {
		t.Fatal(err)
	}
	if got := a.incarnationsOf(bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: a.env.Identity.Proc}); len(got) != 1 || got[0] != a.env.Self {
		t.Errorf("the event is about %v", got)
	}
	runtime.KeepAlive(p)
}

// The table lasts longer than the communicator, because the garbage collector frees it, or a child without the process has it.
func TestAccept_MemberHasEnded_RouteStays(t *testing.T) {
	a, events := newHanging().open(t, nil)
	defer a.Close()
	p, err := accept(t, a, func([]byte) {})
	if err != nil {
		t.Fatal(err)
	}
	incarnation := p.memberTable.Member(5).Incarnation
	events.event(bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: a.env.Worlds.Proc(incarnation.ID), Nonce: incarnation.Nonce, Reason: "test"})
	if got := a.await(); got.past != 1 {
		t.Fatalf("%+v", got)
	}
	a.mu.Lock()
	was := a.droppedRoutes.pairByPeer[incarnation]
	was.Device = "as it was"
	a.droppedRoutes.pairByPeer[incarnation] = was
	a.mu.Unlock()
	x := a.Explain()
	if !slices.ContainsFunc(x.Pairs, func(p Pair) bool { return p.ToRank == 5 && p.Device == was.Device }) {
		t.Errorf("no entry of rank 5, as it was, in %+v", x.Pairs)
	}
	if len(x.UnusedProcs) != 1 || x.UnusedProcs[0].ProcessCount != 1 || x.UnusedProcs[0].LowestRank != 4 {
		t.Errorf("not used are %v", x.UnusedProcs)
	}
	runtime.KeepAlive(p)
}

func TestAccept_KnownProcess_GetsLaterIncarnationAndCard(t *testing.T) {
	a, _ := newHanging().open(t, nil)
	defer a.Close()
	for rank, nonce := range map[uint32]uint64{4: 5 /* Another incarnation. */, 5: scattered(5)} {
		proc := framework.Proc{Namespace: a.env.Identity.Proc.Namespace, Rank: rank}
		incarnation := framework.Incarnation{ID: a.env.Worlds.ID(proc), Nonce: nonce}
		if err := a.learn(incarnation, proc, wireup.Payload{Nonce: nonce, Capabilities: a.encodedCapabilities, Card: a.ownCard.encodedCard}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := accept(t, a, func([]byte) {})
	if err != nil {
		t.Fatal(err)
	}
	for rank := 4; rank < 6; rank++ {
		incarnation := p.memberTable.Member(rank).Incarnation
		if now, _ := a.peers.currentIncarnation(incarnation.ID); now != incarnation {
			t.Errorf("rank %d is %v in place of %v", rank, now, incarnation)
		}
		if known, _ := a.peers.get(incarnation); known.nodeID != "another" || known.cardTable != nil {
			t.Errorf("rank %d is on node %q, in a table: %t", rank, known.nodeID, known.cardTable != nil)
		}
	}
	runtime.KeepAlive(p)
}

// A later card of a member counts for communicators with an earlier table, too, after the table that has brought it.
func TestAccept_LaterCardInTable_StaysAfterTheTable(t *testing.T) {
	a, _ := newHanging().open(t, nil)
	defer a.Close()
	first, err := accept(t, a, func([]byte) {})
	if err != nil {
		t.Fatal(err)
	}
	second, err := accept(t, a, func(table []byte) {
		record := bytes.LastIndex(table, binary.LittleEndian.AppendUint64(nil, scattered(5)))
		binary.LittleEndian.PutUint32(table[record+8:], 1) // The edition.
		copy(table[record+bytes.Index(table[record:], []byte("another")):], "further")
	})
	if err != nil {
		t.Fatal(err)
	}
	incarnation := second.memberTable.Member(5).Incarnation
	a.peers.liveTables.weakTables = slices.DeleteFunc(a.peers.liveTables.weakTables, func(p weak.Pointer[nodeTable]) bool { return p.Value() == second.memberTable })
	if known, ok := a.peers.get(incarnation); !ok || known.nodeID != "further" {
		t.Errorf("the card is that of node %q, %t", known.nodeID, ok)
	}
	runtime.KeepAlive(first)
}

func TestAccept_Garbage_IsErrorOfTheTable(t *testing.T) {
	for name, at := range map[string]int{"rank of a record": -8, "capabilities": 12, "length of a card": 14, "card": 16} {
		t.Run(name, func(t *testing.T) {
			a, _ := newHanging().open(t, nil)
			defer a.Close()
			_, err := accept(t, a, func(table []byte) {
				record := binary.LittleEndian.AppendUint64(nil, scattered(5))
				i := bytes.LastIndex(table, record)
				copy(table[i+at:], []byte{0, 0xff, 0, 0, 0, 0, 0, 0}[:2])
			})
			if err == nil || reflect.TypeOf(err) != reflect.TypeOf(wireup.BadTable(nil)) {
				t.Errorf("%T: %v", err, err)
			}
		})
	}
}

func TestAccept_OrderOfNoncesIsWrong_IsErrorOfTheTable(t *testing.T) {
	for name, indices := range map[string][2]int{"exchanged": {1, 4}, "twice": {2, 3}} {
		t.Run(name, func(t *testing.T) {
			a, _ := newHanging().open(t, nil)
			defer a.Close()
			_, err := accept(t, a, func(table []byte) {
				const members = 6
				record := bytes.LastIndex(table, binary.LittleEndian.AppendUint64(nil, a.env.Self.Nonce)) - 8 // Of rank 0, which is the first one.
				order := table[record-4*members : record]
				first, second := order[4*indices[0]:][:4], order[4*indices[1]:][:4]
				before := slices.Clone(first)
				copy(first, second)
				if name == "exchanged" {
					copy(second, before)
				}
			})
			if reflect.TypeOf(err) != reflect.TypeOf(wireup.BadTable(nil)) {
				t.Errorf("%T: %v", err, err)
			}
		})
	}
}

func TestAccept_IsolatedProcess_HasNoCommunicator(t *testing.T) {
	a, _ := newHanging().open(t, nil)
	defer a.Close()
	isolated := errors.New("isolated")
	_, err := accept(t, a, func([]byte) { a.isolate(isolated) })
	if !errors.Is(err, isolated) {
		t.Error(err)
	}
}

// collected runs the garbage collector until ended is closed. It returns false after many runs, because the memory is in use then.
func collected(ended <-chan struct{}) bool {
	const mostRuns = 1000
	for range mostRuns {
		runtime.GC()
		select {
		case <-ended:
			return true
		default:
			runtime.Gosched()
		}
	}
	return false
}

func TestNodeTable_LastMembers_FreeTheMemory(t *testing.T) {
	k := newPeerRecords()
	freed := make(chan struct{})
	split := func() pml.Members {
		table, group := someTable(t, 4, scattered)
		n := newNodeTable(table, 0, group, &btl.Area{Close: func() { close(freed) }})
		k.liveTables.add(n)
		of := func(m pml.Members, ranks ...int) pml.Members {
			var list []pml.Member
			for _, rank := range ranks {
				list = append(list, m.Member(rank))
			}
			return pml.NewMembersFrom(m, list)
		}
		return of(of(n, 0, 1, 2), 2, 1)
	}()
	for range 3 {
		runtime.GC()
	}
	if _, ok := k.get(split.Member(0).Incarnation); !ok {
		t.Fatal("a member of a communicator in use is unknown")
	}
	incarnation := split.Member(0).Incarnation
	runtime.KeepAlive(split)
	if !collected(freed) {
		t.Fatal("the memory is not freed")
	}
	if _, ok := k.get(incarnation); ok {
		t.Error("a member of no communicator is known")
	}
	k.liveTables.add(newNodeTable(nil, 0, framework.Procs{}, nil))
	if len(k.liveTables.weakTables) != 1 {
		t.Errorf("%d tables", len(k.liveTables.weakTables))
	}
}

func TestDisconnect_MemberOfTable_FreesTheMemory(t *testing.T) {
	a, events := newHanging().open(t, nil)
	defer a.Close()
	freed := make(chan struct{})
	incarnation := func() framework.Incarnation {
		p, err := accept(t, a, func([]byte) {})
		if err != nil {
			t.Fatal(err)
		}
		runtime.AddCleanup(p.memberTable, func(freed chan struct{}) { close(freed) }, freed)
		return p.memberTable.Member(5).Incarnation
	}()
	events.event(bootstrap.Event{Kind: bootstrap.PeerUnreachable, Proc: a.env.Worlds.Proc(incarnation.ID), Nonce: incarnation.Nonce, Reason: "test"})
	a.await()
	if !collected(freed) {
		t.Fatal("the table is in use")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if known, ok := a.peers.get(incarnation); !ok || !known.hasEnded || !known.hasCard() {
		t.Errorf("after the table: %+v, %t", known, ok)
	}
}

func TestNodeTables_ManyBytes_MakeTheCollectorDue(t *testing.T) {
	table, group := someTable(t, 1000, scattered)
	for name, area := range map[string]*btl.Area{"shared": {Close: func() {}}, "not shared": nil} {
		var tables nodeTables
		due := 0
		const n = 1000
		for range n {
			if tables.add(newNodeTable(table, 0, group, area)) {
				due++
			}
		}
		want := 0
		if area != nil {
			want = n / (maxBytesSinceGC/len(table.Bytes()) + 1)
		}
		if due != want {
			t.Errorf("%s: due %d times after %d tables of %d bytes, want %d", name, due, n, len(table.Bytes()), want)
		}
	}
}
