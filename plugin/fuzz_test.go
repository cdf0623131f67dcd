package plugin

import (
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/ring"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/internal/doorbell"
	"github.com/ferrympi/ferry/plugin/internal/wire"
	"github.com/ferrympi/ferry/progress"
)

// FuzzRank puts arbitrary messages of a rank into the plugin's ring. The plugin ends or continues.
func FuzzRank(f *testing.F) {
	job := kittest.NewJob(1, 1)
	env := btl.Env{Env: job.Begin(0, progress.Options{})}
	f.Cleanup(env.Engine.Close)
	me := wire.CallerOf(env.Self, env.Worlds)
	target := wire.Target{Caller: me, Namespace: env.Identity.Proc.Namespace, Greeting: env.Greet(env.Self)}.Bytes()
	f.Add(byte(wire.Connect), byte(2), target, byte(wire.Frame), byte(2), []byte("frame"))
	f.Add(byte(wire.Connect), byte(2), target, byte(wire.Leave), byte(2), []byte{})
	f.Add(byte(wire.Connect), byte(2), target, byte(wire.Refuse), byte(1), []byte("why"))
	c := self.Component()
	f.Fuzz(func(t *testing.T, kind1, path1 byte, body1 []byte, kind2, path2 byte, body2 []byte) {
		s := &server{wakeFD: -1, env: env, outboundPaths: map[uint32]*outbound{}, inboundPaths: map[uint32]*inbound{}}
		s.env.Params, s.env.Upcall = c.Params(), s
		s.rankBell = doorbell.New()
		var err error
		if s.module, err = c.Open(t.Context(), s.env); err != nil {
			t.Fatal(err)
		}
		toPlugin, in := ring.New(64)
		out, toRank := ring.New(64)
		s.fromRank, s.toRank = in, out
		env.Engine.Lock()
		for _, x := range []struct {
			kind, path byte
			body       []byte
		}{{kind1, path1, body1}, {kind2, path2, body2}} {
			b := toPlugin.Reserve(wire.Prefix + min(len(x.body), wire.FrameLimit(64)))
			wire.Put(b, uint32(x.kind), uint32(x.path))
			copy(b[wire.Prefix:], x.body)
			toPlugin.Commit(len(b))
		}
		for range 4 {
			s.Poll()
			s.module.Poll()
		}
		for b, err := toRank.Next(); b != nil; b, err = toRank.Next() {
			if kind, _, _, wrong := wire.Take(b); err != nil || wrong != nil || kind < wire.Frame || kind > wire.Ended {
				t.Errorf("tells the rank %x: %v %v", b, err, wrong)
			}
			toRank.Release()
		}
		env.Engine.Unlock()
		if err := s.module.Close(); err != nil {
			t.Error(err)
		}
	})
}
