// Package core declares the parameters of package mpi, the progress engine and the wire-up. `ferry info` lists them without
// opening a session.
package core

import (
	"fmt"
	"time"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml/threads"
	"github.com/ferrympi/ferry/progress"
)

// CID is the parameter group cid of communicator ids.
type CID struct {
	Policy string `param:"policy" default:"auto" choices:"auto,agree,gather,lazy" level:"tuner" scope:"communicator" doc:"how members learn each other's communicator ids: agreed or gathered at creation, or lazily with the first message"`
}

// Coll is the parameter group coll of all collective components.
type Coll struct {
	Force []string `param:"force" default:"" level:"tuner" scope:"communicator" doc:"algorithms of collective operations, overriding the choice by size: OPERATION=COMPONENT or OPERATION=COMPONENT:ALGORITHM, such as allreduce=tuned:ring,bcast=shm; equal in all ranks"`
	Check bool     `param:"check" default:"false" level:"user" scope:"communicator" doc:"whether members compare operation, length, root and algorithm before each collective; if these differ all fail with an error that lists the calls. It finds mistakes in a program and costs an allgather for each collective; equal in all ranks"`
}

// Session is the parameter group session.
type Session struct {
	Linger     time.Duration  `param:"linger" default:"5s" min:"0s" level:"user" scope:"session" doc:"how long closing the last session waits for accepted sends to leave this process"`
	BsendLimit framework.Size `param:"bsend_limit" default:"64MiB" min:"0B" unit:"bytes" level:"user" scope:"session" doc:"memory for the copies of buffered sends that have not left yet; a Bsend that needs more is an error"`
	Report     []string       `param:"report" default:"" choices:"explain,timing" level:"developer" scope:"process" doc:"reports to the launcher when the last session closes; ferry run --explain and --timing set it"`
	Explain    bool           `reads:"explain"`
}

// Bootstrap is the parameter group bootstrap.
type Bootstrap struct {
	Timeout   time.Duration `param:"timeout" default:"60s" min:"1ms" level:"user" scope:"process" doc:"how long each step of a collective wire-up waits for the other members, and how long a process runs after it has lost its launcher"`
	OnLoss    string        `param:"on_loss" default:"end" choices:"end,continue" level:"user" scope:"process" doc:"after the loss of the launcher, which reports ended processes: end pending operations with other processes after bootstrap.timeout, or continue without those reports"`
	RootsFrom int           `param:"roots_from" default:"1024" min:"0" level:"tuner" scope:"process" doc:"number of members from which a communicator of processes on two nodes or more is created in levels: the members of each node first, then the node leaders, and the rest by messages; 0: always; equal in all ranks"`

	HostTimeout    time.Duration `param:"host_timeout" default:"30s" min:"5s" level:"user" scope:"process" doc:"how long the host of another process may give no sign before all processes of that host are reported dead; with bootstraps other than local; equal in all ranks"`
	ProcessTimeout time.Duration `param:"process_timeout" default:"0s" min:"0s" level:"user" scope:"process" doc:"how long a process may leave queries unanswered, although its host answers, before it is reported dead; 0: forever, so that a process may be stopped or debugged; equal in all ranks and in ferry run"`

	MaxRanks int `param:"max_ranks" default:"0" min:"0" level:"user" scope:"process" doc:"largest number of processes of the job at a time, for jobs that add processes under launchers other than ferry run, where --max-ranks is the limit; 0: four times the first number; equal in all ranks"`
}

// LossContinue is the value of bootstrap.on_loss for processes that continue without their launcher.
const LossContinue = "continue"

// Progress is the parameter group progress.
type Progress struct {
	Spin  string        `param:"spin" default:"auto" level:"tuner" scope:"process" doc:"how long a wait polls before it yields the processor: a duration, or auto"`
	Yield string        `param:"yield" default:"auto" level:"tuner" scope:"process" doc:"how long a wait then polls between yields before it sleeps: a duration, or auto"`
	Slice time.Duration `param:"slice" default:"100us" min:"0s" level:"tuner" scope:"process" doc:"time slice requested from the scheduler (Linux 6.12 and newer); 0s for the default of the system"`
}

// explainParams has the parameter explain, without a group.
var explainParams = []framework.ParamSpec{
	{Name: "explain", Type: framework.TypeBool, Default: "false", Level: framework.LevelUser, Scope: framework.ScopeProcess,
		Doc: "whether the routes of messages are printed to standard error when the last session closes: under ferry run those of all ranks, under other launchers those of rank 0"},
}

// Register adds the groups to r, except those registered already.
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

// Check validates the values of the groups beyond the limits in tags. It returns ErrConfig.
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

// Forced parses coll.force against the selected components. It returns nil if the parameter is empty, and ErrConfig for an
// unknown component or algorithm.
func Forced(values *framework.Values, selections map[framework.Kind]*framework.Selection) (*coll.Force, error) {
	var p Coll
	if err := values.Decode("coll", &p); err != nil {
		return nil, err
	}
	return coll.ParseForce(p.Force, selections[framework.Coll])
}

// Options returns the options of the engine. With auto, a wait spins longer while each process of the node has a processor
// (progress.Engine.SetNodeProcs).
func (p Progress) Options() (progress.Options, error) {
	spin, err := duration("progress.spin", p.Spin, 0)
	if err != nil {
		return progress.Options{}, err
	}
	yield, err := duration("progress.yield", p.Yield, progress.DefaultYield)
	slice := p.Slice
	if slice == 0 {
		slice = -1 // Zero selects the engine's default.
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
	return max(d, 1), nil // Zero selects the engine's default.
}
