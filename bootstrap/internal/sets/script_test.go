package sets

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework/scripttest"
)

// call is a call of a process, which keeps its answer.
type call struct {
	job      *job
	number   int
	rank     uint32
	withdraw join.Withdraw
	answers  int
	// Its process ended while it waited.
	isLost  bool
	isQuery bool
	kind    wire.Kind
	body    []byte
}

func (c *call) SetWithdraw(w join.Withdraw) { c.withdraw = w }
func (c *call) ClearWithdraw()              { c.withdraw = nil }
func (c *call) Answer(k wire.Kind, body []byte) {
	c.answers++
	c.kind, c.body = k, body
	c.job.answered = append(c.job.answered, c)
}

// show describes an answer.
func (c *call) show() string {
	text := ""
	switch f, err := wire.Decode[wire.FailureBody](c.body); {
	case c.kind == wire.Failure && err != nil:
		text = err.Error()
	case c.kind == wire.Failure:
		text = "fails with " + failureText(f)
	default:
		text = bodyText(c.body)
	}
	return c.String() + ": " + text
}

func (c *call) String() string {
	if c.rank == noRank {
		return fmt.Sprintf("#%d of the user", c.number)
	}
	return fmt.Sprintf("#%d of rank %d", c.number, c.rank)
}

var codeNames = map[wire.Code]string{
	wire.CodeMissing: "missing", wire.CodeWithdrawn: "withdrawn", wire.CodeRank: "rank",
	wire.CodePset: "pset", wire.CodeLimit: "limit", wire.CodePending: "pending",
}

func failureText(f wire.FailureBody) string {
	text := codeNames[f.Code]
	if len(f.Missing) > 0 {
		text += fmt.Sprint(" missing ", f.Missing)
	}
	if len(f.Failed) > 0 {
		text += fmt.Sprint(" failed ", f.Failed)
	}
	if f.Text != "" {
		text += ": " + f.Text
	}
	return text
}

func bodyText(body []byte) string {
	if b, err := wire.Decode[wire.NamesBody](body); err == nil {
		return strings.Join(b.Names, " ")
	}
	if b, err := wire.Decode[wire.PsetBody](body); err == nil {
		return fmt.Sprintf("%s %v dynamic=%t", b.Name, b.Ranks, b.Dynamic)
	}
	if b, err := wire.Decode[wire.QueriedBody](body); err == nil {
		if !b.Found {
			return "no change"
		}
		return fmt.Sprintf("%v delta=%s main=%s included=%t", bootstrap.ChangeType(b.Type), b.Delta, b.Main, b.Included)
	}
	if b, err := wire.Decode[wire.IntegratedBody](body); err == nil {
		return fmt.Sprintf("integrated pset=%s terminate=%t", b.Pset, b.Terminate)
	}
	if b, err := wire.Decode[wire.ValueBody](body); err == nil {
		return fmt.Sprintf("value %q", b.Value)
	}
	if _, err := wire.Decode[wire.Empty](body); err == nil {
		return "done"
	}
	return fmt.Sprintf("%x", body)
}

// job is a table with the calls and the orders of a test.
type job struct {
	table *Table[*call]
	calls []*call
	// Since the previous command.
	answered []*call
	orders   []Order // Likewise.
}

func newJob(opt Options) *job {
	j := new(job)
	j.open(opt)
	return j
}

// open makes the table. A job with a launcher's name cannot start processes.
func (j *job) open(opt Options) {
	if opt.Launcher == "" {
		opt.Order = func(o Order) { j.orders = append(j.orders, o) }
	}
	j.table = New[*call](opt)
}

// do makes a call of a process.
func (j *job) do(rank uint32, f func(*call)) *call {
	c := &call{job: j, number: len(j.calls) + 1, rank: rank}
	j.calls = append(j.calls, c)
	f(c)
	return c
}

// end ends a process, as the server does.
func (j *job) end(rank uint32) {
	j.disconnect(rank)
	j.table.ProcEnded(rank)
}

// disconnect ends the connection of a process, as the server does.
func (j *job) disconnect(rank uint32) {
	for _, c := range j.calls {
		if c.rank == rank && c.withdraw != nil {
			leave := c.withdraw
			c.withdraw, c.isLost = nil, true
			leave(false)
		}
	}
	j.table.Disconnected(rank)
}

// cancel withdraws a call, as the server does.
func (j *job) cancel(c *call, expired bool) {
	if leave := c.withdraw; leave != nil {
		c.withdraw = nil
		join.Fail(c, leave(expired))
	}
}

func (o Order) String() string {
	switch o.Kind {
	case StartProcs:
		return fmt.Sprintf("order: start %d like rank %d as ranks %d-%d", o.N, o.Like, o.First, o.First+o.N-1)
	case EndProcs:
		return fmt.Sprint("order: end ", o.Ranks)
	}
	return fmt.Sprint("order: await the exit of ", o.Ranks)
}

// outcome returns the answers and orders since the previous command.
func (j *job) outcome() (lines []string) {
	slices.SortFunc(j.answered, func(a, b *call) int { return a.number - b.number })
	for _, c := range j.answered {
		lines = append(lines, c.show())
	}
	for _, o := range j.orders {
		lines = append(lines, o.String())
	}
	j.answered, j.orders = nil, nil
	return lines
}

var opNames = map[string]bootstrap.PsetOp{
	"union": bootstrap.PsetUnion, "difference": bootstrap.PsetDifference, "intersection": bootstrap.PsetIntersection,
	"split": bootstrap.PsetSplit, "add": bootstrap.PsetAdd, "sub": bootstrap.PsetSub,
	"grow": bootstrap.PsetGrow, "shrink": bootstrap.PsetShrink, "replace": bootstrap.PsetReplace,
}

// command runs a line of a script: "job SIZE [most=N] [launcher=NAME]", "ended RANK", "disconnected RANK", "started FIRST
// [fit=N]", "cancel RANK" and "expire RANK" for its latest waiting call, "excused", or a rank or "user" and its call.
func (j *job) command(line string) ([]string, error) {
	var words []string
	args := map[string]string{}
	for _, w := range strings.Fields(line) {
		if name, value, ok := strings.Cut(w, "="); ok {
			args[name] = value
		} else {
			words = append(words, w)
		}
	}
	number := func(s string) int64 {
		n, _ := strconv.ParseInt(s, 10, 64)
		return n
	}
	word := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	n := number(word(1))
	if word(1) == "user" {
		n = noRank
	}
	switch words[0] {
	case "job":
		j.open(Options{Size: int(n), Most: int(number(args["most"])), Launcher: args["launcher"]})
		return nil, nil
	case "define":
		var ranks []uint32
		for r := range strings.SplitSeq(word(2), ",") {
			ranks = append(ranks, uint32(number(r)))
		}
		j.table.Define(word(1), ranks)
		return nil, nil
	case "ended":
		j.end(uint32(n))
		return j.outcome(), nil
	case "disconnected":
		j.disconnect(uint32(n))
		return j.outcome(), nil
	case "started":
		reason := ""
		if args["fit"] != "" {
			reason = "a reason"
		}
		j.table.Started(int(n), int(number(args["fit"])), reason)
		return j.outcome(), nil
	case "cancel", "expire":
		for _, c := range slices.Backward(j.calls) {
			if c.rank == uint32(n) && c.withdraw != nil {
				j.cancel(c, words[0] == "expire")
				return j.outcome(), nil
			}
		}
		return nil, fmt.Errorf("rank %d waits for nothing: %q", n, line)
	case "excused":
		var excused []uint32
		for r := range j.table.nextRank {
			if j.table.Excused(r) {
				excused = append(excused, r)
			}
		}
		return []string{fmt.Sprintf("excused %v; %d of %d present", excused, j.table.presentCount, j.table.Most())}, nil
	}
	if words[0] == "user" {
		words[0] = fmt.Sprint(noRank)
	}
	rank, err := strconv.ParseUint(words[0], 10, 32)
	if err != nil || len(words) < 2 {
		return nil, fmt.Errorf("no command: %q", line)
	}
	c := j.do(uint32(rank), func(c *call) { j.run(c, words[1], words[2:], args) })
	lines := j.outcome()
	if c.withdraw != nil {
		lines = append([]string{c.String() + " waits"}, lines...)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("no answer: %q", line)
	}
	return lines, nil
}

// run makes one call of the table.
func (j *job) run(c *call, op string, words []string, args map[string]string) {
	t, rank := j.table, c.rank
	set := ""
	if len(words) > 0 {
		set = words[0]
	}
	_, wait := args["wait"]
	switch op {
	case "sets":
		t.Psets(c, rank)
	case "members":
		t.Pset(c, rank, set)
	case "delete":
		t.Delete(c, rank, set)
	case "query":
		t.Query(c, rank, wire.LookupBody{Name: set, Wait: wait})
	case "integrate":
		t.Integrate(c, rank, wire.IntegrateBody{Delta: set, Provide: args["provide"]})
	case "finish":
		t.Finish(c, rank, set)
	case "publish":
		t.SetData(c, rank, wire.DataBody{Pset: set, Key: words[1], Value: []byte(words[2])})
	case "lookup":
		t.GetData(c, rank, wire.KeyBody{Pset: set, Key: words[1]})
	default:
		b := wire.OperateBody{Op: uint8(opNames[op]), Operands: words, Name: args["name"]}
		for name, to := range map[string]*int64{"add": &b.Add, "sub": &b.Sub} {
			*to, _ = strconv.ParseInt(args[name], 10, 64)
		}
		for size := range strings.SplitSeq(args["sizes"], ",") {
			if n, err := strconv.ParseInt(size, 10, 64); err == nil {
				b.Sizes = append(b.Sizes, n)
			}
		}
		_, b.Partial = args["partial"]
		if rank == noRank {
			t.Resize(c, b)
		} else {
			t.Operate(c, rank, b)
		}
	}
}

func TestChanges_GoldenScripts(t *testing.T) {
	scripttest.Run(t, "testdata/*.txt", func() func(string) ([]string, error) {
		j := new(job)
		return func(line string) ([]string, error) {
			lines, err := j.command(line)
			return lines, errors.Join(err, j.table.check())
		}
	})
}
