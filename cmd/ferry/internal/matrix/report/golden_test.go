package report

import (
	"bytes"
	"encoding/xml"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what the reports in testdata give now")

// outcomes returns the reports of testdata, one for each way that a run can end.
func outcomes(t testing.TB) map[string]*Report {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no reports in testdata: ", err)
	}
	reports := map[string]*Report{}
	for _, file := range files {
		reports[strings.TrimSuffix(file, ".json")] = read(t, file)
	}
	return reports
}

func read(t testing.TB, file string) *Report {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := ReadJSON(f)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return r
}

// golden compares text with a file, or writes the file.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (go test -update writes it again):\n%s", file, diff)
	}
}

func TestWriteText_EveryOutcome_MatchesGoldenFiles(t *testing.T) {
	base := outcomes(t)["testdata/pass"]
	for name, r := range outcomes(t) {
		t.Run(name, func(t *testing.T) {
			var text, lines bytes.Buffer
			term := NewTerminal(&lines, Look{})
			cases := map[string]int{}
			for _, row := range r.Rows {
				cases[row.Stack]++
			}
			term.Begin(r.Stacks, cases)
			for _, row := range r.Rows {
				term.Running(row.Stack, row.Case)
				term.Done(row)
			}
			term.Close()
			if err := WriteText(&text, r, Compare(base, r, 1.5), Look{Width: 80}); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(text.String()) {
				if len([]rune(line)) > 81 && !strings.HasPrefix(line, "        ferry ") {
					t.Errorf("more than 80 columns: %s", line)
				}
			}
			golden(t, name+".txt", append(append(lines.Bytes(), '\n'), text.Bytes()...))
			if strings.ContainsAny(text.String()+lines.String(), "\x1b\u202e") {
				t.Error("what a process wrote reaches the terminal as it is")
			}
			if bad := r.Table().Counts.Bad()+r.Table().Counts[abandoned] > 0; r.Failed() != bad || strings.Contains(r.Verdict(), "Failed: ") != bad {
				t.Errorf("Failed is %v, the verdict %q", r.Failed(), r.Verdict())
			}
		})
	}
}

func TestJSON_WrittenReport_ReadsBack(t *testing.T) {
	for name, r := range outcomes(t) {
		var b bytes.Buffer
		if err := WriteJSON(&b, r); err != nil {
			t.Fatal(err)
		}
		again, err := ReadJSON(bytes.NewReader(b.Bytes()))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(r, again); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	var b bytes.Buffer
	if err := WriteJSON(&b, &Report{}); err != nil {
		t.Fatal(err)
	}
	for _, list := range []string{`"rows": []`, `"stacks": []`, `"libraries": []`} {
		if !strings.Contains(b.String(), list) {
			t.Errorf("an empty report lacks %s: %s", list, &b)
		}
	}
}

func TestReadJSON_Contradiction_IsAnError(t *testing.T) {
	const good = `{"stack":"a","case":"b","status":"pass","reason":"","seconds":1}`
	for text, want := range map[string]string{
		``:                                     "not a report",
		`{}`:                                   `no "rows"`,
		`[]`:                                   "not a report",
		`{"rows":[]} {}`:                       "follows",
		`{"rows":[` + good + `,` + good + `]}`: "row 2",
		`{"rows":[{"stack":"a","case":"b","status":"passed"}]}`:                                               `"passed" is none of`,
		`{"rows":[{"stack":"a","case":"b","status":"fail"}]}`:                                                 "needs a reason",
		`{"rows":[{"stack":"a","case":"b","status":"pass","given_up":true}]}`:                                 "given up",
		`{"rows":[{"case":"b","status":"pass"}]}`:                                                             "missing",
		`{"rows":[{"stack":"a","case":"b","status":"pass","seconds":-1}]}`:                                    "-1 seconds",
		`{"rows":[{"stack":"a","case":"b","status":"pass","points":[{"size":-8,"value":1,"unit":"us"}]}]}`:    "not a figure",
		`{"rows":[{"stack":"a","case":"b","status":"pass","points":[{"size":8,"value":1e999,"unit":"us"}]}]}`: "not a report",
	} {
		if _, err := ReadJSON(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %q", text, err, want)
		}
	}
}

// hostile is a report as processes may make it that are out of their minds.
func hostile() *Report {
	const evil = "<script>alert(1)</script>]]>&amp;\"'\x00\x1b[2J\xff\xfe\u202e\r\nend --> <!--"
	r := &Report{Suite: evil, EndReason: evil, Notes: []string{evil}, Machine: Machine{Host: evil, Kernel: evil, CPU: evil, FerryVersion: evil, Libraries: []Library{{Name: evil, Version: evil}}}}
	r.Stacks = []Stack{{Name: evil, PML: evil, ViaComponent: evil, Provider: evil, Device: evil, Library: evil, SetParams: []string{evil}}, {Name: "b" + evil, AbsentReason: evil}}
	for i, s := range Statuses {
		r.Rows = append(r.Rows, Row{Stack: evil, Case: "bench/" + string(rune('a'+i)) + evil, Status: s, Reason: evil, ExclusionReason: evil, Command: evil, OutputTail: evil,
			Points: []Point{{Size: 8, Value: 1, Unit: evil}, {Size: 0, Value: 0, Unit: "us"}}})
	}
	return r
}

func TestWriters_HostileText_IsEscaped(t *testing.T) {
	var text, junit, js bytes.Buffer
	r := hostile()
	term := NewTerminal(&text, Look{})
	term.Begin(r.Stacks, nil)
	for _, row := range r.Rows {
		term.Done(row)
	}
	term.Close()
	if err := WriteText(&text, r, Compare(r, r, 2), Look{}); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(text.String(), "\x00\x1b\u202e\r") || !strings.Contains(text.String(), `\x1b[2J\xff\xfe\u202e`) {
		t.Errorf("on the terminal: %q", text.String())
	}
	if err := WriteJUnit(&junit, r); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(&junit); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal("JUnit is not XML: ", err)
		}
	}
	if err := WriteJSON(&js, r); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadJSON(&js); err != nil {
		t.Error(err)
	}
}

func FuzzReadJSON(f *testing.F) {
	// Short, so that the fuzzer's time isn't spent on making them shorter.
	f.Add([]byte(`{"partial":"p","stacks":[{"name":"a","set":["x=y"]},{"name":"b","reason":"r"}],"rows":[{"stack":"a","case":"bench/latency","status":"pass","points":[{"size":8,"value":1,"unit":"us"}]}]}`))
	f.Add([]byte(`{"rows":[{"stack":"a","case":"open","status":"unavailable","reason":"r"},{"stack":"c","case":"k/n","status":"fail","reason":"r","output":"o","command":"c"}]}`))
	f.Add([]byte(`{"rows":[{"stack":"a","case":"open/b","status":"pass","reason":""},{"stack":"a","case":"bench","status":"pass","reason":""}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ReadJSON(bytes.NewReader(data))
		if err != nil {
			return
		}
		// A report that was read can be printed, written and read again.
		var b bytes.Buffer
		if err := WriteText(io.Discard, r, Compare(r, r, 2), Look{}); err != nil {
			t.Fatal(err)
		}
		if err := WriteJUnit(io.Discard, r); err != nil {
			t.Fatal(err)
		}
		if err := WriteJSON(&b, r); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadJSON(&b); err != nil {
			t.Fatal(err)
		}
	})
}
