package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ferrympi/ferry/framework"
)

// describeRank returns a rank's number, and its host once that is known.
func (j *Job) describeRank(rank int) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if rank >= len(j.hostByRank) {
		return fmt.Sprint("rank ", rank)
	}
	return fmt.Sprintf("rank %d (%s)", rank, j.hostByRank[rank])
}

// A rankStatus is one rank's contribution to an exchange.
type rankStatus struct {
	Host          string          `json:"host,omitempty"`
	Settings      []sharedSetting `json:"terms,omitempty"`
	FailureReason string          `json:"err,omitempty"`
	// Reason why the rank cannot continue, or "".
	LostReason string `json:"lost,omitempty"`
}

// reasonLimit is the maximum length of a reason in bytes. With it, an escaped rankStatus fits in bootstrap.MaxPayload
// and a stackLog in bootstrap.MaxValue.
const reasonLimit = 2 << 10

// exchangeStatus blocks until all ranks have called it with the same tag, and returns the status of each.
func (j *Job) exchangeStatus(ctx context.Context, tag string, own rankStatus) ([]rankStatus, error) {
	own.FailureReason, own.LostReason = truncateReason(own.FailureReason), truncateReason(own.LostReason)
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	c, err := j.client.Construct(ctx, j.group, "ferry.matrix."+tag, text)
	missing, absent := errors.AsType[*framework.MissingError](err)
	if absent && len(missing.Failed) > 0 {
		waitAtMost(ctx, cancelGrace) // The end reason may still be on its way.
	}
	if err != nil && j.hasEnded(ctx) {
		return nil, context.Cause(ctx)
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

// describeMissing lists the ranks that did not take part in an exchange.
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
