package plugin

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/plugin/internal/control"
	"github.com/ferrympi/ferry/plugin/internal/wire"
)

// serveGoPlugin implements Serve with go-plugin, which replaces os.Stdout and os.Stderr by pipes that end with the gRPC server. It restores the
// files for the caller's last lines.
func serveGoPlugin(c btl.Component) error {
	stderr := os.Stderr
	v := &service{component: c, server: newServer(stderr), served: make(chan struct{})}
	if Started() {
		go v.awaitRank()
	}
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  control.Handshake,
		VersionedPlugins: control.Versions(v),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			s := grpc.NewServer(opts...)
			v.mu.Lock()
			defer v.mu.Unlock()
			v.stopServer = s.Stop
			if v.isOrphan {
				s.Stop()
			}
			return s
		},
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: stderr, DisableTime: true}),
	})
	os.Stderr = stderr
	return v.end()
}

// service implements the gRPC service Transport.
type service struct {
	control.UnimplementedTransportServer
	component btl.Component
	server    *server

	mu sync.Mutex
	// Stops the gRPC server.
	stopServer func()
	// The rank has ended.
	isOrphan bool
	// Open has succeeded.
	isOpened bool
	// Closed when the transport has ended.
	served chan struct{}
	// Of the transport. Valid after served is closed.
	transportErr error
}

// Open implements control.TransportServer.
func (v *service) Open(_ context.Context, r *control.OpenRequest) (*control.OpenResponse, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isOpened {
		return nil, status.Error(codes.FailedPrecondition, "the transport is open already")
	}
	offer, err := v.server.open(v.component, r.Start())
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	v.isOpened = true
	go func() {
		v.transportErr = v.server.serve()
		close(v.served)
		if v.transportErr != nil {
			v.stopServer()
		}
	}()
	return control.ResponseOf(offer), nil
}

// running reports whether Open has succeeded.
func (v *service) running() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.isOpened {
		return status.Error(codes.FailedPrecondition, "the transport is not open")
	}
	return nil
}

// Ping implements control.TransportServer.
func (v *service) Ping(ctx context.Context, _ *control.PingRequest) (*control.PingResponse, error) {
	if err := v.running(); err != nil {
		return nil, err
	}
	published := make(chan uint64, 1)
	go v.server.ping(func(n uint64) error { published <- n; return nil })
	select {
	case n := <-published:
		return &control.PingResponse{Published: n}, nil
	case <-v.served:
		return nil, status.Error(codes.FailedPrecondition, "the transport is closed")
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// Close implements control.TransportServer.
func (v *service) Close(ctx context.Context, _ *control.CloseRequest) (*control.CloseResponse, error) {
	if err := v.running(); err != nil {
		return nil, err
	}
	v.server.end(nil)
	select {
	case <-v.served:
		return &control.CloseResponse{}, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// end ends the transport after the gRPC server has stopped.
func (v *service) end() error {
	if v.running() != nil {
		return nil
	}
	v.server.end(nil)
	<-v.served
	return v.transportErr
}

// awaitRank stops the gRPC server when the rank has ended. The kernel kills a child of the rank, but not the child of a script that the rank has
// started.
func (v *service) awaitRank() {
	_, _, err := socket(wire.ControlFD).receive()
	if err == nil {
		err = errors.New("control frame from a rank that speaks go-plugin")
	}
	v.mu.Lock()
	v.isOrphan = true
	opened, stop := v.isOpened, v.stopServer
	v.mu.Unlock()
	if opened {
		v.server.end(err)
	}
	if stop != nil {
		stop()
	}
}
