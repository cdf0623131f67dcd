package launch

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRanksAreNotTheRanksOfTheLaunchersOwnLauncher: `mpiexec -n 1 ferry run -n 4 ...`.
func TestRanksAreNotTheRanksOfTheLaunchersOwnLauncher(t *testing.T) {
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
	t.Setenv("SLURM_JOB_ID", "7")
	env := inherited()
	if i := slices.IndexFunc(env, func(e string) bool { return strings.HasPrefix(e, "PMI") }); i >= 0 {
		t.Errorf("ranks get %s", env[i])
	}
	if !slices.Contains(env, "SLURM_JOB_ID=7") {
		t.Error("ranks don't get what names no rank")
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("ranks inherit the descriptor: %v", err)
	}
}
