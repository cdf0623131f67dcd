// Package core has the parameters that belong to no component: those of the
// public package mpi, the progress engine and the wire-up. It is a package of
// its own so that `ferry info` can list them without opening a session.
package core

import (
	"fmt"
	"time"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml/threads"
	"github.com/ferrympi/ferry/progress"
)

// CID is the group cid: communicator ids.
type CID struct {
	Policy string `param:"policy" default:"auto" choices:"auto,agree,gather,lazy" level:"tuner" scope:"communicator" doc:"how members learn each other's communicator ids: agreed or gathered at creation, or lazily with the first message"`
}

// Coll is the group coll: what belongs to no one collective component.
type Coll struct {
	Force []string `param:"force" default:"" level:"tuner" scope:"communicator" doc:"what collective operations do, in place of what is chosen by size: OPERATION=COMPONENT or OPERATION=COMPONENT:ALGORITHM, such as allreduce=tuned:ring,bcast=shm; equal in all ranks"`
	Check bool     `param:"check" default:"false" level:"user" scope:"communicator" doc:"whether members compare operation, length, root and algorithm before each collective; if these differ all fail, with an error that says what each called. It finds mistakes in a program, and costs an allgather for each collective; equal in all ranks"`
}

// Session is the group session.
type Session struct {
	Linger     time.Duration  `param:"linger" default:"5s" min:"0s" level:"user" scope:"session" doc:"how long closing the last session waits for accepted sends to leave this process"`
	BsendLimit framework.Size `param:"bsend_limit" default:"64MiB" min:"0B" unit:"bytes" level:"user" scope:"session" doc:"memory for the copies of buffered sends that have not left yet; a Bsend that needs more is an error"`
	Report     []string       `param:"report" default:"" choices:"explain,timing" level:"developer" scope:"process" doc:"reports to the launcher when the last session closes; ferry run --explain and --timing set it"`
	Explain    bool           `reads:"explain"`
}

// Bootstrap is the group bootstrap.
type Bootstrap struct {
	Timeout time.Duration `param:"timeout" default:"60s" min:"1ms" level:"user" scope:"process" doc:"how long each step of a collective wire-up waits for the other members, and how long a process that has lost its launcher goes on"`
	OnLoss  string        `param:"on_loss" default:"end" choices:"end,continue" level:"user" scope:"process" doc:"when the launcher is gone, and with it the news of processes that end: end what is pending with others after bootstrap.timeout, or continue without such news"`
	// RootsFrom is compared with the number of members.
	RootsFrom int `param:"roots_from" default:"1024" min:"0" level:"tuner" scope:"process" doc:"number of members from which a communicator of processes on two nodes or more is created in levels: first those of each node, then one process of each node, and the rest by messages. 0: always. Equal in all ranks."`

	HostTimeout    time.Duration `param:"host_timeout" default:"30s" min:"5s" level:"user" scope:"process" doc:"how long the host of another process may give no sign before all processes of that host are reported dead; with bootstraps other than local; equal in all ranks"`
	ProcessTimeout time.Duration `param:"process_timeout" default:"0s" min:"0s" level:"user" scope:"process" doc:"how long a process may leave queries unanswered, although its host answers, before it is reported dead; 0: forever, so that a process may be stopped or debugged; equal in all ranks and in ferry run"`
}

// LossContinue is the value of bootstrap.on_loss with which a process goes on without its
// launcher.
const LossContinue = "continue"

// Progress is the group progress.
type Progress struct {
	Spin  string        `param:"spin" default:"auto" level:"tuner" scope:"process" doc:"how long a wait polls before it offers the processor to others: a duration, or auto"`
	Yield string        `param:"yield" default:"auto" level:"tuner" scope:"process" doc:"how long it goes on polling after that, before it sleeps: a duration, or auto"`
	Slice time.Duration `param:"slice" default:"100us" min:"0s" level:"tuner" scope:"process" doc:"how long a turn the process asks the scheduler for (Linux 6.12 and newer); 0s leaves that to the system"`
}

// explainParams has the parameter explain, which belongs to no group.
var explainParams = []framework.ParamSpec{
	{Name: "explain", Type: framework.TypeBool, Default: "false", Level: framework.LevelUser, Scope: framework.ScopeProcess,
		Doc: "whether the routes of messages are printed to standard error when the last session closes: under ferry run those of all ranks, under other launchers those of rank 0"},
}

// Register adds the groups to r, except those that r has already.
func Register(r *framework.Registry) {
	for prefix, params := range map[string]any{
		"cid": new(CID), "coll": new(Coll), "session": new(Session), "bootstrap": new(Bootstrap), "progress": new(Progress),
		"threads": new(threads.Params),
	} {
		specs := framework.ParamsOf(prefix, params)
		if _, ok := r.EnvParam(framework.EnvName(specs[0].Name)); !ok {
			r.RegisterParams(specs...)
		}
	}
	for _, specs := range [][]framework.ParamSpec{logParams, explainParams} {
		if _, ok := r.EnvParam(framework.EnvName(specs[0].Name)); !ok {
			r.RegisterParams(specs...)
		}
	}
}

// Check says what is wrong with the values of the groups beyond what their tags
// say, before a session is opened with them. It is ErrConfig.
func Check(reg *framework.Registry, values *framework.Values) error {
	if _, err := ParseLog(reg, values); err != nil {
		return err
	}
	for _, name := range []string{"progress.spin", "progress.yield"} {
		value, _ := values.Get(name)
		if _, err := duration(name, value.Text, 0); err != nil {
			return fmt.Errorf("%w (%s)", err, value.Source)
		}
	}
	return nil
}

// Forced returns what coll.force asks for, of components that were selected; nil: nothing.
// It is ErrConfig if there is no such thing.
func Forced(values *framework.Values, selections map[framework.Kind]*framework.Selection) (*coll.Force, error) {
	var p Coll
	if err := values.Decode("coll", &p); err != nil {
		return nil, err
	}
	return coll.ParseForce(p.Force, selections[framework.Coll])
}

// Options returns the engine's options of the group. With auto, a wait polls for longer while
// each process that shares the node has a processor (progress.Engine.SetNodeProcs).
func (p Progress) Options() (progress.Options, error) {
	spin, err := duration("progress.spin", p.Spin, 0)
	if err != nil {
		return progress.Options{}, err
	}
	yield, err := duration("progress.yield", p.Yield, progress.DefaultYield)
	slice := p.Slice
	if slice == 0 {
		slice = -1 // 0 would mean the engine's default
	}
	return progress.Options{Spin: spin, Yield: yield, Slice: slice}, err
}

func duration(name, text string, auto time.Duration) (time.Duration, error) {
	if text == "auto" {
		return auto, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%w: parameter %s: %q is neither auto nor a duration such as 50us", framework.ErrConfig, name, text)
	}
	return max(d, 1), nil // 0 would mean the engine's default
}
