package report

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Printable returns text that does nothing to a terminal, a page or its reader:
// what is neither printable nor a line's end or a tab is written as an escape, bytes
// that are no UTF-8 too. Names and outputs come from programs that may have been
// dying.
func Printable(text string) string {
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == '\n' || r == '\t' || r != utf8.RuneError && strconv.IsPrint(r):
			b.WriteRune(r)
		case r == '\r' && strings.HasPrefix(text[i:], "\r\n"):
		case r == utf8.RuneError:
			if _, width := utf8.DecodeRuneInString(text[i:]); width == 1 {
				fmt.Fprintf(&b, `\x%02x`, text[i])
			} else {
				b.WriteRune(r)
			}
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}

// oneLine is Printable for where only one line fits.
func oneLine(text string) string {
	return strings.Join(strings.Fields(Printable(text)), " ")
}

// Plural is a number with what it counts: "1 case", "2 cases".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
