package cli_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/ferrympi/ferry/internal/cma/cmatest"
	"github.com/ferrympi/ferry/mpi"
)

// refused PROGRAM [ARGUMENT...] runs the program where process_vm_readv is refused.
func refused() {
	check(cmatest.Refuse())
	path, err := exec.LookPath(os.Args[1])
	check(err)
	check(syscall.Exec(path, os.Args[1:], os.Environ()))
}

// refusedLater exchanges large messages. After half of them, the kernel refuses system calls of rank 0 that it
// allowed before. All bytes must be right.
func refusedLater() {
	ctx := context.Background()
	session, err := mpi.OpenSession(ctx)
	check(err)
	world, err := session.Group(ctx, "mpi://WORLD")
	check(err)
	comm, err := mpi.CommFromGroup(ctx, world, "refused later")
	check(err)
	peer := 1 - comm.Rank()
	const messages, size = 60, 1<<20 + 8
	out, in := make([]byte, size), make([]byte, size)
	for i := range messages {
		if i == messages/2 && comm.Rank() == 0 {
			check(cmatest.Refuse())
		}
		for k := range out {
			out[k] = byte(k>>8 + i + comm.Rank())
		}
		clear(in)
		send, err := comm.Isend(out, peer, i)
		check(err)
		_, err = comm.Recv(ctx, in, peer, i)
		check(err)
		_, err = send.Wait(ctx)
		check(err)
		for k := range in {
			if in[k] != byte(k>>8+i+peer) {
				check(fmt.Errorf("message %d: byte %d is wrong", i, k))
			}
		}
	}
	check(comm.Close())
	check(session.Close())
	fmt.Println("all bytes are right")
}
