package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/cm"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
)

const (
	messages = 2    // of a ping-pong
	warmup   = 1000 // ping-pongs, in which the ids are exchanged and memory is touched
)

// play is the process that is counted: n ping-pongs of 8 bytes between two ranks.
func play(ctx context.Context, over, policy string, n int) (err error) {
	p, err := cid.ParsePolicy(policy)
	if err != nil {
		return err
	}
	var stack pmltest.Stack
	switch over {
	case "ob1":
		stack = pmltest.Stack{PML: ob1.Component(), BTLs: []btl.Component{self.Component(), shm.Component()}}
	case "cm":
		stack = pmltest.Stack{PML: cm.Component(), MTL: mtltest.NewMemory(mtltest.Options{}).Component()}
	default:
		return fmt.Errorf("-pml %s: want ob1 or cm", over)
	}
	w, err := pmltest.NewWorld(stack, 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	comms, err := w.Comm(p)
	if err != nil {
		return err
	}
	buf := pml.Buffer{Bytes: make([]byte, 8)}
	for range warmup + n {
		for from := range comms {
			if err := comms[from].Send(ctx, buf, 1-from, 1, pml.PointToPoint, pml.Standard); err != nil {
				return err
			}
			if _, err := comms[1-from].Recv(ctx, buf, from, 1, pml.PointToPoint); err != nil {
				return err
			}
		}
	}
	for _, c := range comms {
		c.Close()
	}
	return nil
}
