package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

// A Job is a run whose ranks are there already, on one node or on many: each process
// of a launcher's job calls Run. For each stack all of them open a session with its
// parameters, go through the conformance cases together, and two of them, of
// different nodes where there are, through the benchmarks; then they close it, and
// go on with the next.
//
// Between stacks they meet through the bootstrap, so that a transport that is broken
// keeps nobody from saying so. A rank can't be replaced: when one is lost, the run is
// over, and the report says so. The kits are left out: they make processes of their
// own, of one node.
type Job struct {
	*Runner
	Options []mpi.SessionOption // of all sessions
	// Bench runs a benchmark with the arguments of `ferry bench` among all ranks of a
	// communicator; rank 0 hears of the figures.
	Bench func(ctx context.Context, s *mpi.Session, c *mpi.Comm, args []string, each func(size int, value float64)) error
	// Save takes the report as it is before each stack, marked as partial: it is all
	// that there will be if rank 0 dies with that stack. nil: nobody takes it.
	Save func(*Report)

	client bootstrap.Client
	group  []framework.Proc // the world
	rank   int
	hosts  []string // by rank
	player int      // rank 0's partner in benchmarks; 0: none
	report *Report  // rank 0's
	plan   *Plan
	began  time.Time
}

// Open joins the launcher's job. The caller closes it, after Run.
func (j *Job) Open(ctx context.Context) error {
	selection, err := j.Registry.Select(ctx, framework.Bootstrap, j.Values)
	if err != nil {
		return err
	}
	choice, err := selection.One()
	if err != nil {
		return err
	}
	c, ok := choice.Component.(bootstrap.Component)
	if !ok {
		return fmt.Errorf("%w: bootstrap %s (%T) is none", framework.ErrConfig, choice.Verdict.Name, choice.Component)
	}
	j.client, err = c.Open(ctx, bootstrap.Env{Params: choice.Params, Logger: slog.New(slog.DiscardHandler), Timeout: j.patience()})
	if err != nil {
		return err
	}
	id := j.client.Identity()
	if id.Singleton {
		return errors.Join(fmt.Errorf("%w: no launcher has started this process, so that it has no job: `ferry run -n 4 ferry matrix --job`, or leave --job out",
			framework.ErrConfig), j.client.Close())
	}
	j.rank = int(id.Proc.Rank)
	for rank := range id.Size {
		j.group = append(j.group, framework.Proc{Namespace: id.Proc.Namespace, Rank: uint32(rank)})
	}
	j.Suite.Ranks = []int{id.Size}
	return nil
}

// Close leaves the job.
func (j *Job) Close() error { return j.client.Close() }

// Rank is this process's number; 0 has the report.
func (j *Job) Rank() int { return j.rank }

// hangs is when a rank of which nothing is heard counts as lost: a case obeys after
// its limit, and then waits twice as long for the other ranks' (conform.On).
func (j *Job) hangs() time.Duration { return 3*j.Limit + 5*time.Second }

// patience is how long ranks wait for one another at a meeting: for rank 0, which
// finds out what there is, for the two that play benchmarks, and for one that hangs.
func (j *Job) patience() time.Duration {
	return time.Minute + j.hangs() + time.Duration(len(j.Suite.benches)+1)*j.Limit
}

// Run runs the plan, which rank 0 has made by Plan and others leave nil. Rank 0 gets
// the report; when ctx ends, or a rank is lost, it has what there is by then, and
// says so. Other ranks get nil, and an error that no report can tell.
func (j *Job) Run(ctx context.Context, plan *Plan) (*Report, error) {
	j.began = time.Now()
	err := j.begin(ctx, plan)
	ctx, stop := j.attend(ctx)
	defer stop()
	for i := 0; err == nil && i < len(j.plan.Stacks); i++ {
		err = j.stack(ctx, i)
	}
	if j.report == nil {
		if isTold(err) {
			err = nil
		}
		return nil, err
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		j.report.Partial = err.Error()
	}
	j.complete(j.report)
	return j.report, nil
}

// save hands on what there is before a stack.
func (j *Job) save(stack int) {
	if j.rank > 0 || j.Save == nil {
		return
	}
	r := *j.report
	r.Partial = fmt.Sprintf("nothing was written after stack %s (%d of %d) had begun", r.Stacks[stack].Name, stack+1, len(r.Stacks))
	j.complete(&r)
	j.Save(&r)
}

// told is an error that ended the run, and that rank 0 knows of, or the launcher.
type told struct{ error }

func (t told) Unwrap() error { return t.error }

func isTold(err error) bool {
	var t told
	return errors.As(err, &t)
}

// attend returns a context that ends when a rank does: there is nothing to wait for
// any more, and the case that runs is the one to name. The caller calls stop.
func (j *Job) attend(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if events, ok := framework.As[bootstrap.EventSource](j.client); ok {
		w := &watched{j.client, events, func(e bootstrap.Event) {
			if rank := slices.Index(j.group, e.Proc); e.Kind == bootstrap.ProcDied && rank >= 0 {
				cancel(told{fmt.Errorf("%s has ended (%s)", j.name(rank), e.Reason)})
			}
		}}
		w.OnEvent(nil)
		j.client = w
	}
	return ctx, func() { cancel(nil) }
}

// A watched client has its job hear what the sessions over it hear.
type watched struct {
	bootstrap.Client
	events bootstrap.EventSource
	hear   func(bootstrap.Event)
}

// Unwrap returns the client.
func (w *watched) Unwrap() any { return w.Client }

// OnEvent implements bootstrap.EventSource.
func (w *watched) OnEvent(f func(bootstrap.Event)) {
	w.events.OnEvent(func(e bootstrap.Event) {
		w.hear(e)
		if f != nil {
			f(e)
		}
	})
}

// agenda is what rank 0 tells the others at first.
type agenda struct {
	Stacks []Stack `json:"stacks"`
}

// begin has all ranks know what there is to do, and where they are.
func (j *Job) begin(ctx context.Context, plan *Plan) error {
	const key = "ferry.matrix.agenda"
	if j.rank == 0 {
		j.plan = plan
		j.report = &Report{Suite: j.Suite.Name, Started: time.Now().UTC().Truncate(time.Second), Machine: ThisMachine(), Stacks: slices.Clone(plan.Stacks)}
		j.rows = map[[2]string]Row{}
		counts := map[string]int{}
		for i, s := range plan.Stacks {
			counts[s.Name] = len(j.cells(i))
		}
		j.observe(func(o Observer) { o.Begin(slices.Clone(plan.Stacks), counts) })
		text, err := json.Marshal(agenda{plan.Stacks})
		if err == nil {
			err = j.client.Put(ctx, key, text)
		}
		if err != nil {
			return err
		}
	}
	host, _ := os.Hostname() // "" is a name like any other
	words, err := j.meet(ctx, "begin", word{Host: host})
	if err != nil {
		return err
	}
	for _, w := range words {
		j.hosts = append(j.hosts, w.Host)
	}
	j.player = partner(j.hosts)
	if j.rank == 0 {
		j.remark()
		return nil
	}
	text, err := j.client.Get(ctx, j.group[0], key)
	if err != nil {
		return err
	}
	var a agenda
	if err := json.Unmarshal(text, &a); err != nil {
		return fmt.Errorf("%w: rank 0 runs another version of ferry: %w", framework.ErrConfig, err)
	}
	j.plan = j.over(a.Stacks)
	return nil
}

// partner is the last rank of another node than rank 0's, or the last of all.
func partner(hosts []string) int {
	for rank := len(hosts) - 1; rank > 0; rank-- {
		if hosts[rank] != hosts[0] {
			return rank
		}
	}
	return len(hosts) - 1
}

// remark writes down where the ranks are.
func (j *Job) remark() {
	var hosts []string
	for _, h := range j.hosts {
		if !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	j.report.Notes = append(j.report.Notes, fmt.Sprintf("one job of %s on %s: %s", plural(len(j.group), "rank"), plural(len(hosts), "node"), strings.Join(hosts, ", ")))
	if j.player > 0 {
		j.report.Notes = append(j.report.Notes, fmt.Sprintf("benchmarks are between %s and %s", j.name(0), j.name(j.player)))
	}
}

// name is a rank, with where it is if that is known.
func (j *Job) name(rank int) string {
	if rank >= len(j.hosts) {
		return fmt.Sprint("rank ", rank)
	}
	return fmt.Sprintf("rank %d (%s)", rank, j.hosts[rank])
}

// word is what each rank tells all others at a meeting.
type word struct {
	Host string `json:"host,omitempty"`
	Err  string `json:"err,omitempty"`  // what did not work
	Lost string `json:"lost,omitempty"` // why this rank takes part in nothing more
}

// wordLimit is how many bytes of a reason travel: a word stays below
// bootstrap.MaxPayload, and an account below bootstrap.MaxValue, escapes included.
const wordLimit = 2 << 10

// meet returns when all ranks have come, with the words of all.
func (j *Job) meet(ctx context.Context, what string, mine word) ([]word, error) {
	mine.Err, mine.Lost = shorten(mine.Err), shorten(mine.Lost)
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	c, err := j.client.Construct(ctx, j.group, "ferry.matrix."+what, text)
	var missing *framework.MissingError
	if errors.As(err, &missing) {
		return nil, told{errors.New(j.absent(missing))}
	}
	if err != nil {
		return nil, err
	}
	words := make([]word, len(j.group))
	for rank, p := range c.Payloads {
		if err := json.Unmarshal(p, &words[rank]); err != nil {
			return nil, fmt.Errorf("%w: rank %d runs another version of ferry: %w", framework.ErrConfig, rank, err)
		}
	}
	return words, nil
}

// absent says who has not come to a meeting.
func (j *Job) absent(m *framework.MissingError) string {
	var all []string
	say := func(procs []framework.Proc, what string) {
		for _, p := range procs {
			all = append(all, j.name(int(p.Rank))+" "+what)
		}
	}
	say(m.Failed, "has ended")
	say(m.Missing, fmt.Sprintf("did not come within %v", j.patience()))
	return strings.Join(all, ", ")
}

func shorten(s string) string {
	if len(s) > wordLimit {
		s = strings.ToValidUTF8(s[:wordLimit], "") + " ..."
	}
	return s
}

// columns are those of a stack that a job runs, and the kits, which it does not.
func (j *Job) columns(stack int) (run, kits []column) {
	if j.idle(j.plan.Stacks[stack]) {
		return nil, nil
	}
	for _, c := range j.plan.columns[stack] {
		switch {
		case c.ranks == 0:
			kits = append(kits, c)
		case c.bench == nil || len(j.group) > 1:
			run = append(run, c)
		}
	}
	return run, kits
}

// idle says that a stack reaches no other process, and there are some.
func (j *Job) idle(s Stack) bool { return s.Alone() && len(j.group) > 1 }

// cells are the cases of a stack that a report has: OpenCase, what runs, and a case
// for each kit as a whole.
func (j *Job) cells(stack int) []string {
	cells := []string{OpenCase}
	run, kits := j.columns(stack)
	for _, c := range kits {
		cells = append(cells, c.name)
	}
	for _, c := range run {
		for _, name := range c.cases {
			cells = append(cells, c.cell(name))
		}
	}
	return cells
}
