package settings

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/internal/outfile"
)

// JSON is the value of the flag --json[=FILE], or "" if it is not given. Without FILE, JSON takes the place of the text on standard output. With FILE, it goes to
// that file, and the text remains.
type JSON string

// Stdout is the value for standard output.
const Stdout JSON = "-"

// Flag adds --json to flags.
func (j *JSON) Flag(flags *pflag.FlagSet, usage string) {
	flags.Var(j, "json", usage+" to `FILE`, or to standard output in place of text")
	flags.Lookup("json").NoOptDefVal = string(Stdout)
}

// String implements pflag.Value.
func (j *JSON) String() string { return string(*j) }

// Type implements pflag.Value.
func (*JSON) Type() string { return "file" }

// Set implements pflag.Value. Boolean values are those of an earlier flag.
func (j *JSON) Set(path string) error {
	switch path {
	case "":
		return errors.New("want a file")
	case "true":
		path = string(Stdout)
	case "false":
		path = ""
	}
	*j = JSON(path)
	return nil
}

// Open checks before the work that the output can be written. The caller closes the output.
func (j JSON) Open(stdout io.Writer) (*Output, error) {
	o := &Output{stdout: stdout, jsonPath: j}
	if j == "" || j == Stdout {
		return o, nil
	}
	var err error
	if o.jsonFile, err = outfile.NewReport(string(j)); err != nil {
		return nil, exit.Usagef("--json: %w", err)
	}
	return o, nil
}

// Output is the output of a command with --json.
type Output struct {
	stdout   io.Writer
	jsonPath JSON
	// Nil without FILE.
	jsonFile *outfile.Report
}

// Write writes v as JSON if that was requested, and calls text unless the JSON is on standard output.
func (o *Output) Write(v any, text func() error) error {
	switch {
	case o.jsonPath == Stdout:
		return PrintJSON(o.stdout, v)
	case o.jsonFile != nil:
		if err := o.jsonFile.Write(func(w io.Writer) error { return PrintJSON(w, v) }); err != nil {
			return err
		}
	}
	return text()
}

// Close frees the output.
func (o *Output) Close() {
	if o.jsonFile != nil {
		o.jsonFile.Close()
	}
}

// PrintJSON writes v as indented JSON.
func PrintJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// JoinJSON joins --json and the next argument, as the commands matrix and component check accepted it.
func JoinJSON(args []string) []string {
	isOld := len(args) > 0 && args[0] == "matrix" || len(args) > 1 && args[0] == "component" && args[1] == "check"
	for i := 0; isOld && i+1 < len(args) && args[i] != "--"; i++ {
		if next := args[i+1]; args[i] == "--json" && (next == string(Stdout) || !strings.HasPrefix(next, "-")) {
			args = slices.Replace(slices.Clone(args), i, i+2, "--json="+next)
		}
	}
	return args
}
