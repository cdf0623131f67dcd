package report

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var (
	screenshot = flag.String("screenshot", "", "write a picture (WebP) of the page of -report to this `FILE`")
	reportFile = flag.String("report", "", "the report, as ferry matrix --json writes it, that -screenshot shows")
)

// shown counts the elements that a selector finds and a reader can see. Parts of
// an SVG are visible to checkVisibility even where they have no box.
func shown(b *browser, selector string) int {
	b.t.Helper()
	quoted, _ := json.Marshal(selector)
	return eval[int](b, `[...document.querySelectorAll(`+string(quoted)+`)].filter(e => e.checkVisibility() && e.getClientRects().length > 0).length`)
}

func TestPageInBrowser(t *testing.T) {
	b := startBrowser(t)
	fail := filepath.Join("testdata", "fail.html")
	run := func(name string, test func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			b.t = t
			defer func() { b.t = nil }()
			b.media("", "light")
			b.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": 1200, "height": 900, "deviceScaleFactor": 1, "mobile": false})
			test(t)
		})
	}

	run("AsksNobodyAndComplainsOfNothing", func(t *testing.T) {
		pages, _ := filepath.Glob(filepath.Join("testdata", "*.html"))
		for _, page := range append(pages, written(t, hostilePage(), nil)) {
			b.open(page)
			quiet(t, b)
		}
	})

	run("FiltersByStatusAndStack", func(t *testing.T) {
		b.open(fail)
		if all, stacks := eval[int](b, `document.querySelectorAll(".case").length`), shown(b, "section.stack"); all != 26 || stacks != 2 {
			t.Fatalf("%d cases of %d stacks at first", all, stacks)
		}
		b.click(`input[value=fail] + span`)
		if cases, stacks, lines := shown(b, ".case"), shown(b, "section.stack"), shown(b, ".glance tbody tr"); cases != 3 || stacks != 1 || lines != 1 {
			t.Errorf("failures: %d cases, %d stacks, %d lines of the table", cases, stacks, lines)
		}
		if said := eval[string](b, `document.querySelector("[role=status]").textContent`); said != "3 cases of 1 stack" {
			t.Errorf("it says %q", said)
		}
		// The keyboard selects the next status, which is the last one, then all again.
		b.key("ArrowRight", 39, "")
		if cases := shown(b, "section.stack > div > .case"); cases == 0 || shown(b, ".case[data-status=fail]") != 0 {
			t.Errorf("passes: %d cases", cases)
		}
		b.key("ArrowRight", 39, "")
		if stacks := shown(b, "section.stack"); stacks != 2 {
			t.Errorf("all again: %d stacks", stacks)
		}
		b.click(`input[name=stack]`)
		b.do("Input.insertText", map[string]any{"text": "OB1"})
		if stacks, lines, curves := shown(b, "section.stack"), shown(b, ".glance tbody tr"), shown(b, "#plot-latency .curve"); stacks != 1 || lines != 1 || curves != 1 {
			t.Errorf("one stack: %d sections, %d lines, %d curves", stacks, lines, curves)
		}
		quiet(t, b)
	})

	run("OpensDetailsByMouseKeyboardAndLink", func(t *testing.T) {
		b.open(fail)
		const output = `.case[data-status=fail] pre`
		if shown(b, output) == 0 {
			t.Error("the output of a failure is closed")
		}
		text := eval[string](b, `document.querySelector("`+output+`").textContent`)
		for _, want := range []string{"<script>alert('no')</script> ]]>", `\x1b[31mred`, `\u202eback`} {
			if !strings.Contains(text, want) {
				t.Errorf("the output %q lacks %q", text, want)
			}
		}
		const command = `section.stack .part:not([open]) .case .command`
		if shown(b, command) != 0 {
			t.Error("cases that passed are open")
		}
		b.click(`section.stack .part:not([open]) > summary`)
		b.click(`section.stack .part[open] .case[data-status=pass] > summary`)
		if shown(b, `.case[data-status=pass] .command`) != 1 {
			t.Error("a click on a case does not open it")
		}
		b.key("Enter", 13, "\r")
		if shown(b, `.case[data-status=pass] .command`) != 0 {
			t.Error("Enter does not close what has the focus")
		}
		b.open(fail)
		b.click(`.glance tbody tr:nth-child(2) td:nth-last-child(1) a`)
		b.until(`document.querySelector(".case[data-status=pass][open]")`)
		if shown(b, `.case[data-status=pass] .figures`) != 1 {
			t.Error("the link of a figure does not lead into its case")
		}
		b.click("button.all")
		if open, all := shown(b, ".case > .body"), 26; open != all {
			t.Errorf("open all opens %d of %d", open, all)
		}
	})

	run("CopiesTheCommand", func(t *testing.T) {
		b.open(fail)
		call[struct{}](b, "", "Browser.grantPermissions", map[string]any{"permissions": []string{"clipboardReadWrite", "clipboardSanitizedWrite"}})
		b.do("Page.bringToFront", nil)
		b.click(`.case[data-status=fail] .copy`)
		b.until(`document.querySelector(".case[data-status=fail] .copy").textContent === "copied"`)
		want := eval[string](b, `document.querySelector(".case[data-status=fail] code").textContent`)
		if got := eval[string](b, `navigator.clipboard.readText()`); got != want || !strings.HasPrefix(got, "ferry matrix --components ") {
			t.Errorf("on the clipboard: %q, not %q", got, want)
		}
	})

	run("DrawsEachCurveInsideItsAxes", func(t *testing.T) {
		b.open(filepath.Join("testdata", "pass.html"))
		for _, plot := range []string{"#plot-latency", "#plot-bandwidth", "#plot-rate"} {
			if curves := shown(b, plot+" .curve .line"); curves != 2 {
				t.Errorf("%s has %d curves", plot, curves)
			}
			if out := eval[[]string](b, `(() => {
				const box = document.querySelector("`+plot+` .with-names").getBoundingClientRect();
				return [...document.querySelectorAll("`+plot+` .with-names :is(text, .line, .mark)")].filter(e => {
					const r = e.getBoundingClientRect();
					return !(r.left >= box.left - 1 && r.right <= box.right + 1 && r.top >= box.top - 1 && r.bottom <= box.bottom + 1);
				}).map(e => e.outerHTML);
			})()`); len(out) > 0 {
				t.Errorf("%s: outside: %q", plot, out)
			}
		}
		if rows := eval[int](b, `document.querySelectorAll("#plot-latency tbody tr").length`); rows != 10 {
			t.Errorf("the table beside the plot has %d rows", rows)
		}
	})

	run("CanBeReadInBothColourSchemes", func(t *testing.T) {
		b.open(written(t, everyStatus(), nil))
		b.click("button.all")
		ground := map[string]string{}
		for _, scheme := range []string{"light", "dark"} {
			b.media("", scheme)
			ground[scheme] = eval[string](b, `getComputedStyle(document.body).backgroundColor`)
			if pale := eval[[]string](b, contrast); len(pale) > 0 {
				t.Errorf("%s: contrast below 4.5: %q", scheme, pale)
			}
		}
		if ground["light"] == ground["dark"] {
			t.Error("both schemes look the same")
		}
	})

	run("PrintsAllAndNoButtons", func(t *testing.T) {
		b.open(fail)
		b.click(`input[value=fail] + span`)
		b.media("print", "dark")
		if cases, buttons, forms := shown(b, ".case"), shown(b, "button"), shown(b, "form"); cases != 26 || buttons+forms != 0 {
			t.Errorf("on paper: %d cases, %d buttons, %d forms", cases, buttons, forms)
		}
		if all, open := eval[int](b, `document.querySelectorAll(".case:not([data-status=pass]) > .body, .data table").length`),
			shown(b, ".case:not([data-status=pass]) > .body, .data table"); open != all {
			t.Errorf("on paper %d of %d details are open", open, all)
		}
		if ground := eval[string](b, `getComputedStyle(document.body).backgroundColor`); ground != "rgb(255, 255, 255)" {
			t.Errorf("the paper is %s", ground)
		}
		pdf := call[struct{ Data []byte }](b, b.session, "Page.printToPDF", map[string]any{}).Data
		if !strings.HasPrefix(string(pdf), "%PDF") {
			t.Error("it can't be printed")
		}
	})

	run("FitsAPhone", func(t *testing.T) {
		b.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": true})
		many := written(t, everyStatus(), nil)
		for _, page := range []string{fail, filepath.Join("testdata", "unavailable.html"), many} {
			b.open(page)
			b.click("button.all")
			if wide := eval[[]string](b, `[...document.querySelectorAll(".wide, pre, svg, table")].filter(e => e.checkVisibility() &&
				(e.scrollWidth > e.clientWidth || e.getBoundingClientRect().right > 360)).map(e => e.outerHTML.slice(0, 200))`); len(wide) > 0 {
				t.Errorf("%s: wider than the screen: %q", page, wide)
			}
			if wide := eval[int](b, `document.scrollingElement.scrollWidth`); wide > 360 {
				t.Errorf("%s is %d wide", page, wide)
			}
			if right := eval[float64](b, `Math.max(0, ...Array.from(document.querySelectorAll(".missing > div"), e => e.getBoundingClientRect().right))`); right > 360 {
				t.Errorf("%s: why a stack is missing ends at %.0f", page, right)
			}
		}
	})

	run("NamesCurvesBelowPlotsOnAPhone", func(t *testing.T) {
		b.open(fail)
		if wide := shown(b, ".names li") + shown(b, ".without-names"); wide > 0 {
			t.Errorf("%d names below plots at 1200 px", wide)
		}
		b.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": 400, "height": 740, "deviceScaleFactor": 1, "mobile": true})
		if names, plots, others := shown(b, "#plot-latency .names li"), shown(b, ".without-names"), shown(b, ".with-names"); names != 2 || plots != 3 || others != 0 {
			t.Errorf("at 400 px: %d names, %d plots without names, %d with names", names, plots, others)
		}
		b.click(`input[name=stack]`)
		b.do("Input.insertText", map[string]any{"text": "OB1"})
		if names := shown(b, "#plot-latency .names li"); names != 1 {
			t.Errorf("one stack: %d names", names)
		}
	})

	run("ShowsFailuresFirst", func(t *testing.T) {
		b.open(written(t, everyStatus(), nil))
		heads := eval[[]string](b, `[...document.querySelectorAll("h2")].map(e => e.textContent)`)
		if want := []string{"What did not pass", "At a glance", "Notes", "Speed", "What was skipped", "Stacks"}; !slices.Equal(heads, want) {
			t.Errorf("sections %q, want %q", heads, want)
		}
		if first := eval[[]string](b, `[...document.querySelectorAll("#s0-0 .case")].map(e => e.dataset.status)`); !slices.IsSortedFunc(first, func(a, b string) int {
			return Row{Status: Status(a)}.order() - Row{Status: Status(b)}.order()
		}) || first[0] == "pass" {
			t.Errorf("cases of a part: %q", first)
		}
		b.open(fail)
		if first := eval[string](b, `document.querySelector(".glance tbody th").textContent`); first != "cm+ofi tcp;ofi_rxm" {
			t.Errorf("first of the table is %q", first)
		}
	})

	run("TellsAScreenReaderWhatIsWhat", func(t *testing.T) {
		b.open(filepath.Join("testdata", "skip.html"))
		type value struct{ Value any }
		nodes := call[struct {
			Nodes []struct {
				Ignored    bool
				Role, Name value
				Properties []struct {
					Name  string
					Value value
				}
			}
		}](b, b.session, "Accessibility.getFullAXTree", map[string]any{}).Nodes
		count := map[string]int{}
		for _, n := range nodes {
			role, _ := n.Role.Value.(string)
			name, _ := n.Name.Value.(string)
			if n.Ignored {
				continue
			}
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

	run("CanBeReadWithoutItsScript", func(t *testing.T) {
		b.do("Emulation.setScriptExecutionDisabled", map[string]any{"value": true})
		defer b.do("Emulation.setScriptExecutionDisabled", map[string]any{"value": false})
		b.open(fail)
		if shown(b, "form, .copy") != 0 {
			t.Error("what needs the script is there without it")
		}
		b.click(`section.stack .part:not([open]) > summary`)
		if shown(b, `section.stack .part[open] .case[data-status=pass]`) == 0 {
			t.Error("a click opens nothing")
		}
	})

	run("PolicyForbidsRequests", func(t *testing.T) {
		b.open(fail)
		blocked := eval[[]string](b, `new Promise(resolve => {
			const blocked = [];
			addEventListener("securitypolicyviolation", e => {
				blocked.push(e.effectiveDirective);
				if (blocked.length === 3) resolve(blocked.sort());
			});
			fetch("http://127.0.0.1:9/").catch(() => {});
			new Image().src = "http://127.0.0.1:9/x.png";
			const s = document.createElement("script");
			s.textContent = "document.title = 'ran'";
			document.body.append(s);
		})`)
		if !slices.Equal(blocked, []string{"connect-src", "img-src", "script-src-elem"}) || eval[string](b, "document.title") == "ran" {
			t.Errorf("blocked: %q", blocked)
		}
	})
}

// quiet checks that the page has sent no requests, and that its console is
// empty.
func quiet(t *testing.T, b *browser) {
	t.Helper()
	for _, e := range b.receivedEvents() {
		switch e.Method {
		case "Network.requestWillBeSent":
			var p struct{ Request struct{ URL string } }
			if err := json.Unmarshal(e.Params, &p); err != nil || !strings.HasPrefix(p.Request.URL, "file:///") && !strings.HasPrefix(p.Request.URL, "data:") {
				t.Errorf("request: %s", e.Params)
			}
		case "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded":
			t.Errorf("%s: %s", e.Method, e.Params)
		}
	}
}

// contrast returns the texts with too little contrast to their background, by
// WCAG 2.
const contrast = `(() => {
	const parse = c => c.match(/[\d.]+/g).map(Number);
	const light = c => {
		const [r, g, b] = c.map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
		return .2126 * r + .7152 * g + .0722 * b;
	};
	const out = new Set();
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n; n = walk.nextNode();) {
		const e = n.parentElement;
		if (!n.data.trim() || !e.checkVisibility() || e.closest("script, style, title, desc")) continue;
		const style = getComputedStyle(e);
		let back = e, ground;
		do ground = parse(getComputedStyle(back).backgroundColor); while (ground[3] === 0 && (back = back.parentElement));
		const text = parse(e instanceof SVGElement ? style.fill : style.color);
		const [a, b] = [light(text.slice(0, 3)), light(ground.slice(0, 3))].sort((x, y) => y - x);
		if ((a + .05) / (b + .05) < 4.5) out.add(e.tagName + "." + e.getAttribute("class") + ": " + n.data.trim().slice(0, 40));
	}
	return [...out];
})()`

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
	r := &Report{Suite: "quick", Partial: "interrupted", Notes: []string{"a note"}}
	for i := range looks + 1 {
		s := Stack{Name: "stack " + string(rune('a'+i))}
		r.Stacks = append(r.Stacks, s)
		r.Rows = append(r.Rows, Row{Stack: s.Name, Case: OpenCase, Status: Pass})
		for _, status := range Statuses {
			r.Rows = append(r.Rows, Row{Stack: s.Name, Case: "mtltest/" + string(status), Status: status, Reason: "why", Output: "output", Command: "ferry"})
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
	r.Partial, r.Suite, r.Notes = evil, evil, []string{evil}
	r.Machine = Machine{Host: evil, Kernel: evil, Libraries: []Library{{Name: evil, Version: evil}}}
	for i := range r.Stacks {
		s := &r.Stacks[i]
		s.Name += evil
		s.Via, s.Provider, s.Set = evil, evil, []string{evil}
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		row.Stack += evil
		row.Reason, row.Output, row.Command, row.Excluded = evil, evil, evil, evil
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
	b := startBrowser(t)
	b.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": 1100, "height": 1150, "deviceScaleFactor": 1, "mobile": false})
	b.media("", "light")
	b.open(written(t, read(t, *reportFile), nil))
	// WebP needs half the size of PNG.
	picture := call[struct{ Data []byte }](b, b.session, "Page.captureScreenshot", map[string]any{"format": "webp", "quality": 80}).Data
	if err := os.WriteFile(*screenshot, picture, 0o644); err != nil {
		t.Fatal(err)
	}
}
