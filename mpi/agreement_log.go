package mpi

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/ferrympi/ferry/agreement"
	"github.com/ferrympi/ferry/internal/text"
)

// logs reports whether the debug log is written. Without it, a call costs a branch.
func (a *agreements) logs() bool {
	return a.c.session.process.Env().Logger.Enabled(context.Background(), slog.LevelDebug)
}

// logOutcome logs the outcome of the instance that was decided last. It is called before the next one begins.
func (a *agreements) logOutcome(o *agreement.Outcome) {
	if !a.logs() {
		return
	}
	attrs := []any{"comm", a.c.spec.ID.String(), "instance", a.instance() - 1}
	if len(o.MixedRanks) > 0 {
		attrs = append(attrs, "agree", o.MixedRanks[0], "shrink", o.MixedRanks[1])
	} else if o.Operation == agreement.Agree {
		attrs = append(attrs, "value", fmt.Sprintf("%#x", o.Flags))
	} else {
		attrs = append(attrs, "new", o.ID.String(), "connects", o.WireUp)
	}
	for _, list := range []struct {
		name  string
		ranks []int
	}{{"failed", o.FailedRanks}, {"acknowledged", o.AckedRanks}, {"excluded", o.ExcludedRanks}} {
		if len(list.ranks) > 0 {
			attrs = append(attrs, list.name, text.Ranks(list.ranks))
		}
	}
	a.c.session.process.Env().Logger.Debug(o.Operation.String()+" is decided", attrs...)
}

// logError logs a call that ends without an outcome, or with failures.
func (a *agreements) logError(op agreement.Operation, err error) {
	if err != nil && a.logs() {
		a.c.session.process.Env().Logger.Debug(op.String()+" returns an error", "comm", a.c.spec.ID.String(), "error", err)
	}
}
