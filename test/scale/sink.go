package main

import (
	"context"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// sink is a BTL that reaches all processes and drops each frame. It stands for a transport in processes of the model.
type sink struct{ framework.Basic }

// sinkParams are the parameters of a sink. Dir is that of btl.shm, from which the node id follows.
type sinkParams struct {
	Dir string `param:"dir" default:"" level:"developer" scope:"process" doc:"Directory of the segments of a node."`
}

func newSink(name string) sink {
	return sink{framework.Basic{Kind: framework.BTL, Name: name, Version: "1.0.0", Summary: "model: drops frames"}}
}

func (sink) Params() any { return new(sinkParams) }

func (sink) Open(context.Context, btl.Env) (btl.Module, error) { return sinkModule{}, nil }

type sinkModule struct{}

const sinkFrame = 64 << 10

func (sinkModule) Caps() btl.Caps {
	return btl.Caps{EagerLimit: 4 << 10, FrameLimit: sinkFrame, LatencyNS: 100, Device: "model"}
}

func (sinkModule) Blob() []byte                                 { return []byte{} }
func (sinkModule) Reach(framework.Peer) error                   { return nil }
func (sinkModule) Connect(framework.Peer) (btl.Endpoint, error) { return sinkEndpoint{}, nil }
func (sinkModule) Poll() int                                    { return 0 }
func (sinkModule) Close() error                                 { return nil }

// sinkEndpoint is a path that is never full.
type sinkEndpoint struct{}

func (sinkEndpoint) Reserve(n int, _ btl.Placement) []byte { return make([]byte, n) }
func (sinkEndpoint) Commit(int)                            {}
func (sinkEndpoint) Idle() bool                            { return true }
func (sinkEndpoint) Close()                                {}
