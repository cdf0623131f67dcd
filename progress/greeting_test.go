package progress

import (
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

func greeter(namespace string, rank uint32, nonce uint64) Env {
	return Env{
		Identity: bootstrap.Identity{Proc: framework.Proc{Namespace: namespace, Rank: rank}},
		Worlds:   framework.NewWorlds(namespace),
		Self:     framework.Incarnation{ID: framework.MakeProcID(0, rank), Nonce: nonce},
	}
}

// FuzzGreeted checks that a greeting without the nonce of this incarnation is refused.
func FuzzGreeted(f *testing.F) {
	me, peer := greeter("job", 1, 77), greeter("job", 2, 88)
	if who, err := me.Greeted(peer.Greet(me.Self)); err != nil || who != peer.Self {
		f.Fatalf("a peer's greeting: %v, %v", who, err)
	}
	f.Add(peer.Greet(framework.Incarnation{Nonce: 78}))
	f.Add(greeter("another job", 2, 88).Greet(me.Self))
	f.Add(greeter("job", 2, 0).Greet(me.Self))
	f.Add([]byte(nil))
	honest := string(peer.Greet(me.Self)[:16])
	f.Fuzz(func(t *testing.T, b []byte) {
		who, err := me.Greeted(b)
		if err == nil && (len(b) != GreetingSize || string(b[:16]) != honest || who.Nonce == 0) {
			t.Errorf("%x is taken for %v", b, who)
		}
	})
}
