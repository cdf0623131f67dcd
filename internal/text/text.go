// Package text lays out text for readers in tables and paragraphs that fit a terminal.
//
// It stands on golang.org/x/sys.
package text

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

const (
	defaultWidth = 80 // Where there is neither a terminal nor COLUMNS.
	minWidth     = 40 // Narrower tables are unreadable.
)

// Width returns the number of columns for text that is written to w. It is that of COLUMNS, else that of the terminal,
// else 80, and at least 40.
func Width(w io.Writer) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return max(n, minWidth)
	}
	if f, ok := w.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return max(int(size.Col), minWidth)
		}
	}
	return defaultWidth
}

// Wrap writes text in lines of at most width columns, each of them indented. A word is never broken.
func Wrap(b *strings.Builder, width int, indent, text string) {
	for _, line := range lines(text, width-utf8.RuneCountInString(indent)) {
		b.WriteString(strings.TrimRight(indent+line, " ") + "\n")
	}
}

// gap separates the columns of a table.
const gap = 2

// Table writes rows of equal length, aligned in columns, in lines of at most width columns. The widest columns are
// wrapped. Lines exceed width only if the longest words of the columns do.
func Table(b *strings.Builder, width int, rows [][]string) {
	for _, row := range TableLines(width, rows) {
		for _, line := range row {
			b.WriteString(line + "\n")
		}
	}
}

// Section writes a table below a blank line if b has text. A table without rows below its heads is left out.
func Section(b *strings.Builder, width int, rows [][]string) {
	if len(rows) < 2 {
		return
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	Table(b, width, rows)
}

// TableLines returns the lines of each row of a table.
func TableLines(width int, rows [][]string) (all [][]string) {
	if len(rows) == 0 {
		return nil
	}
	widths := columnWidths(rows, width)
	for _, row := range rows {
		var out []string
		cells, height := make([][]string, len(row)), 1
		for i, cell := range row {
			cells[i] = lines(cell, widths[i])
			height = max(height, len(cells[i]))
		}
		for k := range height {
			line := ""
			for i := range cells {
				cell := ""
				if k < len(cells[i]) {
					cell = cells[i][k]
				}
				line += fmt.Sprintf("%-*s", widths[i]+gap, cell)
			}
			out = append(out, strings.TrimRight(line, " "))
		}
		all = append(all, out)
	}
	return all
}

// columnWidths returns the widths of the columns of a table. From the widths of the cells, it narrows the widest
// column until the table fits or each column is as narrow as its longest word.
func columnWidths(rows [][]string, width int) []int {
	columns := len(rows[0])
	natural, narrowest := make([]int, columns), make([]int, columns)
	total := gap * (columns - 1)
	for i := range columns {
		for _, row := range rows {
			natural[i] = max(natural[i], utf8.RuneCountInString(row[i]))
			for _, word := range strings.Fields(row[i]) {
				narrowest[i] = max(narrowest[i], utf8.RuneCountInString(word))
			}
		}
		total += natural[i]
	}
	for ; total > width; total-- {
		widest := -1
		for i := range natural {
			if natural[i] > narrowest[i] && (widest < 0 || natural[i] >= natural[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		natural[widest]--
	}
	return tighten(rows, width, natural)
}

// tighten reduces widths to those of the wrapped lines. The last column gets the columns that this leaves.
func tighten(rows [][]string, width int, widths []int) []int {
	last := len(widths) - 1
	left := width
	for i := range widths {
		used := 0
		for _, row := range rows {
			for _, line := range lines(row[i], widths[i]) {
				used = max(used, utf8.RuneCountInString(line))
			}
		}
		if i == last {
			widths[i] = max(used, left)
			break
		}
		widths[i] = used
		left -= used + gap
	}
	return widths
}

// lines breaks text at spaces into lines of at most width columns, at least one. Line ends and tabs are spaces.
func lines(text string, width int) []string {
	if utf8.RuneCountInString(text) <= width && !strings.ContainsAny(text, "\n\t") {
		return []string{text}
	}
	var out []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			out = append(out, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(out, line)
}
