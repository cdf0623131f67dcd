package launch

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The command is `mpiexec -n 1 ferry run -n 4 ...`.
func TestEnviron_LauncherIsARank_RanksHaveTheirOwnIdentity(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	fd, err := unix.FcntlInt(r.Fd(), unix.F_DUPFD, 10) // inherited, as mpiexec's is
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	t.Setenv("PMI_FD", strconv.Itoa(fd))
	t.Setenv("PMI_RANK", "0")
	t.Setenv("PMIX_RANK", "0")
	t.Setenv("SLURM_PROCID", "1")
	t.Setenv("OMPI_COMM_WORLD_SIZE", "2")
	t.Setenv("FERRY_BOOTSTRAP_LOCAL_SINGLETON", "true")
	t.Setenv("SLURM_JOB_ID", "7")
	env := inherited("")
	for _, prefix := range []string{"PMI", "SLURM_PROCID", "OMPI_COMM_WORLD_SIZE"} {
		if i := slices.IndexFunc(env, func(e string) bool { return strings.HasPrefix(e, prefix) }); i >= 0 {
			t.Errorf("ranks get %s", env[i])
		}
	}
	// The last of equal names wins.
	if i, j := slices.Index(env, "FERRY_BOOTSTRAP_LOCAL_SINGLETON=true"), slices.Index(env, "FERRY_BOOTSTRAP_LOCAL_SINGLETON=false"); j < 0 || i > j {
		t.Error("ranks take themselves for singletons because their launcher is by itself")
	}
	if !slices.Contains(env, "SLURM_JOB_ID=7") {
		t.Error("ranks don't get what names no rank")
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("ranks inherit the descriptor: %v", err)
	}
}
