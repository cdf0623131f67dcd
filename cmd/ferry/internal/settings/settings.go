// Package settings is what several commands share: the --set flag, whose parameters
// it checks against everything that is compiled in and hands on to ranks; jobs of
// ranks of ferry itself; and --json.
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

// Flag adds --set to flags and returns what it collects.
func Flag(flags *pflag.FlagSet) *[]string {
	return flags.StringArray("set", nil, "set a parameter: `NAME=VALUE`, as in `ferry info`; may be repeated")
}

// Registry returns what this program knows: components and core parameters.
func Registry() *framework.Registry {
	reg := compiled()
	core.Register(reg)
	return reg
}

// Load joins the values of --set with files and an environment, which is this
// process's if it is nil. Errors, which name the nearest known parameter, have the
// status of a usage error.
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

// Options is parameters (NAME=VALUE) for a session of this process. Load checks them.
func Options(set []string) (options []mpi.SessionOption) {
	for _, s := range set {
		name, value, _ := strings.Cut(s, "=")
		options = append(options, mpi.WithParam(name, value))
	}
	return options
}

// Environ is parameters (NAME=VALUE) as variables of the environment, and one that says that
// they were flags. Names of flags that this process has from its own launcher stay, because
// an empty variable counts only as a flag.
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

// Ranks is what Prepare has found out for a job.
type Ranks struct {
	// Env is for the ranks' environment: what Prepare was given, and the settings.
	Env []string

	values *framework.Values
}

// Prepare is for commands that start ranks: it checks the settings, and the
// selection of components that they amount to, before anything starts. exports
// are variables (NAME=value) that the ranks get besides this process's own. It warns of
// foreign variables and of a skipped file, once for all ranks.
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

// warned are the warnings that this process has given: a job of several programs is
// prepared program by program.
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

// Self is a job of n ranks of this program itself, with the arguments args.
func (r *Ranks) Self(n int, args ...string) launch.Job {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return launch.Job{Program: self, Args: args, N: n, Env: r.Env, Cleanup: r.Cleanup, LossGrace: r.LossGrace(),
		ProcessTimeout: r.ProcessTimeout()}
}

// InJob says whether a launcher, ferry's or another, has started this process as a rank,
// where the values of --set are set. It is an error, with the status of a usage error, if
// one has and the ranks can't meet: each would start a job of its own.
func InJob(set []string) (bool, error) {
	reg := Registry()
	values, err := Load(reg, nil, set)
	if err != nil {
		return false, err
	}
	var choice framework.Choice
	chosen, err := reg.Select(context.Background(), framework.Bootstrap, values)
	if err == nil {
		choice, err = chosen.One()
	}
	if err != nil {
		return false, &exit.Error{Status: exit.Usage, Err: err}
	}
	if p, ok := choice.Params.(*local.Params); ok {
		return p.Address != "" && !p.Singleton, nil
	}
	return true, nil
}

// Join is what a rank of this program begins with: a session and, under a tag, a
// communicator of all ranks. done closes both.
func Join(ctx context.Context, tag string, options ...mpi.SessionOption) (session *mpi.Session, comm *mpi.Comm, done func() error, err error) {
	if session, err = mpi.OpenSession(ctx, append(Session(), options...)...); err != nil {
		return nil, nil, nil, err
	}
	if comm, err = World(ctx, session, tag); err != nil {
		return nil, nil, nil, errors.Join(err, session.Close())
	}
	return session, comm, func() error { return errors.Join(comm.Close(), session.Close()) }, nil
}

// World is a communicator of all ranks.
func World(ctx context.Context, session *mpi.Session, tag string) (*mpi.Comm, error) {
	all, err := session.Group(ctx, "mpi://WORLD")
	if err != nil {
		return nil, err
	}
	return mpi.CommFromGroup(ctx, all, tag)
}

// LossGrace is a launch.Job's. A program that chose another time by WithParam has that
// much less of it, or more.
func (r *Ranks) LossGrace() time.Duration { return r.bootstrap().Timeout }

// ProcessTimeout is a launch.Job's. The value of a program's WithParam has no effect under this
// launcher.
func (r *Ranks) ProcessTimeout() time.Duration { return r.bootstrap().ProcessTimeout }

func (r *Ranks) bootstrap() (boot core.Bootstrap) {
	_ = r.values.Decode("bootstrap", &boot) // The values have been checked.
	return boot
}

// Cleanup removes the segments that killed ranks of a job have left: it is a
// launch.Job's. A program that chose another directory by WithParam leaves them
// to its next run. What can't be removed harms nobody but the memory: the next
// job tries again.
func (r *Ranks) Cleanup(namespace string) {
	if dir, ok := r.values.Get("btl.shm.dir"); ok {
		fallback, _ := r.values.Get("btl.shm.fallback_dir")
		_, _ = shm.RemoveJob(dir.Text, fallback.Text, namespace)
	}
}

// Sweep returns a Cleanup for jobs whose processes make worlds of their own, with
// namespaces that nobody else knows, as the kits do: it removes the segments of all
// dead processes of this user.
func Sweep(values *framework.Values) func(namespace string) {
	return func(string) {
		if dir, ok := values.Get("btl.shm.dir"); ok {
			fallback, _ := values.Get("btl.shm.fallback_dir")
			_, _ = shm.RemoveDead(dir.Text, fallback.Text)
		}
	}
}
