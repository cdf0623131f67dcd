package conform

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/mpi"
)

var errEnded = errors.New("ended by the case")

// psetData checks that a key of a set has the value that was published last.
func (e *env) psetData() {
	name := e.operate(mpi.PsetUnion, mpi.PsetArgs{}, worldPset)[0]
	values := map[string][]byte{"": {1}, "key": pattern(3, 0, 1), "KEY": pattern(10<<10, 0, 2), "\x00\xff": {}}
	if e.c.Rank() == 0 {
		for key, value := range values {
			e.Check(e.session.PublishData(e.ctx, name, key, []byte("an earlier value")))
			published := slices.Clone(value)
			e.Check(e.session.PublishData(e.ctx, strings.ToUpper(name), key, published))
			clear(published)
		}
		e.Check(e.session.PublishData(e.ctx, worldPset, "conform.data", []byte("of WORLD")))
	}
	e.barrier()
	for key, value := range values {
		got := need(e.session.LookupData(e.ctx, name, key))(e)
		e.Same(fmt.Sprintf("the value of %q", key), got, value)
		clear(got)
		e.Same(fmt.Sprintf("the value of %q again", key), need(e.session.LookupData(e.ctx, name, key))(e), value)
	}
	e.Same("the value of WORLD", need(e.session.LookupData(e.ctx, worldPset, "conform.data"))(e), []byte("of WORLD"))
	mine := pattern(8, e.c.Rank(), 3)
	e.Check(e.session.PublishData(e.ctx, selfPset, "conform.data", mine))
	e.barrier()
	e.Same("the value of SELF", need(e.session.LookupData(e.ctx, selfPset, "conform.data"))(e), mine)
	e.deletes(name)
}

// psetDataToCome checks that lookups wait, each for its own key.
func (e *env) psetDataToCome() {
	n := e.c.Size()
	name := e.operate(mpi.PsetUnion, mpi.PsetArgs{}, worldPset)[0]
	waits := make([]*mpi.Future[[]byte], n)
	for rank := range waits {
		waits[rank] = e.session.LookupDataAsync(name, fmt.Sprint("rank ", rank))
	}
	never := e.session.LookupDataAsync(name, "never")
	_, err := e.session.LookupData(e.ended(), name, "never")
	e.Is("a lookup whose context has ended", err, errEnded)
	e.barrier()
	for _, f := range waits {
		unended(e, f)
	}
	e.barrier()
	e.Check(e.session.PublishData(e.ctx, name, fmt.Sprint("rank ", e.c.Rank()), pattern(9, e.c.Rank(), 0)))
	for rank, f := range waits {
		e.Same("the value", need(f.Wait(e.ctx))(e), pattern(9, rank, 0))
	}
	e.deletes(name)
	_, err = never.Wait(e.ctx)
	e.Is("a lookup of a set that is deleted", err, mpi.ErrPset)
}

// unended checks that a call has not ended.
func unended[V any](e *env, f *mpi.Future[V]) {
	select {
	case <-f.Done():
		got, err := f.Wait(e.ctx)
		e.Fatalf("a call that waits returned %+v, %w", got, err)
	default:
	}
}

// psetAsync checks that a Future keeps its result, and that the end of a session ends its calls.
func (e *env) psetAsync() {
	s := e.open()
	change := s.ResourceChangeAsync(worldPset)
	_, err := change.Wait(e.ended())
	e.Is("a wait whose context has ended", err, errEnded)
	if e.c.Rank() == 0 {
		f := s.PsetOpAsync(mpi.PsetUnion, []string{worldPset}, mpi.PsetArgs{Name: "conform.async"})
		<-f.Done()
		for range 2 {
			names := need(f.Wait(e.ended()))(e)
			e.must(slices.Equal(names, []string{"conform.async"}), "the union is %q", names)
		}
		_, err := s.PsetOpAsync(mpi.PsetUnion, []string{worldPset}, mpi.PsetArgs{Name: "conform.async"}).Wait(e.ctx)
		e.Is("a name that is taken", err, mpi.ErrPset)
		need(s.PublishDataAsync("conform.async", "key", []byte("value")).Wait(e.ctx))(e)
	}
	e.barrier()
	e.Same("the value", need(s.LookupDataAsync("conform.async", "key").Wait(e.ctx))(e), []byte("value"))
	_, err = s.IntegrateAsync("conform.async", "").Wait(e.ctx)
	e.Is("integrate a set without a change", err, mpi.ErrPset)
	_, err = s.FinishChangeAsync("conform.async").Wait(e.ctx)
	e.Is("finish a set without a change", err, mpi.ErrPset)
	e.barrier()
	if e.c.Rank() == 0 {
		need(s.DeletePsetAsync("conform.async").Wait(e.ctx))(e)
	}
	e.Check(s.Close())
	_, err = change.Wait(e.ctx)
	e.Is("a call of a session that is closed", err, mpi.ErrClosed)
	_, err = s.LookupDataAsync(worldPset, "never").Wait(e.ctx)
	e.Is("a call after Close", err, mpi.ErrClosed)
}
