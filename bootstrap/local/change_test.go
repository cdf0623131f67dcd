package local

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/framework"
)

// The end of the previous connection may have dropped the answer.
func TestQuery_NextConnection_IsGivenTheChangeAgain(t *testing.T) {
	j := testJob(t, server.Options{Size: 2})
	c, other := j.open(t, 0).(*client), j.open(t, 1).(*client)
	if _, err := other.Operate(t.Context(), bootstrap.PsetSub, []string{bootstrap.PsetWorld}, bootstrap.PsetArgs{Sub: 1}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, ok, err := c.Query(t.Context(), bootstrap.PsetWorld, true); !ok || err != nil || got.Delta != "ferry://delta/1" {
			t.Fatalf("%+v, %t, %v", got, ok, err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		c = j.open(t, 0).(*client)
	}
}

// The deadline or its exit ends the integration.
func TestIntegrate_AddedProcessNeverOpens_EndsWithItsName(t *testing.T) {
	for what, c := range map[string]struct {
		end func(*job, *client)
		err error
	}{
		"deadline": {func(_ *job, c *client) { c.changes.timeout = 20 * time.Millisecond }, framework.ErrTimeout},
		"exit":     {func(j *job, _ *client) { j.srv.ProcExited(1, "") }, framework.ErrProcFailed},
		"failure":  {func(j *job, _ *client) { j.srv.ProcExited(1, "exit status 2") }, framework.ErrProcFailed},
	} {
		t.Run(what, func(t *testing.T) {
			j, root, orders := orderedJob(t, 2)
			timeout := root.changes.timeout
			result := grow(t, root, bootstrap.PsetArgs{Add: 1})
			ordered(t, orders, server.Order{Kind: server.StartProcs, First: 1, N: 1})
			j.srv.Started(1, 0, nil)
			names, err := result()
			if err != nil {
				t.Fatal(err)
			}
			c.end(j, root)
			for range 2 { // The second call is late.
				if _, err := root.Integrate(t.Context(), names[0], ""); !errors.Is(err, c.err) || !strings.Contains(err.Error(), "rank 1") {
					t.Errorf("got %v, want %v with the process", err, c.err)
				}
			}
			ordered(t, orders, server.Order{Kind: server.EndProcs, Ranks: []int{1}})
			if !j.srv.IsExcused(1) {
				t.Error("the end of the process is a failure of the job")
			}
			root.changes.timeout = timeout
			if names, err := root.Psets(t.Context()); len(names) > 0 || err != nil {
				t.Errorf("the sets are %q, %v", names, err)
			}
		})
	}
}
