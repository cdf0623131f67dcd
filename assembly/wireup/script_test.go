package wireup_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/assembly/wireup/wireuptest"
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework/scripttest"
)

// Golden scripts. The commands are:
//
//	nodes N ...       begin a job of nodes with so many processes each
//	late R, absent R, other R
//	die R STEP, cancel R STEP, hang R STEP    at a step of rank R; with "during" while the step waits
//	unshared, unreachable        nodes without shared memory, or processes that cannot open it
//	run               create the communicator, and show each step
//	outcome           create it, and show only the outcome of each rank
func TestScripts(t *testing.T) {
	scripttest.Run(t, "testdata/*.txt", func() func(string) ([]string, error) {
		var job wireuptest.Job
		return func(line string) ([]string, error) {
			words := strings.Fields(line)
			arg := func(i int) int {
				if i >= len(words) {
					return 0
				}
				n, _ := strconv.Atoi(words[i])
				return n
			}
			add := func(kind wireuptest.FaultKind) {
				job.Faults = append(job.Faults, wireuptest.Fault{Member: arg(1), Kind: kind, AtStep: arg(2), IsDuringWait: len(words) > 3})
			}
			switch words[0] {
			case "nodes":
				job = wireuptest.Job{Machine: wireuptest.Default, Timeout: 8 * time.Second}
				first := 0
				for i := range words[1:] {
					job.NodeMap = append(job.NodeMap, bootstrap.NodeRun{First: uint32(first), Count: uint32(arg(1 + i)), Node: uint32(i)})
					first += arg(1 + i)
				}
				job.Group = wireuptest.Ranks(0, 1, first)
			case "late":
				add(wireuptest.Late)
			case "absent":
				add(wireuptest.Absent)
			case "other":
				add(wireuptest.Other)
			case "die":
				add(wireuptest.Die)
			case "cancel":
				add(wireuptest.Cancel)
			case "hang":
				add(wireuptest.Hang)
			case "unshared":
				job.HasNoSharedMemory = true
			case "unreachable":
				job.CannotOpenMemory = true
			case "run":
				var out []string
				traced := job
				traced.TraceStep = func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
				return out, traced.Check(run(&out, traced))
			case "outcome":
				r := job.Run()
				return outcomes(r), job.Check(r)
			default:
				return nil, fmt.Errorf("unknown command %q", line)
			}
			return nil, nil
		}
	})
}

func run(out *[]string, job wireuptest.Job) wireuptest.Result {
	r := job.Run()
	*out = append(*out, fmt.Sprintf("%d rounds", r.LongestChain))
	return r
}

// outcomes shows the outcome of each member, and the time of errors.
func outcomes(r wireuptest.Result) []string {
	var out []string
	for i, o := range r.Outcomes {
		switch {
		case !o.HasCalled:
			out = append(out, fmt.Sprintf("%d: absent", i))
		case o.HasDied:
			out = append(out, fmt.Sprintf("%d: dead", i))
		case o.RefusedID > 0:
			out = append(out, fmt.Sprintf("%d: refuses %d, %v", i, o.RefusedID, o.Err))
		case o.Err != nil:
			out = append(out, fmt.Sprintf("%d: after %v: %v", i, o.Elapsed.Round(10*time.Millisecond), o.Err))
		default:
			out = append(out, fmt.Sprintf("%d: created %d", i, o.Table.ID()))
		}
	}
	return out
}
