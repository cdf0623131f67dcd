package browsertest

import (
	"encoding/json"
	"strings"
	"testing"
)

// Run runs a subtest on the browser, with the default medium and a light color scheme on a wide screen.
func (b *Browser) Run(name string, test func(t *testing.T)) {
	parent := b.t
	parent.Run(name, func(t *testing.T) {
		b.t = t
		defer func() { b.t = parent }()
		b.EmulateMedia("", "light")
		b.Resize(1200, 900)
		test(t)
	})
}

// Resize gives the tab a size in pixels.
func (b *Browser) Resize(width, height int) {
	b.t.Helper()
	b.Do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 800})
}

// CountShown counts the visible elements that a selector finds. Parts of
// an SVG are visible to checkVisibility even where they have no box.
func (b *Browser) CountShown(selector string) int {
	b.t.Helper()
	quoted, _ := json.Marshal(selector)
	return Eval[int](b, `[...document.querySelectorAll(`+string(quoted)+`)].filter(e => e.checkVisibility() && e.getClientRects().length > 0).length`)
}

// CheckQuiet checks that the page has sent no requests except to URLs with one of the prefixes, and that its console is empty. The page of
// a file may request itself.
func (b *Browser) CheckQuiet(allowed ...string) {
	b.t.Helper()
	allowed = append([]string{"file:///", "data:"}, allowed...)
	for _, e := range b.Events() {
		switch e.Method {
		case "Network.requestWillBeSent":
			var p struct{ Request struct{ URL string } }
			isAllowed := false
			err := json.Unmarshal(e.Params, &p)
			for _, prefix := range allowed {
				isAllowed = isAllowed || strings.HasPrefix(p.Request.URL, prefix)
			}
			if err != nil || !isAllowed {
				b.t.Errorf("request: %s", e.Params)
			}
		case "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded":
			b.t.Errorf("%s: %s", e.Method, e.Params)
		}
	}
}

// CheckContrast checks that each text of the page has the contrast to its background that WCAG 2 requires.
func (b *Browser) CheckContrast() {
	b.t.Helper()
	if pale := Eval[[]string](b, lowContrast); len(pale) > 0 {
		b.t.Errorf("contrast below 4.5: %q", pale)
	}
}

// A Node is an element in the accessibility tree.
type Node struct{ Role, Name string }

// AccessibleNodes returns the elements that a screen reader presents.
func (b *Browser) AccessibleNodes() (all []Node) {
	b.t.Helper()
	type value struct{ Value any }
	tree := Call[struct {
		Nodes []struct {
			Ignored    bool
			Role, Name value
		}
	}](b, "Accessibility.getFullAXTree", map[string]any{})
	for _, n := range tree.Nodes {
		if !n.Ignored {
			role, _ := n.Role.Value.(string)
			name, _ := n.Name.Value.(string)
			all = append(all, Node{role, name})
		}
	}
	return all
}

// lowContrast returns the texts with too little contrast to their background.
const lowContrast = `(() => {
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

// BlockedDirectives tries a request, an image and a script of another source, and returns the
// directives of the page's policy that have blocked them, sorted. A script that runs sets the title
// to "ran". It waits until all three are blocked.
func (b *Browser) BlockedDirectives() []string {
	return Eval[[]string](b, `new Promise(resolve => {
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
}
