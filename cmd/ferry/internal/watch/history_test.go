package watch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local/server"
)

func TestHistory_ManyChanges_KeepsTheLatest(t *testing.T) {
	var h history
	for range 5*mostChanges + 7 {
		h.add(change{})
	}
	all := h.since(0)
	if len(all) != mostChanges || all[0].Serial != 4*mostChanges+8 || all[len(all)-1].Serial != 5*mostChanges+7 {
		t.Errorf("%d changes, %d to %d", len(all), all[0].Serial, all[len(all)-1].Serial)
	}
	if n := len(h.since(5*mostChanges + 4)); n != 3 {
		t.Errorf("%d changes since the last but 3", n)
	}
	if h.since(5*mostChanges+7) != nil || h.since(1<<62) != nil || len(h.since(-1<<62)) != mostChanges {
		t.Error("serials out of range")
	}
}

func TestChange_EachKind_IsDescribed(t *testing.T) {
	ev := server.PsetEvent{Op: bootstrap.PsetReplace, Operands: []string{"a\x1b[2J"}, Results: []string{"x", "y"}, Joining: 2, Leaving: 1, Requester: 3}
	with := func(kind func(*server.PsetEvent)) change {
		e := ev
		kind(&e)
		return psetChange(e)
	}
	for _, x := range []struct {
		got  change
		want string
	}{
		{with(func(e *server.PsetEvent) { e.Kind, e.Op = server.SetsMade, bootstrap.PsetUnion }), `union of a\x1b[2J by rank 3: x, y`},
		{with(func(e *server.PsetEvent) { e.Kind = server.SetDeleted }), `a\x1b[2J deleted by rank 3`},
		{with(func(e *server.PsetEvent) { e.Kind, e.IsOfUser = server.ChangeBegun, true }), `replace of a\x1b[2J requested by the user: 1 rank leaves, 2 ranks join`},
		{with(func(e *server.PsetEvent) { e.Kind = server.ChangeOpened }), `replace of a\x1b[2J is open: its members integrate it`},
		{with(func(e *server.PsetEvent) { e.Kind, e.Text = server.ChangeIntegrated, "y" }), `replace of a\x1b[2J integrated: its members continue with y`},
		{with(func(e *server.PsetEvent) { e.Kind = server.ChangeFinished }), `replace of a\x1b[2J finished`},
		{with(func(e *server.PsetEvent) { e.Kind, e.Text = server.ChangeUndone, "a reason" }), `replace of a\x1b[2J undone: a reason`},
		{procChange(server.ProcEvent{Rank: 2, State: server.ProcOpen}), "rank 2 opened a session"},
		{procChange(server.ProcEvent{Rank: 2, State: server.ProcFailed, Reason: "signal: killed"}), "rank 2 failed: signal: killed"},
		{procChange(server.ProcEvent{Rank: 2, State: server.ProcEnded}), "rank 2 ended"},
	} {
		if x.got.Text != x.want {
			t.Errorf("%q, want %q", x.got.Text, x.want)
		}
	}
	if long := printable(strings.Repeat("ä", 1000)); len(long) > mostText+3 || !strings.HasSuffix(long, "ä...") {
		t.Errorf("a long name is %q", long)
	}
}

func TestChange_ManySets_ShowsTheFirst(t *testing.T) {
	ev := server.PsetEvent{Kind: server.SetsMade, Op: bootstrap.PsetSplit, Operands: []string{"main"}}
	for i := range 10000 {
		ev.Results = append(ev.Results, fmt.Sprint("set", i))
	}
	c := psetChange(ev)
	if len(c.Results) != mostNames || !strings.HasPrefix(c.Text, "split of main by rank 0: set0, set1, ") || !strings.HasSuffix(c.Text, ", set15 and 9984 more") {
		t.Errorf("%d results, %q", len(c.Results), c.Text)
	}
}
