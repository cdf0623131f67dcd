// Package settings has the common parts of commands: the flag --set, with a check of its parameters against
// the compiled components; jobs of ranks of ferry itself; and the flag --json.
package settings

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
	"github.com/ferrympi/ferry/components/core"
	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

// Flag adds --set to flags and returns its values.
func Flag(flags *pflag.FlagSet) *[]string {
	return flags.StringArray("set", nil, "set a parameter: `NAME=VALUE`, as in `ferry info`; may be repeated")
}

// Registry returns the components of this program and the core parameters.
func Registry() *framework.Registry {
	reg := compiled()
	core.Register(reg)
	return reg
}

// Load combines the values of --set with files and an environment (nil: that of this
// process). Errors name the nearest known parameter, and have the status of a usage error.
func Load(reg *framework.Registry, environ, set []string) (*framework.Values, error) {
	return load(reg, config.Options{Environ: environ}, set)
}

// LoadForUser is Load for a command that a user starts. It warns of a skipped file.
func LoadForUser(reg *framework.Registry, set []string) (*framework.Values, error) {
	return load(reg, config.Options{Skipped: warnSkipped}, set)
}

func load(reg *framework.Registry, opt config.Options, set []string) (*framework.Values, error) {
	for _, s := range set {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, exit.Usagef("--set %s: want NAME=VALUE", s)
		}
		opt.Flags = append(opt.Flags, config.Setting{Name: name, Value: value})
	}
	values, err := config.Load(reg, opt)
	if err == nil {
		err = core.Check(reg, values)
	}
	if err != nil {
		err = &exit.Error{Status: exit.Usage, Err: err}
	}
	return values, err
}

// Options returns parameters (NAME=VALUE) as options for a session of this process, without a check.
func Options(set []string) (options []mpi.SessionOption) {
	for _, s := range set {
		name, value, _ := strings.Cut(s, "=")
		options = append(options, mpi.WithParam(name, value))
	}
	return options
}

// Environ returns parameters (NAME=VALUE) as environment variables, and config.FlagsVariable with their names
// and those of this process's launcher, because an empty variable counts only as a flag.
func Environ(set []string) (env []string) {
	var names []string
	if outer := os.Getenv(config.FlagsVariable); outer != "" {
		names = append(names, outer)
	}
	for _, s := range set {
		name, value, _ := strings.Cut(s, "=")
		env = append(env, framework.EnvName(name)+"="+value)
		names = append(names, name)
	}
	if len(names) > 0 {
		env = append(env, config.FlagsVariable+"="+strings.Join(names, ","))
	}
	return env
}

// Ranks is the result of Prepare.
type Ranks struct {
	// Env is added to the ranks' environment: the exports of Prepare, and the settings.
	Env []string

	values *framework.Values
}

// Prepare checks the settings of a job, and the resulting selection of components, before ranks start. exports
// are variables (NAME=value) that the ranks get besides the environment of this process. Foreign variables and a
// skipped file cause one warning for all ranks.
func Prepare(ctx context.Context, exports, set []string) (*Ranks, error) {
	reg := Registry()
	values, err := load(reg, config.Options{Environ: append(os.Environ(), exports...), Foreign: warnForeign, Skipped: warnSkipped}, set)
	if err != nil {
		return nil, err
	}
	selections, err := reg.SelectAll(ctx, values)
	if err == nil {
		_, err = core.Forced(values, selections)
	}
	if err != nil {
		return nil, &exit.Error{Status: exit.Usage, Err: err}
	}
	return &Ranks{Env: slices.Concat(exports, Environ(set)), values: values}, nil
}

// warned has the texts of printed warnings, because a job of several programs is prepared once per
// program.
var warned sync.Map

func warnForeign(variables []string) {
	warn("unknown variables in the environment are ignored (other software may use them): %s", strings.Join(variables, ", "))
}

func warnSkipped(file string, reason error) {
	warn("configuration file %s is ignored, because it %w; %s", file, reason, config.SkippedRemedy)
}

func warn(format string, args ...any) {
	text := fmt.Errorf(format, args...).Error()
	if _, before := warned.LoadOrStore(text, true); !before {
		fmt.Fprintf(os.Stderr, "ferry: warning: %s\n", text)
	}
}

// Self returns a job of n ranks of this program with the arguments args.
func (r *Ranks) Self(n int, args ...string) launch.Job {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return launch.Job{
		Part: launch.Part{Program: self, Args: args, RankCount: n, Env: r.Env}, Cleanup: r.Cleanup,
		FailurePolicy: launch.FailurePolicy{LossGrace: r.LossGrace(), ProcessTimeout: r.ProcessTimeout()},
	}
}

// InJob reports whether a launcher, ferry's or another, has started this process as a rank,
// with the values of --set. If one has, and the ranks cannot connect, the error has the status of a usage
// error, because each rank would start a separate job.
func InJob(set []string) (bool, error) {
	reg := Registry()
	values, err := Load(reg, nil, set)
	if err != nil {
		return false, err
	}
	var choice framework.Choice
	chosen, err := reg.Select(context.Background(), framework.Bootstrap, values)
	if err == nil {
		choice, err = chosen.TakeFirst()
	}
	if err != nil {
		return false, &exit.Error{Status: exit.Usage, Err: err}
	}
	if p, ok := choice.Params.(*local.Params); ok {
		return p.Address != "" && !p.Singleton, nil
	}
	return true, nil
}

// Join opens a session and a communicator of all ranks with a tag. done closes both.
func Join(ctx context.Context, tag string, options ...mpi.SessionOption) (session *mpi.Session, comm *mpi.Comm, done func() error, err error) {
	if session, err = mpi.OpenSession(ctx, append(Session(), options...)...); err != nil {
		return nil, nil, nil, err
	}
	if comm, err = World(ctx, session, tag); err != nil {
		return nil, nil, nil, errors.Join(err, session.Close())
	}
	return session, comm, func() error { return errors.Join(comm.Close(), session.Close()) }, nil
}

// World returns a communicator of all ranks.
func World(ctx context.Context, session *mpi.Session, tag string) (*mpi.Comm, error) {
	all, err := session.Group(ctx, "mpi://WORLD")
	if err != nil {
		return nil, err
	}
	return mpi.CommFromGroup(ctx, all, tag)
}

// LossGrace is the value for launch.Job. A time that the program sets by WithParam has no effect
// on the launcher.
func (r *Ranks) LossGrace() time.Duration { return r.bootstrap().Timeout }

// ProcessTimeout is the value for launch.Job. A time that the program sets by WithParam has no effect on the
// launcher.
func (r *Ranks) ProcessTimeout() time.Duration { return r.bootstrap().ProcessTimeout }

func (r *Ranks) bootstrap() (boot core.Bootstrap) {
	_ = r.values.Decode("bootstrap", &boot) // The values have been checked.
	return boot
}

// Cleanup removes the segments of killed ranks of a job, for launch.Job. The next run removes those in another
// directory (WithParam), and retries those that could not be removed.
func (r *Ranks) Cleanup(namespace string) {
	if dir, ok := r.values.Get("btl.shm.dir"); ok {
		fallback, _ := r.values.Get("btl.shm.fallback_dir")
		_, _ = shm.RemoveJobSegments(dir.Text, fallback.Text, namespace)
	}
}

// Sweep returns a Cleanup that removes the segments of all dead processes of this user. It is for jobs that
// create further jobs with unknown namespaces, as the kits do.
func Sweep(values *framework.Values) func(namespace string) {
	return func(string) {
		if dir, ok := values.Get("btl.shm.dir"); ok {
			fallback, _ := values.Get("btl.shm.fallback_dir")
			_, _ = shm.RemoveDeadSegments(dir.Text, fallback.Text)
		}
	}
}
