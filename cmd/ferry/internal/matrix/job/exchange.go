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
func (j *Job) describeRank(rank int) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if rank >= len(j.hosts) {
		return fmt.Sprint("rank ", rank)
	}
	return fmt.Sprintf("rank %d (%s)", rank, j.hosts[rank])
}

// word is what each rank tells all others at a meeting.
type rankStatus struct {
	Host          string          `json:"host,omitempty"`
	Settings      []sharedSetting `json:"terms,omitempty"`
	FailureReason string          `json:"err,omitempty"`  // what did not work
	LostReason    string          `json:"lost,omitempty"` // why this rank takes part in nothing more
}

// wordLimit is how many bytes of a reason travel: a word stays below
// bootstrap.MaxPayload, and an account below bootstrap.MaxValue, escapes included.
const reasonLimit = 2 << 10

// meet returns when all ranks have come, with the words of all.
func (j *Job) exchangeStatus(ctx context.Context, tag string, own rankStatus) ([]rankStatus, error) {
	own.FailureReason, own.LostReason = truncateReason(own.FailureReason), truncateReason(own.LostReason)
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	c, err := j.client.Construct(ctx, j.group, "ferry.matrix."+tag, text)
	missing, absent := errors.AsType[*framework.MissingError](err)
	if absent && len(missing.Failed) > 0 {
		waitAtMost(ctx, cancelGrace) // the news of why is on the way
	}
	if err != nil && j.hasEnded(ctx) {
		return nil, context.Cause(ctx) // why others are missing, too
	}
	if absent {
		return nil, reportedError{errors.New(j.describeMissing(missing))}
	}
	if err != nil {
		return nil, err
	}
	statuses := make([]rankStatus, len(j.group))
	for rank, p := range c.Payloads {
		if err := json.Unmarshal(p, &statuses[rank]); err != nil {
			return nil, fmt.Errorf("%w: rank %d runs another version of ferry: %w", framework.ErrConfig, rank, err)
		}
	}
	return statuses, nil
}

// absent says who has not come to a meeting.
func (j *Job) describeMissing(m *framework.MissingError) string {
	var all []string
	add := func(procs []framework.Proc, reason string) {
		for _, p := range procs {
			all = append(all, j.describeRank(int(p.Rank))+" "+reason)
		}
	}
	add(m.Failed, "has ended")
	add(m.Missing, fmt.Sprintf("did not arrive within %v", j.exchangeTimeout()))
	return strings.Join(all, ", ")
}

func truncateReason(s string) string {
	if len(s) > reasonLimit {
		s = strings.ToValidUTF8(s[:reasonLimit], "") + " ..."
	}
	return s
}
