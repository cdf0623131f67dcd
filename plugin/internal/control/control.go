// Package control is the part of go-plugin's protocol that a rank and its plugin share. It has the
// handshake, and the gRPC service Transport of transport.proto. Frames and the state of paths
// travel through the rings of package wire.
//
// It imports go-plugin and gRPC, so that only plugin and plugin/host may import it.
package control

import (
	"context"
	"math"
	"strconv"

	plugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/ferrympi/ferry/plugin/internal/wire"
)

// Handshake has the magic cookie that a rank sets for its plugin.
var Handshake = plugin.HandshakeConfig{MagicCookieKey: "FERRY_GO_PLUGIN", MagicCookieValue: "5f7a31c24f0b4f0d9d7c0a4e2f6b8f1e"}

// Name is the name of the service in a plugin set.
const Name = "transport"

// Versions are the plugin sets by protocol version. Version 1 of the service belongs to version
// 1 of the memory.
func Versions(server TransportServer) map[int]plugin.PluginSet {
	return map[int]plugin.PluginSet{wire.Version: {Name: &transport{server: server}}}
}

// SupportedVersions lists the versions for messages.
func SupportedVersions() string { return strconv.Itoa(wire.Version) }

// transport implements plugin.GRPCPlugin. A rank has no server.
type transport struct {
	plugin.NetRPCUnsupportedPlugin
	server TransportServer
}

func (t *transport) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	RegisterTransportServer(s, t.server)
	return nil
}

func (*transport) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, c *grpc.ClientConn) (any, error) {
	return NewTransportClient(c), nil
}

// RequestOf encodes the start of a transport.
func RequestOf(s wire.Start) *OpenRequest {
	return &OpenRequest{
		Nonce: s.Nonce, Rank: s.Rank, Size: s.Size, LocalRank: s.LocalRank, LocalSize: s.LocalSize,
		Namespace: []byte(s.Namespace), Node: []byte(s.Node), Directory: []byte(s.Dir),
	}
}

// Start decodes a request.
func (r *OpenRequest) Start() wire.Start {
	return wire.Start{
		Version: wire.Version, Nonce: r.GetNonce(), Rank: r.GetRank(), Size: r.GetSize(), LocalRank: r.GetLocalRank(), LocalSize: r.GetLocalSize(),
		Namespace: string(r.GetNamespace()), Node: string(r.GetNode()), Dir: string(r.GetDirectory()),
	}
}

// ResponseOf encodes the description of an open transport.
func ResponseOf(o wire.Offer) *OpenResponse {
	return &OpenResponse{
		ReachesSelf: o.Reaches&wire.ReachesSelf != 0, ReachesOthers: o.Reaches&wire.ReachesOthers != 0,
		EagerLimit: o.Eager, FrameLimit: o.Frame, Exclusivity: o.Exclusivity, LatencyNs: o.Latency,
		Name: o.Name, Device: o.Device, Address: o.Blob,
	}
}

// Offer decodes a response. Its values are untrusted.
func (r *OpenResponse) Offer() wire.Offer {
	o := wire.Offer{
		Version: wire.Version, Eager: r.GetEagerLimit(), Frame: r.GetFrameLimit(), Exclusivity: r.GetExclusivity(), Latency: min(r.GetLatencyNs(), math.MaxInt64),
		Name: r.GetName(), Device: r.GetDevice(), Blob: r.GetAddress(),
	}
	if o.Blob == nil {
		o.Blob = []byte{} // An empty address.
	}
	if r.GetReachesSelf() {
		o.Reaches |= wire.ReachesSelf
	}
	if r.GetReachesOthers() {
		o.Reaches |= wire.ReachesOthers
	}
	return o
}
