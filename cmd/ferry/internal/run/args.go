package run

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/framework"
)

// hostFlags are those by which mpiexec and mpirun of the various makes choose
// other machines, or places on them. `ferry run` has none of it.
var hostFlags = []string{
	"host", "hosts", "hostlist", "hostfile", "machinefile", "machine", "machines", "f", "H", "ppn", "perhost", "npernode", "N",
	"rf", "rankfile", "launcher", "nodelist", "w",
}

// Normalize makes the arguments of `ferry run` such as people know them from
// mpiexec palatable to package pflag, which reads "-np 4" as "-n p": -np, -wdir
// and other long names with one dash get two. Arguments of other commands, and
// what follows the program's name, stay as they are.
func Normalize(args []string) []string {
	if len(args) == 0 || args[0] != "run" {
		return args
	}
	out := []string{"run"}
	flags := Command().Flags()
	for i := 1; i < len(args); i++ {
		arg := args[i]
		if arg == "--" || !strings.HasPrefix(arg, "-") || arg == "-" {
			return append(out, args[i:]...) // the program
		}
		name, _, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		flag := flags.Lookup(name)
		if flag == nil && !strings.HasPrefix(arg, "--") && len(name) > 0 && flags.ShorthandLookup(name[:1]) != nil &&
			!slices.Contains(hostFlags, name) {
			flag = flags.ShorthandLookup(name[:1])
			hasValue = hasValue || len(name) > 1 // -n4, -xHOME
		} else if !strings.HasPrefix(arg, "--") && len(name) > 1 {
			arg = "-" + arg
		}
		out = append(out, arg)
		if flag != nil && flag.NoOptDefVal == "" && !hasValue && i+1 < len(args) {
			i++
			out = append(out, args[i])
		}
	}
	return out
}

// canonical maps other names of flags to ours.
func canonical(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if name == "np" {
		name = "n"
	}
	return pflag.NormalizedName(name)
}

// badFlag makes an error of package pflag helpful.
func badFlag(flags *pflag.FlagSet, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return exit.Usagef("%w", err)
	}
	name := unknown.GetSpecifiedName()
	dashed := "--" + name
	if len(name) == 1 {
		dashed = "-" + name
	}
	if slices.Contains(hostFlags, name) {
		return exit.Usagef("%s: ranks are started on this machine only; for other machines start the program itself by mpiexec or srun", dashed)
	}
	var known []string
	flags.VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	return exit.Usagef("unknown flag %s; did you mean --%s?", dashed, framework.Nearest(name, known))
}
