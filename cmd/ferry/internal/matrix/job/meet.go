package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ferrympi/ferry/framework"
)

// name is a rank, with where it is if that is known.
func (j *Job) name(rank int) string {
	j.mu.Lock()
	defer j.mu.Unlock()
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
	missing, absent := errors.AsType[*framework.MissingError](err)
	if absent && len(missing.Failed) > 0 {
		await(ctx, obeys) // the news of why is on the way
	}
	if err != nil && j.over(ctx) {
		return nil, context.Cause(ctx) // why others are missing, too
	}
	if absent {
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
	say(m.Missing, fmt.Sprintf("did not arrive within %v", j.patience()))
	return strings.Join(all, ", ")
}

func shorten(s string) string {
	if len(s) > wordLimit {
		s = strings.ToValidUTF8(s[:wordLimit], "") + " ..."
	}
	return s
}
