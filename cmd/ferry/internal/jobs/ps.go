package jobs

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/ferrympi/ferry/bootstrap/local/control"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
)

// PsCommand returns the command ps.
func PsCommand() *cobra.Command {
	var asJSON settings.JSON
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List your running jobs",
		Long: `List the running jobs of this user that ferry run has started on this machine: the
process id of ferry run, the number of ranks and its limit (--max-ranks), the changes in
progress, and the program. The ranks include those of a change in progress, and not those
that have left. A job that does not answer within a second, because ferry run is stopped
for example, is listed as such. Without a job, nothing is printed.

--json prints an object whose field jobs is a list. A job has pid, state (running, ending,
or unavailable with a reason), program, ranks, limit, and changes. A change has type, pset,
add and sub (numbers of ranks), state (starting or integrating), members and integrated
(numbers of ranks that integrate it, and that have done so), and requester.`,
		Example: "  ferry ps\n  ferry ps --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			output, err := asJSON.Open(cmd.OutOrStdout())
			if err != nil {
				return err
			}
			defer output.Close()
			jobs := list(cmd.Context())
			return output.Write(struct {
				Jobs []Job `json:"jobs"`
			}{jobs}, func() error { return printTable(cmd.OutOrStdout(), jobs) })
		},
	}
	asJSON.Flag(cmd.Flags(), "write JSON")
	return cmd
}

// printTable prints a line for each job. Only the last column has no fixed width.
func printTable(w io.Writer, jobs []Job) error {
	if len(jobs) == 0 {
		return nil
	}
	rows := [][]string{{"PID", "RANKS", "LIMIT", "CHANGE", "PROGRAM"}}
	for _, j := range jobs {
		rows = append(rows, j.row())
	}
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	width[len(width)-1] = 0
	var b strings.Builder
	for _, row := range rows {
		line := fmt.Sprintf("%-*s  %*s  %*s  %-*s  %s", width[0], row[0], width[1], row[1], width[2], row[2], width[3], row[3], row[4])
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// row returns the cells of a job.
func (j *Job) row() []string {
	pid := "-"
	if j.PID != 0 {
		pid = strconv.Itoa(j.PID)
	}
	if j.State == unavailable {
		return []string{pid, "-", "-", printable(j.Reason), "-"}
	}
	var changes []string
	for _, c := range j.Changes {
		changes = append(changes, describe(c))
	}
	if j.State == ending {
		changes = append(changes, "ending")
	}
	if len(changes) == 0 {
		changes = []string{"-"}
	}
	return []string{pid, strconv.Itoa(j.Ranks), strconv.Itoa(j.Limit), strings.Join(changes, ", "), printable(j.Program)}
}

// describe returns a change in words.
func describe(c control.Change) string {
	var text string
	switch pset := printable(c.Pset); {
	case c.Add > 0 && c.Sub > 0:
		text = fmt.Sprintf("remove %d of %s and add %d", c.Sub, pset, c.Add)
	case c.Add > 0:
		text = fmt.Sprintf("add %d to %s", c.Add, pset)
	default:
		text = fmt.Sprintf("remove %d of %s", c.Sub, pset)
	}
	if c.State == "starting" {
		return text + " (starting)"
	}
	return fmt.Sprintf("%s (%d of %d integrated)", text, c.Integrated, c.Members)
}

// printable returns a text in one line without control characters.
func printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return strconv.Quote(text)
	}
	return text
}
