package run

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
)

// separator separates the programs of a job, as in mpiexec.
const separator = ":"

// addPartFlags adds the flags that each program of a job may have.
func (o *options) addPartFlags(f *pflag.FlagSet) {
	f.SetInterspersed(false) // Flags after the name of the program belong to it.
	f.SetNormalizeFunc(canonicalFlag)
	f.IntVarP(&o.rankCount, "n", "n", 1, "number of ranks `N` (also -np)")
	f.StringArrayVarP(&o.exports, "x", "x", nil, "environment variable for the ranks: `VAR[=VALUE]`; VAR alone must be set already; may be repeated")
	f.StringVar(&o.workDir, "wdir", "", "working `DIRECTORY` of the ranks")
}

// parseParts returns the programs of the job. args are the arguments after the flags for all programs.
func (o *options) parseParts(args []string) (all []launch.Part, err error) {
	lists := [][]string{args}
	if !o.isSingleProgram {
		lists = nil
		for rest, more := args, true; more; {
			i := slices.Index(rest, separator)
			if more = i >= 0; !more {
				i = len(rest)
			}
			lists = append(lists, rest[:i])
			rest = rest[min(i+1, len(rest)):]
		}
	}
	for i, list := range lists {
		own := *o
		if i > 0 {
			own = options{}
			f := pflag.NewFlagSet("", pflag.ContinueOnError)
			f.SetOutput(io.Discard)
			own.addPartFlags(f)
			if err := f.Parse(normalizeFlags(f, list)); err != nil {
				var unknown *pflag.NotExistError
				if errors.As(err, &unknown) && Command().Flags().Lookup(unknown.GetSpecifiedName()) != nil {
					return nil, exit.Usagef("--%s is for the whole job: give it before the first program", unknown.GetSpecifiedName())
				}
				return nil, FlagError(f, err)
			}
			list = f.Args()
			if own.workDir == "" {
				own.workDir = o.workDir
			}
			own.exports = slices.Concat(o.exports, own.exports)
		}
		part, err := own.makePart(list, len(lists) > 1)
		if err != nil {
			return nil, err
		}
		all = append(all, part)
	}
	return all, nil
}

// makePart returns one program of the job. It must exist.
func (o *options) makePart(args []string, isOneOfSeveral bool) (p launch.Part, err error) {
	switch {
	case len(args) == 0 && isOneOfSeveral:
		return p, exit.Usagef("no program on one side of the colon: ferry run -n 1 PROGRAM : -n 3 PROGRAM; a colon that is an argument needs -- before the program")
	case len(args) == 0:
		return p, exit.Usagef("no program given: ferry run -n 4 PROGRAM")
	case o.rankCount < 1:
		return p, exit.Usagef("-n %d: want at least 1 rank", o.rankCount)
	}
	p = launch.Part{Args: args[1:], RankCount: o.rankCount, WorkingDir: o.workDir}
	for _, x := range o.exports {
		name, _, hasValue := strings.Cut(x, "=")
		if name == "" {
			return p, exit.Usagef("-x %s: want VAR or VAR=value", x)
		}
		if hasValue {
			p.Env = append(p.Env, x)
		} else if _, ok := os.LookupEnv(name); !ok {
			return p, exit.Usagef("-x %s: %s is not set", x, name)
		}
	}
	p.Program, err = launch.Resolve(args[0])
	return p, err
}
