package localtest

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/internal/fork"
)

// harness is the launcher of a running job. Its methods run on the goroutine of Job.run,
// but for report.
type harness struct {
	job    Job
	server *server.Server
	thread *fork.Thread
	orders *server.Queue[server.Order]
	// By rank.
	procs   map[int]*process
	running int
	exited  chan *process

	mu sync.Mutex
	// By rank and name.
	reports map[int]map[string][]byte
}

// process is a rank that was started.
type process struct {
	rank   int
	output bytes.Buffer
	// Valid once the process was received from harness.exited.
	exit error
	kill context.CancelFunc
}

func (h *harness) recordReport(rank int, name string, body []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reports == nil {
		h.reports = map[int]map[string][]byte{}
	}
	if h.reports[rank] == nil {
		h.reports[rank] = map[string][]byte{}
	}
	h.reports[rank][name] = body
}

// start starts a rank, which ends with ctx.
func (h *harness) start(ctx context.Context, rank int) error {
	ctx, kill := context.WithCancel(ctx)
	p := &process{rank: rank, kill: kill}
	c := h.job.command(ctx, h.server, rank, &p.output)
	if err := h.thread.Start(c); err != nil {
		kill()
		return err
	}
	h.procs[rank] = p
	h.running++
	go func() {
		p.exit = c.Wait()
		h.server.ProcExited(rank, exitReason(p.exit))
		h.exited <- p
	}()
	return nil
}

// carryOut carries out an order. Processes that leave have the job's time for it.
func (h *harness) carryOut(ctx context.Context, o server.Order) {
	switch o.Kind {
	case server.StartProcs:
		h.server.Started(o.First, 0, h.startAll(ctx, o))
	case server.EndProcs:
		for _, rank := range o.Ranks {
			if p := h.procs[rank]; p != nil {
				p.kill()
			}
		}
	}
}

// startAll starts all processes of an order, or none.
func (h *harness) startAll(ctx context.Context, o server.Order) error {
	for rank := o.First; rank < o.First+o.N; rank++ {
		if err := h.start(ctx, rank); err != nil {
			for ; rank >= o.First; rank-- {
				if p := h.procs[rank]; p != nil {
					p.kill()
				}
			}
			return err
		}
	}
	return nil
}

// wait returns when all ranks have ended. It kills those that exceed the time.
func (h *harness) wait(ctx context.Context, kill func()) {
	limit := time.NewTimer(h.job.Timeout)
	defer limit.Stop()
	dumped := false
	for h.running > 0 {
		select {
		case p := <-h.exited:
			h.running--
			if p.kill(); p.exit != nil && h.server.IsExcused(p.rank) {
				p.exit = nil
			}
			if p.exit != nil && !h.job.MayFail && !dumped {
				limit.Reset(min(failureGrace, h.job.Timeout))
			}
		case <-h.orders.Ready():
			for _, o := range h.orders.Take() {
				h.carryOut(ctx, o)
			}
		case <-limit.C:
			if dumped {
				kill()
				continue
			}
			dumped = true
			h.server.Dump()
			limit.Reset(dumpGrace)
		}
	}
}

// result returns the results of the job, with an element for each rank up to the last.
func (h *harness) result() Result {
	n := h.job.Size
	for rank := range h.procs {
		n = max(n, rank+1)
	}
	r := Result{Output: make([]string, n), Exit: make([]error, n), Reports: make([]map[string][]byte, n)}
	for rank, p := range h.procs {
		r.Output[rank], r.Exit[rank] = p.output.String(), p.exit
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for rank, reports := range h.reports {
		if rank < n {
			r.Reports[rank] = reports
		}
	}
	return r
}
