package local

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/framework"
)

// orderedJob is a job of one process whose orders a test carries out.
func orderedJob(t *testing.T, most int) (*job, *client, <-chan server.Order) {
	t.Helper()
	orders := make(chan server.Order, 100)
	j := testJob(t, server.Options{Size: 1, MaxProcs: most, Order: func(o server.Order) { orders <- o }})
	return j, j.open(t, 0).(*client), orders
}

// grow begins to add processes.
func grow(t *testing.T, c *client, args bootstrap.PsetArgs) (result func() ([]string, error)) {
	t.Helper()
	done := make(chan struct{})
	var names []string
	var err error
	go func() {
		names, err = c.Operate(t.Context(), bootstrap.PsetGrow, []string{bootstrap.PsetWorld}, args)
		close(done)
	}()
	return func() ([]string, error) {
		<-done
		return names, err
	}
}

// ordered returns the next order, which has a kind.
func ordered(t *testing.T, orders <-chan server.Order, kind server.Order) server.Order {
	t.Helper()
	select {
	case o := <-orders:
		if o.Kind != kind.Kind || o.First != kind.First || o.N != kind.N || fmt.Sprint(o.Ranks) != fmt.Sprint(kind.Ranks) {
			t.Fatalf("order %+v, want %+v", o, kind)
		}
		return o
	case <-t.Context().Done():
		t.Fatal("no order")
		return server.Order{}
	}
}

func TestOrder_CannotStart_NothingIsLeft(t *testing.T) {
	j, c, orders := orderedJob(t, 5)
	result := grow(t, c, bootstrap.PsetArgs{Add: 3, Name: "more"})
	ordered(t, orders, server.Order{Kind: server.StartProcs, First: 1, N: 3})
	early := j.open(t, 2) // It has started, and opens a session before the third one fails to start.
	environ := j.srv.Environ(3)
	j.srv.Started(1, 2, errors.New("fork: resource temporarily unavailable"))
	names, err := result()
	if !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "2 fit: fork: resource") {
		t.Errorf("got %q, %v", names, err)
	}
	if _, err := c.Pset(t.Context(), "more"); !errors.Is(err, framework.ErrPset) {
		t.Errorf("the set: %v", err)
	}
	if err := early.Fence(t.Context(), []framework.Proc{early.Identity().Proc}, "t"); err == nil {
		t.Error("a process of the failed start is still served")
	}
	_, err = Dial(t.Context(), environ, bootstrap.Env{})
	if err == nil || !strings.Contains(err.Error(), "rank 3 has ended") {
		t.Errorf("a process of the failed start: %v", err)
	}
	_, err = Dial(t.Context(), append(environ, wire.EnvRank+"=4", wire.EnvSize+"=4"), bootstrap.Env{})
	if err == nil || !strings.Contains(err.Error(), "rank 4 of 4") {
		t.Errorf("a process that was never ordered: %v", err)
	}
	if _, err := c.Get(t.Context(), framework.Proc{Namespace: j.srv.Namespace(), Rank: 3}, "k"); !errors.Is(err, framework.ErrProcFailed) {
		t.Errorf("a value of a process that has ended: %v", err)
	}
}

func TestOrder_Partial_StartsFewerAsNewRanks(t *testing.T) {
	j, c, orders := orderedJob(t, 4)
	result := grow(t, c, bootstrap.PsetArgs{Add: 9, Partial: true})
	ordered(t, orders, server.Order{Kind: server.StartProcs, First: 1, N: 3})
	j.srv.Started(1, 2, errors.New("no memory"))
	ordered(t, orders, server.Order{Kind: server.StartProcs, First: 4, N: 2})
	added := j.open(t, 5)
	if id := added.Identity(); id.FirstRank != 4 || id.Size != 2 || id.MaxSize != 4 || id.LocalRank != 1 || fmt.Sprint(id.LocalRanks) != "[4 5]" {
		t.Errorf("an added process is %+v", id)
	}
	j.srv.Started(4, 0, nil)
	names, err := result()
	if err != nil {
		t.Fatal(err)
	}
	info, err := added.(*client).Pset(t.Context(), names[1])
	if err != nil || info.Members.Len() != 3 || info.Members.At(2).Rank != 5 || !info.Dynamic {
		t.Errorf("the new set is %+v, %v", info, err)
	}
}

// The launcher has not answered yet.
func TestOrder_WithdrawnRequest_EndsTheProcesses(t *testing.T) {
	j, c, orders := orderedJob(t, 3)
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := c.Operate(ctx, bootstrap.PsetAdd, []string{bootstrap.PsetWorld}, bootstrap.PsetArgs{Add: 2})
		failed <- err
	}()
	ordered(t, orders, server.Order{Kind: server.StartProcs, First: 1, N: 2})
	cause := errors.New("the user's reason")
	cancel(cause)
	if err := <-failed; !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	ordered(t, orders, server.Order{Kind: server.EndProcs, Ranks: []int{1, 2}})
	j.srv.Started(1, 1, errors.New("one has not started"))
	for rank, want := range map[int]bool{0: false, 1: true, 2: true} {
		if got := j.srv.IsExcused(rank); got != want {
			t.Errorf("rank %d: excused %t", rank, got)
		}
	}
	// None remains, so as many can be added again.
	result := grow(t, c, bootstrap.PsetArgs{Add: 2})
	ordered(t, orders, server.Order{Kind: server.StartProcs, First: 3, N: 2})
	j.srv.Started(3, 0, nil)
	if _, err := result(); err != nil {
		t.Error(err)
	}
}

// The call of the dead requester gets no answer.
func TestOrder_DeathOfRequester_EndsTheProcesses(t *testing.T) {
	orders := make(chan server.Order, 100)
	j := testJob(t, server.Options{Size: 2, MaxProcs: 4, Order: func(o server.Order) { orders <- o }})
	other, c := j.open(t, 0).(*client), j.open(t, 1).(*client)
	result := grow(t, c, bootstrap.PsetArgs{Add: 1})
	ordered(t, orders, server.Order{Kind: server.StartProcs, First: 2, N: 1})
	c.conn.Close()
	j.srv.ProcExited(1, "signal: killed")
	ordered(t, orders, server.Order{Kind: server.EndProcs, Ranks: []int{2}})
	if _, err := result(); err == nil {
		t.Error("the request has succeeded")
	}
	got, ok, err := other.Query(t.Context(), bootstrap.PsetWorld, true)
	if !ok || err != nil || got.Type != bootstrap.ChangeFailed {
		t.Errorf("the change is %+v, %v", got, err)
	}
}

// The server continues to serve the others.
func TestChange_Garbage_EndsOneConnection(t *testing.T) {
	for what, body := range map[string]any{
		"no operation":      wire.ChangeBody{Op: 0, Args: wire.EncodeBody(wire.Empty{})},
		"unknown operation": wire.ChangeBody{Op: 99, Args: wire.EncodeBody(wire.Empty{})},
		"other arguments":   wire.ChangeBody{Op: wire.Operate, Args: wire.EncodeBody(wire.NameBody{})},
		"no message":        wire.Empty{},
	} {
		t.Run(what, func(t *testing.T) {
			j := testJob(t, server.Options{Size: 2})
			good, bad := j.open(t, 0).(*client), j.open(t, 1).(*client)
			if _, err := bad.send(wire.Change, 1, body); err != nil {
				t.Fatal(err)
			}
			<-bad.pendingCalls.Done()
			if _, err := good.Operate(t.Context(), bootstrap.PsetUnion, []string{bootstrap.PsetWorld}, bootstrap.PsetArgs{}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestChange_SharedOfSomeProcesses_IsUnsupported(t *testing.T) {
	c := testJob(t, server.Options{Size: 2, Nodes: 2}).open(t, 0).(*client)
	if id := c.Identity(); !id.IsDivided || id.LocalSize != 1 || fmt.Sprint(id.Nodes) != "[{0 1 0} {1 1 1}]" {
		t.Errorf("got %+v", id)
	}
	_, err1 := c.Operate(t.Context(), bootstrap.PsetUnion, []string{bootstrap.PsetShared}, bootstrap.PsetArgs{})
	_, _, err2 := c.Query(t.Context(), bootstrap.PsetShared, false)
	_, err3 := c.LookupData(t.Context(), bootstrap.PsetShared, "k")
	err4 := c.PublishData(t.Context(), bootstrap.PsetShared, "k", nil)
	for _, err := range []error{err1, err2, err3, err4} {
		if !errors.Is(err, framework.ErrUnsupported) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := c.Operate(t.Context(), bootstrap.PsetUnion, []string{bootstrap.PsetRoots}, bootstrap.PsetArgs{}); err != nil { // All processes.
		t.Error(err)
	}
	if _, err := testJob(t, server.Options{Size: 2}).open(t, 1).(*client).Operate(t.Context(), bootstrap.PsetUnion, []string{bootstrap.PsetRoots}, bootstrap.PsetArgs{}); !errors.Is(err, framework.ErrUnsupported) {
		t.Errorf("one root of two processes: %v", err)
	}
}

func TestResize_ProgramIntegrates_ReturnsTheNames(t *testing.T) {
	j, c, orders := orderedJob(t, 3)
	type result struct {
		names []string
		err   error
	}
	done := make(chan result, 1)
	go func() {
		names, err := j.srv.Resize(t.Context(), bootstrap.PsetGrow, bootstrap.PsetWorld, bootstrap.PsetArgs{Add: 1, Name: "more"})
		done <- result{names, err}
	}()
	ordered(t, orders, server.Order{Kind: server.StartProcs, First: 1, N: 1})
	added := j.open(t, 1).(*client)
	j.srv.Started(1, 0, nil)
	change, ok, err := c.Query(t.Context(), bootstrap.PsetWorld, true)
	if !ok || err != nil || change.Main != "more" {
		t.Fatalf("the change is %+v, %v", change, err)
	}
	joined := make(chan error, 1)
	go func() {
		_, err := added.Integrate(t.Context(), bootstrap.PsetSelf, "")
		joined <- err
	}()
	if _, err := c.Integrate(t.Context(), change.Delta, ""); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.err != nil || len(r.names) != 2 || r.names[1] != "more" {
		t.Errorf("got %+v", r)
	}
	if err := errors.Join(<-joined, c.FinishChange(t.Context(), change.Delta)); err != nil {
		t.Error(err)
	}
}

// Nothing changes when the user's time is up.
func TestResize_ProgramDoesNotQuery_ChangesNothing(t *testing.T) {
	j, c, _ := orderedJob(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := j.srv.Resize(ctx, bootstrap.PsetShrink, bootstrap.PsetWorld, bootstrap.PsetArgs{Sub: 1, Name: "less"})
	if !errors.Is(err, framework.ErrTimeout) || !errors.Is(err, server.ErrNeverQueried) || !strings.Contains(err.Error(), "rank 0") {
		t.Errorf("got %v, want ErrTimeout and ErrNeverQueried with the process", err)
	}
	if _, ok, err := c.Query(t.Context(), bootstrap.PsetWorld, false); ok || err != nil {
		t.Errorf("a change is left: %v", err)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	cause := errors.New("the user's reason")
	stop(cause)
	if _, err := j.srv.Resize(ctx, bootstrap.PsetShrink, bootstrap.PsetWorld, bootstrap.PsetArgs{Sub: 1}); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

func TestResize_Withdrawn_MembersGetTheReason(t *testing.T) {
	j, c, _ := orderedJob(t, 1)
	ctx, withdraw := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := j.srv.Resize(ctx, bootstrap.PsetShrink, bootstrap.PsetWorld, bootstrap.PsetArgs{Sub: 1})
		done <- err
	}()
	change, _, err := c.Query(t.Context(), bootstrap.PsetWorld, true)
	if err != nil {
		t.Fatal(err)
	}
	withdraw()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the user got %v", err)
	}
	_, err = c.Integrate(t.Context(), change.Delta, "")
	if !errors.Is(err, framework.ErrCanceled) || !strings.Contains(err.Error(), `the user withdrew the change "ferry://delta/1" of "mpi://WORLD"`) {
		t.Errorf("a member got %v", err)
	}
}

// Queries of the joining process count too.
func TestResize_ProgramQueriesOnly_NamesTheProcess(t *testing.T) {
	for _, queries := range []bool{true, false} {
		j, c, orders := orderedJob(t, 2)
		ctx, stop := context.WithCancelCause(t.Context())
		result := make(chan error, 1)
		go func() {
			_, err := j.srv.Resize(ctx, bootstrap.PsetGrow, bootstrap.PsetWorld, bootstrap.PsetArgs{Add: 1})
			result <- err
		}()
		ordered(t, orders, server.Order{Kind: server.StartProcs, First: 1, N: 1})
		added := j.open(t, 1).(*client)
		j.srv.Started(1, 0, nil)
		members := []*client{added}
		if queries {
			members = append(members, c)
		}
		pset := bootstrap.PsetSelf
		for _, member := range members {
			if _, ok, err := member.Query(t.Context(), pset, true); !ok || err != nil {
				t.Fatalf("no change: %v", err)
			}
			pset = bootstrap.PsetWorld
		}
		st := j.srv.Status()
		want := server.Progress{Type: bootstrap.ChangeAdd, Pset: bootstrap.PsetWorld, Joining: 1, Members: 2, IsOfUser: true}
		if st.Ranks != 2 || st.Limit != 2 || !slices.Equal(st.Changes, []server.Progress{want}) {
			t.Errorf("status %+v", st)
		}
		stop(errors.New("the user's reason"))
		if err := <-result; err == nil || errors.Is(err, server.ErrNeverQueried) == queries {
			t.Errorf("queries %t: %v", queries, err)
		}
		if st := j.srv.Status(); st.Ranks != 1 || len(st.Changes) > 0 {
			t.Errorf("status %+v after the withdrawal", st)
		}
	}
}

func TestResize_UserWithdraws_MembersGetErrCanceled(t *testing.T) {
	j, c, orders := orderedJob(t, 2)
	ctx, withdraw := context.WithCancel(t.Context())
	resized, integrated := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := j.srv.Resize(ctx, bootstrap.PsetGrow, bootstrap.PsetWorld, bootstrap.PsetArgs{Add: 1})
		resized <- err
	}()
	ordered(t, orders, server.Order{Kind: server.StartProcs, First: 1, N: 1})
	j.srv.Started(1, 0, nil)
	change, _, err := c.Query(t.Context(), bootstrap.PsetWorld, true)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := c.Integrate(t.Context(), change.Delta, "")
		integrated <- err
	}()
	for j.srv.Status().Changes[0].Integrated == 0 {
		runtime.Gosched()
	}
	withdraw()
	if err := <-resized; !errors.Is(err, context.Canceled) {
		t.Errorf("the user got %v", err)
	}
	if err := <-integrated; !errors.Is(err, framework.ErrCanceled) || !strings.Contains(err.Error(), "the change is undone") {
		t.Errorf("the member got %v", err)
	}
}

// The request is refused if the other change takes too long.
func TestResize_ProgramHasAChange_BeginsAfterIt(t *testing.T) {
	j, c, _ := orderedJob(t, 1)
	names, err := c.Operate(t.Context(), bootstrap.PsetShrink, []string{bootstrap.PsetWorld}, bootstrap.PsetArgs{Sub: 1, Name: "less"})
	if err != nil {
		t.Fatal(err)
	}
	resize := func(ctx context.Context) error {
		_, err := j.srv.Resize(ctx, bootstrap.PsetShrink, bootstrap.PsetWorld, bootstrap.PsetArgs{Sub: 1, Name: "none"})
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := resize(ctx); !errors.Is(err, framework.ErrPending) || !strings.Contains(err.Error(), names[0]) {
		t.Errorf("got %v, want ErrPending with the change", err)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- resize(t.Context()) }()
	if _, err := c.Integrate(t.Context(), names[0], bootstrap.PsetWorld); err != nil {
		t.Fatal(err)
	}
	if err := c.FinishChange(t.Context(), names[0]); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err == nil || errors.Is(err, framework.ErrPending) {
		t.Errorf("got %v after the change, want the error of an empty set", err)
	}
}

func TestResize_RefusedOrEnding_HasTheReason(t *testing.T) {
	j, _, _ := orderedJob(t, 2)
	for want, c := range map[string]struct {
		op   bootstrap.PsetOp
		pset string
		args bootstrap.PsetArgs
		err  error
	}{
		"1 fit":       {bootstrap.PsetGrow, bootstrap.PsetWorld, bootstrap.PsetArgs{Add: 9}, framework.ErrUnsupported},
		"has 1":       {bootstrap.PsetShrink, bootstrap.PsetWorld, bootstrap.PsetArgs{Sub: 2}, framework.ErrRank},
		"the nearest": {bootstrap.PsetGrow, "unknown", bootstrap.PsetArgs{Add: 1}, framework.ErrPset},
		"over the li": {bootstrap.PsetGrow, strings.Repeat("n", bootstrap.MaxName+1), bootstrap.PsetArgs{Add: 1}, framework.ErrUnsupported},
	} {
		if _, err := j.srv.Resize(t.Context(), c.op, c.pset, c.args); !errors.Is(err, c.err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100v, want %v with %q", err, c.err, want)
		}
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := j.srv.Resize(t.Context(), bootstrap.PsetShrink, bootstrap.PsetWorld, bootstrap.PsetArgs{Sub: 1})
		waiting <- err
	}()
	if err := j.close(); err != nil {
		t.Error(err)
	}
	if err := <-waiting; !errors.Is(err, framework.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
