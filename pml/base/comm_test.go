package base

import (
	"errors"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// TestGroupWithSeveralMembersOfThisProcessIsRefused: their messages would mix.
func TestGroupWithSeveralMembersOfThisProcessIsRefused(t *testing.T) {
	self, other := framework.Life{ID: 1, Nonce: 1}, framework.Life{ID: 2, Nonce: 2}
	for _, c := range []struct {
		what  string
		group []pml.Member
		want  error
	}{
		{"two processes", []pml.Member{{Life: self}, {Life: other}}, nil},
		{"this process twice", []pml.Member{{Life: self}, {Life: self, Endpoint: 1}}, framework.ErrUnsupported},
		{"an endpoint of another one", []pml.Member{{Life: self}, {Life: other, Endpoint: 1}}, framework.ErrUnsupported},
		{"another process's rank", []pml.Member{{Life: other}, {Life: self}}, framework.ErrGroup},
		{"nobody", nil, framework.ErrGroup},
	} {
		if err := check("test", &pml.CommSpec{Group: c.group}, self); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
}
