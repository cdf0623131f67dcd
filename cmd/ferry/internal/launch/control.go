package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local/control"
	"github.com/ferrympi/ferry/bootstrap/local/server"
)

// openControl serves the job's control socket, and returns its end. ending is closed when
// the job begins to end. Without a claim there is no socket, because `ferry ps` would take the job for a dead one.
func (j *Job) openControl(srv *server.Server, c *claim, ending <-chan struct{}, log *slog.Logger) (closeControl func(), err error) {
	if !j.IsControllable || c.lockedDir == nil {
		return func() {}, nil
	}
	l, err := srv.ListenBeside(control.Name)
	if err != nil {
		return func() {}, err
	}
	return control.Serve(l, &controller{j.commandLine(), srv, ending}, log).Close, nil
}

// commandLine returns the programs and arguments of a job for display.
func (j *Job) commandLine() string {
	const most = 1 << 10
	var b strings.Builder
	for i, p := range j.allParts {
		if i > 0 {
			b.WriteString(" : ")
		}
		b.WriteString(strings.Join(append([]string{p.Program}, p.Args...), " "))
		if b.Len() > most {
			return b.String()[:most] + "..."
		}
	}
	return b.String()
}

// controller is the job as users control it.
type controller struct {
	commandLine string
	srv         *server.Server
	jobEnding   <-chan struct{}
}

func (c *controller) isEnding() bool {
	select {
	case <-c.jobEnding:
		return true
	default:
		return false
	}
}

// Status implements control.Handler.
func (c *controller) Status() control.Status {
	now := c.srv.Status()
	st := control.Status{Program: c.commandLine, Ranks: now.Ranks, Limit: now.Limit, IsEnding: c.isEnding(), Changes: []control.Change{}}
	for _, p := range now.Changes[:min(len(now.Changes), control.MaxChanges)] {
		change := control.Change{
			Type: p.Type.String(), Pset: p.Pset, Add: p.Joining, Sub: p.Leaving, State: "integrating",
			Members: p.Members, Integrated: p.Integrated, Requester: fmt.Sprint("rank ", p.Requester),
		}
		if p.IsStarting {
			change.State = "starting"
		}
		if p.IsOfUser {
			change.Requester = "user"
		}
		st.Changes = append(st.Changes, change)
	}
	return st
}

var errEnding = errors.New("the job is ending")

// Resize implements control.Handler.
func (c *controller) Resize(ctx context.Context, r control.Resize) (control.Resized, error) {
	if c.isEnding() {
		return control.Resized{}, errEnding
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-c.jobEnding:
			cancel(errEnding)
		case <-ctx.Done():
		}
	}()
	op, args := bootstrap.PsetGrow, bootstrap.PsetArgs{Add: r.N, Partial: r.Partial}
	switch r.Op {
	case control.Sub:
		op, args = bootstrap.PsetShrink, bootstrap.PsetArgs{Sub: r.N}
	case control.Replace:
		op, args.Sub = bootstrap.PsetReplace, r.N
	}
	names, err := c.srv.Resize(ctx, op, string(r.Pset), args)
	switch {
	case errors.Is(err, server.ErrNeverQueried) && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return control.Resized{}, fmt.Errorf("the program never queried for changes of %q within %v (mpi.Session.ResourceChange): the request is withdrawn, and nothing has changed", r.Pset, r.Wait)
	case err != nil && context.Cause(ctx) != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return control.Resized{}, context.Cause(ctx)
	case err != nil:
		return control.Resized{}, err
	}
	main := names[len(names)-1]
	done := control.Resized{Pset: []byte(main), Ranks: c.srv.PsetSize(main)}
	if r.Op != control.Sub {
		done.Added = c.srv.PsetSize(names[len(names)-2])
	}
	if r.Op != control.Add {
		done.Removed = c.srv.PsetSize(names[0])
	}
	return done, nil
}
