package explain

import (
	"io"
	"slices"

	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
	"github.com/ferrympi/ferry/internal/text"
)

// IsReported reports whether a rank has sent its routes, because of ReportParam or the parameter explain.
func IsReported(reports []launch.Report) bool {
	return slices.ContainsFunc(reports, func(r launch.Report) bool { return r.Name == ReportName })
}

// PrintReported prints the pairs of the ranks if IsReported.
func PrintReported(w io.Writer, reports []launch.Report) error {
	if !IsReported(reports) {
		return nil
	}
	e, err := Merge(reports)
	if err != nil {
		return err
	}
	return e.Print(w, Pairs, text.Width(w))
}
