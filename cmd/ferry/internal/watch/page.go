package watch

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"strings"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// pageText is the page, with its style and script. It needs no other source than its state.
var pageText = strings.NewReplacer("{{style}}", pageCSS, "{{script}}", pageJS).Replace(pageHTML)

// pagePolicy permits the page's own style and script, and requests to the page's own server.
var pagePolicy = fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	hash(pageCSS), hash(pageJS))

// hash returns the source of a content security policy for an element of the page.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
