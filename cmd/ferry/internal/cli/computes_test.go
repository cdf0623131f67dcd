package cli_test

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/doorbell"
	"github.com/ferrympi/ferry/mpi"
)

// computes sends a large message from rank 0, which then computes without a call until rank 1
// has the message, or for a time limit. COMPUTES is a file through which rank 1 reports
// that. testdata/computes.txt runs it without Go's preemption.
func computes() {
	f, err := os.OpenFile(os.Getenv("COMPUTES"), os.O_RDWR|os.O_CREATE, 0o600)
	check(err)
	check(f.Truncate(4096))
	mem, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	check(err)
	came := doorbell.At(mem) // A shared word, on which no process sleeps.

	ctx := context.Background()
	session, err := mpi.OpenSession(ctx)
	check(err)
	world, err := session.Group(ctx, "mpi://WORLD")
	check(err)
	comm, err := mpi.CommFromGroup(ctx, world, "computes")
	check(err)
	check(mpi.Barrier(ctx, comm))
	buf := make([]byte, 4<<20) // more than a ring holds
	if comm.Rank() == 1 {
		_, err := comm.Recv(ctx, buf, 0, 0)
		check(err)
		came.Arm()
	} else {
		q, err := comm.Isend(buf, 1, 0)
		check(err)
		meanwhile := false
		for range int64(1) << 34 { // some ten seconds
			if meanwhile = came.Armed(); meanwhile {
				break
			}
		}
		fmt.Println("received while the sender computed:", meanwhile)
		_, err = q.Wait(ctx)
		check(err)
	}
	check(comm.Close())
	check(session.Close())
}
