package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sources is a module of packages that pass, fail, skip, panic, do not compile, and have no tests.
var sources = map[string]string{
	"go.mod":            "module tiny\n\ngo 1.26\n",
	"pass/a_test.go":    "package pass\nimport \"testing\"\nfunc TestPass(t *testing.T) {}\n",
	"none/none.go":      "package none\n",
	"broken/a_test.go":  "package broken\nimport \"testing\"\nfunc TestBroken(t *testing.T) { undefined() }\n",
	"panics/a_test.go":  "package panics\nimport \"testing\"\nfunc TestFine(t *testing.T) { t.Log(\"unseen\") }\nfunc TestPanic(t *testing.T) { panic(\"out of luck\") }\n",
	"failing/a_test.go": "package failing\nimport \"testing\"\nfunc TestFails(t *testing.T) { t.Run(\"inner\", func(t *testing.T) { t.Error(\"3 is not 4\") }); t.Run(\"other\", func(t *testing.T) { t.Log(\"unsaid\") }) }\n",
	"skips/a_test.go": "package skips\nimport \"testing\"\nfunc TestOne(t *testing.T) { t.Log(\"before\"); t.Skip(\"no gcc: install gcc\") }\n" +
		"func TestTwo(t *testing.T) { for range 4 { t.Run(\"case\", func(t *testing.T) { t.Skip(\"no gcc: install gcc\") }) } }\n" +
		"func TestThree(t *testing.T) { t.Skip(\"two\\nlines\") }\nfunc TestFour(t *testing.T) { t.SkipNow() }\n" +
		"func TestKit(t *testing.T) { for _, c := range \"ab\" { t.Run(string(c), func(t *testing.T) { t.Skip(string(c) + \": not applicable: no \" + string(c)) }) } }\n",
}

// goTest returns the events of go test -json over packages of the module.
func goTest(t *testing.T, packages ...string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range sources {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"test", "-json"}, packages...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	out, _ := cmd.Output() // the status is that of the tests
	return string(out)
}

// reported returns the report about events without times, and whether it has failures.
func reported(t *testing.T, slowest int, events string) (text string, failed bool) {
	t.Helper()
	var out bytes.Buffer
	r := newReport(&out, slowest)
	if err := r.readEvents(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	r.summarize()
	return regexp.MustCompile(`\d+\.\d+s|\(cached\)|\b\d+s\b`).ReplaceAllString(out.String(), "#"), r.hasFailures()
}

// wantInOrder fails unless the text has the parts one after another.
func wantInOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Fatalf("%q is missing, or stands before the part above it, in\n%s", part, text)
		}
		rest = after
	}
}

func TestReport_PackagesOfEveryKind_FailuresThenSkipsThenClosingLines(t *testing.T) {
	text, failed := reported(t, 0, goTest(t, "./..."))
	if !failed {
		t.Error("the run is not a failure")
	}
	_, summary, _ := strings.Cut(text, "\nFAILED: ")
	for _, want := range []string{"build of tiny/broken", "undefined: undefined", "3 is not 4", "panic: out of luck"} {
		if !strings.Contains(summary, want) {
			t.Errorf("the failures lack %q:\n%s", want, text)
		}
	}
	wantInOrder(t, "\nFAILED: "+summary, "FAILED: ", "\nSKIPPED:\n",
		"    5  no gcc: install gcc\n       tiny/skips TestOne\n       tiny/skips TestTwo/case\n", "       and 2 more\n",
		"    2  cases of kits that are not applicable to the component\n       tiny/skips TestKit/a\n       tiny/skips TestKit/b\n",
		"    1  two lines\n", "    1  without a reason\n",
		"In #: packages 5, tests passed 5, skipped 9, failures 3\n", "ok  \ttiny/", "FAIL\ttiny/")
	for _, not := range []string{"unsaid", "before", "=== RUN", "none/", "unseen"} {
		if strings.Contains(summary, not) {
			t.Errorf("the summary has %q:\n%s", not, summary)
		}
	}
}

func TestReport_OnlyPasses_ClosingLinesAreGoTests(t *testing.T) {
	text, failed := reported(t, 0, goTest(t, "./pass", "./none"))
	if failed {
		t.Error("the run is a failure")
	}
	if want := "ok  \ttiny/pass\t#\n\nIn #: packages 1, tests passed 1, skipped 0, failures 0\nok  \ttiny/pass\t#\n"; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
}

func TestReport_PackageEnds_LineIsPrintedBeforeTheInputEnds(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out, 0)
	r.handle(event{Action: "start", Package: "p"})
	r.handle(event{Action: "output", Package: "p", Output: "ok  \tp\t0.1s\n"})
	r.handle(event{Action: "pass", Package: "p"})
	if out.String() != "ok  \tp\t0.1s\n" {
		t.Errorf("printed: %q", out.String())
	}
}

func TestReport_GoTestIsKilled_RunningTestsAreNamed(t *testing.T) {
	text, failed := reported(t, 0, `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestDone"}
{"Action":"pass","Package":"p","Test":"TestDone"}
{"Action":"run","Package":"p","Test":"TestLong"}
{"Action":"output","Package":"p","Test":"TestLong","Output":"    a_test.go:1: half way\n"}
`)
	if !failed {
		t.Error("the run is not a failure")
	}
	wantInOrder(t, text, "TestLong (did not end)", "FAILED: p", "half way", "FAIL\tp\t[did not end]")
	if strings.Contains(text, "TestDone") {
		t.Errorf("a test that passed is named:\n%s", text)
	}
}

func TestReport_Suites_AreNamedWithFailuresAndReasons(t *testing.T) {
	text, failed := reported(t, 0, `{"Action":"suite","Output":"race detector"}
{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t1.0s\n"}
{"Action":"fail","Package":"p","Elapsed":1}
{"Action":"skip-suite","Package":"otel","Output":"it does not build"}
make: a line of another program
{"broken
`)
	if !failed {
		t.Error("the run is not a failure")
	}
	wantInOrder(t, text, "# race detector\n", "make: a line of another program\n{\"broken\n", "FAILED: p (race detector)\n", "    1  it does not build\n       otel\n", "FAIL\tp")
}

func TestReport_SlowestPackages_CloseTheReport(t *testing.T) {
	var events strings.Builder
	for i, seconds := range []int{5, 1, 9, 7} {
		fmt.Fprintf(&events, `{"Action":"output","Package":"p%d","Output":"ok  \tp%d\t%d.0s\n"}`+"\n", i, i, seconds)
		fmt.Fprintf(&events, `{"Action":"pass","Package":"p%d","Elapsed":%d}`+"\n", i, seconds)
	}
	text, _ := reported(t, 2, events.String())
	if want := " failures 0\nok  \tp3\t#\nok  \tp2\t#\n"; !strings.HasSuffix(text, want) {
		t.Errorf("the report does not end with %q:\n%s", want, text)
	}
}
