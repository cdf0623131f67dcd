package coll_test

import (
	"errors"
	"testing"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
)

func TestOpenInstance_NothingOpened_ReturnsErrConfig(t *testing.T) {
	o := coll.ComponentOffer{Component: "breach", Offer: &coll.Offer{Open: func(coll.Env) (coll.Instance, error) { return nil, nil }}}
	if x, err := o.OpenInstance(coll.Env{}); x != nil || !errors.Is(err, framework.ErrConfig) {
		t.Errorf("%v, %v", x, err)
	}
	cause := errors.New("cause")
	o.Open = func(coll.Env) (coll.Instance, error) { return nil, cause }
	if _, err := o.OpenInstance(coll.Env{}); !errors.Is(err, cause) || errors.Is(err, framework.ErrConfig) {
		t.Errorf("the component's own error is %v", err)
	}
}
