package report

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/test/browsertest"
)

var (
	screenshot = flag.String("screenshot", "", "write a picture (WebP) of the page of -report to this `FILE`")
	reportFile = flag.String("report", "", "the report, as ferry matrix --json writes it, that -screenshot shows")
)

func TestPageInBrowser(t *testing.T) {
	b := browsertest.Start(t)
	fail := filepath.Join("testdata", "fail.html")
	b.Run("SendsNoRequestsAndLogsNothing", func(t *testing.T) {
		pages, _ := filepath.Glob(filepath.Join("testdata", "*.html"))
		for _, page := range append(pages, written(t, hostilePage(), nil)) {
			b.OpenFile(page)
			b.CheckQuiet()
		}
	})

	b.Run("FiltersByStatusAndStack", func(t *testing.T) {
		b.OpenFile(fail)
		if all, stacks := browsertest.Eval[int](b, `document.querySelectorAll(".case").length`), b.CountShown("section.stack"); all != 26 || stacks != 2 {
			t.Fatalf("%d cases of %d stacks at first", all, stacks)
		}
		b.Click(`input[value=fail] + span`)
		if cases, stacks, lines := b.CountShown(".case"), b.CountShown("section.stack"), b.CountShown(".glance tbody tr"); cases != 3 || stacks != 1 || lines != 1 {
			t.Errorf("failures: %d cases, %d stacks, %d lines of the table", cases, stacks, lines)
		}
		if said := browsertest.Eval[string](b, `document.querySelector("[role=status]").textContent`); said != "3 cases of 1 stack" {
			t.Errorf("it says %q", said)
		}
		// The keyboard selects the next status, which is the last one, then all again.
		b.Press("ArrowRight", 39, "")
		if cases := b.CountShown("section.stack > div > .case"); cases == 0 || b.CountShown(".case[data-status=fail]") != 0 {
			t.Errorf("passes: %d cases", cases)
		}
		b.Press("ArrowRight", 39, "")
		if stacks := b.CountShown("section.stack"); stacks != 2 {
			t.Errorf("all again: %d stacks", stacks)
		}
		b.Click(`input[name=stack]`)
		b.Do("Input.insertText", map[string]any{"text": "OB1"})
		if stacks, lines, curves := b.CountShown("section.stack"), b.CountShown(".glance tbody tr"), b.CountShown("#plot-latency .curve"); stacks != 1 || lines != 1 || curves != 1 {
			t.Errorf("one stack: %d sections, %d lines, %d curves", stacks, lines, curves)
		}
		b.CheckQuiet()
	})

	b.Run("OpensDetailsByMouseKeyboardAndLink", func(t *testing.T) {
		b.OpenFile(fail)
		const output = `.case[data-status=fail] pre`
		if b.CountShown(output) == 0 {
			t.Error("the output of a failure is closed")
		}
		text := browsertest.Eval[string](b, `document.querySelector("`+output+`").textContent`)
		for _, want := range []string{"<script>alert('no')</script> ]]>", `\x1b[31mred`, `\u202eback`} {
			if !strings.Contains(text, want) {
				t.Errorf("the output %q lacks %q", text, want)
			}
		}
		const command = `section.stack .part:not([open]) .case .command`
		if b.CountShown(command) != 0 {
			t.Error("cases that passed are open")
		}
		b.Click(`section.stack .part:not([open]) > summary`)
		b.Click(`section.stack .part[open] .case[data-status=pass] > summary`)
		if b.CountShown(`.case[data-status=pass] .command`) != 1 {
			t.Error("a click on a case does not open it")
		}
		b.Press("Enter", 13, "\r")
		if b.CountShown(`.case[data-status=pass] .command`) != 0 {
			t.Error("Enter does not close what has the focus")
		}
		b.OpenFile(fail)
		b.Click(`.glance tbody tr:nth-child(2) td:nth-last-child(1) a`)
		b.Until(`document.querySelector(".case[data-status=pass][open]")`)
		if b.CountShown(`.case[data-status=pass] .figures`) != 1 {
			t.Error("the link of a figure does not lead into its case")
		}
		b.Click("button.all")
		if open, all := b.CountShown(".case > .body"), 26; open != all {
			t.Errorf("open all opens %d of %d", open, all)
		}
	})

	b.Run("CopiesTheCommand", func(t *testing.T) {
		b.OpenFile(fail)
		browsertest.CallBrowser[struct{}](b, "Browser.grantPermissions", map[string]any{"permissions": []string{"clipboardReadWrite", "clipboardSanitizedWrite"}})
		b.Do("Page.bringToFront", nil)
		b.Click(`.case[data-status=fail] .copy`)
		b.Until(`document.querySelector(".case[data-status=fail] .copy").textContent === "copied"`)
		want := browsertest.Eval[string](b, `document.querySelector(".case[data-status=fail] code").textContent`)
		if got := browsertest.Eval[string](b, `navigator.clipboard.readText()`); got != want || !strings.HasPrefix(got, "ferry matrix --components ") {
			t.Errorf("on the clipboard: %q, not %q", got, want)
		}
	})

	b.Run("DrawsEachCurveInsideItsAxes", func(t *testing.T) {
		b.OpenFile(filepath.Join("testdata", "pass.html"))
		for _, plot := range []string{"#plot-latency", "#plot-bandwidth", "#plot-rate"} {
			if curves := b.CountShown(plot + " .curve .line"); curves != 2 {
				t.Errorf("%s has %d curves", plot, curves)
			}
			if out := browsertest.Eval[[]string](b, `(() => {
				const box = document.querySelector("`+plot+` .with-names").getBoundingClientRect();
				return [...document.querySelectorAll("`+plot+` .with-names :is(text, .line, .mark)")].filter(e => {
					const r = e.getBoundingClientRect();
					return !(r.left >= box.left - 1 && r.right <= box.right + 1 && r.top >= box.top - 1 && r.bottom <= box.bottom + 1);
				}).map(e => e.outerHTML);
			})()`); len(out) > 0 {
				t.Errorf("%s: outside: %q", plot, out)
			}
		}
		if rows := browsertest.Eval[int](b, `document.querySelectorAll("#plot-latency tbody tr").length`); rows != 10 {
			t.Errorf("the table beside the plot has %d rows", rows)
		}
	})

	b.Run("CanBeReadInBothColourSchemes", func(t *testing.T) {
		b.OpenFile(written(t, everyStatus(), nil))
		b.Click("button.all")
		ground := map[string]string{}
		for _, scheme := range []string{"light", "dark"} {
			b.EmulateMedia("", scheme)
			ground[scheme] = browsertest.Eval[string](b, `getComputedStyle(document.body).backgroundColor`)
			b.CheckContrast()
		}
		if ground["light"] == ground["dark"] {
			t.Error("both schemes look the same")
		}
	})

	b.Run("PrintsAllAndNoButtons", func(t *testing.T) {
		b.OpenFile(fail)
		b.Click(`input[value=fail] + span`)
		b.EmulateMedia("print", "dark")
		if cases, buttons, forms := b.CountShown(".case"), b.CountShown("button"), b.CountShown("form"); cases != 26 || buttons+forms != 0 {
			t.Errorf("on paper: %d cases, %d buttons, %d forms", cases, buttons, forms)
		}
		if all, open := browsertest.Eval[int](b, `document.querySelectorAll(".case:not([data-status=pass]) > .body, .data table").length`),
			b.CountShown(".case:not([data-status=pass]) > .body, .data table"); open != all {
			t.Errorf("on paper %d of %d details are open", open, all)
		}
		if ground := browsertest.Eval[string](b, `getComputedStyle(document.body).backgroundColor`); ground != "rgb(255, 255, 255)" {
			t.Errorf("the paper is %s", ground)
		}
		pdf := browsertest.Call[struct{ Data []byte }](b, "Page.printToPDF", map[string]any{}).Data
		if !strings.HasPrefix(string(pdf), "%PDF") {
			t.Error("it can't be printed")
		}
	})

	b.Run("FitsAPhone", func(t *testing.T) {
		b.Resize(360, 740)
		many := written(t, everyStatus(), nil)
		for _, page := range []string{fail, filepath.Join("testdata", "unavailable.html"), many} {
			b.OpenFile(page)
			b.Click("button.all")
			if wide := browsertest.Eval[[]string](b, `[...document.querySelectorAll(".wide, pre, svg, table")].filter(e => e.checkVisibility() &&
				(e.scrollWidth > e.clientWidth || e.getBoundingClientRect().right > 360)).map(e => e.outerHTML.slice(0, 200))`); len(wide) > 0 {
				t.Errorf("%s: wider than the screen: %q", page, wide)
			}
			if wide := browsertest.Eval[int](b, `document.scrollingElement.scrollWidth`); wide > 360 {
				t.Errorf("%s is %d wide", page, wide)
			}
			if right := browsertest.Eval[float64](b, `Math.max(0, ...Array.from(document.querySelectorAll(".missing > div"), e => e.getBoundingClientRect().right))`); right > 360 {
				t.Errorf("%s: why a stack is missing ends at %.0f", page, right)
			}
		}
	})

	b.Run("NamesCurvesBelowPlotsOnAPhone", func(t *testing.T) {
		b.OpenFile(fail)
		if wide := b.CountShown(".names li") + b.CountShown(".without-names"); wide > 0 {
			t.Errorf("%d names below plots at 1200 px", wide)
		}
		b.Resize(400, 740)
		if names, plots, others := b.CountShown("#plot-latency .names li"), b.CountShown(".without-names"), b.CountShown(".with-names"); names != 2 || plots != 3 || others != 0 {
			t.Errorf("at 400 px: %d names, %d plots without names, %d with names", names, plots, others)
		}
		b.Click(`input[name=stack]`)
		b.Do("Input.insertText", map[string]any{"text": "OB1"})
		if names := b.CountShown("#plot-latency .names li"); names != 1 {
			t.Errorf("one stack: %d names", names)
		}
	})

	b.Run("ShowsFailuresFirst", func(t *testing.T) {
		b.OpenFile(written(t, everyStatus(), nil))
		heads := browsertest.Eval[[]string](b, `[...document.querySelectorAll("h2")].map(e => e.textContent)`)
		if want := []string{"What did not pass", "At a glance", "Notes", "Speed", "What was skipped", "Stacks"}; !slices.Equal(heads, want) {
			t.Errorf("sections %q, want %q", heads, want)
		}
		if first := browsertest.Eval[[]string](b, `[...document.querySelectorAll("#s0-0 .case")].map(e => e.dataset.status)`); !slices.IsSortedFunc(first, func(a, b string) int {
			return Row{Status: Status(a)}.order() - Row{Status: Status(b)}.order()
		}) || first[0] == "pass" {
			t.Errorf("cases of a part: %q", first)
		}
		b.OpenFile(fail)
		if first := browsertest.Eval[string](b, `document.querySelector(".glance tbody th").textContent`); first != "cm+ofi tcp;ofi_rxm" {
			t.Errorf("first of the table is %q", first)
		}
	})

	b.Run("TellsAScreenReaderWhatIsWhat", func(t *testing.T) {
		b.OpenFile(filepath.Join("testdata", "skip.html"))
		count := map[string]int{}
		for _, n := range b.AccessibleNodes() {
			role, name := n.Role, n.Name
			count[role]++
			needs := []string{"button", "link", "radio", "searchbox", "combobox", "image", "region", "form", "heading", "DisclosureTriangle", "DisclosureTriangleGrouped", "columnheader", "rowheader"}
			if slices.Contains(needs, role) && strings.TrimSpace(name) == "" {
				t.Errorf("a %s has no name", role)
			}
		}
		for role, least := range map[string]int{"heading": 6, "image": 3, "table": 1, "columnheader": 8, "rowheader": 2, "radio": 3, "main": 1, "status": 1, "link": 10} {
			if count[role] < least {
				t.Errorf("%d of role %s, not %d; there are %v", count[role], role, least, count)
			}
		}
	})

	b.Run("CanBeReadWithoutItsScript", func(t *testing.T) {
		b.Do("Emulation.setScriptExecutionDisabled", map[string]any{"value": true})
		defer b.Do("Emulation.setScriptExecutionDisabled", map[string]any{"value": false})
		b.OpenFile(fail)
		if b.CountShown("form, .copy") != 0 {
			t.Error("what needs the script is there without it")
		}
		b.Click(`section.stack .part:not([open]) > summary`)
		if b.CountShown(`section.stack .part[open] .case[data-status=pass]`) == 0 {
			t.Error("a click opens nothing")
		}
	})

	b.Run("PolicyForbidsRequests", func(t *testing.T) {
		b.OpenFile(fail)
		blocked := b.BlockedDirectives()
		if !slices.Equal(blocked, []string{"connect-src", "img-src", "script-src-elem"}) || browsertest.Eval[string](b, "document.title") == "ran" {
			t.Errorf("blocked: %q", blocked)
		}
	})
}

// written makes a page of a report, in a file of the test.
func written(t *testing.T, r *Report, c *Comparison) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "page.html"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := WriteHTML(f, r, c); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// everyStatus returns a report with each status, and with one more curve than there
// are looks.
func everyStatus() *Report {
	r := &Report{Suite: "quick", EndReason: "interrupted", Notes: []string{"a note"}}
	for i := range looks + 1 {
		s := Stack{Name: "stack " + string(rune('a'+i))}
		r.Stacks = append(r.Stacks, s)
		r.Rows = append(r.Rows, Row{Stack: s.Name, Case: OpenCase, Status: Pass})
		for _, status := range Statuses {
			r.Rows = append(r.Rows, Row{Stack: s.Name, Case: "mtltest/" + string(status), Status: status, Reason: "why", OutputTail: "output", Command: "ferry"})
		}
		r.Rows = append(r.Rows, Row{Stack: s.Name, Case: "bench/latency", Status: Pass,
			Points: []Point{{Size: 1, Value: 1, Unit: "us"}, {Size: 1024, Value: float64(2 + i), Unit: "us"}}})
	}
	return r
}

// hostilePage is everyStatus as processes may make it that are out of their minds.
func hostilePage() *Report {
	const evil = "<script>console.error(1)</script><img src=http://127.0.0.1:9/ onerror=alert(1)>]]>\"'`{{.}}\x00\x1b[2J\xff\u202e"
	r := everyStatus()
	r.EndReason, r.Suite, r.Notes = evil, evil, []string{evil}
	r.Machine = Machine{Host: evil, Kernel: evil, Libraries: []Library{{Name: evil, Version: evil}}}
	for i := range r.Stacks {
		s := &r.Stacks[i]
		s.Name += evil
		s.ViaComponent, s.Provider, s.SetParams = evil, evil, []string{evil}
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		row.Stack += evil
		row.Reason, row.OutputTail, row.Command, row.ExclusionReason = evil, evil, evil, evil
		if row.Case != OpenCase && row.Points == nil {
			row.Case += evil
		}
	}
	return r
}

// TestScreenshot makes the picture of docs/matrix.md again; see there.
func TestScreenshot(t *testing.T) {
	if *screenshot == "" {
		t.Skip("only with -screenshot")
	}
	b := browsertest.Start(t)
	b.Resize(1100, 1150)
	b.EmulateMedia("", "light")
	b.OpenFile(written(t, read(t, *reportFile), nil))
	// WebP needs half the size of PNG.
	picture := browsertest.Call[struct{ Data []byte }](b, "Page.captureScreenshot", map[string]any{"format": "webp", "quality": 80}).Data
	if err := os.WriteFile(*screenshot, picture, 0o644); err != nil {
		t.Fatal(err)
	}
}
