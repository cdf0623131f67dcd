package mpi

import "github.com/ferrympi/ferry/framework"

// badMessage returns the error for an invalid message of a member.
func badMessage(from Proc, err error) error {
	return &framework.TransportError{Component: "mpi", Peer: from.String(), Op: "receive", Err: err}
}
