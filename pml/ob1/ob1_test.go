package ob1_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
)

func stack() pmltest.Stack {
	return pmltest.Stack{PML: ob1.Component(), BTLs: []btl.Component{self.Component(), shm.Component()}}
}

func TestSmoke(t *testing.T) {
	w, err := pmltest.NewWorld(stack(), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, pol := range []cid.Policy{cid.PolicyAgree, cid.PolicyGather, cid.PolicyLazy} {
		comms, err := w.Comm(pol)
		if err != nil {
			t.Fatal(err)
		}
		err = pmltest.Each(comms, func(rank int, c pml.Comm) error {
			for _, n := range []int{0, 1, 8, 100, 4096, 20000, 1 << 20} {
				buf := make([]byte, n)
				for i := range 50 {
					if rank == 0 {
						for j := range buf {
							buf[j] = byte(i + j)
						}
						if err := c.Send(context.Background(), pml.Buffer{Bytes: buf}, 1, i, pml.PointToPoint, pml.Standard); err != nil {
							return err
						}
						if _, err := c.Recv(context.Background(), pml.Buffer{}, 1, i, pml.PointToPoint); err != nil {
							return err
						}
					} else {
						st, err := c.Recv(context.Background(), pml.Buffer{Bytes: buf}, pml.AnySource, pml.AnyTag, pml.PointToPoint)
						if err != nil {
							return err
						}
						if st.Bytes != n || st.Tag != i {
							return fmt.Errorf("%+v", st)
						}
						for j := range buf {
							if buf[j] != byte(i+j) {
								return fmt.Errorf("byte %d of %d", j, n)
							}
						}
						if err := c.Send(context.Background(), pml.Buffer{}, 0, i, pml.PointToPoint, pml.Synchronous); err != nil {
							return err
						}
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
