package plan

import (
	"strings"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl/ofi"
)

// Known failures of a provider are in mtl/ofi/providers.go, which programs read, too.
func TestBuiltIn_Exclusions_ProveTheirVersions(t *testing.T) {
	x, err := BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range x.entries {
		if e.Link == "" {
			t.Errorf("the exclusion of %s, %s has no link to a proof", e.Stack, e.Case)
		}
	}
	listed, err := ParseExclusions("exclude.yaml", builtIn)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range listed.entries {
		for _, p := range ofi.Providers() {
			if e.matchesStack(report.Stack{Name: "cm+ofi " + p.Name}) && e.Stack != "*" {
				t.Errorf("the exclusion of %s, %s belongs into mtl/ofi/providers.go", e.Stack, e.Case)
			}
		}
	}
}

func TestBuiltIn_ExpectedFailureOfProvider_IsExcludedByVersion(t *testing.T) {
	x := new(Exclusions)
	fact := ofi.Quirk{FirstVersion: libfabric.Version{Major: 2, Minor: 3}, LastVersion: libfabric.Version{Major: 2, Minor: 6}, Description: "order", Remedy: ofi.ExpectFailures, FailingCases: "mtltest/Order.*", Evidence: "a program"}
	other := ofi.Quirk{Description: "another thing", Remedy: ofi.PadReceives}
	if err := x.addKnownFailures([]ofi.Provider{{Name: "tcp;ofi_rxm", Quirks: []ofi.Quirk{other, fact}}}); err != nil || len(x.entries) != 1 {
		t.Fatal(err, x.entries)
	}
	for library, want := range map[string]report.Status{"libfabric 2.2": report.Fail, "libfabric 2.3": report.Skip, "libfabric 2.6": report.Skip, "libfabric 2.7": report.Fail} {
		row := report.Row{Case: "mtltest/OrderOfAll", Status: report.Fail, Reason: "it failed"}
		if x.Apply(report.Stack{Name: "cm+ofi tcp;ofi_rxm", Library: library}, &row); row.Status != want {
			t.Errorf("%s: %+v", library, row)
		}
	}
	fact.FailingCases = "("
	if err := x.addKnownFailures([]ofi.Provider{{Name: "tcp", Quirks: []ofi.Quirk{fact}}}); err == nil {
		t.Error("a pattern that means nothing is taken")
	}
}

func TestParseExclusions_InvalidEntry_IsAnError(t *testing.T) {
	const entry = "- {stack: a, case: b, reason: c}\n"
	for text, want := range map[string]string{
		"- {stack: a, case: b, reason: c, version: 'x <1'}":  "version not found",
		"- {case: b, reason: c}":                             "stack is missing",
		"- {stack: a, reason: c}":                            "case is missing",
		"- {stack: a, case: b, reason: ' '}":                 "reason is missing",
		entry + "- {stack: '[', case: b, reason: c}":         "exclusion 2",
		"- {stack: a, case: '(', reason: c}":                 "not a regular expression",
		"- {stack: a, case: b, reason: c, says: '('}":        "says is not",
		"- {stack: a, case: b, reason: c, versions: new}":    "versions \"new\"",
		"- {stack: a, case: b, reason: c, versions: 'x ~1'}": "versions",
		entry + "---\n" + entry:                              "one list",
		"{stack: a}":                                         "file.yaml",
	} {
		if _, err := ParseExclusions("file.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "file.yaml: ") {
			t.Errorf("%s: %v, not %q", text, err, want)
		}
	}
	for _, text := range []string{"", "[]", "# nothing\n"} {
		if _, err := ParseExclusions("file.yaml", []byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestVersionRange_Versions_AreComparedAsNumbers(t *testing.T) {
	for _, c := range []struct {
		versions, library string
		want              bool
	}{
		{"libfabric <1.20", "libfabric 1.17", true},
		{"libfabric <1.20", "libfabric 1.3", true},
		{"libfabric <1.20", "libfabric 1.20", false},
		{"libfabric <1.20", "libfabric 1.20.0", false},
		{"libfabric <1.20", "libfabric 2.0rc1", false},
		{"libfabric <=1.20", "libfabric 1.20", true},
		{"libfabric >=1.15, <1.20", "libfabric 1.14.2", false},
		{"libfabric >=1.15, <1.20", "libfabric 1.15", true},
		{"libfabric =1.17", "libfabric 1.17.0", true},
		{"libfabric =1.17", "libfabric 1.17.1", false},
		{"libfabric >1.17", "libfabric 1.17.1", true},
		{"libfabric <1.20", "ucx 1.17", false},
		{"libfabric <1.20", "libfabric", false},
		{"libfabric <1.20", "", false},
	} {
		v, err := parseVersions(c.versions)
		if err != nil {
			t.Fatal(err)
		}
		if v.contains(c.library) != c.want {
			t.Errorf("%q has %q: %v", c.versions, c.library, !c.want)
		}
	}
}

// some returns exclusions of one case of one stack.
func some(t *testing.T) *Exclusions {
	t.Helper()
	x, err := ParseExclusions("f", []byte(`[{stack: "cm+ofi net*", case: "mtltest/Cl.*", versions: "libfabric <1.18", reason: mixes up, link: claim.c}]`))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestApply_RowMatchesOrNot_OnlyMatchesAreExcluded(t *testing.T) {
	old, recent := report.Stack{Name: "cm+ofi net;ofi_rxm", Library: "libfabric 1.17"}, report.Stack{Name: "cm+ofi net;ofi_rxm", Library: "libfabric 1.22"}
	for _, c := range []struct {
		stack  report.Stack
		name   string
		before report.Status
		want   report.Status
		marked bool
	}{
		{old, "mtltest/ClaimedMessage", report.Fail, report.Skip, true},
		{old, "mtltest/ClaimedMessage", report.Timeout, report.Skip, true},
		{old, "mtltest/ClaimedMessage", report.Pass, report.Pass, true},
		{old, "mtltest/ClaimedMessage", report.Unavailable, report.Unavailable, false},
		{old, "mtltest/ClaimedMessage", report.Skip, report.Skip, false},
		{old, "mtltest/Other", report.Fail, report.Fail, false},
		{old, "xmtltest/ClaimedMessage", report.Fail, report.Fail, false},
		{recent, "mtltest/ClaimedMessage", report.Fail, report.Fail, false},
		{report.Stack{Name: "cm+ofi tcp;ofi_rxm", Library: "libfabric 1.17"}, "mtltest/ClaimedMessage", report.Fail, report.Fail, false},
	} {
		row := report.Row{Stack: c.stack.Name, Case: c.name, Status: c.before, Reason: "as it was"}
		some(t).Apply(c.stack, &row)
		if row.Status != c.want || (row.ExclusionReason != "") != c.marked {
			t.Errorf("%+v: became %+v", c, row)
		}
		if row.Status == report.Skip && c.before.Bad() && (!strings.Contains(row.Reason, "mixes up (claim.c)") || !strings.Contains(row.Reason, string(c.before)+": as it was")) {
			t.Errorf("the reason does not say both: %q", row.Reason)
		}
	}
	var none *Exclusions
	row := report.Row{Status: report.Fail}
	none.Apply(old, &row)
	if row.Status != report.Fail || none.Notes(&report.Report{Suite: "full"}) != nil {
		t.Error("no exclusions exclude something")
	}
}

// A crash is not the known wrong answer.
func TestApply_OtherReason_IsNotExcluded(t *testing.T) {
	x, err := ParseExclusions("f", []byte("- {stack: s, case: c, says: 'arrived (changed|twice)', reason: known}\n- {stack: s, case: c, says: SIGSEGV, reason: other}"))
	if err != nil {
		t.Fatal(err)
	}
	for reason, excluded := range map[string]string{"rank 1: message 3 arrived changed": "known", "SIGSEGV: segmentation violation": "other", "it did not end within 8s": ""} {
		row := report.Row{Case: "c", Status: report.Fail, Reason: reason}
		if x.Apply(report.Stack{Name: "s"}, &row); row.ExclusionReason != excluded || row.Status.Bad() != (excluded == "") {
			t.Errorf("%s: %+v", reason, row)
		}
	}
	row := report.Row{Case: "c", Status: report.Pass}
	if x.Apply(report.Stack{Name: "s"}, &row); row.ExclusionReason != "known" {
		t.Errorf("what passes asks for no removal: %+v", row)
	}
}

func TestNotes_ExclusionWithoutCase_IsNoted(t *testing.T) {
	stack := report.Stack{Name: "cm+ofi net;ofi_rxm", Library: "libfabric 1.17"}
	run := func(suite, partial, name string, s report.Stack) []string {
		return some(t).Notes(&report.Report{Suite: suite, EndReason: partial, Stacks: []report.Stack{s}, Rows: []report.Row{{Stack: s.Name, Case: name, Status: report.Pass}}})
	}
	if notes := run("full", "", "mtltest/Other", stack); len(notes) != 1 || !strings.Contains(notes[0], "f: exclusion 1 matches no case of cm+ofi net;ofi_rxm") {
		t.Errorf("a full run notes %q", notes)
	}
	gone, recent := stack, stack
	gone.AbsentReason, recent.Library = "no device", "libfabric 1.22"
	for what, notes := range map[string][]string{
		"with the case":        run("full", "", "mtltest/ClaimedMessage", stack),
		"of quick":             run("quick", "", "mtltest/Other", stack),
		"that was interrupted": run("full", "interrupted", "mtltest/Other", stack),
		"without the stack":    run("full", "", report.OpenCase, gone),
		"of another version":   run("full", "", "mtltest/Other", recent),
	} {
		if len(notes) > 0 {
			t.Errorf("a run %s notes %q", what, notes)
		}
	}
}

func FuzzParseExclusions(f *testing.F) {
	f.Add(builtIn)
	f.Add([]byte("- &a {stack: '*', case: '.*', reason: *a}"))
	f.Add([]byte("- {stack: 'cm+ofi *', case: 'mtltest/.*', versions: 'libfabric >=1.15, <1.20', says: 'c', reason: known, link: https://example.org/1}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 2048 {
			return // Longer files only repeat entries, and take their time.
		}
		x, err := ParseExclusions("f", data)
		if err != nil {
			return
		}
		row := report.Row{Stack: "a", Case: "b", Status: report.Fail, Reason: "c"}
		x.Apply(report.Stack{Name: "a", Library: "libfabric 1.17"}, &row)
		if row.Reason == "" {
			t.Error("the reason is lost")
		}
	})
}
