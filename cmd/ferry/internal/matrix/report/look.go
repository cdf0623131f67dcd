package report

import (
	"os"

	"golang.org/x/sys/unix"
)

// A Look is how text is to appear. The zero Look is plain lines of any length.
type Look struct {
	Width, Height int  // of the terminal; 0: not known, or no terminal
	Live          bool // lines can be written over
	Colour        bool
}

// LookAt finds out what a file can show. NO_COLOR (https://no-color.org) and
// TERM=dumb are obeyed.
func LookAt(f *os.File) Look {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return Look{} // no terminal
	}
	dumb := os.Getenv("TERM") == "dumb" || os.Getenv("TERM") == ""
	return Look{
		Width: int(size.Col), Height: int(size.Row),
		Live:   !dumb && size.Col > 0 && size.Row > 0,
		Colour: !dumb && os.Getenv("NO_COLOR") == "",
	}
}

// colours of statuses: those that the terminal's own palette has.
var colours = map[Status]string{Fail: "31", Timeout: "35", Unavailable: "90", Skip: "33", Pass: "32"}

// paint gives text the colour of a status, where there are colours.
func (l Look) paint(s Status, text string) string {
	if !l.Colour || text == "" {
		return text
	}
	return "\x1b[" + colours[s] + "m" + text + "\x1b[0m"
}

// bold makes text stand out, where that is possible.
func (l Look) bold(text string) string {
	if !l.Colour {
		return text
	}
	return "\x1b[1m" + text + "\x1b[0m"
}

// cut shortens text to a number of columns. Printable text has one column for each
// character here; libraries name their providers in ASCII.
func cut(text string, width int) string {
	r := []rune(text)
	if width <= 0 || len(r) <= width {
		return text
	}
	return string(r[:width-1]) + "…"
}
