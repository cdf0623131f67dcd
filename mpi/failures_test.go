package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mpi"
)

// survivors runs a program as processes. The last ones, a number of dying, fail.
func survivors(t *testing.T, program string, size, dying int, env ...string) {
	t.Helper()
	r := localtest.RunJob(t, localtest.Job{Size: size, Program: program, MayFail: true, Env: env})
	for rank := range size {
		if failed := r.Exit[rank] != nil; failed != (rank >= size-dying) {
			t.Errorf("rank %d: %v\n%s", rank, r.Exit[rank], r.Output[rank])
		}
	}
}

var errDies = errors.New("the rank fails as it should")

// outlive lets a rank of the world die, and waits until its death is reported.
func outlive(ctx context.Context, c *mpi.Comm, rank int) error {
	if err := c.Send(ctx, nil, rank, 99); err != nil {
		return err
	}
	_, err := c.Recv(ctx, nil, rank, 98)
	return wants(fmt.Sprint("receive from rank ", rank), err, mpi.ErrProcFailed)
}

// dies is the part of a rank that fails when all of survivors have called outlive.
func dies(ctx context.Context, c *mpi.Comm, survivors ...int) error {
	for _, rank := range survivors {
		if _, err := c.Recv(ctx, nil, rank, 99); err != nil {
			return err
		}
	}
	return errDies
}

func TestFailed_MembersDie_KeepsTheOrderOfTheDeaths(t *testing.T) {
	t.Parallel()
	survivors(t, "failed", 4, 2)
}

func failedInOrder(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	color := 0
	if c.Rank() == 3 {
		color = mpi.Undefined
	}
	d, err := c.Split(ctx, color, -c.Rank())
	switch {
	case c.Rank() == 3:
		return dies(ctx, c, 0, 1)
	case err != nil:
		return err
	case c.Rank() == 2:
		return dies(ctx, c, 0, 1)
	}
	for i, rank := range []int{3, 2} {
		if err := outlive(ctx, c, rank); err != nil {
			return err
		}
		if got, want := c.Failed(), []int{3, 2}[:i+1]; !slices.Equal(got, want) {
			return fmt.Errorf("failed are %v, want %v", got, want)
		}
		if got, want := d.Failed(), make([]int, i); !slices.Equal(got, want) {
			return fmt.Errorf("failed of the part are %v, want %v", got, want)
		}
	}
	return d.Close()
}

// In MPICH, the failure of a member consumes receives from any source (pmodels/mpich #2146, #6717).
func TestAckFailed_ReceivesFromAnySource_WaitUntilAcknowledged(t *testing.T) {
	t.Parallel()
	for name, env := range failureStacks(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			survivors(t, "pending", 4, 2, env...)
		})
	}
}

// failureStacks are the environments of a job over each PML, as far as their libraries are here.
func failureStacks(t *testing.T) map[string][]string {
	stacks := map[string][]string{
		"ob1+shm": {"FERRY_PML=ob1", "FERRY_BTL=self,shm"},
		"ob1+tcp": {"FERRY_PML=ob1", "FERRY_BTL=self,tcp"},
	}
	network := func(name, mtl, provider string, env ...string) {
		env = append(env, "FERRY_PML=cm", "FERRY_MTL="+mtl, "FERRY_MTL_"+strings.ToUpper(mtl)+"_PROVIDER_INCLUDE="+provider)
		stacks[name+"+shm"] = env
		stacks[name] = append(slices.Clone(env), "FERRY_PML_CM_SHARED_MEMORY=false")
	}
	if _, err := libfabric.Load("libfabric.so.1"); err == nil {
		network("ofi", "ofi", "tcp;ofi_rxm")
	} else {
		t.Logf("no stack over libfabric: %v", err)
	}
	if _, err := ucp.Load("libucp.so.0"); err == nil {
		network("ucx-tcp", "ucx", "tcp")
		network("ucx-shm", "ucx", "shm")
	} else {
		t.Logf("no stack over UCX: %v", err)
	}
	return stacks
}

func pendingReceives(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	const later = 7 // Tag of requests. Rank 1 sends rank 0 a message of the tag in the request; 0 is the end.
	switch c.Rank() {
	case 0:
		return suspendedCalls(ctx, c, func(tag int) error { return c.Send(ctx, []byte{byte(tag)}, 1, later) })
	case 1:
		for _, rank := range []int{3, 2} {
			if err := outlive(ctx, c, rank); err != nil {
				return err
			}
			for tag := []byte{0}; ; {
				if _, err := c.Recv(ctx, tag, 0, later); err != nil {
					return err
				}
				if tag[0] == 0 {
					break
				}
				if err := c.Send(ctx, tag, 0, int(tag[0])); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return dies(ctx, c, 0, 1)
}

// suspendedCalls is the part of rank 0. send makes rank 1 send it a message of a tag.
func suspendedCalls(ctx context.Context, c *mpi.Comm, send func(tag int) error) error {
	if n := c.AckFailed(1); n != 0 {
		return fmt.Errorf("%d failures are acknowledged, and there is none", n)
	}
	any, err := c.Irecv(make([]byte, 1), mpi.AnySource, 1)
	if err != nil {
		return err
	}
	exchange, err := c.Isendrecv(nil, mpi.ProcNull, 6, make([]byte, 1), mpi.AnySource, 6)
	if err != nil {
		return err
	}
	both, err := c.Isendrecv(nil, 0, 8, make([]byte, 1), mpi.AnySource, 6)
	if err != nil {
		return err
	}
	if err := outlive(ctx, c, 3); err != nil {
		return err
	}
	_, null := exchange.Wait(ctx)
	_, waits := both.Wait(ctx)
	_, _, tests := both.Test()
	later, err := c.IsendrecvReplace(make([]byte, 1), 0, 8, mpi.AnySource, 6)
	if err != nil {
		return err
	}
	_, _, starts := later.Test()
	for what, err := range map[string]error{"receive": null, "exchange": waits, "test of it": tests, "exchange after the failure": starts} {
		if err := isPending(what, err, 3); err != nil {
			return err
		}
	}
	for i, q := range []mpi.Request{exchange, both, later} {
		if err := send(6); err != nil {
			return err
		}
		for {
			st, err := q.Wait(ctx)
			if err == nil && st.Source == 1 {
				break
			}
			if !errors.Is(err, mpi.ErrProcFailedPending) {
				return fmt.Errorf("exchange %d: %+v, %w", i, st, err)
			}
		}
	}
	for range 2 {
		if _, err := c.Recv(ctx, make([]byte, 1), 0, 8); err != nil {
			return err
		}
	}
	if err := waitsForSuspended(ctx, c, any, send); err != nil {
		return err
	}
	if err := blockingCalls(ctx, c, 3); err != nil {
		return err
	}
	for _, n := range []int{-1, 0} {
		if got := c.AckFailed(n); got != 0 {
			return fmt.Errorf("AckFailed(%d) returns %d", n, got)
		}
	}
	if _, _, err := any.Test(); !errors.Is(err, mpi.ErrProcFailedPending) {
		return fmt.Errorf("test before the failure is acknowledged: %v", err)
	}
	for _, n := range []int{100, 0, 1} {
		if got := c.AckFailed(n); got != 1 {
			return fmt.Errorf("AckFailed(%d) returns %d after one failure", n, got)
		}
	}
	if _, done, err := any.Test(); done || err != nil {
		return fmt.Errorf("test after the failure is acknowledged: %t %v", done, err)
	}
	if err := send(2); err != nil {
		return err
	}
	if st, err := c.Recv(ctx, make([]byte, 1), mpi.AnySource, 2); err != nil || st.Source != 1 {
		return fmt.Errorf("receive from any after the failure is acknowledged: %+v %w", st, err)
	}
	if err := wants("barrier", mpi.Barrier(ctx, c), mpi.ErrProcFailed); err != nil {
		return err
	}
	if err := errors.Join(send(0), outlive(ctx, c, 2)); err != nil {
		return err
	}
	if err := blockingCalls(ctx, c, 2); err != nil { // rank 3 is acknowledged
		return err
	}
	if err := send(1); err != nil {
		return err
	}
	for {
		st, err := any.Wait(ctx)
		if err == nil {
			return errors.Join(must(st.Source == 1, "the receive has a message of %d", st.Source), send(0))
		}
		if !errors.Is(err, mpi.ErrProcFailedPending) {
			return err
		}
	}
}

// isPending checks that err is that of a receive from any source after the failure of a rank.
func isPending(what string, err error, failed int) error {
	ranks, ok := errors.AsType[*mpi.ProcFailedError](err)
	return must(errors.Is(err, mpi.ErrProcFailedPending) && ok && slices.Equal(ranks.Ranks, []int{failed}), "%s: %v", what, err)
}

// blockingCalls checks that calls with any source return, and withdraw their receives.
func blockingCalls(ctx context.Context, c *mpi.Comm, failed int) error {
	b := make([]byte, 1)
	_, recv := c.Recv(ctx, b, mpi.AnySource, 5)
	_, probe := c.Probe(ctx, mpi.AnySource, 5)
	_, _, iprobe := c.Iprobe(mpi.AnySource, 5)
	_, _, mprobe := c.Mprobe(ctx, mpi.AnySource, 5)
	_, small := c.Sendrecv(ctx, b, 0, 4, b, mpi.AnySource, 5)
	if _, err := c.Recv(ctx, b, 0, 4); err != nil {
		return err
	}
	itself, err := c.Irecv(make([]byte, 100_000), 0, 4)
	if err != nil {
		return err
	}
	_, large := c.Sendrecv(ctx, make([]byte, 100_000), 0, 4, b, mpi.AnySource, 5)
	if _, err := itself.Wait(ctx); err != nil {
		return err
	}
	for what, err := range map[string]error{"Recv": recv, "Probe": probe, "Iprobe": iprobe, "Mprobe": mprobe, "Sendrecv": small, "large Sendrecv": large} {
		if err := isPending(what, err, failed); err != nil {
			return err
		}
	}
	return nil
}

// waitsForSuspended checks that calls which wait for a suspended receive and others return, and consume the others only.
func waitsForSuspended(ctx context.Context, c *mpi.Comm, any mpi.Request, send func(tag int) error) error {
	known, err := c.Irecv(make([]byte, 1), 1, 3)
	if err != nil {
		return err
	}
	null := func() mpi.Request {
		r, _ := c.Irecv(nil, mpi.ProcNull, 0)
		return r
	}
	_, wait := any.Wait(ctx)
	_, _, test := any.Test()
	_, _, status := any.Status()
	i, _, waitAny := mpi.WaitAny(ctx, []mpi.Request{known, any})
	j, _, done, testAny := mpi.TestAny([]mpi.Request{any, known})
	indices, st := make([]int, 3), make([]mpi.Status, 3)
	m, waitSome := mpi.WaitSome(ctx, []mpi.Request{known, any}, indices, st)
	n, testSome := mpi.TestSome([]mpi.Request{known, any}, indices, st)
	all, testAll := mpi.TestAll([]mpi.Request{null(), any}, st)
	if i != 1 || j != 0 || done || m != 0 || n != 0 || all {
		return fmt.Errorf("a suspended receive is complete: %d %d %t %d %d %t", i, j, done, m, n, all)
	}
	errs := map[string]error{"Wait": wait, "Test": test, "Status": status, "WaitAny": waitAny, "TestAny": testAny, "WaitSome": waitSome, "TestSome": testSome, "TestAll": testAll}
	if all, err := mpi.TestAll([]mpi.Request{known, any}, nil); all || err != nil {
		return fmt.Errorf("TestAll with a receive that is pending: %t %v", all, err)
	}

	reqs := []mpi.Request{any, null()}
	if i, _, err := mpi.WaitAny(ctx, reqs); i != 1 || err != nil || reqs[1] != (mpi.Request{}) {
		return fmt.Errorf("WaitAny does not take the complete request: %d %v", i, err)
	}
	reqs[1] = null()
	if n, err := mpi.WaitSome(ctx, reqs, indices, st); n != 1 || indices[0] != 1 || err != nil || reqs[0] != any {
		return fmt.Errorf("WaitSome does not take the complete request alone: %d %v", n, err)
	}
	if err := send(3); err != nil {
		return err
	}
	reqs = []mpi.Request{null(), any, known}
	errs["WaitAll"] = mpi.WaitAll(ctx, reqs, st)
	errs["WaitAll, status"] = st[1].Err
	if reqs[0] != (mpi.Request{}) || reqs[1] != any || reqs[2] != (mpi.Request{}) || st[0].Err != nil || st[2].Err != nil || st[2].Source != 1 {
		return fmt.Errorf("WaitAll does not take the complete requests alone: %+v", st)
	}
	for what, err := range errs {
		if err := isPending(what, err, 3); err != nil {
			return err
		}
	}
	return nil
}

func TestAckFailed_ProcessOfSeveralRanksDies_CountsRanks(t *testing.T) {
	t.Parallel()
	survivors(t, "pendingranks", 3, 1, "FERRY_PML=ob1")
}

// pendingInRanks has two goroutine ranks in each of three processes. The last process fails.
func pendingInRanks(ctx context.Context, _ *mpi.Session, world *mpi.Comm) error {
	tc, err := mpi.NewThreadComm(ctx, world, 2)
	if err != nil {
		return err
	}
	wild, err := world.Irecv(make([]byte, 1), mpi.AnySource, 1) // of another engine than the requests of the ranks
	if err != nil {
		return err
	}
	err = tc.Run(ctx, func(ctx context.Context, c *mpi.Comm) error {
		switch {
		case c.Rank() == 4:
			if err := dies(ctx, c, 0, 1, 2, 3); err != errDies {
				return err
			}
			os.Exit(1)
		case c.Rank() == 5:
			<-ctx.Done()
			return nil
		}
		if err := outlive(ctx, c, 4); err != nil {
			return err
		}
		if got := c.Failed(); !slices.Equal(got, []int{4, 5}) {
			return fmt.Errorf("failed are %v", got)
		}
		b := make([]byte, 1)
		any, err := c.Irecv(b, mpi.AnySource, 2)
		if err != nil {
			return err
		}
		for acked := range 2 {
			if got := c.AckFailed(acked); got != acked {
				return fmt.Errorf("AckFailed(%d) returns %d", acked, got)
			}
			_, err := any.Wait(ctx)
			failed, ok := errors.AsType[*mpi.ProcFailedError](err)
			if !ok || !errors.Is(err, mpi.ErrProcFailedPending) || !slices.Equal(failed.Ranks, []int{4, 5}[acked:]) {
				return fmt.Errorf("wait after %d acknowledged failures: %v", acked, err)
			}
		}
		if err := severalEngines(ctx, any, wild); err != nil {
			return err
		}
		neighbor := c.Rank() ^ 1
		if got := c.AckFailed(2); got != 2 {
			return fmt.Errorf("AckFailed(2) returns %d", got)
		}
		// After this, no rank needs a receive without a message.
		if _, err := c.Sendrecv(ctx, nil, neighbor, 3, nil, neighbor, 3); err != nil {
			return err
		}
		if err := c.Send(ctx, b, neighbor, 2); err != nil {
			return err
		}
		st, err := any.Wait(ctx)
		return errors.Join(err, must(st.Source == neighbor, "the message is of rank %d", st.Source))
	})
	return errors.Join(err, wild.Cancel(), tc.Close())
}

// severalEngines checks waits for suspended receives of a goroutine rank and of its process.
func severalEngines(ctx context.Context, rank, process mpi.Request) error {
	// The communicator of the process may be notified later than that of the rank.
	for _, _, err := process.Test(); err == nil; _, _, err = process.Test() {
		runtime.Gosched()
	}
	reqs, indices := []mpi.Request{rank, process}, make([]int, 2)
	i, _, any := mpi.WaitAny(ctx, reqs)
	n, some := mpi.WaitSome(ctx, reqs, indices, nil)
	done, all := mpi.TestAll(reqs, nil)
	waited := mpi.WaitAll(ctx, reqs, nil)
	if i != 0 || n != 0 || done || reqs[0] != rank || reqs[1] != process {
		return fmt.Errorf("a suspended receive is complete: %d %d %t", i, n, done)
	}
	for what, err := range map[string]error{"WaitAny": any, "WaitSome": some, "TestAll": all, "WaitAll": waited} {
		if err := wants(what, err, mpi.ErrProcFailedPending); err != nil {
			return err
		}
	}
	return nil
}
