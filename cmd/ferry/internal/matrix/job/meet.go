package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// told is an error that ended the run, and that rank 0 knows of, or the launcher.
type told struct{ error }

func (t told) Unwrap() error { return t.error }

func isTold(err error) bool {
	_, ok := errors.AsType[told](err)
	return ok
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
	bootstrap.EventSource
	hear func(bootstrap.Event)
}

// Unwrap returns the client.
func (w *watched) Unwrap() any { return w.Client }

// OnEvent implements bootstrap.EventSource.
func (w *watched) OnEvent(f func(bootstrap.Event)) {
	w.EventSource.OnEvent(func(e bootstrap.Event) {
		w.hear(e)
		if f != nil {
			f(e)
		}
	})
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
	Host  string `json:"host,omitempty"`
	Terms []term `json:"terms,omitempty"`
	Err   string `json:"err,omitempty"`  // what did not work
	Lost  string `json:"lost,omitempty"` // why this rank takes part in nothing more
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
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx) // why others are missing, too
	}
	if missing, ok := errors.AsType[*framework.MissingError](err); ok {
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
