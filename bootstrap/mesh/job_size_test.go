package mesh

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// fixedIdentityLauncher is a launcher with another identity.
type fixedIdentityLauncher struct {
	launcher
	rank uint32
	size int
}

func (l fixedIdentityLauncher) Identity() bootstrap.Identity {
	return bootstrap.Identity{Proc: framework.Proc{Namespace: "oversized", Rank: l.rank}, Size: l.size}
}

// With more processes, two coordinators would draw the same context ids.
func TestOpen_JobOverTheLimit_IsErrConfig(t *testing.T) {
	for _, l := range []fixedIdentityLauncher{{size: 0}, {size: wire.MaxElements + 1}, {rank: 4, size: 4}, {rank: wire.MaxElements, size: wire.MaxElements}} {
		if _, err := Open(t.Context(), bootstrap.Env{}, l); !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d of a job of %d processes", l.rank, l.size)) || !strings.HasSuffix(err.Error(), "want 1 to 1048576") {
			t.Errorf("rank %d of %d: %v", l.rank, l.size, err)
		}
	}
	if err := checkJob(fixedIdentityLauncher{rank: wire.MaxElements - 1, size: wire.MaxElements}.Identity()); err != nil {
		t.Errorf("the largest job: %v", err)
	}
}
