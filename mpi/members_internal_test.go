package mpi

import (
	"runtime"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// A program may split a communicator of goroutine ranks, close it, and split the result, any number of times.
func TestMembersOf_ParentIsClosed_ChildKeepsNoTable(t *testing.T) {
	freed := make(chan struct{})
	child := func() pml.Members {
		source := pml.NewMembers([]pml.Member{{Incarnation: framework.Incarnation{Nonce: 1}}, {Incarnation: framework.Incarnation{Nonce: 1}, Endpoint: 1}})
		parent := &table{Members: pml.NewMembersFrom(source, []pml.Member{source.Member(1), source.Member(0)})}
		runtime.AddCleanup(parent, func(freed chan struct{}) { close(freed) }, freed)
		members, _ := (&Comm{spec: pml.CommSpec{Members: parent}, membership: membership{group: &Group{members: memberList{mixed: make([]member, 2)}}}}).membersOf(cid.Extended{}, []int{1, 0})
		return members
	}()
	isFreed := false
	for range 1000 {
		runtime.GC()
		runtime.Gosched()
		select {
		case <-freed:
			isFreed = true
		default:
			continue
		}
		break
	}
	if !isFreed {
		t.Error("the table of the parent is kept")
	}
	if child.Member(1).Endpoint != 1 {
		t.Errorf("member 1 is %+v", child.Member(1))
	}
	runtime.KeepAlive(child)
}
