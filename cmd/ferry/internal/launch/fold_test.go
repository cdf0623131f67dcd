package launch

import (
	"regexp"
	"strings"
	"testing"
)

func TestFold_EqualFailures_ShareALine(t *testing.T) {
	failure := func(rank int, how string, last ...string) Failure {
		return Failure{Rank: rank, PID: 1000 + rank, HowEnded: how, LastLines: last}
	}
	var got []string
	for _, g := range fold([]Failure{
		failure(2, "exited with status 1", "2026/11/27 11:25:02 process failed: rank 5"),
		failure(0, "exited with status 1", "2026/11/27 11:25:03.123456 process failed: rank 5"),
		failure(7, "killed by signal 9 (killed)"),
		failure(3, "exited with status 1", "time=2026-11-27T11:25:03.000Z process failed: rank 5"),
		failure(1, "exited with status 1", "rank 1: process failed: rank 5"),
		failure(4, "exited with status 2", "process failed: rank 5"),
		failure(6, "exited with status 2", "panic: the cause", "goroutine 1"),
	}, withoutTime) {
		got = append(got, g.String())
	}
	want := []string{
		"ranks 0-3 exited with status 1: process failed: rank 5",
		"rank 7 (pid 1007) killed by signal 9 (killed)",
		"rank 4 (pid 1004) exited with status 2: process failed: rank 5",
		"rank 6 (pid 1006) exited with status 2: panic: the cause",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestAccount_EqualFailures_AreFolded(t *testing.T) {
	// The others fail after ferry run has reaped rank 0.
	const script = `case $FERRY_BOOTSTRAP_LOCAL_RANK in
0) echo $$ >pid.new; mv pid.new pid; exit 7;;
*) until [ -e pid ]; do sleep 0.01; done
   while kill -0 $(cat pid) 2>/dev/null; do sleep 0.01; done
   echo "rank $FERRY_BOOTSTRAP_LOCAL_RANK: out of luck" >&2; exit 1;;
esac`
	for _, goesOn := range []bool{false, true} {
		j := shell(t, 6, script)
		j.WorkingDir = t.TempDir()
		j.ContinuesOnFailure = goesOn
		var notes []string
		j.Note = func(line string) { notes = append(notes, line) }
		res := run(t, j)
		want := `rank 0 failed first, and 5 ranks after it:
  rank 0 \(pid \d+\) exited with status 7
  ranks 1-5 exited with status 1: out of luck$`
		if goesOn {
			want = `6 of 6 ranks failed:
  \S+ after the start, rank 0 \(pid \d+\) exited with status 7
  \S+ (to \S+ )?after the start, ranks 1-5 exited with status 1: out of luck$`
		}
		if all := strings.Join(notes, "\n"); res.Status != 7 || !regexp.MustCompile(want).MatchString(all) {
			t.Errorf("continue %t: status %d, notes\n%s", goesOn, res.Status, all)
		}
	}
}

func TestAccount_LineWasPrintedLast_IsNotRepeated(t *testing.T) {
	for script, want := range map[string]string{
		`echo the cause >&2; exit 3`:                                `exited with status 3$`,
		`echo the cause >&2; exit 3 # other output follows`:         `exited with status 3: the cause$`,
		`echo "panic: the cause" >&2; echo goroutine 1 >&2; exit 3`: `exited with status 3: panic: the cause$`,
		`exit 3`: `exited with status 3$`,
	} {
		n := 1
		if strings.Contains(script, "follows") {
			// Rank 1 writes after ferry run has reaped rank 0, and succeeds.
			n = 2
			script = `if [ $FERRY_BOOTSTRAP_LOCAL_RANK = 0 ]; then
echo $$ >pid.new; mv pid.new pid; ` + script + `
fi
until [ -e pid ]; do sleep 0.01; done
while kill -0 $(cat pid) 2>/dev/null; do sleep 0.01; done
echo more >&2`
		}
		j := shell(t, n, script)
		j.WorkingDir = t.TempDir()
		j.Stderr = &buffer{}
		var notes []string
		j.Note = func(line string) { notes = append(notes, line) }
		res := run(t, j)
		if res.Status != 3 || len(notes) != 1 || !regexp.MustCompile(want).MatchString(notes[0]) {
			t.Errorf("%s: status %d, notes %q, want %s", script, res.Status, notes, want)
		}
	}
}

func TestAccount_AllFailEqually_IsOneLine(t *testing.T) {
	// Each rank fails after the other one has written its file.
	j := shell(t, 2, `touch $FERRY_BOOTSTRAP_LOCAL_RANK; until [ -e 0 -a -e 1 ]; do sleep 0.01; done; echo no such device >&2; exit 1`)
	j.WorkingDir = t.TempDir()
	var notes []string
	j.Note = func(line string) { notes = append(notes, line) }
	run(t, j)
	want := regexp.MustCompile(`^ranks 0-1 exited with status 1: no such device; rank [01] was the first$`)
	if len(notes) != 1 || !want.MatchString(notes[0]) {
		t.Errorf("notes %q", notes)
	}
}
